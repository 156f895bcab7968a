//! Code shared by static encoders: building vectors of texts and dialogues from words.

use rayon::prelude::*;

use crate::{DialogueMode, DialogueOptions, Encoded, Spent, Vectors};
use turnwise_core::error::{Error, Result};
use turnwise_corpus::{Dialogue, Turn};

/// A vector, and the number of known words that it was computed from. Without known words the vector is zero.
pub(super) struct Composed {
    pub vector: Vec<f64>,
    pub words: u64,
}

/// Builds vectors from words.
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
    let mut encoded = Encoded { vectors: Vectors::new(of.width()), spent: Spent::default() };
    for (vector, words) in composed {
        encoded.vectors.push(&vector);
        encoded.spent.tokens += words;
        encoded.spent.unknown += u64::from(words == 0);
    }
    encoded
}

/// Converts a value to `f32`. Values outside the range of `f32` are limited, because a vector must be finite.
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

/// Mean over the utterances with known words.
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
}
