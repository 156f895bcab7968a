//! View of the dialogues in Milvus for one search request. It reads data from the server in batches and caches the
//! data.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{HashMap, HashSet},
    hash::Hash,
};

use milvus::v2::{IndexType, SearchVectors, SingleResult, request::dql::SearchRequest};

use super::{
    engine::Milvus,
    expression, names,
    reading::{DEEPEST, unexpected_data},
    rows::{Answer, key_of, key_text, row_id, version_of},
    schema::{TERMS, TITLE_TERMS},
};
use turnwise_core::{
    error::{Error, Result},
    ids::{DialogueId, IdKey, TurnNo},
    vectors::cosine,
};
use turnwise_corpus::{Dialogue, SpokenTurn, Turn, filter::Filter};
use turnwise_index::{
    dense::SimilarityDistribution,
    engine::{Bookmark, Candidate, HitList, KeywordQuery, Prefetch, SearchModes, Version, View},
    lexical::TermScore,
    vectors::Kind,
};
use turnwise_store::{Prepared, find_by};

/// Minimum number of candidates that a search in the vector index examines. With fewer candidates, searches with a
/// filter miss many matches.
const MIN_CANDIDATES: usize = 512;

/// Number of dialogues, and maximum number of turns of each, from which the spread of the cosines is estimated.
const SPREAD_DIALOGUES: usize = 256;
const SPREAD_TURNS: usize = 4;

/// Median and standard deviation of cosines; `None` if there are too few vectors.
pub(super) type Spread = Option<(f32, f32)>;

pub(super) struct MilvusView<'a> {
    engine: &'a Milvus,
    /// Filter expression that every found row must match; empty if there is no filter.
    filter: String,
    /// Kind of rows for which the filter was admitted.
    filtered: Kind,
    /// Cached records by dialogue key; `None` for a dialogue that does not exist.
    records: RefCell<HashMap<IdKey, Option<(Version, Dialogue)>>>,
    /// Cached vectors by row id; `None` for a row without a vector.
    vectors: RefCell<HashMap<String, Option<Vec<f32>>>>,
}

impl<'a> MilvusView<'a> {
    pub(super) fn of(engine: &'a Milvus) -> Self {
        MilvusView {
            engine,
            filter: String::new(),
            filtered: Kind::Dialogues,
            records: RefCell::default(),
            vectors: RefCell::default(),
        }
    }

    /// Returns the `k` best rows of a kind for a query. `field` is the column that is searched: `vector` for a dense
    /// search, and a column of weighted terms for a lexical search.
    fn best(&self, kind: Kind, field: &str, query: SearchVectors, k: usize, filter: &str) -> Result<HitList> {
        let connection = &self.engine.connection;
        let directed = (field == "vector").then_some("directed");
        let request = SearchRequest::builder()
            .collection_name(self.engine.collection(kind))
            .vector_field(field)
            .vectors(query)
            .filter(filter)
            .output_fields(["key", "version", "turn", "dialogue"].into_iter().chain(directed))
            .limit(k as i64)
            .extra_params(self.depth(field, k))
            .consistency_level(connection.target.consistency)
            .build();
        let answer = connection.call("searching", async { connection.client.search(request?).await })?;
        let Some(result) = answer.results().get_results().first() else {
            return Ok(NO_HITS);
        };
        let found = self.found(kind, field != "vector", result)?;
        Ok(HitList { exhausted: result.get_scores().len() < k, found })
    }

    /// Returns those of the terms for which a search in a column of weighted terms finds no row.
    pub(super) fn absent_terms(&self, kind: Kind, field: &str, terms: &[String]) -> Result<Vec<String>> {
        if terms.is_empty() {
            return Ok(Vec::new());
        }
        let connection = &self.engine.connection;
        let texts = terms.iter().map(|term| names::terms([term.as_str()].into_iter())).collect();
        let request = SearchRequest::builder()
            .collection_name(self.engine.collection(kind))
            .vector_field(field)
            .vectors(SearchVectors::EmbeddedText(texts))
            .limit(1)
            .consistency_level(connection.target.consistency)
            .build();
        let answer = connection.call("searching", async { connection.client.search(request?).await })?;
        let results = answer.results().get_results();
        if results.len() != terms.len() {
            return Err(self.unexpected_data("results of a different number of queries"));
        }
        let is_absent = |result: &SingleResult| result.get_scores().first().is_none_or(|score| *score == 0.0);
        Ok(terms
            .iter()
            .zip(results)
            .filter(|(_, result)| is_absent(result))
            .map(|(term, _)| term.clone())
            .collect())
    }

