//! Scores of utterances in their conversation.
//!
//! A turn is rarely understood alone: "Last Saturday, and I won!" answers a question about a tournament that is named
//! only in the turns around it. Context fusion therefore scores an utterance together with its neighbors:
//!
//! * The cosine is that of the query with a weighted sum of the vectors of the utterance and its neighbors.
//! * The BM25 score is a sum over the terms of the query. Each term counts where it contributes most: in the utterance,
//!   or with a lower weight in a neighbor or in the title of the dialogue. Only utterances in the list of the lexical
//!   search contribute. If the words of the query are found together, and in few dialogues, the score counts more.
//! * If the query names a speaker, the utterances of this speaker get an additional score, and all utterances of the
//!   speaker's dialogues, too.
//! * If the query names a date, the utterances of this date get an additional score, and also those that mention it. "Last
//!   Tuesday", said on Monday, 8 May 2023, mentions 2 May 2023.
//! * If the query has a context, the turns before the utterance are compared with the turns before the query.
//!
//! All of this is computed at query time for the candidates of both lists. The index contains only single turns, so
//! a changed turn needs no update of its neighbors, and equal turns share one vector.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
};

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    conversation::{BestWord, Conversation, NEIGHBORS, TURNS_AFTER, TURNS_BEFORE},
    coverage::{Coverage, CoveredTerms, coverages},
    earlier::{EARLIER_TURNS, EarlierLists, EarlierTurns},
    find::Lists,
    fuse::{CONTEXT_HALF_SCORE, FusedCandidate, HALF_SCORE_PER_WORD},
    query::Query,
    titles::TITLE_WEIGHT,
};
use turnwise_core::{IdKey, Result, TurnNo, vectors::cosine};
use turnwise_corpus::{Dialogue, SpokenDialogue, SpokenTurn};
use turnwise_index::{
    engine::{Candidate, Engine, Prefetch, Version, View},
    vectors::Kind,
};
use turnwise_text::{
    TermCounter,
    dates::{DateRange, NamedDate, mentioned_dates},
};

/// Parameter `k1` of BM25, which limits the influence of repeated terms.
const K1: f32 = 1.2;

/// Scores of an utterance in its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct ContextScore {
    /// Cosine of the query and the utterance with its neighbors. `None` if the utterance has no vector.
    pub(super) cosine: Option<f32>,
    /// BM25 score of the utterance with its neighbors.
    pub(super) bm25: f32,
    /// BM25 score that is mapped to 0.5. It is the same for all candidates of a search.
    pub(super) half_score: f32,
    pub(super) coverage: Coverage,
    /// True if the query names the speaker of the utterance.
    pub(super) speaker: bool,
    /// True if the query names a speaker of the dialogue.
    pub(super) participant: bool,
    /// How the utterance belongs to a date that the query names.
    pub(super) date: Option<DateMatch>,
    /// Scores of the turns before the utterance. `None` unless the query has a context.
    pub(super) earlier: Option<EarlierScore>,
}

/// Similarity of the turns before an utterance and the turns before the query.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct EarlierScore {
    /// Weight of this similarity: the less the query says, the higher.
    pub weight: f32,
    /// Cosine of the turns before the utterance and those before the query.
    pub cosine: f32,
    /// BM25 score of the turns before the utterance, for the words in the turns before the query.
    pub bm25: f32,
}

/// How an utterance belongs to a date that the query names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DateMatch {
    /// It was said on this date.
    Said,
    /// It mentions this date, for example with "yesterday".
    Mentioned,
}

/// Cosine of the query with an utterance or one of its neighbors.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TurnCosine {
    /// Number of the turn.
    pub turn: TurnNo,
    /// Weight of its vector.
    pub weight: f32,
    /// Cosine of its vector with the query.
    pub cosine: f32,
}

/// Contribution of a term to the BM25 score of an utterance with its neighbors.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ContextTerm {
    /// The term.
    pub term: String,
    /// Number of the turn that contains the term: the utterance or a neighbor. Null if the title of the dialogue contains
    /// it.
    pub turn: Option<TurnNo>,
    /// Contribution of the term. It is lower in a neighbor or in the title.
    pub score: f32,
}

