//! Conversion of a request to a query: a vector, search terms, or both.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use super::{
    EffectiveQuery, FusionMethod, Mode, RerankMethod, SearchRequest, Searcher, WeightedText,
    coverage::{MAX_TERMS, WordShare},
    earlier::{EARLIER_TURNS, EarlierTurns},
    fuse::FusedCandidate,
    speakers::NamedSpeakers,
};
use turnwise_core::{Error, IdKey, Result, TurnNo, script::is_unspaced, vectors::normalize};
use turnwise_corpus::{Dialogue, Turn};
use turnwise_encoder::{DialogueOptions, TextOptions, Vectors};
use turnwise_index::{
    engine::{KeywordQuery, View},
    vectors::{Kind, Recipe},
};
use turnwise_text::{
    Analyzer,
    dates::{NamedDate, named_dates},
};

/// Maximum number of search terms that a search for similar items takes from the text of the given item. It takes the
/// most informative terms.
const MAX_SIMILAR_TERMS: usize = 96;

/// A query in the form that the engine needs, built from a request.
pub(super) struct Query {
    /// Text to show to users: the query text, or the id of the item in a search for similar items.
    pub(super) text: String,
    pub(super) kind: Kind,
    pub(super) vector: Option<Vec<f32>>,
    /// Text of the query that the dense search encodes: without names of speakers.
    pub(super) meaning: String,
    pub(super) words: Option<KeywordQuery>,
    pub(super) effective: Option<EffectiveQuery>,
    /// Item given by `like`, as the key of its dialogue and its turn number. The hits exclude this item. The turn
    /// number is `None` if the item is a dialogue.
    pub(super) itself: Option<(IdKey, Option<TurnNo>)>,
    /// The turns before the query. `None` unless the fusion method is context and the request has a context.
    pub(super) earlier: Option<EarlierTurns>,
    /// Speakers that the query names, sorted.
    pub(super) speakers: Vec<String>,
    /// Their names as they are written in the query.
    pub(super) names: Vec<String>,
    /// Dates that the query names.
    pub(super) dates: Vec<NamedDate>,
    /// Words that no utterance and no title contains.
    pub(super) absent: Vec<String>,
    /// True if the words are also searched in the titles of dialogues.
    pub(super) in_titles: bool,
    pub(super) warnings: Vec<String>,
}

impl Query {
    fn new(text: String, kind: Kind) -> Self {
        Query {
            text,
            kind,
            vector: None,
            meaning: String::new(),
            words: None,
            effective: None,
            itself: None,
            earlier: None,
            speakers: Vec::new(),
            names: Vec::new(),
            dates: Vec::new(),
            absent: Vec::new(),
            in_titles: false,
            warnings: Vec::new(),
        }
    }

    fn names_anything(&self) -> bool {
        !self.speakers.is_empty() || !self.dates.is_empty()
    }

    /// Returns the terms of the names of speakers, as in the index and as in the query.
    pub(super) fn name_terms(&self, analyzer: Analyzer) -> HashSet<String> {
        self.speakers.iter().chain(&self.names).flat_map(|name| analyzer.terms(name)).collect()
    }

    /// Returns whether the share of the words of the query in a whole dialogue counts: in a search with a text of at least
    /// two words.
    pub(super) fn uses_share(&self) -> bool {
        let terms =
            self.words.as_ref().filter(|words| words.expression.is_none()).map(|words| words.terms.len());
        self.kind == Kind::Dialogues
            && self.in_titles
            && terms.is_some_and(|terms| (2..=MAX_TERMS).contains(&terms))
    }

    /// Returns the share of the words of the query that a whole dialogue or its title contains; `None` if it does not count.
    /// The names of the speakers that the query names count as contained in their dialogues.
    pub(super) fn share(
        &self,
        view: &dyn View,
        analyzer: Analyzer,
        candidate: &FusedCandidate,
        reliability: f32,
    ) -> Result<Option<WordShare>> {
        let Some(words) = self.words.as_ref().filter(|_| self.uses_share()) else { return Ok(None) };
        let bits = |contains: &dyn Fn(&String) -> bool| {
            let found = words.terms.iter().enumerate().filter(|(_, term)| contains(term));
            found.fold(0u64, |bits, (n, _)| bits | 1 << n)
        };
        let mut found = match candidate.terms {
            Some(found) => found,
            None => {
                let mut known = HashSet::new();
                view.read_spoken(candidate.dialogue, &mut |_, dialogue| {
                    let texts = dialogue.turns.iter().map(|turn| &turn.text).chain(&dialogue.title);
                    known.extend(texts.flat_map(|text| analyzer.terms(text)));
                    Ok(())
                })?;
                bits(&|term| known.contains(term))
            }
        };
        if candidate.named.speaker {
            let names = self.name_terms(analyzer);
            found |= bits(&|term| names.contains(term));
        }
        Ok(Some(WordShare::of(found.count_ones(), words.terms.len(), reliability)))
    }

