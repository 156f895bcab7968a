//! HNSW graph in memory, between building and freezing.

/// Marks an unused entry at the end of a neighbor list.
pub(crate) const NONE: u32 = u32::MAX;

/// HNSW graph over nodes 0, 1, …. Nodes are sorted by level, the highest first, so the nodes of a level are always
/// the first ones.
pub(crate) struct Graph {
    /// The builder's number (row of codes) of each node.
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

    /// Returns the neighbors of a node.
    pub(crate) fn of(&self, node: u32) -> &[u32] {
        let list = &self.flat[node as usize * self.width..][..self.width];
        &list[..list.iter().position(|n| *n == NONE).unwrap_or(list.len())]
    }

    pub(crate) fn of_mut(&mut self, node: u32) -> &mut [u32] {
        &mut self.flat[node as usize * self.width..][..self.width]
    }
}

/// A point's level, and its neighbors (as points) on each level.
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
