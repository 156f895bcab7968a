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