    /// Returns the search parameter that determines how many candidates a search for `k` hits examines. The name of the
    /// parameter depends on the type of the vector index.
    fn depth(&self, field: &str, k: usize) -> HashMap<String, String> {
        let (name, most) = match self.engine.connection.target.graph {
            _ if field != "vector" => return HashMap::new(),
            IndexType::DiskAnn => ("search_list", 65_535),
            IndexType::IvfRabitq => return HashMap::from([("nprobe".to_owned(), "128".to_owned())]),
            _ => ("ef", usize::MAX),
        };
        HashMap::from([(name.to_owned(), (2 * k).max(MIN_CANDIDATES).min(most).to_string())])
    }

    /// Converts a response to candidates, best first. `words` is true for a lexical search.
    fn found(&self, kind: Kind, words: bool, result: &SingleResult) -> Result<Vec<Candidate>> {
        let answer = Answer(result.get_output_fields());
        let (keys, versions, turns) =
            (answer.texts("key"), answer.numbers("version"), answer.numbers("turn"));
        let (ids, scores) = (answer.texts("dialogue"), result.get_scores());
        if [keys.len(), versions.len(), turns.len(), ids.len()] != [scores.len(); 4] {
            return Err(self.unexpected_data("columns of different lengths"));
        }
        let directed = answer.flags("directed");
        let mut found = Vec::with_capacity(scores.len());
        for (n, id) in ids.iter().enumerate().filter(|(n, _)| words || directed.get(*n) == Some(&true)) {
            let row = Candidate {
                dialogue: key_of(&keys[n]).ok_or_else(|| self.unexpected_data("a row without a key"))?,
                version: Version(versions[n] as u64),
                turn: (kind == Kind::Utterances).then(|| TurnNo(turns[n].try_into().unwrap_or(0))),
                // Some servers return BM25 scores, and others return negated BM25 scores as distances.
                score: if words { scores[n].abs() } else { scores[n] },
                terms: None,
            };
            found.push((row, id));
        }
        // The server returns rows with equal scores in arbitrary order. Sort them, because fusion uses their ranks.
        found.sort_by(|(a, x), (b, y)| {
            b.score.total_cmp(&a.score).then_with(|| (y, b.turn).cmp(&(x, a.turn)))
        });
        Ok(found.into_iter().map(|(row, _)| row).collect())
    }

    fn unexpected_data(&self, what: &str) -> Error {
        unexpected_data(&self.engine.connection.target.to_string(), what)
    }

    fn fetch_records(&self, keys: impl Iterator<Item = IdKey>) -> Result<()> {
        let mut known = self.records.borrow_mut();
        let unknown = unknown(&known, keys);
        let mut read = self.engine.connection.dialogues(&self.engine.manifest, &unknown)?;
        known.extend(unknown.into_iter().map(|key| (key, read.remove(&key))));
        Ok(())
    }