/// Scorer of the candidates of one search in their conversations.
pub(super) struct ContextScorer<'a> {
    view: &'a dyn View,
    vector: Option<&'a [f32]>,
    earlier: Option<&'a EarlierTurns>,
    /// BM25 scores of turns for the words in the turns before the query.
    earlier_words: HashMap<(Version, TurnNo), f32>,
    /// Scores of the titles of dialogues.
    titles: HashMap<Version, f32>,
    /// Names of the speakers that the query names, sorted.
    speakers: &'a [String],
    dates: &'a [NamedDate],
    /// Terms of the query; empty if the query is an expression.
    terms: &'a [String],
    counter: RefCell<TermCounter<'a>>,
    half_score: f32,
    /// Reliability of the vectors; see [`Lists::reliability`].
    reliability: f32,
    /// For each term, whether it is part of the name of a named speaker. All false if the query has no other terms.
    is_name: Vec<bool>,
}

impl<'a> ContextScorer<'a> {
    pub(super) fn new(engine: &dyn Engine, view: &'a dyn View, query: &'a Query, lists: &Lists) -> Self {
        let terms: &[String] = match &query.words {
            Some(words) if words.expression.is_none() => &words.terms,
            _ => &[],
        };
        let analyzer = engine.analyzer();
        let names = query.name_terms(analyzer);
        let mut is_name: Vec<bool> = terms.iter().map(|term| names.contains(term)).collect();
        let words = is_name.iter().filter(|is_name| !**is_name).count();
        if words == 0 {
            is_name.fill(false);
        }
        ContextScorer {
            view,
            // With a context, the vector of the query also contains the turns before it.
            vector: query
                .earlier
                .as_ref()
                .map(|earlier| earlier.query.as_slice())
                .or(query.vector.as_deref()),
            earlier: query.earlier.as_ref(),
            earlier_words: lists.earlier.as_ref().map(EarlierLists::word_scores).unwrap_or_default(),
            titles: lists.titles.iter().map(|title| (title.version, title.score)).collect(),
            speakers: &query.speakers,
            dates: &query.dates,
            reliability: lists.reliability,
            terms,
            counter: RefCell::new(TermCounter::new(analyzer, terms)),
            half_score: match words {
                1.. if query.earlier.is_none() => CONTEXT_HALF_SCORE.min(HALF_SCORE_PER_WORD * words as f32),
                _ => CONTEXT_HALF_SCORE,
            },
            is_name,
        }
    }

    /// Returns the scores of the candidates, in their order.
    pub(super) fn scores(&self, candidates: &[FusedCandidate]) -> Result<Vec<ContextScore>> {
        let found: Vec<Candidate> = candidates.iter().map(FusedCandidate::engine_candidate).collect();
        self.view.prefetch(Kind::Utterances, &found, Prefetch::Records)?;
        if self.vector.is_some() {
            let before = self.earlier.map_or(0, |_| EARLIER_TURNS).max(TURNS_BEFORE);
            let around = Prefetch::Around { before, after: TURNS_AFTER };
            self.view.prefetch(Kind::Utterances, &found, around)?;
        }
        let mut by_dialogue: BTreeMap<(Version, IdKey), Vec<usize>> = BTreeMap::new();
        for (n, candidate) in candidates.iter().enumerate() {
            by_dialogue.entry((candidate.version, candidate.dialogue)).or_default().push(n);
        }
        // Without a record, an utterance is scored alone. This happens if the dialogue was replaced meanwhile.
        let alone = |candidate: &FusedCandidate| ContextScore {
            cosine: candidate.cosine,
            half_score: self.half_score,
            bm25: candidate.bm25.map_or(0.0, |ranked| ranked.score),
            ..ContextScore::default()
        };
        let mut scores: Vec<ContextScore> = candidates.iter().map(alone).collect();
        let mut covered = vec![CoveredTerms::default(); candidates.len()];
        for ((version, key), members) in by_dialogue {
            let own: Vec<&FusedCandidate> = members.iter().map(|n| &candidates[*n]).collect();
            self.read(key, version, &own, &mut |conversation| {
                for (n, candidate) in members.iter().zip(&own) {
                    if let Some(at) = conversation.position(candidate.turn) {
                        (scores[*n], covered[*n]) = self.score(conversation, version, at);
                    }
                }
            })?;
        }
        let coverages = coverages(candidates, &covered, self.reliability);
        scores.iter_mut().zip(coverages).for_each(|(score, own)| score.coverage = own);
        Ok(scores)
    }

