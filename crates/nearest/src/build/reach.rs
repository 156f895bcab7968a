//! Repairs connectivity: makes all nodes reachable from node 0.

use crate::{
    build::Codes,
    graph::{Graph, NONE},
};

/// Links the nodes that cannot be reached from node 0 on level 0. Each is added to the list of the nearest reachable
/// node that has a free entry, or an entry that can be replaced because its neighbor is also reachable on another
/// path.
pub(super) fn repair(graph: &mut Graph, codes: &Codes) {
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
        // There is always such an entry: a tree over r nodes needs r − 1 entries, and each node has several.
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

/// Graph traversal.
struct Traversal {
    reached: Vec<bool>,
    /// Entries by which a node was reached first. They form a spanning tree and must not be replaced.
    needed: Vec<bool>,
    waiting: Vec<u32>,
}

impl Traversal {
    /// Marks all nodes that can be reached from a node.
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

    /// Returns the entry of a node's list for another neighbor: the first free one, else the last one that is not
    /// needed.
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
    use super::*;
    use crate::{Metric, Points, distances::Dispatch, graph::Links};

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