    fn fetch_vectors(&self, kind: Kind, rows: impl Iterator<Item = String>) -> Result<()> {
        if self.engine.manifest.recipe.is_none() {
            return Ok(());
        }
        let mut known = self.vectors.borrow_mut();
        let unknown = unknown(&known, rows);
        known.extend(unknown.iter().map(|row| (row.clone(), None)));
        let mut visit = |answer: &Answer<'_>| {
            known.extend(answer.vectors().map(|(row, vector)| (row.clone(), Some(vector.clone()))));
            Ok(())
        };
        let wanted = ["id", "vector", "directed"];
        let connection = &self.engine.connection;
        connection.rows_by(&self.engine.collection(kind), "id", &unknown, &wanted, &mut visit).map(drop)
    }

    /// Returns the spreads of the cosines of two turns, of two dialogues, and of a turn and a dialogue, in this order.
    /// Estimates them from a sample.
    pub(super) fn spreads(&self) -> Result<[Spread; 3]> {
        let sample = self.sample(SPREAD_DIALOGUES)?;
        let rows = Kind::ALL.map(|kind| {
            let rows = sample.iter().flat_map(|(version, dialogue)| {
                let row = |turn| row_id(dialogue.id.key(), *version, turn);
                let step = dialogue.turns.len().div_ceil(SPREAD_TURNS).max(1);
                let turns = dialogue.turns.iter().step_by(step).map(|turn| Some(turn.number));
                match kind {
                    Kind::Utterances => turns.map(row).collect(),
                    Kind::Dialogues => vec![row(None)],
                }
            });
            (kind, rows.collect::<Vec<String>>())
        });
        for (kind, rows) in &rows {
            self.fetch_vectors(*kind, rows.iter().cloned())?;
        }
        let vectors = self.vectors.borrow();
        let [turns, dialogues] = rows.map(|(_, rows)| -> Vec<&Vec<f32>> {
            rows.iter().filter_map(|row| vectors.get(row)?.as_ref()).collect()
        });
        let spread = |ones: &[&Vec<f32>], others: &[&Vec<f32>], same| {
            let cosine = |a: usize, b: usize| Ok(cosine(ones[a], others[b]));
            Ok(SimilarityDistribution::sample_pairs([ones.len(), others.len()], same, cosine)?.spread())
        };
        Ok([
            spread(&turns, &turns, true)?,
            spread(&dialogues, &dialogues, true)?,
            spread(&turns, &dialogues, false)?,
        ])
    }

    fn fetch_turns(&self, dialogues: impl Iterator<Item = IdKey>) -> Result<()> {
        let different: HashSet<IdKey> = dialogues.collect();
        let mut rows = Vec::new();
        self.fetch_records(different.iter().copied())?;
        for (key, record) in self.records.borrow().iter().filter(|(key, _)| different.contains(key)) {
            if let Some((version, dialogue)) = record {
                let name = |turn: &Turn| row_id(*key, *version, Some(turn.number));
                rows.extend(dialogue.turns.iter().map(name));
            }
        }
        self.fetch_vectors(Kind::Utterances, rows.into_iter())
    }

    /// Fetches the vectors of turns and of the turns around them, without blank turns.
    fn fetch_around(&self, turns: &[Candidate], before: usize, after: usize) -> Result<()> {
        self.fetch_records(turns.iter().map(|found| found.dialogue))?;
        let mut by_dialogue: HashMap<IdKey, Vec<TurnNo>> = HashMap::new();
        for found in turns {
            by_dialogue.entry(found.dialogue).or_default().extend(found.turn);
        }
        let mut rows = HashSet::new();
        for (key, wanted) in by_dialogue {
            let records = self.records.borrow();
            let Some(Some((version, dialogue))) = records.get(&key) else { continue };
            let spoken = dialogue.turns.iter().filter(|turn| !turn.text.trim().is_empty());
            let spoken: Vec<TurnNo> = spoken.map(|turn| turn.number).collect();
            for turn in wanted {
                let Ok(at) = spoken.binary_search(&turn) else { continue };
                let around = at.saturating_sub(before)..(at + after + 1).min(spoken.len());
                rows.extend(spoken[around].iter().map(|turn| row_id(key, *version, Some(*turn))));
            }
        }
        self.fetch_vectors(Kind::Utterances, rows.into_iter())
    }
}

const NO_HITS: HitList = HitList { found: Vec::new(), exhausted: true };

fn unknown<K: Eq + Hash, V>(cache: &HashMap<K, V>, keys: impl Iterator<Item = K>) -> Vec<K> {
    let unknown: HashSet<K> = keys.filter(|key| !cache.contains_key(key)).collect();
    unknown.into_iter().collect()
}

/// Converts a keyword query to a search text in the format of the column `words`.
fn query_of(words: &KeywordQuery) -> SearchVectors {
    let terms = || names::terms(words.terms.iter().map(String::as_str));
    SearchVectors::EmbeddedText(vec![words.text.clone().unwrap_or_else(terms)])
}

fn name_of(found: &Candidate) -> String {
    row_id(found.dialogue, found.version, found.turn)
}

