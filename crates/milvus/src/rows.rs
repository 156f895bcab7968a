//! Conversion of dialogues to rows of Milvus collections, and of response columns to values.

use std::collections::BTreeMap;

use milvus::v2::FieldData;
use serde_json::{Value, json};

use super::{
    generations::Manifest,
    names,
    schema::{FIRST_TIME, LAST_TIME},
};
use turnwise_core::{
    error::{Error, Result},
    ids::{IdKey, TurnNo},
};
use turnwise_corpus::{
    Dialogue, Turn,
    filter::{TypedValue, visit_values},
};
use turnwise_index::engine::Version;
use turnwise_text::Analyzer;

/// Separator between the texts of a field in the column `folds`.
pub(super) const BETWEEN: char = '\u{1}';
const PIECE: usize = 60_000;
const LONGEST_JSON: usize = 60_000;
pub(super) const MOST_FACTS: usize = 4_096;

/// Returns the version of a dialogue from the hash of its content. The version consists of the first 8 bytes of the
/// hash, shifted right by one bit, because Milvus stores signed numbers.
pub(super) fn version_of(content: IdKey) -> Version {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&content.0[..8]);
    Version(u64::from_le_bytes(bytes) >> 1)
}

/// Returns the key of a dialogue as a text for columns. The text consists of 32 hexadecimal digits.
pub(super) fn key_text(key: IdKey) -> String {
    format!("{key:?}")
}

/// Parses a text that [`key_text`] has created. Returns `None` if the text is invalid.
pub(super) fn key_of(text: &str) -> Option<IdKey> {
    let mut key = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (n, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * n..2 * n + 2], 16).ok()?;
    }
    Some(IdKey(key))
}

/// Returns the id of the row of a turn, or of a whole dialogue if `turn` is `None`. The id includes the version, so
/// that rows of a new version do not overwrite those of the current version.
pub(super) fn row_id(dialogue: IdKey, version: Version, turn: Option<TurnNo>) -> String {
    let turn = turn.map(|turn| format!("-{turn}")).unwrap_or_default();
    format!("{}-{:016x}{turn}", key_text(dialogue), version.0)
}

/// Values of the columns that filters use, for one row. See [`super::expression`].
struct FilterColumns {
    /// Pairs of a field and a value, for tests of equality. See [`names::fact`].
    facts: Vec<String>,
    /// Minimum and maximum of the values of each field, for comparisons by order. Values of different types have
    /// separate entries, for example `n_least` and `n_most` for numbers.
    bounds: Value,
    /// Joined texts of each field in lower case, for substring search.
    folds: Value,
    /// Minimum and maximum of the field `time`, in microseconds.
    times: (i64, i64),
}

impl FilterColumns {
    fn of(dialogue: &Dialogue, turn: Option<&Turn>) -> Result<Self> {
        let mut facts = Vec::new();
        let mut bounds: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
        let mut folds: BTreeMap<String, String> = BTreeMap::new();
        let mut times = (i64::MAX, i64::MIN);
        visit_values(dialogue, turn, &mut |field, value| {
            if field == "text" {
                return;
            }
            let (kind, written, value) = match value {
                TypedValue::Text(text) => {
                    let fold = folds.entry(names::key(field)).or_insert_with(|| BETWEEN.to_string());
                    fold.push_str(&names::folded(text));
                    fold.push(BETWEEN);
                    ('t', text.to_owned(), json!(text))
                }
                TypedValue::Number(number) => ('n', number.to_string(), number_value(number)),
                TypedValue::Time(time) => {
                    let at = time.0.as_microsecond();
                    if field == "time" {
                        times = (times.0.min(at), times.1.max(at));
                    }
                    ('i', time.to_string(), json!(at))
                }
            };
            facts.push(names::fact(field, kind, &written));
            let bound = bounds.entry(names::key(field)).or_default();
            for (end, less) in [("least", true), ("most", false)] {
                let known = bound.entry(format!("{kind}_{end}")).or_insert_with(|| value.clone());
                if is_less(&value, known) == less && value != *known {
                    known.clone_from(&value);
                }
            }
        });
        facts.sort_unstable();
        facts.dedup();
        facts.retain(|fact| fact.len() <= names::LONGEST_FACT);
        let columns = FilterColumns { facts, bounds: json!(bounds), folds: json!(folds), times };
        columns.check(dialogue)?;
        Ok(columns)
    }

