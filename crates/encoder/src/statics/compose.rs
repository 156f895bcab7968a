//! Code shared by the static encoders: implements [`Encoder`], and counts the terms in a corpus.

use std::collections::HashMap;

use rayon::prelude::*;
use turnwise_core::error::{Error, Result};
use turnwise_corpus::{Dialogue, Turn};
use turnwise_text as text;

use crate::{
    DialogueMode, DialogueOptions, EncodeStats, Encoded, Encoder, Fingerprint, TextOptions, Vectors,
    contract::speakers, statics::linalg::Sparse,
};

/// Vector of an input, and the number of known words in the input. If the input has no known words, the vector is zero.
pub(super) struct Composed {
    pub vector: Vec<f64>,
    pub words: u64,
}

/// Properties of a static encoder.
pub(super) struct Properties {
    /// Display name.
    pub name: &'static str,
    /// Number of words or terms that the encoder knows, for display, such as `12 words`.
    pub size: String,
    /// Width of the vectors.
    pub dim: usize,
    /// Fingerprint of the encoder.
    pub fingerprint: Fingerprint,
    /// True if vectors are L2-normalized.
    pub normalize: bool,
}

/// Trait of the static encoders. Every type that implements this trait also implements [`Encoder`].
pub(super) trait StaticEncoder: Send + Sync {
    /// Returns the properties of the encoder.
    fn properties(&self) -> &Properties;

    /// Computes one vector for several texts, as if they were one text. The vector is not L2-normalized.
    fn compose(&self, texts: &[&str]) -> Composed;
}

impl<E: StaticEncoder> Encoder for E {
    fn name(&self) -> &str {
        self.properties().name
    }

    fn dim(&self) -> usize {
        self.properties().dim
    }

    fn fingerprint(&self) -> Fingerprint {
        self.properties().fingerprint
    }

    fn normalizes(&self) -> bool {
        self.properties().normalize
    }

    fn describe(&self) -> String {
        format!("{}, f32 on cpu, {} threads", self.properties().size, rayon::current_num_threads())
    }

    fn encode(&self, texts: &[&str], options: &TextOptions) -> Result<Encoded> {
        let composed = texts.par_iter().map(|text| self.compose(&[text]));
        gather(self.properties(), options.prompt.as_deref(), composed)
    }

    fn encode_dialogues(&self, dialogues: &[&Dialogue], options: &DialogueOptions) -> Result<Encoded> {
        let composed = dialogues.par_iter().map(|dialogue| compose_dialogue(self, dialogue, options));
        gather(self.properties(), options.prompt.as_deref(), composed)
    }
}

/// Collects the vectors of all inputs. Fails if a prompt is given, because static encoders have no prompts.
fn gather(
    encoder: &Properties,
    prompt: Option<&str>,
    composed: impl IndexedParallelIterator<Item = Composed>,
) -> Result<Encoded> {
    if let Some(name) = prompt {
        return Err(Error::input(format!("a static encoder does not support prompts, such as `{name}`"))
            .with_hint("remove the prompt"));
    }
    let rows: Vec<(Vec<f32>, u64)> = composed
        .map(|mut input| {
            normalize(encoder, &mut input.vector);
            (input.vector.into_iter().map(narrow).collect(), input.words)
        })
        .collect();
    let mut encoded = Encoded { vectors: Vectors::new(encoder.dim), spent: EncodeStats::default() };
    for (vector, words) in rows {
        encoded.vectors.push(&vector);
        encoded.spent.tokens += words;
        encoded.spent.unknown += u64::from(words == 0);
    }
    Ok(encoded)
}

/// L2-normalizes a vector if `encoder.normalize` is true. A zero vector stays unchanged.
fn normalize(encoder: &Properties, vector: &mut [f64]) {
    let length = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
    if encoder.normalize && length > 0.0 {
        vector.iter_mut().for_each(|v| *v /= length);
    }
}

/// Converts a value to `f32`. Values outside the range of `f32` are clamped, because vectors must be finite.
fn narrow(value: f64) -> f32 {
    value.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32
}

fn compose_dialogue<E: StaticEncoder>(
    encoder: &E,
    dialogue: &Dialogue,
    options: &DialogueOptions,
) -> Composed {
    let mut groups: Vec<Vec<&Turn>> = Vec::new();
    for (turn, speaker) in dialogue.turns.iter().zip(speakers(dialogue)) {
        let Some(group) = options.pooling.group(speaker) else { continue };
        if groups.len() <= group {
            groups.resize(group + 1, Vec::new());
        }
        groups[group].push(turn);
    }
    let mut sum = Composed { vector: vec![0.0; encoder.properties().dim], words: 0 };
    for turns in groups {
        let texts: Vec<&str> = turns.iter().map(|turn| turn.text.as_str()).collect();
        let part = match options.mode {
            DialogueMode::Sequence => encoder.compose(&texts),
            DialogueMode::Utterances => mean_of_utterances(encoder, &texts),
        };
        add(&mut sum.vector, &part.vector);
        sum.words += part.words;
    }
    sum
}