impl View for MilvusView<'_> {
    fn admit(&mut self, filter: &Filter, kind: Kind, _: SearchModes) -> Result<Option<u64>> {
        self.filtered = kind;
        self.filter = expression::of(filter, kind, &self.engine.manifest)?;
        Ok(None)
    }

    fn nearest(&self, kind: Kind, vector: &[f32], k: usize, _: bool) -> Result<HitList> {
        let k = k.min(DEEPEST);
        // A zero vector has no nearest neighbors, but Milvus would return arbitrary rows for it.
        if !vector.iter().all(|v| v.is_finite()) || vector.iter().all(|v| *v == 0.0) {
            return Ok(NO_HITS);
        }
        self.best(kind, "vector", SearchVectors::Float(vec![vector.to_vec()]), k, &self.filter)
    }

    fn keyword_search(&self, kind: Kind, words: &KeywordQuery, k: usize) -> Result<HitList> {
        let k = k.min(DEEPEST);
        let mut list = self.best(kind, TERMS, query_of(words), k, &self.filter)?;
        list.found.retain(|found| found.score > 0.0);
        Ok(list)
    }

    fn title_search(&self, words: &KeywordQuery, k: usize) -> Result<HitList> {
        if !self.engine.manifest.titles || words.expression.is_some() {
            return Ok(NO_HITS);
        }
        let filter = if self.filtered == Kind::Dialogues { &self.filter } else { "" };
        let mut list = self.best(Kind::Dialogues, TITLE_TERMS, query_of(words), k.min(DEEPEST), filter)?;
        list.found.retain(|found| found.score > 0.0);
        Ok(list)
    }

    fn find(&self, id: &str) -> Result<(Dialogue, Option<TurnNo>)> {
        let get = |id: &DialogueId| Ok(self.record(id.key())?.map(|(_, dialogue)| dialogue));
        find_by(id, get)?.ok_or_else(|| {
            Error::input(format!("{} holds no dialogue `{id}`", self.engine.connection.target))
                .with_hint("`turnwise search` shows the ids of dialogues")
        })
    }

    fn record(&self, dialogue: IdKey) -> Result<Option<(Version, Dialogue)>> {
        self.fetch_records([dialogue].into_iter())?;
        Ok(self.records.borrow().get(&dialogue).cloned().flatten())
    }

    fn sample(&self, most: usize) -> Result<Vec<(Version, Dialogue)>> {
        let engine = self.engine;
        let (mut sample, mut after) = (Vec::new(), None);
        // The keys are hashes of the ids, so the first dialogues in key order are a random sample.
        while sample.len() < most {
            let wanted = most - sample.len();
            let (found, next) = engine.connection.list_dialogues(&engine.manifest, after, None, wanted)?;
            sample.extend(found);
            match next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        let mut records = self.records.borrow_mut();
        records.extend(sample.iter().map(|read| (read.1.id.key(), Some(read.clone()))));
        Ok(sample)
    }

    fn vector<'a>(&'a self, dialogue: &Dialogue, turn: Option<&Turn>) -> Result<Option<Cow<'a, [f32]>>> {
        let kind = if turn.is_some() { Kind::Utterances } else { Kind::Dialogues };
        let version = version_of(Prepared::new(dialogue)?.content);
        let row = row_id(dialogue.id.key(), version, turn.map(|turn| turn.number));
        self.fetch_vectors(kind, [row.clone()].into_iter())?;
        Ok(self.vectors.borrow().get(&row).cloned().flatten().map(Cow::Owned))
    }

    fn turn_vector<'a>(&'a self, dialogue: IdKey, turn: &SpokenTurn<'_>) -> Result<Option<Cow<'a, [f32]>>> {
        self.fetch_records([dialogue].into_iter())?;
        let version = match self.records.borrow().get(&dialogue) {
            Some(Some((version, _))) => *version,
            _ => return Ok(None),
        };
        let row = row_id(dialogue, version, Some(turn.number));
        self.fetch_vectors(Kind::Utterances, [row.clone()].into_iter())?;
        Ok(self.vectors.borrow().get(&row).cloned().flatten().map(Cow::Owned))
    }

    fn cosine(&self, kind: Kind, found: &Candidate, vector: &[f32]) -> Result<Option<f32>> {
        let row = name_of(found);
        self.fetch_vectors(kind, [row.clone()].into_iter())?;
        let known = self.vectors.borrow();
        Ok(known.get(&row).and_then(Option::as_ref).map(|stored| cosine(vector, stored)))
    }

    fn best_turn(&self, words: &KeywordQuery, dialogue: &DialogueId) -> Result<Option<TurnNo>> {
        let only = format!("key == {}", names::quoted(&key_text(dialogue.key())));
        let best = self.best(Kind::Utterances, TERMS, query_of(words), 1, &only)?;
        Ok(best.found.first().and_then(|found| found.turn))
    }

    fn explain(
        &self,
        _: Kind,
        _: &KeywordQuery,
        _: &DialogueId,
        _: Option<TurnNo>,
    ) -> Result<Vec<TermScore>> {
        Ok(Vec::new())
    }

    fn prefetch(&self, kind: Kind, of: &[Candidate], what: Prefetch) -> Result<()> {
        match what {
            Prefetch::Records => self.fetch_records(of.iter().map(|found| found.dialogue)),
            Prefetch::Vectors => self.fetch_vectors(kind, of.iter().map(name_of)),
            Prefetch::Turns => self.fetch_turns(of.iter().map(|found| found.dialogue)),
            Prefetch::Around { before, after } => self.fetch_around(of, before, after),
        }
    }

    fn list_dialogues(
        &self,
        from: Bookmark,
        filter: Option<&Filter>,
        most: usize,
    ) -> Result<(Vec<Dialogue>, Option<Bookmark>)> {
        let after = match from {
            Bookmark::After(key) => Some(key),
            Bookmark::Beginning | Bookmark::At(_) => None,
        };
        let engine = self.engine;
        let (found, next) = engine.connection.list_dialogues(&engine.manifest, after, filter, most)?;
        Ok((found.into_iter().map(|(_, dialogue)| dialogue).collect(), next.map(Bookmark::After)))
    }

    fn bookmark_after(&self, id: &DialogueId) -> Result<Option<Bookmark>> {
        let key = id.key();
        Ok(self.record(key)?.map(|_| Bookmark::After(key)))
    }
}