    fn check(&self, dialogue: &Dialogue) -> Result<()> {
        let too_much = |what: &str, n: usize, most: usize| {
            Err(Error::data(format!(
                "{}: a row has {n} {what} in its filter columns, but Milvus allows at most {most}",
                dialogue.id
            )))
        };
        if self.facts.len() > MOST_FACTS {
            return too_much("values", self.facts.len(), MOST_FACTS);
        }
        match [&self.bounds, &self.folds].into_iter().map(|json| json.to_string().len()).max() {
            Some(n) if n > LONGEST_JSON => too_much("bytes", n, LONGEST_JSON),
            _ => Ok(()),
        }
    }
}

fn number_value(number: f64) -> Value {
    match number.fract() == 0.0 && number.abs() < 9e15 {
        true => json!(number as i64),
        false => json!(number),
    }
}

fn is_less(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a < b,
        _ => a.as_f64().unwrap_or_default() < b.as_f64().unwrap_or_default(),
    }
}

/// Returns an error if the filter columns of a dialogue or of one of its turns exceed the limits of Milvus.
pub(super) fn check(dialogue: &Dialogue) -> Result<()> {
    FilterColumns::of(dialogue, None)?;
    dialogue.turns.iter().try_for_each(|turn| FilterColumns::of(dialogue, Some(turn)).map(drop))
}

/// Kind of content of the column `words`, in which Milvus searches keywords.
#[derive(Debug, Clone, Copy)]
pub(super) enum WordsColumn {
    /// Terms of the turnwise analyzer, encoded so that any tokenizer of Milvus keeps them unchanged.
    Terms(Analyzer),
    /// The texts themselves, which Milvus splits into terms.
    Texts,
}

impl WordsColumn {
    pub(super) fn of(manifest: &Manifest) -> Result<Self> {
        match manifest.words {
            None => manifest.analyzer().map(WordsColumn::Terms),
            Some(_) => Ok(WordsColumn::Texts),
        }
    }

    fn column_text(self, texts: &[&str]) -> String {
        let WordsColumn::Terms(analyzer) = self else { return texts.join("\n") };
        let analyzed: Vec<_> = texts.iter().flat_map(|text| analyzer.analyze(text)).collect();
        names::terms(analyzed.iter().map(|token| token.term.as_str()))
    }
}

/// Rows of turns, or rows of whole dialogues, stored by column.
#[derive(Default)]
pub(super) struct Rows {
    ids: Vec<String>,
    keys: Vec<String>,
    versions: Vec<i64>,
    turns: Vec<i64>,
    corpora: Vec<String>,
    dialogues: Vec<String>,
    facts: Vec<Vec<String>>,
    bounds: Vec<Value>,
    folds: Vec<Value>,
    /// Text of a turn for the operator `like`; empty for a whole dialogue. See [`names::folded`].
    said: Vec<String>,
    words: Vec<String>,
    /// First and last time of each row, in microseconds; see [`super::schema::FIRST_TIME`].
    times: [Vec<i64>; 2],
    /// Titles in the form of `words`; empty if the collection has no column for them.
    titles: Vec<String>,
    vectors: Vec<Vec<f32>>,
    /// For each row, true if the original vector has a direction. A zero vector has none.
    directed: Vec<bool>,
    pub(super) bytes: usize,
    /// Number of rows whose text was truncated to the maximum length of a column.
    pub(super) cut: u64,
}

