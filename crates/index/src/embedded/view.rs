//! View of a local index for one request, and the cache of filter results. Reads are cheap, so nothing is prefetched.

use std::{
    borrow::Cow,
    cell::RefCell,
    rc::Rc,
    sync::{Arc, OnceLock, PoisonError},
};

use super::Embedded;
use crate::{
    Admitted,
    dense::{NodeFilter, SearchSettings},
    engine::{Bookmark, Candidate, HitList, KeywordQuery, SearchModes, Version, View},
    lexical::{Lexical, LexicalHit, LexicalQuery, Selected, TermScore},
    vectors::{Kind, dialogue_key, utterance_key},
};
use turnwise_core::{
    error::Result,
    ids::{DialogueId, IdKey, TurnNo},
    vectors::cosine,
};
use turnwise_corpus::{Dialogue, SpokenDialogue, SpokenTurn, Turn, filter::Filter};
use turnwise_store::Position;

/// Maximum number of records that one call of `list_dialogues` reads, to keep the calls short.
const MAX_READ: usize = 1_024;

pub(super) struct EmbeddedView<'a> {
    pub(super) engine: &'a Embedded,
    /// Result of the last [`View::admit`]; `None` to search all items.
    pub(super) filtered: Option<Arc<Filtered>>,
    /// The dialogue that `cosine` read last: a long dialogue can have many candidates.
    pub(super) last_read: RefCell<Option<(IdKey, Rc<Dialogue>)>>,
}

fn query_of(lexical: &Lexical, words: &KeywordQuery) -> LexicalQuery {
    match &words.expression {
        Some(expression) => lexical.syntax(expression),
        None => lexical.of_terms(words.terms.clone()),
    }
}

impl EmbeddedView<'_> {
    /// Returns the `k` best hits of the lexical index. `find` receives the number of hits to fetch. Omits hits in dialogues
    /// that were replaced or deleted after they were indexed, and hits that `filtered` does not contain.
    fn live_hits(
        &self,
        k: usize,
        filtered: Option<&Filtered>,
        find: impl Fn(usize) -> Result<Vec<LexicalHit>>,
    ) -> Result<HitList> {
        let mut depth = k;
        loop {
            let hits = find(depth)?;
            let all_read = hits.len() < depth;
            let live = hits.into_iter().filter_map(|hit| {
                let dialogue = hit.dialogue.key();
                let is_live = self.engine.snapshot.seq_of(dialogue) == Some(hit.seq);
                let admitted = filtered.is_none_or(|filtered| filtered.admitted().holds(hit.seq, hit.turn));
                let (version, turn) = (hit.seq.into(), hit.turn);
                let found = Candidate { dialogue, version, turn, score: hit.score, terms: hit.terms };
                (is_live && admitted).then_some(found)
            });
            let mut found: Vec<Candidate> = live.collect();
            if all_read || found.len() >= k {
                let exhausted = all_read && found.len() <= k;
                found.truncate(k);
                return Ok(HitList { found, exhausted });
            }
            depth = depth.saturating_mul(4);
        }
    }
}

