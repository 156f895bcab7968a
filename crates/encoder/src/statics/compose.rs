//! Code shared by static encoders. It builds vectors of texts and dialogues from words, and counts terms in a corpus.

use std::collections::HashMap;

use rayon::prelude::*;
use turnwise_core::error::{Error, Result};
use turnwise_corpus::{Dialogue, Turn};
use turnwise_text as text;

use crate::{DialogueMode, DialogueOptions, EncodeStats, Encoded, Vectors, statics::linalg::Sparse};

/// A vector and the number of known words that it was computed from. The vector is zero if there are none.
pub(super) struct Composed {
    pub vector: Vec<f64>,
    pub words: u64,
}

/// Method that computes the vector of an input from its words. Each static encoder implements it.
pub(super) trait Compose: Sync {
    /// Width of the vectors.
    fn width(&self) -> usize;

    /// Computes one vector for several texts, as if they were one text.
    fn compose(&self, texts: &[&str]) -> Composed;

    /// Applies the final step to the vector of an input with known words.
    fn finish(&self, vector: &mut [f64]);
}

/// Encodes each text to one vector.
pub(super) fn encode(of: &impl Compose, texts: &[&str]) -> Encoded {
    gather(of, texts.par_iter().map(|text| of.compose(&[text])))
}

/// Encodes each dialogue to one vector.
pub(super) fn encode_dialogues(
    of: &impl Compose,
    dialogues: &[&Dialogue],
    options: &DialogueOptions,
) -> Encoded {
    gather(of, dialogues.par_iter().map(|dialogue| whole(of, dialogue, options)))
}

/// L2-normalizes a vector. A zero vector stays unchanged.
pub(super) fn to_length_one(vector: &mut [f64]) {
    let length = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|v| *v /= length);
    }
}

/// Returns an error if a prompt is given, because static encoders have no prompts.
pub(super) fn refuse_prompt(prompt: Option<&str>) -> Result<()> {
    match prompt {
        None => Ok(()),
        Some(name) => {
            Err(Error::input(format!("a static encoder does not support prompts, such as `{name}`"))
                .with_hint("remove the prompt"))
        }
    }
}

fn gather(of: &impl Compose, parts: impl IndexedParallelIterator<Item = Composed>) -> Encoded {
    let composed: Vec<(Vec<f32>, u64)> = parts
        .map(|mut part| {
            if part.words > 0 {
                of.finish(&mut part.vector);
            }
            (part.vector.into_iter().map(narrow).collect(), part.words)
        })
        .collect();
    let mut encoded = Encoded { vectors: Vectors::new(of.width()), spent: EncodeStats::default() };
    for (vector, words) in composed {
        encoded.vectors.push(&vector);
        encoded.spent.tokens += words;
        encoded.spent.unknown += u64::from(words == 0);
    }
    encoded
}

/// Converts a value to `f32`. Values outside the range of `f32` are clamped, because vectors must be finite.
fn narrow(value: f64) -> f32 {
    value.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32
}

fn whole(of: &impl Compose, dialogue: &Dialogue, options: &DialogueOptions) -> Composed {
    let mut groups: Vec<Vec<&Turn>> = Vec::new();
    for (turn, speaker) in dialogue.turns.iter().zip(speakers(dialogue)) {
        let Some(group) = options.pooling.group(speaker) else { continue };
        if groups.len() <= group {
            groups.resize(group + 1, Vec::new());
        }
        groups[group].push(turn);
    }
    let mut sum = Composed { vector: vec![0.0; of.width()], words: 0 };
    for turns in groups {
        let texts: Vec<&str> = turns.iter().map(|turn| turn.text.as_str()).collect();
        let part = match options.mode {
            DialogueMode::Sequence => of.compose(&texts),
            DialogueMode::Utterances => mean_of_utterances(of, &texts),
        };
        add(&mut sum.vector, &part.vector);
        sum.words += part.words;
    }
    sum
}