impl Rows {
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Adds the row of a turn, or of the whole dialogue if `turn` is `None`. The row has no vector yet.
    pub(super) fn push(
        &mut self,
        dialogue: &Dialogue,
        turn: Option<&Turn>,
        version: Version,
        words: WordsColumn,
    ) -> Result<()> {
        let columns = FilterColumns::of(dialogue, turn)?;
        let key = dialogue.id.key();
        let texts: Vec<&str> = match turn {
            Some(turn) => vec![&turn.text],
            None => dialogue.turns.iter().map(|turn| turn.text.as_str()).collect(),
        };
        let mut words = words.column_text(&texts);
        let mut said = turn.map(|turn| names::folded(&turn.text)).unwrap_or_default();
        self.cut += u64::from(truncate(&mut words) | truncate(&mut said));
        self.bytes += words.len() + said.len() + columns.facts.iter().map(String::len).sum::<usize>() + 256;
        self.ids.push(row_id(key, version, turn.map(|turn| turn.number)));
        self.keys.push(key_text(key));
        self.versions.push(version.0 as i64);
        self.turns.push(turn.map_or(0, |turn| i64::from(turn.number.0)));
        self.corpora.push(dialogue.source.clone());
        self.dialogues.push(dialogue.id.to_string());
        self.times[0].push(columns.times.0);
        self.times[1].push(columns.times.1);
        self.facts.push(columns.facts);
        self.bounds.push(columns.bounds);
        self.folds.push(columns.folds);
        self.said.push(said);
        self.words.push(words);
        Ok(())
    }

    /// Adds the title of the dialogue to the row that was added last.
    pub(super) fn push_title(&mut self, dialogue: &Dialogue, words: WordsColumn) {
        let mut title = words.column_text(&[dialogue.title.as_deref().unwrap_or_default()]);
        self.cut += u64::from(truncate(&mut title));
        self.bytes += title.len();
        self.titles.push(title);
    }

    /// Sets the vectors of all rows, in order. A zero vector has no direction, but Milvus would return it in searches.
    /// Therefore, this method replaces a zero vector with a unit vector and sets the column `directed` to false.
    pub(super) fn set_vectors(&mut self, vectors: Vec<Vec<f32>>) {
        self.bytes += vectors.iter().map(|vector| 4 * vector.len()).sum::<usize>();
        self.directed = vectors.iter().map(|vector| vector.iter().any(|v| *v != 0.0)).collect();
        self.vectors = vectors;
        for (vector, _) in self.vectors.iter_mut().zip(&self.directed).filter(|(_, directed)| !**directed) {
            vector.iter_mut().take(1).for_each(|v| *v = 1.0);
        }
    }

    /// Returns the columns of the collection to which the manifest belongs.
    pub(super) fn into_columns(self, manifest: &Manifest) -> Vec<FieldData> {
        let mut columns = vec![
            text("id", self.ids),
            text("key", self.keys),
            number("version", self.versions),
            number("turn", self.turns),
            text("corpus", self.corpora),
            text("dialogue", self.dialogues),
            FieldData::ArrayVarChar { name: "facts".into(), values: self.facts },
            FieldData::Json { name: "bounds".into(), values: self.bounds },
            FieldData::Json { name: "folds".into(), values: self.folds },
            text("said", self.said),
            text("words", self.words),
        ];
        if manifest.times {
            columns.extend(
                [FIRST_TIME, LAST_TIME].into_iter().zip(self.times).map(|(name, times)| number(name, times)),
            );
        }
        if !self.titles.is_empty() {
            columns.push(text("title", self.titles));
        }
        if !self.vectors.is_empty() {
            columns.push(FieldData::FloatVector { name: "vector".into(), values: self.vectors });
            columns.push(FieldData::Bool { name: "directed".into(), values: self.directed });
        }
        columns
    }
}

/// Truncates a text to the maximum length of a column, at the end of a word. Returns whether the text was truncated.
fn truncate(text: &mut String) -> bool {
    if text.len() <= names::LONGEST_TEXT {
        return false;
    }
    text.truncate(text.floor_char_boundary(names::LONGEST_TEXT));
    let end = text.rfind(' ').unwrap_or(text.len());
    text.truncate(end);
    true
}

fn text(name: &str, values: Vec<String>) -> FieldData {
    FieldData::VarChar { name: name.into(), values }
}

fn number(name: &str, values: Vec<i64>) -> FieldData {
    FieldData::Int64 { name: name.into(), values }
}