    /// Returns the distinct dates as they are written in the query.
    fn named_dates(&self, text: &str) -> Vec<String> {
        let mut dates: Vec<String> =
            self.dates.iter().map(|date| text[date.text.clone()].to_owned()).collect();
        dates.dedup();
        dates
    }

    /// Returns the cosine of a candidate with the query. `None` if the query or the candidate has no vector.
    pub(super) fn cosine(&self, view: &dyn View, candidate: &FusedCandidate) -> Result<Option<f32>> {
        let Some(vector) = &self.vector else { return Ok(None) };
        view.cosine(self.kind, &candidate.engine_candidate(), vector)
    }
}

/// Vectors of queries encoded in advance, by query text.
pub(super) type QueryVectors = HashMap<String, Vec<f32>>;

/// Dialogue or turn for which a search finds similar items.
struct Like {
    dialogue: Dialogue,
    /// Index of the turn. `None` if the item is the whole dialogue.
    at: Option<usize>,
}

impl Searcher {
    /// Returns the recipe of the vectors if the request needs the encoder. Returns `None` if the search is lexical, or
    /// if the index has no vectors or already stores the query vector.
    pub fn needs_encoder(&self, request: &SearchRequest) -> Result<Option<Recipe>> {
        let view = self.engine.view();
        let lexical = self.mode_in(view.as_ref(), request)? == Mode::Bm25;
        let (Some(recipe), false) = (self.engine.recipe(), lexical) else { return Ok(None) };
        let tokens = request
            .rerank
            .is_some_and(|rerank| !matches!(rerank.by, RerankMethod::Exact | RerankMethod::Selector));
        let known = !tokens
            && match &request.like {
                Some(id) => {
                    let (dialogue, turn) = view.find(id)?;
                    Like::of(dialogue, turn).vector(view.as_ref())?.is_some()
                }
                None => false,
            };
        Ok((!known).then(|| recipe.clone()))
    }

    pub(super) fn query(
        &self,
        view: &dyn View,
        request: &SearchRequest,
        mode: Mode,
        vectors: &QueryVectors,
    ) -> Result<Query> {
        match (&request.like, &request.dialogue) {
            (Some(id), _) => {
                let (dialogue, turn) = view.find(id)?;
                let key = dialogue.id.key();
                let mut query = self.similar_query(view, &Like::of(dialogue, turn), id.clone(), mode)?;
                query.itself = Some((key, turn));
                Ok(query)
            }
            (None, Some(dialogue)) => {
                let name = dialogue.id.to_string();
                self.similar_query(view, &Like::of(dialogue.as_ref().clone(), None), name, mode)
            }
            (None, None) => self.text_query(request, mode, vectors),
        }
    }