/// Returns the mean of the utterance vectors. Utterances without known words are left out.
fn mean_of_utterances<E: StaticEncoder>(encoder: &E, texts: &[&str]) -> Composed {
    let mut mean = Composed { vector: vec![0.0; encoder.properties().dim], words: 0 };
    let mut known = 0.0;
    for text in texts {
        let mut part = encoder.compose(&[text]);
        if part.words > 0 {
            normalize(encoder.properties(), &mut part.vector);
            add(&mut mean.vector, &part.vector);
            mean.words += part.words;
            known += 1.0;
        }
    }
    if known > 0.0 {
        mean.vector.iter_mut().for_each(|v| *v /= known);
    }
    mean
}

fn add(sum: &mut [f64], part: &[f64]) {
    sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
}

const CHUNK: usize = 4096;

/// Term counts: one row per document, one column per term.
#[derive(Default)]
pub(super) struct TermCounts {
    /// Terms in the order of their columns.
    pub terms: Vec<Box<str>>,
    /// Number of documents that contain each term.
    pub documents_with: Vec<u32>,
    /// Term counts of every document. A document without terms has an empty row.
    pub rows: Rows,
}

/// Sparse rows of [`TermCounts`]: for each document, its (column, count) pairs.
#[derive(Default)]
pub(super) struct Rows {
    ends: Vec<usize>,
    entries: Vec<(u32, u32)>,
}

impl Rows {
    /// Returns the number of documents.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Iterates over the (column, count) pairs of each document.
    pub fn iter(&self) -> impl Iterator<Item = &[(u32, u32)]> {
        let mut start = 0;
        self.ends.iter().map(move |end| &self.entries[std::mem::replace(&mut start, *end)..*end])
    }
}

/// Returns the terms of one document with their counts, sorted by term. The document consists of several texts.
pub(super) fn counts(texts: &[&str]) -> Vec<(String, u32)> {
    let mut terms: Vec<String> = texts.iter().flat_map(|t| text::analyze(t)).map(|t| t.term).collect();
    terms.sort_unstable();
    let mut counted: Vec<(String, u32)> = Vec::new();
    for term in terms {
        match counted.last_mut() {
            Some((last, count)) if *last == term => *count += 1,
            _ => counted.push((term, 1)),
        }
    }
    counted
}

/// Counts the terms of all documents.
pub(super) fn count(mut documents: impl Iterator<Item = String>) -> TermCounts {
    let mut columns: HashMap<Box<str>, u32> = HashMap::new();
    let mut counted = TermCounts::default();
    loop {
        let chunk: Vec<String> = documents.by_ref().take(CHUNK).collect();
        if chunk.is_empty() {
            break;
        }
        let analyzed: Vec<_> = chunk.par_iter().map(|text| counts(&[text])).collect();
        for terms in analyzed {
            for (term, count) in terms {
                let column = match columns.get(term.as_str()) {
                    Some(column) => *column,
                    None => {
                        let column = columns.len() as u32;
                        columns.insert(term.into_boxed_str(), column);
                        counted.documents_with.push(0);
                        column
                    }
                };
                counted.documents_with[column as usize] += 1;
                counted.rows.entries.push((column, count));
            }
            counted.rows.ends.push(counted.rows.entries.len());
        }
    }
    counted.terms = vec![Box::default(); columns.len()];
    columns.into_iter().for_each(|(term, column)| counted.terms[column as usize] = term);
    counted
}

/// Terms that an encoder keeps, by descending document frequency.
pub(super) struct SelectedTerms {
    pub terms: Vec<Box<str>>,
    pub documents_with: Vec<u32>,
    /// For each column of [`TermCounts`], the new index of its term; `None` if the term is not kept.
    new_columns: Vec<Option<u32>>,
}

/// Selects the terms with a document frequency of at least `min_documents`. If there are more than `max_terms` such
/// terms, selects those with the highest document frequency.
pub(super) fn select(counted: &TermCounts, min_documents: u32, max_terms: usize) -> SelectedTerms {
    let mut order: Vec<usize> =
        (0..counted.terms.len()).filter(|c| counted.documents_with[*c] >= min_documents).collect();
    // Ties are broken by the term, so that columns do not depend on the order of the documents or the hash map.
    order.sort_unstable_by(|a, b| {
        let known = |c: &usize| counted.documents_with[*c];
        known(b).cmp(&known(a)).then_with(|| counted.terms[*a].cmp(&counted.terms[*b]))
    });
    order.truncate(max_terms);
    let mut new_columns = vec![None; counted.terms.len()];
    order.iter().enumerate().for_each(|(column, old)| new_columns[*old] = Some(column as u32));
    SelectedTerms {
        terms: order.iter().map(|c| counted.terms[*c].clone()).collect(),
        documents_with: order.iter().map(|c| counted.documents_with[*c]).collect(),
        new_columns,
    }
}

