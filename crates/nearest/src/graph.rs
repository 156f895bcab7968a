//! HNSW graph in memory, and a repair that makes all its nodes reachable.

use crate::build::Codes;

/// Marks an unused entry at the end of a neighbor list.
pub(crate) const NONE: u32 = u32::MAX;

/// HNSW graph. Nodes are numbered by descending level, so a level with n nodes has the nodes 0 to n − 1.
pub(crate) struct Graph {
    /// For each node, the number of its row in [`Codes`].
    pub(crate) points: Vec<u32>,
    /// Neighbor lists of each level. Level 0, which has all nodes, comes first.
    pub(crate) levels: Vec<Links>,
}

/// Neighbor lists of a level: one list of fixed length per node.
pub(crate) struct Links {
    pub(crate) width: usize,
    pub(crate) flat: Vec<u32>,
}

impl Links {
    pub(crate) fn empty(nodes: usize, width: usize) -> Self {
        Links { width, flat: vec![NONE; nodes * width] }
    }

    pub(crate) fn of(&self, node: u32) -> &[u32] {
        let list = &self.flat[node as usize * self.width..][..self.width];
        &list[..list.iter().position(|n| *n == NONE).unwrap_or(list.len())]
    }

    pub(crate) fn of_mut(&mut self, node: u32) -> &mut [u32] {
        &mut self.flat[node as usize * self.width..][..self.width]
    }
}

/// The highest level of a point, and its neighbors on each level, starting at level 0. Neighbors are point numbers.
pub(crate) struct BuiltNode {
    pub(crate) level: usize,
    pub(crate) neighbors: Vec<Vec<u32>>,
}

impl Graph {
    pub(crate) fn len(&self) -> usize {
        self.points.len()
    }

    /// Builds the graph from the levels and neighbors of all points. A list keeps at most `m` neighbors, or `2 · m`
    /// on level 0.
    pub(crate) fn assemble(built: &[BuiltNode], m: usize) -> Self {
        let mut points: Vec<u32> = (0..built.len() as u32).collect();
        // The sort is stable: points of the same level keep their order.
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
                let lists = &built[points[node as usize] as usize].neighbors;
                let wanted = lists.get(level).into_iter().flatten();
                let wanted = wanted.map(|point| node_of[*point as usize]);
                // Leaves out neighbors that are not on this level, and the node itself.
                let wanted = wanted.filter(|n| (*n as usize) < nodes && *n != node);
                for (place, neighbor) in links.of_mut(node).iter_mut().zip(wanted) {
                    *place = neighbor;
                }
            }
            links
        });
        let levels = levels.collect();
        Graph { points, levels }
    }
}

/// Adds links to level 0 of a graph, until all nodes can be reached from node 0.
///
/// An unreachable node is added to the list of the nearest reachable node that has a free or a redundant entry. An
/// entry is redundant if its neighbor can also be reached on another path.
pub(crate) fn repair(graph: &mut Graph, codes: &Codes) {
    let n = graph.len();
    if n == 0 {
        return;
    }
    let mut walk = Traversal {
        reached: vec![false; n],
        needed: vec![false; graph.levels[0].flat.len()],
        waiting: Vec::new(),
    };
    walk.reach(graph, 0);
    for node in 1..n as u32 {
        if walk.reached[node as usize] {
            continue;
        }
        let nearest = (0..n as u32)
            .filter(|other| walk.reached[*other as usize])
            .filter_map(|other| Some((other, walk.entry(graph, other)?)))
            .map(|(other, place)| {
                (codes.distance(graph.points[node as usize], graph.points[other as usize]), other, place)
            })
            .min_by(|a, b| a.0.total_cmp(&b.0));
        // There is always a usable entry: a tree over r nodes needs r − 1 entries, and each node has several.
        if let Some((_, _, place)) = nearest {
            graph.levels[0].flat[place] = node;
            walk.needed[place] = true;
            walk.reach(graph, node);
        }
    }
}

/// Returns the number of nodes that can be reached from node 0 on level 0.
#[cfg(test)]
pub(crate) fn reachable(graph: &Graph) -> usize {
    let mut walk = Traversal {
        reached: vec![false; graph.len()],
        needed: vec![false; graph.levels[0].flat.len()],
        waiting: Vec::new(),
    };
    walk.reach(graph, 0);
    walk.reached.iter().filter(|r| **r).count()
}

struct Traversal {
    reached: Vec<bool>,
    /// For each list entry, whether the traversal first reached a node through this entry. Such entries form a spanning
    /// tree.
    needed: Vec<bool>,
    /// Reached nodes whose neighbors have not been visited yet.
    waiting: Vec<u32>,
}

impl Traversal {
    /// Visits the node `from`, and all nodes that can be reached from it and have not been visited yet.
    fn reach(&mut self, graph: &Graph, from: u32) {
        let links = &graph.levels[0];
        self.reached[from as usize] = true;
        self.waiting.push(from);
        while let Some(node) = self.waiting.pop() {
            let start = node as usize * links.width;
            for (place, neighbor) in links.of(node).iter().enumerate() {
                if !self.reached[*neighbor as usize] {
                    self.reached[*neighbor as usize] = true;
                    self.needed[start + place] = true;
                    self.waiting.push(*neighbor);
                }
            }
        }
    }

    /// Returns the index in [`Links::flat`] of the entry for a new neighbor of a node: the first free entry of its
    /// list, else the last entry that is not in `needed`. Returns `None` if all entries are in `needed`.
    fn entry(&self, graph: &Graph, node: u32) -> Option<usize> {
        let links = &graph.levels[0];
        let places = node as usize * links.width..(node as usize + 1) * links.width;
        places
            .clone()
            .find(|place| links.flat[*place] == NONE)
            .or_else(|| places.rev().find(|place| !self.needed[*place]))
    }
}

#[cfg(test)]
mod tests {
    use super::Links;
    use super::*;
    use crate::{Metric, Points, distances::Dispatch};

    #[test]
    fn unreachable_groups_are_linked_from_the_nearest_node() {
        let vectors: Vec<[f32; 1]> = (0..12).map(|i| [i as f32]).collect();
        let mut points = Points::new(Metric::L2, 1).unwrap();
        for (i, vector) in vectors.iter().enumerate() {
            points.push(i as u32, vector).unwrap();
        }
        let order: Vec<u32> = (0..12).collect();
        let codes = Codes::new(&points, &order, Dispatch::portable());
        // Nodes 0…5, 6…8 and 9…11 form three separate rings.
        let mut links = Links::empty(12, 2);
        for node in 0..12u32 {
            let (start, size) = if node < 6 {
                (0, 6)
            } else if node < 9 {
                (6, 3)
            } else {
                (9, 3)
            };
            let turned = |by: u32| start + (node - start + by) % size;
            links.of_mut(node).copy_from_slice(&[turned(1), turned(size - 1)]);
        }
        let mut graph = Graph { points: (0..12).collect(), levels: vec![links] };
        assert_eq!(reachable(&graph), 6);
        repair(&mut graph, &codes);
        assert_eq!(reachable(&graph), 12);
        assert!(graph.levels[0].flat.iter().all(|n| *n < 12));
    }
}