    /// Builds the query for a query text and its context.
    fn text_query(&self, request: &SearchRequest, mode: Mode, vectors: &QueryVectors) -> Result<Query> {
        let mut query = Query::new(request.query.clone(), request.of.kind());
        if mode != Mode::Dense {
            self.engine.check_lexical()?;
            let words = match request.syntax {
                true => self.engine.expression(&request.query)?,
                false => self.engine.keyword_query(&request.query),
            };
            query.warnings.extend(words.warnings.iter().map(|warning| format!("in the query: {warning}")));
            if words.is_empty() && mode == Mode::Bm25 {
                let message = format!("`{}` contains no searchable words", request.query);
                return Err(Error::input(message).with_hint("enter the words you remember, in any order"));
            }
            if words.is_empty() {
                query.warnings.push(format!(
                    "`{}` contains no searchable words; only the dense search uses it",
                    request.query
                ));
            }
            query.words = Some(words);
            query.in_titles = query.kind == Kind::Dialogues || self.uses_context(request, mode);
        }
        if mode != Mode::Bm25 {
            let named = self.named_speakers(request, mode)?;
            let dense = named.dense_text(&request.query, query.kind);
            query.speakers = named.speakers;
            query.names = named.names;
            if self.uses_names(request, mode) {
                query.dates = named_dates(&request.query);
            }
            let context = request.context.iter().map(String::as_str).filter(|t| !t.trim().is_empty());
            let mut texts: Vec<&str> = context.chain([dense.as_str()]).collect();
            let mut weights = weights(texts.len(), request.decay);
            if texts.len() > 1 && request.decay > 0.0 && self.uses_context(request, mode) {
                texts.drain(..texts.len().saturating_sub(EARLIER_TURNS + 1));
                let encoded = self.encode_texts(&texts, &mut query.warnings)?;
                let keywords = |text: &str| self.engine.keyword_query(text);
                let analyzer = self.engine.analyzer();
                let earlier = EarlierTurns::new(&texts, encoded, request.decay, analyzer, keywords);
                weights = earlier.weights();
                query.vector = Some(earlier.combined());
                query.earlier = Some(earlier);
            } else {
                query.vector = Some(match vectors.get(dense.as_str()).filter(|_| texts.len() == 1) {
                    Some(vector) => vector.clone(),
                    None => self.average(&texts, &weights, &mut query.warnings)?,
                });
            }
            if texts.len() > 1 || dense != request.query || query.names_anything() {
                let weighted = |(text, weight): (&&str, &f32)| WeightedText {
                    weight: *weight,
                    text: (*text).to_owned(),
                };
                query.effective = Some(EffectiveQuery {
                    meaning: texts.iter().zip(&weights).map(weighted).filter(|w| w.weight > 0.0).collect(),
                    words: query.words.as_ref().map(|words| words.terms.clone()).unwrap_or_default(),
                    speakers: query.speakers.clone(),
                    dates: query.named_dates(&request.query),
                });
            }
            query.meaning = dense;
        }
        if let Some(words) = &query.words {
            query.absent = self.absent_words(request, words, &query)?;
        }
        Ok(query)
    }

    /// Returns the words of a request, as they are written in it, that no utterance and no title contains. Recognized names
    /// and dates are left out, and terms of scripts without word spaces, because these are parts of words.
    fn absent_words(
        &self,
        request: &SearchRequest,
        words: &KeywordQuery,
        query: &Query,
    ) -> Result<Vec<String>> {
        if words.expression.is_some() {
            return Ok(Vec::new());
        }
        let analyzer = self.engine.analyzer();
        let mut absent = self.engine.absent_terms(&words.terms)?;
        let names = query.name_terms(analyzer);
        absent.retain(|term| !names.contains(term));
        let mut found: Vec<String> = Vec::new();
        for token in analyzer.analyze_query(&request.query) {
            let word = &request.query[token.range.clone()];
            let in_date = query.dates.iter().any(|date| date.text.contains(&token.range.start));
            let is_absent = absent.contains(&token.term) && !in_date && !word.contains(is_unspaced);
            if is_absent && !found.iter().any(|known| known == word) {
                found.push(word.to_owned());
            }
        }
        Ok(found)
    }

    /// Returns whether a search scores utterances in their conversation.
    fn uses_context(&self, request: &SearchRequest, mode: Mode) -> bool {
        let kind = request.of.kind();
        mode == Mode::Hybrid && self.fusion(request, kind).method == FusionMethod::Context
    }

    /// Returns whether a search uses the speakers and dates that the query names.
    fn uses_names(&self, request: &SearchRequest, mode: Mode) -> bool {
        let kind = request.of.kind();
        let method = self.fusion(request, kind).method;
        mode == Mode::Hybrid
            && (method == FusionMethod::Context
                || kind == Kind::Dialogues && method == FusionMethod::Weighted)
    }

    /// Returns the speakers that the query of a request names; none if the search does not use them.
    pub(super) fn named_speakers(&self, request: &SearchRequest, mode: Mode) -> Result<NamedSpeakers> {
        if !self.uses_names(request, mode) {
            return Ok(NamedSpeakers::default());
        }
        NamedSpeakers::find(self.engine(), &request.query)
    }

    fn similar_query(&self, view: &dyn View, like: &Like, text: String, mode: Mode) -> Result<Query> {
        let kind = like.kind();
        let mut query = Query::new(text, kind);
        if mode != Mode::Bm25 {
            query.vector = Some(match like.vector(view)? {
                Some(vector) => vector,
                None => self.encode(like, &mut query.warnings)?,
            });
        }
        if mode != Mode::Dense {
            let words = self.engine.informative_terms(&like.text(), kind, MAX_SIMILAR_TERMS)?;
            query.warnings.extend(words.warnings.iter().cloned());
            query.words = Some(words);
        }
        let words = query.words.as_ref().map(|words| words.terms.clone()).unwrap_or_default();
        query.effective =
            Some(EffectiveQuery { words, ..EffectiveQuery::default() }).filter(|e| !e.words.is_empty());
        Ok(query)
    }

