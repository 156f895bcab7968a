//! Conversion of candidates to hits. Reads the records of the candidates in descending order of their scores until
//! there are enough hits. Records of candidates with equal scores are always read together.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
};

use super::{
    Explanation, Fusion, Group, Hit, Mode, SearchRequest, Stretch, context::ContextScorer, find::Lists,
    fuse::FusedCandidate, query::Query,
};
use turnwise_core::{IdKey, Result, vectors::cosine};
use turnwise_corpus::{Dialogue, Turn};
use turnwise_index::{
    engine::{Candidate, Engine, Prefetch, Version, View},
    vectors::Kind,
};

/// Builder that converts the candidates of a search to hits. A hit contains data from the record and context turns.
pub(super) struct HitBuilder<'a> {
    pub(super) engine: &'a dyn Engine,
    pub(super) view: &'a dyn View,
    pub(super) request: &'a SearchRequest,
    pub(super) query: &'a Query,
    pub(super) lists: &'a Lists,
    pub(super) mode: Mode,
    pub(super) fusion: Fusion,
    pub(super) stretch: Stretch,
    /// Number of candidates dropped because of the minimum score or percentile.
    pub(super) too_low: &'a Cell<usize>,
    /// For each dialogue, the key of its thread. Contains the dialogues whose thread is known. Used to group by thread.
    pub(super) threads: RefCell<HashMap<IdKey, IdKey>>,
    /// Records that were read last. A long dialogue can have many hits.
    pub(super) records: RefCell<HashMap<IdKey, Option<Record>>>,
}

/// Version of a dialogue, and the dialogue.
pub(super) type Record = (Version, Rc<Dialogue>);

/// Maximum number of records that are kept.
const KEPT_RECORDS: usize = 64;

/// A candidate whose record has been read.
struct LoadedCandidate {
    candidate: FusedCandidate,
    dialogue: Rc<Dialogue>,
    /// Index of the turn in the dialogue. `None` if the candidate is a whole dialogue.
    at: Option<usize>,
}

