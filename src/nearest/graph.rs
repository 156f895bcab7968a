//! A graph in memory, as builders leave it and before it is frozen.

/// No neighbour: fills the end of a list of fixed length.
pub(crate) const NONE: u32 = u32::MAX;

/// A hierarchical graph over nodes 0, 1, …; nodes are in the order of falling levels, so that those of a level are the
/// first ones.
pub(crate) struct Graph {
    /// The point of each node, as the builder numbers them.
    pub(crate) points: Vec<u32>,
    /// The lists of each level, the whole one first.
    pub(crate) levels: Vec<Links>,
}

/// Neighbour lists of fixed length, one a node of the level.
pub(crate) struct Links {
    pub(crate) width: usize,
    pub(crate) flat: Vec<u32>,
}

impl Links {
    pub(crate) fn empty(nodes: usize, width: usize) -> Self {
        Links { width, flat: vec![NONE; nodes * width] }
    }

    /// The neighbours of a node.
    pub(crate) fn of(&self, node: u32) -> &[u32] {
        let list = &self.flat[node as usize * self.width..][..self.width];
        &list[..list.iter().position(|n| *n == NONE).unwrap_or(list.len())]
    }

    pub(crate) fn of_mut(&mut self, node: u32) -> &mut [u32] {
        &mut self.flat[node as usize * self.width..][..self.width]
    }
}

/// A node as a builder knows it: its level, and its neighbours on each, by point.
pub(crate) struct Built {
    pub(crate) level: usize,
    pub(crate) neighbours: Vec<Vec<u32>>,
}

impl Graph {
    pub(crate) fn len(&self) -> usize {
        self.points.len()
    }

    /// The same graph with other numbers: within each level nodes are in the order in which `rows` has their points.
    pub(crate) fn renumbered(&self, rows: &[u32]) -> Self {
        let mut place = vec![0u32; rows.len()];
        for (at, row) in rows.iter().enumerate() {
            place[*row as usize] = at as u32;
        }
        let nodes_of = |links: &Links| links.flat.len() / links.width;
        // The old numbers in their new order. Nodes of a level are the first ones, in both.
        let mut old: Vec<u32> = (0..self.len() as u32).collect();
        let mut begun = 0;
        for links in self.levels.iter().rev() {
            let end = nodes_of(links);
            old[begun..end].sort_unstable_by_key(|node| place[self.points[*node as usize] as usize]);
            begun = end;
        }
        let mut new = vec![0u32; old.len()];
        for (at, node) in old.iter().enumerate() {
            new[*node as usize] = at as u32;
        }
        let levels = self.levels.iter().map(|links| {
            let mut renumbered = Links::empty(nodes_of(links), links.width);
            for node in 0..nodes_of(links) as u32 {
                let neighbours = links.of(old[node as usize]).iter();
                for (place, neighbour) in renumbered.of_mut(node).iter_mut().zip(neighbours) {
                    *place = new[*neighbour as usize];
                }
            }
            renumbered
        });
        let levels = levels.collect();
        Graph { points: old.iter().map(|node| self.points[*node as usize]).collect(), levels }
    }

    /// Puts nodes into their order. `built` is by point; `m` neighbours are kept a level, twice as many on the whole one.
    pub(crate) fn assemble(built: &[Built], m: usize) -> Self {
        let mut points: Vec<u32> = (0..built.len() as u32).collect();
        // Stable: within a level the order of the points stays.
        points.sort_by_key(|p| std::cmp::Reverse(built[*p as usize].level));
        let mut node_of = vec![0u32; built.len()];
        for (node, point) in points.iter().enumerate() {
            node_of[*point as usize] = node as u32;
        }
        let top = built.iter().map(|b| b.level).max().unwrap_or(0);
        let levels = (0..=top).map(|level| {
            let nodes = points.iter().take_while(|p| built[**p as usize].level >= level).count();
            let mut links = Links::empty(nodes, if level == 0 { 2 * m } else { m });
            for node in 0..nodes as u32 {
                let lists = &built[points[node as usize] as usize].neighbours;
                let wanted = lists.get(level).into_iter().flatten();
                let wanted = wanted.map(|point| node_of[*point as usize]);
                // A neighbour that is not on this level cannot be gone to, and nobody is his own.
                let wanted = wanted.filter(|n| (*n as usize) < nodes && *n != node);
                for (place, neighbour) in links.of_mut(node).iter_mut().zip(wanted) {
                    *place = neighbour;
                }
            }
            links
        });
        let levels = levels.collect();
        Graph { points, levels }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_numbers_are_the_same_graph() {
        // Point p is on level 1 if 4 divides it, and is linked with what lies 1, 2 and 3 behind it on each level.
        let built: Vec<Built> = (0..40u32)
            .map(|p| {
                let level = usize::from(p % 4 == 0);
                let behind = |step: u32| (1..=3).map(|n| (p + n * step) % 40).collect();
                Built { level, neighbours: [1, 4][..=level].iter().map(|step| behind(*step)).collect() }
            })
            .collect();
        let graph = Graph::assemble(&built, 2);
        let rows: Vec<u32> = (0..40).map(|n| n * 23 % 40).collect();
        let other = graph.renumbered(&rows);
        let links = |graph: &Graph, level: usize| {
            let of = |node: u32| {
                let neighbours = graph.levels[level].of(node).iter();
                let neighbours: Vec<u32> = neighbours.map(|n| graph.points[*n as usize]).collect();
                (graph.points[node as usize], neighbours)
            };
            let nodes = graph.levels[level].flat.len() / graph.levels[level].width;
            (0..nodes as u32).map(of).collect::<std::collections::BTreeMap<_, _>>()
        };
        for level in 0..2 {
            assert_eq!(links(&graph, level), links(&other, level));
        }
        let place = |point: &u32| (point % 4 != 0, rows.iter().position(|row| row == point));
        assert!(other.points.is_sorted_by_key(place), "{:?}", other.points);
        assert_ne!(graph.points, other.points);
    }
}
