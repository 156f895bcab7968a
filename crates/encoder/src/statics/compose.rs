//! What static encoders share: a vector is made of words, and a dialogue's of the words or the utterances in it.

use rayon::prelude::*;

use crate::{DialogueMode, DialogueOptions, Encoded, Spent, Vectors};
use turnwise_core::error::{Error, Result};
use turnwise_corpus::{Dialogue, Turn};

/// A vector and how many words it is made of; where there are none, it is all zeros.
pub(super) struct Composed {
    pub vector: Vec<f64>,
    pub words: u64,
}

/// Makes vectors of words.
pub(super) trait Compose: Sync {
    /// The width of its vectors.
    fn width(&self) -> usize;

    /// The vector of some texts that belong together, as if they were one.
    fn compose(&self, texts: &[&str]) -> Composed;

    /// The last step to the vector of an input of which something was known.
    fn finish(&self, vector: &mut [f64]);
}

/// One vector a text.
pub(super) fn encode(of: &impl Compose, texts: &[&str]) -> Encoded {
    gather(of, texts.par_iter().map(|text| of.compose(&[text])))
}

/// One vector a dialogue.
pub(super) fn encode_dialogues(
    of: &impl Compose,
    dialogues: &[&Dialogue],
    options: &DialogueOptions,
) -> Encoded {
    gather(of, dialogues.par_iter().map(|dialogue| whole(of, dialogue, options)))
}

/// Scales a vector to length 1; one of zeros stays.
pub(super) fn to_length_one(vector: &mut [f64]) {
    let length = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|v| *v /= length);
    }
}

/// Static encoders have no prompts.
pub(super) fn refuse_prompt(prompt: Option<&str>) -> Result<()> {
    match prompt {
        None => Ok(()),
        Some(name) => {
            Err(Error::input(format!("a static encoder has no prompts, and `{name}` was asked for"))
                .with_hint("leave the prompt out"))
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

/// Sums of finite numbers may leave the range of `f32`; a vector must not.
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

/// The mean over the utterances of which something is known.
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

/// The number of each turn's speaker, by name or else by role, in the order in which they first speak.
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
    fn every_way_to_make_one_vector_of_a_dialogue() {
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
        // The user's words are aaab, the agent's b.
        assert_eq!(with(DialogueMode::Sequence, DialoguePooling::Interlocutors), [0.75, 1.25]);
        // Three utterances are known.
        assert_eq!(with(DialogueMode::Utterances, DialoguePooling::Mean), [1.0 / 3.0, 2.0 / 3.0]);
        assert_eq!(with(DialogueMode::Utterances, DialoguePooling::Interlocutors), [0.5, 1.5]);
        assert_eq!(with(DialogueMode::Sequence, DialoguePooling::FirstSpeaker), [0.75, 0.25]);
        assert_eq!(with(DialogueMode::Sequence, DialoguePooling::OtherSpeakers), [0.0, 1.0]);
        assert_eq!(with(DialogueMode::Utterances, DialoguePooling::FirstSpeaker), [0.5, 0.5]);
    }

    #[test]
    fn names_tell_speakers_apart_and_roles_where_there_are_none() {
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
    fn what_is_unknown_is_counted_and_zero() {
        let e = encode(&Letters, &["?", "a", ""]);
        assert_eq!((e.spent.unknown, e.spent.tokens, e.vectors.len()), (2, 1, 3));
        assert_eq!(e.vectors.row(0), [0.0, 0.0]);
        assert!(encode(&Letters, &[]).vectors.is_empty());
        assert!(refuse_prompt(Some("query")).unwrap_err().hint().is_some());
    }
}
