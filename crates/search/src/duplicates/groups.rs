//! Conversion of sets of similar vectors to groups with ids and texts.

use std::{cmp::Reverse, collections::HashSet};

use super::{DuplicateOptions, Duplicates, Group, Member, UnionFind};
use turnwise_core::{DialogueId, Result, TurnNo, vectors::cosine};
use turnwise_index::dense::{DistinctVectors, Owner};

/// Maximum number of ids per [`Member`].
const MAX_IDS: usize = 3;

/// A connected component of vectors, with the items that have these vectors (their owners).
struct Component {
    /// Numbers of the vectors.
    points: Vec<usize>,
    /// Number of owners, that is, of items that have one of these vectors.
    size: u64,
    /// Of the owners that were in the index at the last build of the graphs, the owner with the greatest id. Rows are
    /// sorted by descending id, so this owner has the smallest row.
    first_built: Option<Owner>,
    /// Of the owners that were added after the last build of the graphs, the owner with the greatest id.
    first_recent: Option<Owner>,
}

pub(super) fn gather(
    sweep: &DistinctVectors<'_>,
    mut joined: UnionFind,
    wanted: &DuplicateOptions<'_>,
) -> Result<Duplicates> {
    let mut sets: Vec<(usize, usize)> = (0..sweep.len()).map(|point| (joined.root(point), point)).collect();
    sets.sort_unstable();
    let mut looked_at = 0;
    let mut all = Vec::new();
    for set in sets.chunk_by(|a, b| a.0 == b.0) {
        let found = Component::of(sweep, set.iter().map(|(_, point)| *point).collect());
        looked_at += found.size;
        if found.size > 1 {
            all.push(found);
        }
    }
    let (groups_found, in_groups) = (all.len() as u64, all.iter().map(|found| found.size).sum());
    // Components without recent owners are first sorted by size and row, and truncated. So the ids of most components
    // need not be read.
    let (mut built, mut rest): (Vec<Component>, Vec<Component>) =
        all.into_iter().partition(|found| found.first_recent.is_none());
    built.sort_by_key(|found| (Reverse(found.size), found.first_built));
    built.truncate(wanted.limit);
    rest.append(&mut built);
    let mut named = Vec::with_capacity(rest.len());
    for found in rest {
        named.push((found.greatest(sweep)?, found));
    }
    named
        .sort_by(|(id, found), (other_id, other)| other.size.cmp(&found.size).then_with(|| other_id.cmp(id)));
    named.truncate(wanted.limit);
    let groups =
        named.into_iter().map(|(_, found)| found.group(sweep, wanted.shown.max(1))).collect::<Result<_>>()?;
    Ok(Duplicates { looked_at, different: sweep.len() as u64, exact: false, groups_found, in_groups, groups })
}

impl Component {
    fn of(sweep: &DistinctVectors<'_>, points: Vec<usize>) -> Self {
        let mut found = Component { points, size: 0, first_built: None, first_recent: None };
        for point in &found.points {
            for owner in sweep.owners(*point) {
                found.size += 1;
                match owner {
                    Owner::Built { .. } => {
                        found.first_built = Some(found.first_built.map_or(owner, |first| first.min(owner)));
                    }
                    Owner::Recent { .. } => {
                        let id = |owner: &Owner| (sweep.id(owner), owner.turn());
                        if found.first_recent.is_none_or(|first| id(&first) < id(&owner)) {
                            found.first_recent = Some(owner);
                        }
                    }
                }
            }
        }
        found
    }

    /// Returns the greatest id of the owners: a dialogue id, and for an utterance also its turn number. Returns `None`
    /// if the dialogues of the owners no longer exist.
    fn greatest(&self, sweep: &DistinctVectors<'_>) -> Result<Option<(DialogueId, Option<TurnNo>)>> {
        let owners = self.first_built.iter().chain(&self.first_recent);
        owners.map(|owner| id_of(sweep, owner)).try_fold(None, |greatest, id| Ok(greatest.max(id?)))
    }

    fn group(self, sweep: &DistinctVectors<'_>, shown: usize) -> Result<Group> {
        let owners: Vec<Vec<Owner>> = self.points.iter().map(|point| sweep.owners(*point)).collect();
        let dialogues: HashSet<(bool, u32)> = owners
            .iter()
            .flatten()
            .map(|owner| match owner {
                Owner::Built { place, .. } => (true, *place),
                Owner::Recent { place, .. } => (false, *place),
            })
            .collect();
        let mut order: Vec<usize> = (0..owners.len()).collect();
        // The vector with the most owners represents the group. Ties are broken by the number of the vector, so the
        // result is deterministic.
        order.sort_by_key(|n| (Reverse(owners[*n].len()), self.points[*n]));
        let mut first = Vec::new();
        if let Some(n) = order.first() {
            sweep.vector(self.points[*n], &mut first)?;
        }
        let mut members = Vec::new();
        for n in order.into_iter().take(shown) {
            let mut vector = Vec::new();
            sweep.vector(self.points[n], &mut vector)?;
            members.extend(member(sweep, &owners[n], cosine(&first, &vector))?);
        }
        let different = self.points.len() as u64;
        Ok(Group { size: self.size, dialogues: dialogues.len() as u64, different, members })
    }
}

fn id_of(sweep: &DistinctVectors<'_>, owner: &Owner) -> Result<Option<(DialogueId, Option<TurnNo>)>> {
    let id = match sweep.id(owner) {
        Some(id) => Some(id.clone()),
        None => sweep.dialogue(owner)?.map(|dialogue| dialogue.id),
    };
    Ok(id.map(|id| (id, owner.turn())))
}

/// Creates the member for one vector. `owners` are the items that have this vector. Returns `None` if these items no
/// longer exist.
fn member(sweep: &DistinctVectors<'_>, owners: &[Owner], similarity: f32) -> Result<Option<Member>> {
    let mut ids = Vec::new();
    // Built owners are sorted by descending id, so only the first `MAX_IDS` are needed. Recent owners are not sorted,
    // but there are few of them, so all ids are read.
    let mut built = 0;
    for owner in owners {
        let is_built = matches!(owner, Owner::Built { .. });
        built += usize::from(is_built);
        if !is_built || built <= MAX_IDS {
            ids.extend(id_of(sweep, owner)?.map(|id| (id, *owner)));
        }
    }
    ids.sort_by(|(a, _), (b, _)| b.cmp(a));
    let Some((_, first)) = ids.first() else { return Ok(None) };
    let Some(dialogue) = sweep.dialogue(first)? else { return Ok(None) };
    let text = match first.turn() {
        Some(turn) => dialogue.turns.iter().find(|t| t.number == turn).map_or("", |t| t.text.as_str()),
        None => dialogue.opening().map_or("", |t| t.text.as_str()),
    };
    let name = |((id, turn), _): &((DialogueId, Option<TurnNo>), Owner)| match turn {
        Some(turn) => format!("{id}#{turn}"),
        None => id.to_string(),
    };
    Ok(Some(Member {
        count: owners.len() as u64,
        similarity,
        ids: ids.iter().take(MAX_IDS).map(name).collect(),
        text: text.to_owned(),
        turns: first.turn().is_none().then_some(dialogue.turns.len()),
        title: dialogue.title,
    }))
}