/// Returns the mean of the utterance vectors, without utterances that have no known words.
fn mean_of_utterances(of: &impl Compose, texts: &[&str]) -> Composed {
    let mut mean = Composed { vector: vec![0.0; of.width()], words: 0 };
    let mut known = 0.0;
    for text in texts {
        let mut part = of.compose(&[text]);
        if part.words > 0 {
            of.finish(&mut part.vector);
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

/// Returns the speaker of each turn, numbered in the order in which they first speak. Speakers are identified
/// by name, or by role if there is no name.
fn speakers(dialogue: &Dialogue) -> Vec<usize> {
    let mut names: Vec<&str> = Vec::new();
    dialogue
        .turns
        .iter()
        .map(|turn| {
            let name = turn.who();
            names.iter().position(|other| *other == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            })
        })
        .collect()
}

/// Number of documents analyzed at a time.
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
    /// Number of documents.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Iterates over the (column, count) pairs of each document.
    pub fn iter(&self) -> impl Iterator<Item = &[(u32, u32)]> {
        let mut start = 0;
        self.ends.iter().map(move |end| &self.entries[std::mem::replace(&mut start, *end)..*end])
    }
}

/// Returns the terms of one document (given as several texts) with their counts, in alphabetical order.
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

/// The terms that an encoder keeps, by descending document frequency.
pub(super) struct Kept {
    pub terms: Vec<Box<str>>,
    pub documents_with: Vec<u32>,
    /// New column index of each old column.
    new: Vec<Option<u32>>,
}

/// Keeps the terms with a document frequency of at least `least`. If more than `most` terms remain, keeps those with
/// the highest document frequency.
pub(super) fn keep(counted: &TermCounts, least: u32, most: usize) -> Kept {
    let mut order: Vec<usize> =
        (0..counted.terms.len()).filter(|c| counted.documents_with[*c] >= least).collect();
    // Ties are broken by the term, so that columns do not depend on the order of the documents or the hash map.
    order.sort_unstable_by(|a, b| {
        let known = |c: &usize| counted.documents_with[*c];
        known(b).cmp(&known(a)).then_with(|| counted.terms[*a].cmp(&counted.terms[*b]))
    });
    order.truncate(most);
    let mut new = vec![None; counted.terms.len()];
    order.iter().enumerate().for_each(|(column, old)| new[*old] = Some(column as u32));
    Kept {
        terms: order.iter().map(|c| counted.terms[*c].clone()).collect(),
        documents_with: order.iter().map(|c| counted.documents_with[*c]).collect(),
        new,
    }
}

impl Kept {
    /// Returns the matrix of the kept terms. `weigh` receives the columns and counts of a row, in column order.
    pub fn matrix(&self, rows: &Rows, weigh: impl Fn(&[(u32, u32)]) -> Vec<(u32, f32)>) -> Sparse {
        let mut matrix = Sparse::new(self.terms.len());
        let mut row = Vec::new();
        for entries in rows.iter() {
            row.clear();
            row.extend(entries.iter().filter_map(|(old, count)| Some((self.new[*old as usize]?, *count))));
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

    /// The mean of the words `a` = (1, 0) and `b` = (0, 1).
    struct Letters;

    impl Compose for Letters {
        fn width(&self) -> usize {
            2
        }

        fn compose(&self, texts: &[&str]) -> Composed {
            let count = |c: char| texts.iter().flat_map(|t| t.chars()).filter(|x| *x == c).count() as f64;
            let (a, b) = (count('a'), count('b'));
            let n = (a + b).max(1.0);
            Composed { vector: vec![a / n, b / n], words: (a + b) as u64 }
        }

        fn finish(&self, _: &mut [f64]) {}
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
            let e = encode_dialogues(&Letters, &[&d], &DialogueOptions { mode, pooling, prompt: None });
            assert_eq!(e.spent.unknown, 0);
            [e.vectors.row(0)[0], e.vectors.row(0)[1]]
        };
        assert_eq!(with(DialogueMode::Sequence, DialoguePooling::Mean), [0.6, 0.4]);
        // The user's words are aaab, the agent's are b.
        assert_eq!(with(DialogueMode::Sequence, DialoguePooling::Interlocutors), [0.75, 1.25]);
        // Three utterances have known words.
        assert_eq!(with(DialogueMode::Utterances, DialoguePooling::Mean), [1.0 / 3.0, 2.0 / 3.0]);
        assert_eq!(with(DialogueMode::Utterances, DialoguePooling::Interlocutors), [0.5, 1.5]);
        assert_eq!(with(DialogueMode::Sequence, DialoguePooling::FirstSpeaker), [0.75, 0.25]);
        assert_eq!(with(DialogueMode::Sequence, DialoguePooling::OtherSpeakers), [0.0, 1.0]);
        assert_eq!(with(DialogueMode::Utterances, DialoguePooling::FirstSpeaker), [0.5, 0.5]);
    }

    #[test]
    fn speakers_are_identified_by_name_or_else_by_role() {
        let d = dialogue(&[
            ("Ann", Role::User, "1"),
            ("Bo", Role::User, "2"),
            ("Ann", Role::User, "3"),
            ("", Role::User, "4"),
            ("", Role::Agent, "5"),
        ]);
        assert_eq!(speakers(&d), [0, 1, 0, 2, 3]);
    }

    #[test]
    fn unknown_inputs_are_counted_and_have_zero_vectors() {
        let e = encode(&Letters, &["?", "a", ""]);
        assert_eq!((e.spent.unknown, e.spent.tokens, e.vectors.len()), (2, 1, 3));
        assert_eq!(e.vectors.row(0), [0.0, 0.0]);
        assert!(encode(&Letters, &[]).vectors.is_empty());
        assert!(refuse_prompt(Some("query")).unwrap_err().hint().is_some());
    }

    #[test]
    fn terms_are_counted_and_kept_by_document_frequency() {
        let texts = ["b a b", "a c", "", "A d d d"];
        let counted = count(texts.iter().map(|t| (*t).to_owned()));
        assert_eq!((counted.terms.len(), counted.rows.len()), (4, 4));
        let all = keep(&counted, 1, 9);
        let names = |kept: &Kept| kept.terms.iter().map(|t| t.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&all), ["a", "b", "c", "d"]);
        assert_eq!(all.documents_with, [3, 1, 1, 1]);
        assert_eq!(names(&keep(&counted, 2, 9)), ["a"]);
        assert_eq!(names(&keep(&counted, 1, 2)), ["a", "b"]);
        let matrix = all.matrix(&counted.rows, |row| row.iter().map(|(c, n)| (*c, *n as f32)).collect());
        assert_eq!(matrix.rows(), 3, "a document without terms has no row");
        assert_eq!(matrix.row(0), (&[0, 1][..], &[1.0, 2.0][..]));
        assert_eq!(matrix.row(2), (&[0, 3][..], &[1.0, 3.0][..]));
    }
}
