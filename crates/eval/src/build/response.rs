//! Response selection out of dialogues: one turn that was really said among others that were said elsewhere.

use std::io::{self, Write};

use serde::Serialize;

use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_corpus::{Dialogue, Role, Turn};

/// What is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    /// How many responses a sample has, the right one among them.
    pub of: usize,
    /// How many turns there are before a response, at least.
    pub context: usize,
    /// Whether the names of a context's speakers are taken out of the responses.
    pub strip_names: bool,
    /// Another seed draws other responses.
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Said {
    role: String,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Sample {
    id: String,
    context: Vec<Said>,
    candidates: Vec<String>,
    answer: usize,
}

/// Samples, and what gives them away.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponseSet {
    samples: Vec<Sample>,
    /// Samples whose right response names a speaker of the context: it can be told by the name alone.
    pub leaks: usize,
}

/// Makes a sample of every turn with so much before it whose speaker is another than that of the turn before.
pub fn response_set(dialogues: &[Dialogue], wanted: Selection) -> Result<ResponseSet> {
    let others: Vec<(usize, &Turn)> = dialogues
        .iter()
        .enumerate()
        .flat_map(|(d, dialogue)| dialogue.turns.iter().map(move |turn| (d, turn)))
        .filter(|(_, turn)| !turn.text.trim().is_empty())
        .collect();
    if dialogues.len() < 2 || wanted.of < 2 {
        return Err(Error::Data {
            message:
                "responses from elsewhere need at least two dialogues, and a sample at least two responses"
                    .to_owned(),
            hint: None,
        });
    }
    let (mut samples, mut leaks) = (Vec::new(), 0);
    for (d, dialogue) in dialogues.iter().enumerate() {
        for at in wanted.context.max(1)..dialogue.turns.len() {
            let (before, response) = dialogue.turns.split_at(at);
            let response = &response[0];
            if response.text.trim().is_empty() || before.last().map(Turn::who) == Some(response.who()) {
                continue;
            }
            let names = names(before);
            leaks += usize::from(names.iter().any(|name| has_word(&response.text, name)));
            let shown = |text: &str| if wanted.strip_names { without(text, &names) } else { text.to_owned() };
            let right = shown(&response.text);
            if right.is_empty() {
                continue;
            }
            let mut random = Random::new(wanted.seed, samples.len() as u64);
            let mut candidates = vec![right];
            // Where all was said in one dialogue, or is the same, there may be too few others.
            for _ in 0..100 * wanted.of {
                if candidates.len() == wanted.of {
                    break;
                }
                let (from, other) = others[random.below(others.len())];
                let text = shown(&other.text);
                if from != d && !text.is_empty() && !candidates.contains(&text) {
                    candidates.push(text);
                }
            }
            if candidates.len() < wanted.of {
                return Err(Error::Data {
                    message: format!("there are fewer than {} different responses to choose from", wanted.of),
                    hint: Some("give more dialogues, or ask for fewer with --of".to_owned()),
                });
            }
            let answer = random.below(wanted.of);
            candidates.swap(0, answer);
            let context =
                before.iter().map(|turn| Said { role: turn.speaker.clone(), text: turn.text.clone() });
            samples.push(Sample {
                id: format!("{}@{at}", dialogue.id),
                context: context.collect(),
                candidates,
                answer,
            });
        }
    }
    if samples.is_empty() {
        return Err(Error::data(format!(
            "no turn has {} before it, the last of another speaker",
            wanted.context
        )));
    }
    Ok(ResponseSet { samples, leaks })
}

/// The names of speakers. What is said in a role that all conversations have names nobody.
fn names(turns: &[Turn]) -> Vec<String> {
    let named = |turn: &&Turn| {
        let roles = [Role::User, Role::Agent, Role::System, Role::Participant];
        !turn.speaker.is_empty() || !turn.role.as_ref().is_none_or(|role| roles.contains(role))
    };
    let mut names: Vec<String> = turns.iter().filter(named).map(|turn| turn.who().to_lowercase()).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| name.chars().nth(1).is_some());
    names
}