impl SelectedTerms {
    /// Returns a matrix with one column per kept term, and one row for each document that contains a kept term. `weigh`
    /// converts the counts of a row to weights.
    pub fn matrix(&self, rows: &Rows, weigh: impl Fn(&[(u32, u32)]) -> Vec<(u32, f32)>) -> Sparse {
        let mut matrix = Sparse::new(self.terms.len());
        let mut row = Vec::new();
        for entries in rows.iter() {
            row.clear();
            row.extend(
                entries.iter().filter_map(|(old, count)| Some((self.new_columns[*old as usize]?, *count))),
            );
            row.sort_unstable();
            if !row.is_empty() {
                matrix.push(weigh(&row));
            }
        }
        matrix
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DialoguePooling;
    use turnwise_core::ids::DialogueId;
    use turnwise_corpus::Role;

    /// Encoder that averages the letters of a text: `a` has the vector (1, 0), and `b` has the vector (0, 1).
    struct Letters(Properties);

    fn letters() -> Letters {
        let fingerprint = crate::fingerprint::Fingerprinter::new("letters").finish();
        Letters(Properties { name: "letters", size: "2 words".into(), dim: 2, fingerprint, normalize: false })
    }

    impl StaticEncoder for Letters {
        fn properties(&self) -> &Properties {
            &self.0
        }

        fn compose(&self, texts: &[&str]) -> Composed {
            let count = |c: char| texts.iter().flat_map(|t| t.chars()).filter(|x| *x == c).count() as f64;
            let (a, b) = (count('a'), count('b'));
            let n = (a + b).max(1.0);
            Composed { vector: vec![a / n, b / n], words: (a + b) as u64 }
        }
    }

    fn dialogue(turns: &[(&str, Role, &str)]) -> Dialogue {
        let mut d = Dialogue::new(DialogueId::new("d").unwrap());
        for (speaker, role, text) in turns {
            d.push(*speaker, role.clone(), *text);
        }
        d
    }

    #[test]
    fn all_dialogue_modes_and_poolings() {
        let d = dialogue(&[
            ("", Role::User, "aaa"),
            ("", Role::Agent, "b"),
            ("", Role::User, "?"),
            ("", Role::User, "b"),
        ]);
        let with = |mode, pooling| {
            let options = DialogueOptions { mode, pooling, prompt: None };
            let e = letters().encode_dialogues(&[&d], &options).unwrap();
            assert_eq!(e.spent.unknown, 0);
            [e.vectors.row(0)[0], e.vectors.row(0)[1]]
        };
        assert_eq!(with(DialogueMode::Sequence, DialoguePooling::Mean), [0.6, 0.4]);
        // The user's words are aaab, the agent's are b.
        assert_eq!(with(DialogueMode::Sequence, DialoguePooling::Interlocutors), [0.75, 1.25]);
        // Only three of the four utterances have known words.
        assert_eq!(with(DialogueMode::Utterances, DialoguePooling::Mean), [1.0 / 3.0, 2.0 / 3.0]);
        assert_eq!(with(DialogueMode::Utterances, DialoguePooling::Interlocutors), [0.5, 1.5]);
        assert_eq!(with(DialogueMode::Sequence, DialoguePooling::FirstSpeaker), [0.75, 0.25]);
        assert_eq!(with(DialogueMode::Sequence, DialoguePooling::OtherSpeakers), [0.0, 1.0]);
        assert_eq!(with(DialogueMode::Utterances, DialoguePooling::FirstSpeaker), [0.5, 0.5]);
    }

    #[test]
    fn unknown_inputs_are_counted_and_have_zero_vectors() {
        let plain = TextOptions::default();
        let e = letters().encode(&["?", "a", ""], &plain).unwrap();
        assert_eq!((e.spent.unknown, e.spent.tokens, e.vectors.len()), (2, 1, 3));
        assert_eq!(e.vectors.row(0), [0.0, 0.0]);
        assert!(letters().encode(&[], &plain).unwrap().vectors.is_empty());
        let prompt = TextOptions { prompt: Some("query".into()) };
        assert!(letters().encode(&["a"], &prompt).unwrap_err().hint().is_some());
    }

    #[test]
    fn terms_are_counted_and_kept_by_document_frequency() {
        let texts = ["b a b", "a c", "", "A d d d"];
        let counted = count(texts.iter().map(|t| (*t).to_owned()));
        assert_eq!((counted.terms.len(), counted.rows.len()), (4, 4));
        let all = select(&counted, 1, 9);
        let names = |kept: &SelectedTerms| kept.terms.iter().map(|t| t.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&all), ["a", "b", "c", "d"]);
        assert_eq!(all.documents_with, [3, 1, 1, 1]);
        assert_eq!(names(&select(&counted, 2, 9)), ["a"]);
        assert_eq!(names(&select(&counted, 1, 2)), ["a", "b"]);
        let matrix = all.matrix(&counted.rows, |row| row.iter().map(|(c, n)| (*c, *n as f32)).collect());
        assert_eq!(matrix.rows(), 3, "a document without terms has no row");
        assert_eq!(matrix.row(0), (&[0, 1][..], &[1.0, 2.0][..]));
        assert_eq!(matrix.row(2), (&[0, 3][..], &[1.0, 3.0][..]));
    }
}
