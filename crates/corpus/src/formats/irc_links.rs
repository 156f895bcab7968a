//! Reply links of an annotated IRC log.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::formats::{
    Problem,
    support::{self, RecordError},
};
use turnwise_core::error::Result;

/// Parses a line of an annotation, such as `1002 1003 -`. Returns the two linked messages, the earlier one first.
pub(super) fn link(line: &str) -> Option<(u64, u64)> {
    let mut parts = line.split_whitespace();
    let (a, b) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    matches!((parts.next(), parts.next()), (None | Some("-"), None))
        .then_some((std::cmp::min(a, b), std::cmp::max(a, b)))
}

/// Graph of reply links between messages.
#[derive(Default)]
pub(super) struct Links {
    /// For each linked message, the first line of the annotation that mentions it.
    pub(super) named: BTreeMap<u64, u64>,
    pub(super) neighbors: BTreeMap<u64, Vec<u64>>,
    /// The first annotated message. Earlier messages are only link targets.
    pub(super) first: Option<u64>,
}

impl Links {
    /// Reads an annotation file. Invalid lines are added to `problems`.
    pub(super) fn read(path: &Path, problems: &mut Vec<Problem>) -> Result<Self> {
        let mut links = Links::default();
        for (number, line) in (1..).zip(support::read_companion(path)?.lines()) {
            if line.trim().is_empty() {
                continue;
            }
            let Some((earlier, later)) = link(line) else {
                let reason =
                    "this is not a reply link; a link is two message numbers and a dash: 1002 1003 -";
                problems.push(RecordError::new(reason).at(&path.display().to_string(), number));
                continue;
            };
            links.first = Some(links.first.map_or(later, |first| first.min(later)));
            for (a, b) in [(earlier, later), (later, earlier)] {
                links.named.entry(a).or_insert(number);
                links.neighbors.entry(a).or_default().push(b);
            }
        }
        Ok(links)
    }

    /// Returns the conversations: the connected components of the graph, sorted by their first messages.
    pub(super) fn conversations(&self) -> Vec<BTreeSet<u64>> {
        let mut seen = BTreeSet::new();
        let mut conversations = Vec::new();
        for &start in self.neighbors.keys() {
            let mut conversation = BTreeSet::new();
            let mut open = vec![start];
            while let Some(message) = open.pop() {
                if seen.insert(message) {
                    conversation.insert(message);
                    open.extend(self.neighbors.get(&message).into_iter().flatten());
                }
            }
            if !conversation.is_empty() {
                conversations.push(conversation);
            }
        }
        conversations
    }
}
