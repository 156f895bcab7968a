//! From candidates to hits: records are read for those that are shown, and for what ties with them.

use std::{cell::Cell, collections::HashMap};

use super::{
    explain::Explanation,
    fuse::FusedCandidate,
    query::Query,
    request::{Fusion, Group, Mode, SearchRequest},
    response::Hit,
};
use turnwise_core::{error::Result, ids::IdKey, vectors::cosine};
use turnwise_corpus::{Dialogue, Turn};
use turnwise_index::{
    engine::{Ahead, Candidate, Engine, View},
    vectors::Kind,
};

/// Making hits.
pub(super) struct Hits<'a> {
    pub(super) engine: &'a dyn Engine,
    pub(super) view: &'a dyn View,
    pub(super) request: &'a SearchRequest,
    pub(super) query: &'a Query,
    pub(super) mode: Mode,
    pub(super) fusion: Fusion,
    /// How many were left out because they were not good enough.
    pub(super) too_low: &'a Cell<usize>,
}

/// A candidate whose record has been read.
struct Read {
    candidate: FusedCandidate,
    dialogue: Dialogue,
    /// The place of the turn in the dialogue.
    at: Option<usize>,
}

impl Hits<'_> {
    /// The hits of candidates that are in the order of their scores.
    pub(super) fn of(&self, ranked: Vec<FusedCandidate>) -> Result<Vec<Hit>> {
        let wanted = self.request.offset + self.request.k;
        self.fetch_ahead(&ranked, wanted)?;
        let mut shown: Vec<Hit> = Vec::new();
        // Which hit stands for a dialogue, where there is one for each.
        let mut groups: HashMap<IdKey, usize> = HashMap::new();
        let mut ranked = ranked.into_iter().peekable();
        while let Some(first) = ranked.next() {
            let mut ties = vec![first];
            while let Some(next) = ranked.next_if(|next| next.score == first.score) {
                ties.push(next);
            }
            if shown.len() >= wanted {
                // Only how many more there are of a group is still to be learnt.
                ties.iter().for_each(|tie| count(&groups, &mut shown, tie));
                if self.request.group.is_none() {
                    break;
                }
                continue;
            }
            for read in self.in_order(ties)? {
                let group = self.request.group.map(|Group::Dialogue| read.candidate.dialogue);
                if let Some(group) = group
                    && groups.contains_key(&group)
                {
                    count(&groups, &mut shown, &read.candidate);
                    continue;
                }
                if shown.len() < wanted
                    && let Some(hit) = self.hit(read)?
                {
                    if let Some(group) = group {
                        groups.insert(group, shown.len());
                    }
                    shown.push(hit);
                }
            }
        }
        Ok(shown.split_off(self.request.offset.min(shown.len())))
    }

    /// Says what will be read of the best: as many as are wanted, and what others are like, which is left out.
    fn fetch_ahead(&self, ranked: &[FusedCandidate], wanted: usize) -> Result<()> {
        let best: Vec<Candidate> = ranked.iter().take(wanted + 1).map(FusedCandidate::found).collect();
        self.view.ahead(self.query.kind, &best, Ahead::Records)?;
        match (self.query.kind, &self.query.vector) {
            (Kind::Dialogues, Some(_)) => self.view.ahead(self.query.kind, &best, Ahead::Turns),
            _ => Ok(()),
        }
    }

    /// Reads the records of equally good ones; ids descending.
    fn in_order(&self, ties: Vec<FusedCandidate>) -> Result<Vec<Read>> {
        let mut all = Vec::with_capacity(ties.len());
        for candidate in ties {
            let itself = self.query.itself == Some((candidate.dialogue, candidate.turn));
            let Some((seq, dialogue)) = self.view.record(candidate.dialogue)? else { continue };
            // What was replaced since is found as what it is now, or not at all.
            if itself || seq != candidate.seq {
                continue;
            }
            let at = match candidate.turn {
                None => None,
                Some(turn) => match dialogue.turns.iter().position(|t| t.number == turn) {
                    Some(at) => Some(at),
                    None => continue,
                },
            };
            all.push(Read { candidate, dialogue, at });
        }
        all.sort_by(|a, b| b.dialogue.id.cmp(&a.dialogue.id).then(b.candidate.turn.cmp(&a.candidate.turn)));
        Ok(all)
    }

    /// The hit of a candidate, unless it is not good enough.
    fn hit(&self, read: Read) -> Result<Option<Hit>> {
        let Read { candidate, dialogue, at } = read;
        let too_low = || self.too_low.set(self.too_low.get() + 1);
        if self.request.min_score.is_some_and(|least| candidate.score < least) {
            too_low();
            return Ok(None);
        }
        let percentile = self.percentile(&candidate, &dialogue, at)?;
        if self.request.min_percentile.is_some_and(|least| percentile.is_none_or(|p| p < least)) {
            too_low();
            return Ok(None);
        }
        let explanation =
            self.request.explain.then(|| self.explanation(&candidate, &dialogue)).transpose()?;
        let turns = at.is_none().then_some(dialogue.turns.len());
        let at = match at {
            Some(at) => at,
            None => self.best_turn(&dialogue)?,
        };
        let window = self.request.window;
        let id = match candidate.turn {
            Some(turn) => dialogue.utterance_id(turn).to_string(),
            None => dialogue.id.to_string(),
        };
        Ok(Some(Hit {
            score: candidate.score,
            percentile,
            id,
            before: dialogue.turns[at.saturating_sub(window)..at].to_vec(),
            after: dialogue.turns.iter().skip(at + 1).take(window).cloned().collect(),
            matched: Vec::new(),
            turn: dialogue.turns[at].clone(),
            dialogue: dialogue.id.to_string(),
            title: dialogue.title,
            domains: dialogue.domains,
            turns,
            more: self.request.group.map(|_| 0),
            explanation,
        }))
    }

    /// How many percent of random pairs are less near to each other than this is to the query.
    fn percentile(
        &self,
        candidate: &FusedCandidate,
        dialogue: &Dialogue,
        at: Option<usize>,
    ) -> Result<Option<f64>> {
        let Some(vector) = self.query.vector.as_ref().filter(|_| self.engine.capabilities().percentiles)
        else {
            return Ok(None);
        };
        let score = match candidate.cosine {
            Some(cosine) => Some(cosine),
            None => self.cosine(dialogue, at.and_then(|at| dialogue.turns.get(at)), vector)?,
        };
        // What somebody types is as long as an utterance.
        let from = if self.request.query.is_empty() { self.query.kind } else { Kind::Utterances };
        match score {
            Some(score) => self.engine.percentile(from, self.query.kind, score),
            None => Ok(None),
        }
    }

    fn cosine(&self, dialogue: &Dialogue, turn: Option<&Turn>, vector: &[f32]) -> Result<Option<f32>> {
        Ok(self.view.vector(dialogue, turn)?.map(|stored| cosine(vector, &stored)))
    }

    /// The turn of a dialogue that fits best: by its vector, or else by its words, or else the first.
    fn best_turn(&self, dialogue: &Dialogue) -> Result<usize> {
        let mut best: Option<(f32, usize)> = None;
        if let Some(vector) = &self.query.vector {
            for (at, turn) in dialogue.turns.iter().enumerate() {
                let score = self.cosine(dialogue, Some(turn), vector)?;
                if let Some(score) = score.filter(|score| best.is_none_or(|(most, _)| *score > most)) {
                    best = Some((score, at));
                }
            }
        }
        if let (None, Some(words)) = (best, &self.query.words) {
            let number = self.view.best_turn(words, &dialogue.id)?;
            return Ok(dialogue.turns.iter().position(|t| Some(t.number) == number).unwrap_or(0));
        }
        Ok(best.map_or(0, |(_, at)| at))
    }

    fn explanation(&self, candidate: &FusedCandidate, dialogue: &Dialogue) -> Result<Explanation> {
        let mut explanation = Explanation::of(self.mode, &self.fusion, candidate);
        if let (Some(_), Some(words)) = (candidate.bm25, &self.query.words) {
            explanation.terms = self.view.explain(self.query.kind, words, &dialogue.id, candidate.turn)?;
        }
        Ok(explanation)
    }
}

/// One more of a group that is shown.
fn count(groups: &HashMap<IdKey, usize>, shown: &mut [Hit], candidate: &FusedCandidate) {
    if let Some(more) = groups.get(&candidate.dialogue).and_then(|at| shown[*at].more.as_mut()) {
        *more += 1;
    }
}