impl HitBuilder<'_> {
    /// Builds the hits from candidates that are sorted by score.
    pub(super) fn build(&self, ranked: Vec<FusedCandidate>) -> Result<Vec<Hit>> {
        // Only an explanation needs the other candidates.
        let all = if self.request.explain { ranked.clone() } else { Vec::new() };
        let wanted = self.request.offset + self.request.k;
        self.fetch_ahead(&ranked, wanted)?;
        let mut shown: Vec<Hit> = Vec::new();
        // For each group, the index of its hit in `shown`. Used only with grouping.
        let mut groups: HashMap<IdKey, usize> = HashMap::new();
        let mut ranked = ranked.into_iter().peekable();
        while let Some(first) = ranked.next() {
            let mut ties = vec![first];
            while let Some(next) = ranked.next_if(|next| next.score == first.score) {
                ties.push(next);
            }
            if shown.len() >= wanted {
                // There are enough hits. With grouping, continue only to count the other candidates of each group.
                if self.request.group.is_none() {
                    break;
                }
                for tie in &ties {
                    self.count(&groups, &mut shown, tie)?;
                }
                continue;
            }
            for loaded in self.load_sorted(ties)? {
                let group = self.group(&loaded.candidate, Some(&loaded.dialogue))?;
                if let Some(group) = group
                    && groups.contains_key(&group)
                {
                    self.count(&groups, &mut shown, &loaded.candidate)?;
                    continue;
                }
                if shown.len() < wanted
                    && let Some(hit) = self.hit(loaded, &all)?
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

    /// Returns the key of the group of a candidate. Returns `None` without grouping. Reads the record of the dialogue if
    /// it is needed and not given.
    fn group(&self, candidate: &FusedCandidate, dialogue: Option<&Dialogue>) -> Result<Option<IdKey>> {
        let of_thread =
            |dialogue: &Dialogue| dialogue.thread().map(|name| IdKey::of(&format!("thread {name}")));
        let own = candidate.dialogue;
        match self.request.group {
            None => Ok(None),
            Some(Group::Dialogue) => Ok(Some(own)),
            Some(Group::Thread) => {
                if let Some(known) = self.threads.borrow().get(&own) {
                    return Ok(Some(*known));
                }
                let thread = match dialogue {
                    Some(dialogue) => of_thread(dialogue),
                    None => self.view.record(own)?.and_then(|(_, dialogue)| of_thread(&dialogue)),
                };
                let group = thread.unwrap_or(own);
                self.threads.borrow_mut().insert(own, group);
                Ok(Some(group))
            }
        }
    }

    /// If the group of `candidate` already has a hit, increments the number of other candidates (`more`) of this hit.
    fn count(
        &self,
        groups: &HashMap<IdKey, usize>,
        shown: &mut [Hit],
        candidate: &FusedCandidate,
    ) -> Result<()> {
        let at = self.group(candidate, None)?.and_then(|group| groups.get(&group));
        if let Some(more) = at.and_then(|at| shown[*at].more.as_mut()) {
            *more += 1;
        }
        Ok(())
    }

    /// Announces the records of the best candidates to the engine, so that the engine can fetch them together. Includes
    /// `wanted + 1` candidates, because one of them can be the item given by `like`, which is not a hit.
    fn fetch_ahead(&self, ranked: &[FusedCandidate], wanted: usize) -> Result<()> {
        // The thread of a candidate is in its record.
        let wanted = if self.request.group == Some(Group::Thread) { ranked.len() } else { wanted };
        let best: Vec<Candidate> =
            ranked.iter().take(wanted + 1).map(FusedCandidate::engine_candidate).collect();
        self.view.prefetch(self.query.kind, &best, Prefetch::Records)?;
        match (self.query.kind, &self.query.vector) {
            (Kind::Dialogues, Some(_)) => self.view.prefetch(self.query.kind, &best, Prefetch::Turns),
            _ => Ok(()),
        }
    }

    fn record(&self, key: IdKey) -> Result<Option<Record>> {
        if let Some(known) = self.records.borrow().get(&key) {
            return Ok(known.clone());
        }
        let read = self.view.record(key)?.map(|(version, dialogue)| (version, Rc::new(dialogue)));
        let mut records = self.records.borrow_mut();
        if records.len() >= KEPT_RECORDS {
            records.clear();
        }
        records.insert(key, read.clone());
        Ok(read)
    }

    /// Reads the records of candidates with equal scores and sorts them by id, descending.
    fn load_sorted(&self, ties: Vec<FusedCandidate>) -> Result<Vec<LoadedCandidate>> {
        let mut all = Vec::with_capacity(ties.len());
        for candidate in ties {
            let itself = self.query.itself == Some((candidate.dialogue, candidate.turn));
            let Some((version, dialogue)) = self.record(candidate.dialogue)? else { continue };
            // Skip versions that have been replaced since the candidate was indexed.
            if itself || version != candidate.version {
                continue;
            }
            let at = match candidate.turn {
                None => None,
                Some(turn) => match dialogue.turns.iter().position(|t| t.number == turn) {
                    // A turn without text, such as an image, says nothing.
                    Some(at) if !dialogue.turns[at].text.trim().is_empty() => Some(at),
                    _ => continue,
                },
            };
            all.push(LoadedCandidate { candidate, dialogue, at });
        }
        all.sort_by(|a, b| b.dialogue.id.cmp(&a.dialogue.id).then(b.candidate.turn.cmp(&a.candidate.turn)));
        Ok(all)
    }

    /// Builds the hit of a candidate. Returns `None` if its score or percentile is too low. `all` are all candidates of
    /// the search.
    fn hit(&self, loaded: LoadedCandidate, all: &[FusedCandidate]) -> Result<Option<Hit>> {
        let LoadedCandidate { candidate, dialogue, at } = loaded;
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
            self.request.explain.then(|| self.explanation(&candidate, &dialogue, all)).transpose()?;
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
            thread: dialogue.thread().map(Cow::into_owned),
            time: dialogue.started(),
            title: dialogue.title.clone(),
            title_matched: Vec::new(),
            domains: dialogue.domains.clone(),
            turns,
            more: self.request.group.map(|_| 0),
            explanation,
        }))
    }

    /// Returns the percentage of random pairs that are less similar than the query and this candidate. Returns `None`
    /// if the query or the candidate has no vector, or if the engine does not support percentiles.
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
        // A query text is about as long as an utterance, so it is treated as an utterance.
        let from = if self.request.query.is_empty() { self.query.kind } else { Kind::Utterances };
        match score {
            Some(score) => self.engine.percentile(from, self.query.kind, score),
            None => Ok(None),
        }
    }

    fn cosine(&self, dialogue: &Dialogue, turn: Option<&Turn>, vector: &[f32]) -> Result<Option<f32>> {
        Ok(self.view.vector(dialogue, turn)?.map(|stored| cosine(vector, &stored)))
    }

    /// Returns the index of the dialogue's turn that matches the query best. Compares the turns by vector, or by
    /// keywords if there are no vectors. If no turn matches, returns 0.
    fn best_turn(&self, dialogue: &Dialogue) -> Result<usize> {
        let mut best: Option<(f32, usize)> = None;
        if let Some(vector) = &self.query.vector {
            for (at, turn) in dialogue.turns.iter().enumerate() {
                let score = self.cosine(dialogue, Some(turn), vector)?;
                if let Some(score) = score.filter(|score| best.is_none_or(|(highest, _)| *score > highest)) {
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

    fn explanation(
        &self,
        candidate: &FusedCandidate,
        dialogue: &Dialogue,
        all: &[FusedCandidate],
    ) -> Result<Explanation> {
        let mut explanation = Explanation::of(self.mode, &self.fusion, candidate, self.stretch);
        if let (Some(_), Some(words)) = (candidate.bm25, &self.query.words) {
            explanation.terms = self.view.explain(self.query.kind, words, &dialogue.id, candidate.turn)?;
        }
        if let Some(context) = &mut explanation.context {
            let scorer = ContextScorer::new(self.engine, self.view, self.query, self.lists);
            context.terms = scorer.terms(candidate, dialogue, all);
            context.cosines = scorer.cosines(candidate, dialogue)?;
        }
        Ok(explanation)
    }
}