/// A word's letters: what nicks are made of.
fn in_word(c: char) -> bool {
    c.is_alphanumeric() || "_-[]`|^{}\\".contains(c)
}

fn has_word(text: &str, name: &str) -> bool {
    text.to_lowercase().split(|c| !in_word(c)).any(|word| word == name)
}

/// A text without some words, and without what divides them from the rest.
fn without(text: &str, names: &[String]) -> String {
    let mut words = Vec::new();
    for word in text.split_whitespace() {
        let bare = word.to_lowercase();
        let bare = bare.trim_matches(|c| !in_word(c));
        if bare.is_empty() || !names.iter().any(|name| name == bare) {
            words.push(word);
        }
    }
    words.join(" ")
}

impl ResponseSet {
    /// How many samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Writes it as JSON lines.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for sample in &self.samples {
            serde_json::to_writer(&mut *out, sample)?;
            writeln!(out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_core::ids::DialogueId;

    fn dialogue(id: &str, said: &[(&str, &str)]) -> Dialogue {
        let mut dialogue = Dialogue::new(DialogueId::new(id).unwrap());
        for (who, text) in said {
            dialogue.push(*who, Role::User, *text);
        }
        dialogue
    }

    fn wanted() -> Selection {
        Selection { of: 3, context: 2, strip_names: false, seed: 4 }
    }

    fn two() -> [Dialogue; 2] {
        [
            dialogue(
                "a",
                &[
                    ("ann", "my disk is full"),
                    ("bob", "ann: run df"),
                    ("ann", "thanks bob, it is the log"),
                    ("ann", "bye"),
                ],
            ),
            dialogue("b", &[("eve", "sound is gone"), ("joe", "which card"), ("eve", "an old one")]),
        ]
    }

    #[test]
    fn a_sample_has_one_right_response_and_others_from_elsewhere() {
        let set = response_set(&two(), wanted()).unwrap();
        // "bye" follows its own speaker, and is no response.
        assert_eq!(set.samples.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(), ["a@2", "b@2"]);
        let first = &set.samples[0];
        assert_eq!((first.context.len(), first.candidates.len()), (2, 3));
        assert_eq!(first.candidates[first.answer], "thanks bob, it is the log");
        let elsewhere = ["sound is gone", "which card", "an old one"];
        assert!(
            first
                .candidates
                .iter()
                .enumerate()
                .all(|(n, c)| n == first.answer || elsewhere.contains(&c.as_str()))
        );
        assert_eq!(response_set(&two(), wanted()).unwrap(), set);
    }

    #[test]
    fn where_nobody_has_a_name_roles_tell_who_speaks() {
        let mut nameless = two();
        for turn in nameless.iter_mut().flat_map(|dialogue| &mut dialogue.turns) {
            let role = Role::from(turn.speaker.as_str());
            (turn.speaker, turn.role) = (String::new(), Some(role));
        }
        let (named, by_role) =
            (response_set(&two(), wanted()).unwrap(), response_set(&nameless, wanted()).unwrap());
        assert_eq!(
            by_role.samples.iter().map(|s| &s.id).collect::<Vec<_>>(),
            named.samples.iter().map(|s| &s.id).collect::<Vec<_>>()
        );
        assert_eq!((by_role.samples[0].answer, by_role.leaks), (named.samples[0].answer, 1));
    }

    #[test]
    fn names_that_give_a_response_away_are_counted_and_can_be_taken_out() {
        assert_eq!(response_set(&two(), wanted()).unwrap().leaks, 1);
        let set = response_set(&two(), Selection { strip_names: true, ..wanted() }).unwrap();
        let first = &set.samples[0];
        assert_eq!(first.candidates[first.answer], "thanks it is the log");
    }

    #[test]
    fn too_few_responses_are_told() {
        let e = response_set(&two(), Selection { of: 9, ..wanted() }).unwrap_err();
        assert_eq!(e.to_string(), "there are fewer than 9 different responses to choose from");
        assert!(response_set(&two()[..1], wanted()).is_err());
        assert!(response_set(&two(), Selection { context: 9, ..wanted() }).is_err());
    }
}