impl View for EmbeddedView<'_> {
    fn admit(&mut self, filter: &Filter, kind: Kind, modes: SearchModes) -> Result<Option<u64>> {
        let filtered = self.engine.filtered(filter, kind, modes)?;
        let count = filtered.admitted().count();
        self.filtered = Some(filtered);
        Ok(Some(count))
    }

    fn nearest(&self, kind: Kind, vector: &[f32], k: usize, exact: bool) -> Result<HitList> {
        let among = self.filtered.as_deref().and_then(Filtered::among);
        let settings = SearchSettings { k, exact, among, ..SearchSettings::default() };
        let found = self.engine.vectors()?.search(&self.engine.snapshot, kind, vector, &settings)?;
        Ok(HitList { exhausted: found.len() < k, found })
    }

    fn keyword_search(&self, kind: Kind, words: &KeywordQuery, k: usize) -> Result<HitList> {
        let lexical = self.engine.lexical()?;
        let query = query_of(lexical, words);
        let filtered = self.filtered.as_deref();
        let selected = filtered.and_then(Filtered::selected);
        self.live_hits(k, filtered, |depth| lexical.find(kind, &query, depth, selected))
    }

    fn title_search(&self, words: &KeywordQuery, k: usize) -> Result<HitList> {
        let lexical = self.engine.lexical()?;
        let query = query_of(lexical, words);
        let filtered = self.filtered.as_deref().filter(|filtered| filtered.kind == Kind::Dialogues);
        let selected = filtered.and_then(Filtered::selected);
        self.live_hits(k, filtered, |depth| lexical.find_titles(&query, depth, selected))
    }

    fn find(&self, id: &str) -> Result<(Dialogue, Option<TurnNo>)> {
        self.engine.snapshot.find(id)
    }

    fn record(&self, dialogue: IdKey) -> Result<Option<(Version, Dialogue)>> {
        Ok(self.engine.snapshot.record(dialogue)?.map(|(seq, dialogue)| (seq.into(), dialogue)))
    }

    fn vector<'a>(&'a self, dialogue: &Dialogue, turn: Option<&Turn>) -> Result<Option<Cow<'a, [f32]>>> {
        let Some(dense) = &self.engine.dense else { return Ok(None) };
        let stored = match turn {
            Some(turn) => dense.vectors().get(Kind::Utterances, &utterance_key(&turn.text))?,
            None => dense.vectors().get(Kind::Dialogues, &dialogue_key(dialogue))?,
        };
        Ok(stored.map(Cow::Borrowed))
    }

    fn read_spoken(
        &self,
        dialogue: IdKey,
        read: &mut dyn FnMut(Version, &SpokenDialogue<'_>) -> Result<()>,
    ) -> Result<()> {
        self.engine.snapshot.read_spoken(dialogue, |seq, spoken| read(seq.into(), spoken)).map(drop)
    }

    fn sample(&self, most: usize) -> Result<Vec<(Version, Dialogue)>> {
        // The keys are hashes of the ids, so the smallest ones are a random sample.
        let mut keys: Vec<IdKey> = self.engine.snapshot.live().map(|(_, key)| key).collect();
        if keys.len() > most {
            keys.select_nth_unstable(most);
            keys.truncate(most);
        }
        keys.sort_unstable();
        keys.into_iter().filter_map(|key| self.record(key).transpose()).collect()
    }

    fn turn_vector<'a>(&'a self, _: IdKey, turn: &SpokenTurn<'_>) -> Result<Option<Cow<'a, [f32]>>> {
        let Some(dense) = &self.engine.dense else { return Ok(None) };
        Ok(dense.vectors().get(Kind::Utterances, &utterance_key(&turn.text))?.map(Cow::Borrowed))
    }

    fn cosine(&self, _: Kind, found: &Candidate, vector: &[f32]) -> Result<Option<f32>> {
        let known = self.last_read.borrow().as_ref().filter(|(key, _)| *key == found.dialogue).cloned();
        let dialogue = match known {
            Some((_, dialogue)) => dialogue,
            None => {
                let Some((_, dialogue)) = self.record(found.dialogue)? else { return Ok(None) };
                let dialogue = Rc::new(dialogue);
                *self.last_read.borrow_mut() = Some((found.dialogue, Rc::clone(&dialogue)));
                dialogue
            }
        };
        let turn = found.turn.map(|number| dialogue.turns.iter().find(|turn| turn.number == number));
        if turn == Some(None) {
            return Ok(None);
        }
        Ok(self.vector(&dialogue, turn.flatten())?.map(|stored| cosine(vector, &stored)))
    }

    fn best_turn(&self, words: &KeywordQuery, dialogue: &DialogueId) -> Result<Option<TurnNo>> {
        match &self.engine.lexical {
            Ok(lexical) => lexical.best_turn(&query_of(lexical, words), dialogue),
            Err(_) => Ok(None),
        }
    }

    fn explain(
        &self,
        kind: Kind,
        words: &KeywordQuery,
        dialogue: &DialogueId,
        turn: Option<TurnNo>,
    ) -> Result<Vec<TermScore>> {
        match &self.engine.lexical {
            Ok(lexical) => lexical.explain(kind, &query_of(lexical, words), dialogue, turn),
            Err(_) => Ok(Vec::new()),
        }
    }

    fn list_dialogues(
        &self,
        from: Bookmark,
        filter: Option<&Filter>,
        most: usize,
    ) -> Result<(Vec<Dialogue>, Option<Bookmark>)> {
        let at = match from {
            Bookmark::At(position) => position,
            Bookmark::Beginning | Bookmark::After(_) => Position::START,
        };
        let mut records = self.engine.snapshot.records_from(at);
        let mut found = Vec::new();
        for _ in 0..MAX_READ {
            if found.len() == most {
                break;
            }
            let Some(record) = records.next_record() else { return Ok((found, None)) };
            let dialogue = record?.dialogue()?;
            if filter.is_none_or(|filter| filter.matches(&dialogue)) {
                found.push(dialogue);
            }
        }
        Ok((found, Some(Bookmark::At(records.position()))))
    }

    fn bookmark_after(&self, id: &DialogueId) -> Result<Option<Bookmark>> {
        Ok(self.engine.snapshot.position_after(id)?.map(Bookmark::At))
    }
}