/// Rows with pieces of records, stored by column. A record is a dialogue as JSON.
#[derive(Default)]
pub(super) struct Pieces {
    ids: Vec<String>,
    keys: Vec<String>,
    versions: Vec<i64>,
    numbers: Vec<i64>,
    counts: Vec<i64>,
    corpora: Vec<String>,
    texts: Vec<String>,
    pub(super) bytes: usize,
}

impl Pieces {
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Adds a piece of a record. `number` is the number of the piece, starting at 0, and `count` is the number of
    /// pieces.
    ///
    /// The row id of a first piece is only the key of the dialogue. Writing the first piece therefore replaces the
    /// first piece of the previous version, and makes the new version current.
    pub(super) fn push(
        &mut self,
        key: IdKey,
        version: Version,
        [number, count]: [usize; 2],
        corpus: &str,
        piece: &str,
    ) {
        self.bytes += piece.len() + 256;
        self.ids.push(match number {
            0 => key_text(key),
            n => format!("{}-{n}", row_id(key, version, None)),
        });
        self.keys.push(key_text(key));
        self.versions.push(version.0 as i64);
        self.numbers.push(number as i64);
        self.counts.push(count as i64);
        self.corpora.push(corpus.to_owned());
        self.texts.push(piece.to_owned());
    }

    pub(super) fn into_columns(self) -> Vec<FieldData> {
        let nothing = no_vectors(self.ids.len());
        vec![
            text("id", self.ids),
            text("key", self.keys),
            number("version", self.versions),
            number("piece", self.numbers),
            number("pieces", self.counts),
            text("corpus", self.corpora),
            text("json", self.texts),
            nothing,
        ]
    }
}

/// Returns the vector column of a collection without vectors.
fn no_vectors(rows: usize) -> FieldData {
    FieldData::FloatVector { name: "nothing".into(), values: vec![vec![1.0, 0.0]; rows] }
}

/// Returns the columns of the rows for names of speakers.
pub(super) fn speakers<'a>(names: impl Iterator<Item = &'a str>) -> Vec<FieldData> {
    let names: Vec<String> = names.map(str::to_owned).collect();
    let folded = names.iter().map(|name| names::folded(name)).collect();
    let nothing = no_vectors(names.len());
    vec![text("id", names), text("folded", folded), nothing]
}

/// Splits a record into one or more pieces of at most [`PIECE`] bytes.
pub(super) fn pieces(json: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut left = json;
    while left.len() > PIECE {
        let (part, others) = left.split_at(left.floor_char_boundary(PIECE));
        parts.push(part);
        left = others;
    }
    parts.push(left);
    parts
}

/// Columns of a response. A column that is missing or does not have the expected type counts as empty.
pub(super) struct Answer<'a>(pub(super) &'a [FieldData]);

impl<'a> Answer<'a> {
    /// Returns the values of the first column for which `values` returns `Some`. Returns no values if there is no such
    /// column.
    fn find<T>(&self, values: impl Fn(&'a FieldData) -> Option<&'a Vec<T>>) -> &'a [T] {
        self.0.iter().find_map(values).map_or(&[], Vec::as_slice)
    }

    pub(super) fn texts(&self, wanted: &str) -> &'a [String] {
        self.find(|column| match column {
            FieldData::VarChar { name, values } if name == wanted => Some(values),
            _ => None,
        })
    }

    pub(super) fn numbers(&self, wanted: &str) -> &'a [i64] {
        self.find(|column| match column {
            FieldData::Int64 { name, values } if name == wanted => Some(values),
            _ => None,
        })
    }

    pub(super) fn flags(&self, wanted: &str) -> &'a [bool] {
        self.find(|column| match column {
            FieldData::Bool { name, values } if name == wanted => Some(values),
            _ => None,
        })
    }

    /// Returns the ids and vectors of the rows whose vector is not zero.
    pub(super) fn vectors(&self) -> impl Iterator<Item = (&'a String, &'a Vec<f32>)> {
        let vectors = self.find(|column| match column {
            FieldData::FloatVector { name, values } if name == "vector" => Some(values),
            _ => None,
        });
        let rows = self.texts("id").iter().zip(vectors).zip(self.flags("directed"));
        rows.filter(|(_, directed)| **directed).map(|(row, _)| row)
    }
}