    /// Returns the contribution of each term to the BM25 score of a candidate, highest first. `dialogue` is the dialogue
    /// of the candidate, and `all` are all candidates of the search.
    pub(super) fn terms(
        &self,
        candidate: &FusedCandidate,
        dialogue: &Dialogue,
        all: &[FusedCandidate],
    ) -> Vec<ContextTerm> {
        let spoken = SpokenDialogue::of(dialogue);
        let mut conversation = Conversation::new(&spoken.turns);
        conversation.title = self.title_scores(candidate.version, spoken.title.as_deref());
        let Some(at) = conversation.position(candidate.turn) else { return Vec::new() };
        for other in all.iter().filter(|other| other.version == candidate.version) {
            let (Some(ranked), Some(place)) = (other.bm25, conversation.position(other.turn)) else {
                continue;
            };
            if NEIGHBORS.iter().any(|(distance, _, _)| conversation.neighbor(at, *distance) == Some(place)) {
                let words = self.word_scores(&conversation.turns[place].text, ranked.score);
                conversation.words.insert(place, words);
            }
        }
        conversation.participant = conversation.turns.iter().any(|turn| self.is_by_named_speaker(turn));
        let best = self.best_words(&conversation, at).into_iter().zip(self.terms);
        let found = best.filter_map(|(best, term)| Some((best.filter(|best| best.score > 0.0)?, term)));
        let mut terms: Vec<ContextTerm> = found
            .map(|(best, term)| ContextTerm {
                term: term.clone(),
                turn: best.turn.map(|place| conversation.turns[place].number),
                score: best.score,
            })
            .collect();
        terms.sort_by(|a, b| b.score.total_cmp(&a.score));
        terms
    }

    /// Returns the cosines of the query with a candidate and its neighbors, in the order of the turns. Turns without a
    /// vector are left out.
    pub(super) fn cosines(&self, candidate: &FusedCandidate, dialogue: &Dialogue) -> Result<Vec<TurnCosine>> {
        let spoken = SpokenDialogue::of(dialogue);
        let conversation = Conversation::new(&spoken.turns);
        let (Some(at), Some(query)) = (conversation.position(candidate.turn), self.vector) else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for (distance, weight, _) in NEIGHBORS.into_iter().filter(|(_, weight, _)| *weight > 0.0) {
            let Some(place) = conversation.neighbor(at, distance) else { continue };
            let turn = conversation.turns[place];
            if let Some(vector) = self.view.turn_vector(candidate.dialogue, turn)? {
                found.push(TurnCosine { turn: turn.number, weight, cosine: cosine(query, &vector) });
            }
        }
        Ok(found)
    }

    /// Calls `use_it` with a dialogue and the data of its candidates. Does nothing if the dialogue does not exist in
    /// this version.
    fn read(
        &self,
        key: IdKey,
        version: Version,
        candidates: &[&FusedCandidate],
        use_it: &mut dyn FnMut(&Conversation<'a, '_>),
    ) -> Result<()> {
        self.view.read_spoken(key, &mut |current, spoken| {
            if current != version {
                return Ok(());
            }
            let mut conversation = Conversation::new(&spoken.turns);
            conversation.title = self.title_scores(version, spoken.title.as_deref());
            conversation.participant = conversation.turns.iter().any(|turn| self.is_by_named_speaker(turn));
            for candidate in candidates {
                let Some(at) = conversation.position(candidate.turn) else { continue };
                if let Some(ranked) = candidate.bm25 {
                    let words = self.word_scores(&conversation.turns[at].text, ranked.score);
                    conversation.words.insert(at, words);
                }
                let earlier = self.earlier.map_or(0, |_| EARLIER_TURNS).min(at);
                let neighbors = NEIGHBORS.iter().filter(|(_, dense, _)| *dense > 0.0);
                let neighbors = neighbors.filter_map(|(distance, _, _)| conversation.neighbor(at, *distance));
                for place in neighbors.chain(at - earlier..at).collect::<Vec<_>>() {
                    if self.vector.is_some()
                        && !conversation.vectors.contains_key(&place)
                        && let Some(vector) = self.view.turn_vector(key, conversation.turns[place])?
                    {
                        conversation.vectors.insert(place, vector.into());
                    }
                }
            }
            use_it(&conversation);
            Ok(())
        })
    }