/// Number of filter results that are cached for later searches with the same filter.
const CACHE_SIZE: usize = 8;

/// Result of a filter for one kind, in the form that each search mode needs.
pub struct Filtered {
    filter: String,
    kind: Kind,
    admitted: Arc<Admitted>,
    /// Filter result for the lexical search; `None` if the lexical index cannot evaluate the filter. In this case, each
    /// hit of the search is looked up in `admitted`.
    selected: Option<Selected>,
    /// Filter result for the dense search, computed on first use.
    among: OnceLock<NodeFilter>,
}

impl Filtered {
    /// Returns the set of accepted items.
    pub fn admitted(&self) -> &Admitted {
        &self.admitted
    }

    /// Returns the filter result for the lexical search; `None` if the lexical index cannot evaluate the filter.
    pub fn selected(&self) -> Option<&Selected> {
        self.selected.as_ref()
    }

    pub(super) fn among(&self) -> Option<&NodeFilter> {
        self.among.get()
    }
}

impl Embedded {
    /// Returns the result of a filter, from the cache if possible.
    pub fn filtered(&self, filter: &Filter, kind: Kind, modes: SearchModes) -> Result<Arc<Filtered>> {
        let filtered = match self.cached(filter, kind) {
            Some(known) => known,
            None => {
                let new = Arc::new(self.evaluate(filter, kind, modes)?);
                let mut all = self.filters.lock().unwrap_or_else(PoisonError::into_inner);
                all.truncate(CACHE_SIZE - 1);
                all.insert(0, Arc::clone(&new));
                new
            }
        };
        if let (Some(dense), true) = (&self.dense, modes.dense) {
            filtered.among.get_or_init(|| dense.among(kind, Arc::clone(&filtered.admitted)));
        }
        Ok(filtered)
    }

    fn cached(&self, filter: &Filter, kind: Kind) -> Option<Arc<Filtered>> {
        let mut all = self.filters.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|known| known.kind == kind && known.filter == filter.as_str())?;
        let known = all.remove(at);
        all.insert(0, Arc::clone(&known));
        Some(known)
    }

    fn evaluate(&self, filter: &Filter, kind: Kind, modes: SearchModes) -> Result<Filtered> {
        let selected = match &self.lexical {
            Ok(lexical) => match lexical.select(&self.snapshot, filter, kind) {
                // A damaged lexical index must not fail a search that does not need it.
                Err(_) if !modes.lexical => None,
                other => other?,
            },
            Err(_) => None,
        };
        let admitted = match &selected {
            Some(selected) => Arc::clone(&selected.admitted),
            None => Arc::new(Admitted::by_records(&self.snapshot, filter, kind)?),
        };
        Ok(Filtered { filter: filter.as_str().to_owned(), kind, admitted, selected, among: OnceLock::new() })
    }
}