    fn encode(&self, like: &Like, warnings: &mut Vec<String>) -> Result<Vec<f32>> {
        match like.turn() {
            Some(turn) => self.average(&[&turn.text], &[1.0], warnings),
            None => {
                let recipe = self.recipe()?;
                let options = DialogueOptions {
                    mode: recipe.dialogue_mode,
                    pooling: recipe.pooling,
                    prompt: recipe.prompt.clone(),
                };
                let encoded = self.encoder()?.encode_dialogues(&[&like.dialogue], &options)?;
                Ok(encoded.vectors.row(0).to_vec())
            }
        }
    }

    /// Encodes the texts and returns the weighted sum of their unit vectors. Returns the vector of a single text
    /// unchanged. Adds a warning to `warnings` if a text is too long for the encoder.
    pub(super) fn average(
        &self,
        texts: &[&str],
        weights: &[f32],
        warnings: &mut Vec<String>,
    ) -> Result<Vec<f32>> {
        let mut vectors = self.encode_texts(texts, warnings)?;
        if texts.len() == 1 {
            return Ok(vectors.row(0).to_vec());
        }
        let mut sum = vec![0.0; vectors.dim()];
        for (n, weight) in weights.iter().enumerate() {
            let row = vectors.row_mut(n);
            normalize(row);
            sum.iter_mut().zip(row).for_each(|(sum, v)| *sum += weight * *v);
        }
        Ok(sum)
    }

    /// Encodes the texts. Adds a warning to `warnings` if a text is too long for the encoder.
    fn encode_texts(&self, texts: &[&str], warnings: &mut Vec<String>) -> Result<Vectors> {
        let options = TextOptions { prompt: self.recipe()?.prompt.clone() };
        let encoder = self.encoder()?;
        let encoded = encoder.encode(texts, &options)?;
        if encoded.spent.cut_tokens > 0 {
            warnings.push(format!(
                "the query is too long for {}: the dense search ignored its last {} tokens",
                encoder.name(),
                encoded.spent.cut_tokens
            ));
        }
        Ok(encoded.vectors)
    }
}

/// Returns the weights of `count` turns. The last turn has weight 1. Each earlier turn has the weight of the next
/// turn times `decay`. The weights are then scaled to a sum of 1.
pub(super) fn weights(count: usize, decay: f32) -> Vec<f32> {
    let mut weights: Vec<f32> = (0..count).map(|n| decay.powi((count - 1 - n) as i32)).collect();
    let sum: f32 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum);
    weights
}

impl Like {
    fn of(dialogue: Dialogue, turn: Option<TurnNo>) -> Self {
        let at = turn.and_then(|number| dialogue.turns.iter().position(|t| t.number == number));
        Like { dialogue, at }
    }

    fn turn(&self) -> Option<&Turn> {
        self.at.and_then(|at| self.dialogue.turns.get(at))
    }

    fn kind(&self) -> Kind {
        if self.turn().is_some() { Kind::Utterances } else { Kind::Dialogues }
    }

    fn vector(&self, view: &dyn View) -> Result<Option<Vec<f32>>> {
        Ok(view.vector(&self.dialogue, self.turn())?.map(Cow::into_owned))
    }

    fn text(&self) -> String {
        match self.turn() {
            Some(turn) => turn.text.clone(),
            None => self.dialogue.turns.iter().map(|turn| turn.text.as_str()).collect::<Vec<_>>().join("\n"),
        }
    }
}

/// Returns the kind of the items that a request searches for.
pub(super) fn kind_of(request: &SearchRequest, view: &dyn View) -> Result<Kind> {
    match (&request.like, &request.dialogue) {
        (Some(id), _) => Ok(if view.find(id)?.1.is_some() { Kind::Utterances } else { Kind::Dialogues }),
        (None, Some(_)) => Ok(Kind::Dialogues),
        (None, None) => Ok(request.of.kind()),
    }
}

#[cfg(test)]
mod tests {
    use super::weights;

    #[test]
    fn earlier_turns_have_lower_weights() {
        let three = weights(3, 0.5);
        assert!((three[2] - 4.0 / 7.0).abs() < 1e-6 && (three[0] - 1.0 / 7.0).abs() < 1e-6);
        assert_eq!(weights(1, 0.5), [1.0]);
        assert_eq!(weights(3, 0.0), [0.0, 0.0, 1.0]);
    }
}