    /// Divides the BM25 score `total` of a text among the terms that it contains: evenly, except that a term counts more
    /// if it is repeated. The shares of BM25 itself are not used, because not all engines report them. If the text
    /// contains none of the terms, returns only the total.
    fn word_scores(&self, text: &str, total: f32) -> Vec<f32> {
        let counts = self.counter.borrow_mut().count(text);
        let mut scores: Vec<f32> = counts.iter().map(|n| *n as f32 / (*n as f32 + K1)).collect();
        let sum: f32 = scores.iter().sum();
        if sum <= 0.0 {
            return vec![total];
        }
        scores.iter_mut().for_each(|score| *score *= total / sum);
        scores
    }

    /// Returns the weighted score of each term in the title of a dialogue; empty if the title contains none.
    fn title_scores(&self, version: Version, title: Option<&str>) -> Vec<f32> {
        let (Some(title), Some(total)) = (title, self.titles.get(&version)) else { return Vec::new() };
        self.word_scores(title, TITLE_WEIGHT * total)
    }

    /// Returns the scores of an utterance, without the coverage, and the terms that it covers.
    fn score(
        &self,
        conversation: &Conversation<'_, '_>,
        version: Version,
        at: usize,
    ) -> (ContextScore, CoveredTerms) {
        let words = self.best_words(conversation, at);
        let covered = match self.earlier {
            // If the terms are not known, there is one total score.
            None if self.terms.len() > 1 => {
                let weight = |word: &BestWord| if word.score > 0.0 { word.weight } else { 0.0 };
                CoveredTerms::collect(words.iter().map(|word| word.as_ref().map(weight)))
            }
            _ => CoveredTerms::default(),
        };
        let score = ContextScore {
            cosine: self.vector.and_then(|vector| conversation.cosine(at, vector)),
            bm25: words.iter().flatten().map(|word| word.score).sum(),
            half_score: self.half_score,
            coverage: Coverage::default(),
            speaker: self.is_by_named_speaker(conversation.turns[at]),
            participant: conversation.participant,
            date: self.named_date(conversation.turns[at]),
            earlier: self.earlier.map(|earlier| self.earlier_score(earlier, conversation, version, at)),
        };
        (score, covered)
    }

    /// Returns [`Conversation::best_words`] of all terms, but `None` for the names of speakers in their own dialogues. They
    /// have a score of their own, and greetings are full of them.
    fn best_words(&self, conversation: &Conversation<'_, '_>, at: usize) -> Vec<Option<BestWord>> {
        let counts = |n: usize| !(conversation.participant && self.is_name.get(n) == Some(&true));
        let mut best = conversation.best_words(at);
        best.resize(best.len().max(self.terms.len()), BestWord::default());
        let best = best.into_iter().enumerate();
        best.map(|(n, best)| Some(best).filter(|_| counts(n))).collect()
    }

    /// Returns whether the query names the speaker of a turn.
    fn is_by_named_speaker(&self, turn: &SpokenTurn<'_>) -> bool {
        let speaker = turn.speaker.as_ref();
        self.speakers.binary_search_by(|known| known.as_str().cmp(speaker)).is_ok()
    }

    /// Returns whether a turn was said on a date that the query names, or else mentions such a date.
    fn named_date(&self, turn: &SpokenTurn<'_>) -> Option<DateMatch> {
        let said = turn.time.filter(|_| !self.dates.is_empty())?.day();
        let named = |range: &DateRange| self.dates.iter().any(|date| date.matches(range));
        if named(&DateRange::day(said)) {
            return Some(DateMatch::Said);
        }
        mentioned_dates(&turn.text, said).iter().any(named).then_some(DateMatch::Mentioned)
    }

    /// Compares the turns before an utterance with the turns before the query.
    fn earlier_score(
        &self,
        earlier: &EarlierTurns,
        conversation: &Conversation<'_, '_>,
        version: Version,
        at: usize,
    ) -> EarlierScore {
        let weights = || {
            let before = (0..at).rev().take(EARLIER_TURNS);
            before.enumerate().map(|(n, place)| (place, earlier.decay.powi(n as i32)))
        };
        let bm25 = weights().filter_map(|(place, weight)| {
            Some(weight * self.earlier_words.get(&(version, conversation.turns[place].number))?)
        });
        EarlierScore {
            weight: earlier.weight,
            cosine: conversation.sum_cosine(weights(), &earlier.vector),
            bm25: bm25.fold(0.0, f32::max),
        }
    }
}
