//! Response selection data from dialogues. The candidates of a sample are the real response and turns of other
//! dialogues: random turns, or hard negatives, which answer similar turns.

use std::{
    collections::{BTreeSet, HashSet},
    io::{self, Write},
};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_corpus::{Dialogue, Role, Turn};
use turnwise_text::words_key;

use crate::rank::{Bm25, Items, Pool, Ranker};

/// Options for building a response selection data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseOptions {
    /// Number of candidates per sample, including the correct response.
    pub of: usize,
    /// Number of wrong candidates that are answers to turns similar to the last turn of the context, by BM25. Random
    /// turns replace missing ones.
    pub hard: usize,
    /// Minimum number of turns before a response.
    pub context: usize,
    /// Whether to remove speaker names from the candidates, for each speaker in the context.
    pub strip_names: bool,
    /// Role of the speakers of all responses; `None` for any role.
    pub role: Option<Role>,
    /// Maximum number of samples, drawn at random; `None` for all.
    pub samples: Option<usize>,
    /// Random seed for drawing the samples and the wrong candidates.
    pub seed: u64,
}

/// Random stream that draws the samples. The streams from 0 draw the candidates of each sample.
const CHOICE: u64 = u64::MAX;

/// A turn of a context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContextTurn {
    #[serde(default, alias = "speaker")]
    pub(crate) role: String,
    pub(crate) text: String,
}

/// A sample of response selection: a line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) id: String,
    pub(crate) context: Vec<ContextTurn>,
    pub(crate) candidates: Vec<String>,
    pub(crate) answer: usize,
}

impl ResponseSet {
    pub(crate) fn into_samples(self) -> Vec<Sample> {
        self.samples
    }
}

/// Response selection data set.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponseSet {
    samples: Vec<Sample>,
    /// Number of responses that contain the name of a speaker in the context. Such a name can reveal the correct
    /// response.
    pub leaks: usize,
}

/// Creates a sample for every suitable turn. A turn is suitable if it has text, the wanted role, enough turns before it,
/// and a speaker who differs from the speaker of the previous turn.
///
/// Returns an error if no turn is suitable. Also returns an error if the other dialogues contain too few distinct turns
/// to draw the wrong candidates from.
pub fn response_set(dialogues: &[Dialogue], wanted: &ResponseOptions) -> Result<ResponseSet> {
    let has_role = |turn: &Turn| wanted.role.is_none() || turn.role == wanted.role;
    let others: Vec<(usize, &Turn)> = dialogues
        .iter()
        .enumerate()
        .flat_map(|(d, dialogue)| dialogue.turns.iter().map(move |turn| (d, turn)))
        .filter(|(_, turn)| !turn.text.trim().is_empty() && has_role(turn))
        .collect();
    if dialogues.len() < 2 || wanted.of < 2 {
        return Err(Error::data(
            "response selection needs at least two dialogues and at least two candidates per sample",
        ));
    }
    if wanted.hard >= wanted.of {
        let most = wanted.of - 1;
        return Err(Error::input(format!("{} candidates include at most {most} hard negatives", wanted.of))
            .with_hint("one candidate is the right response"));
    }
    let shown = |text: &str, names: &[String]| match wanted.strip_names {
        true => without(text, names),
        false => text.to_owned(),
    };
    // Location of every suitable response: dialogue and turn.
    let mut suitable: Vec<(usize, usize)> = Vec::new();
    for (d, dialogue) in dialogues.iter().enumerate() {
        for at in wanted.context.max(1)..dialogue.turns.len() {
            let (before, response) = (&dialogue.turns[..at], &dialogue.turns[at]);
            let is_reply = before.last().map(Turn::who) != Some(response.who());
            if !response.text.trim().is_empty()
                && is_reply
                && has_role(response)
                && (!wanted.strip_names || !shown(&response.text, &names(before)).is_empty())
            {
                suitable.push((d, at));
            }
        }
    }
    if suitable.is_empty() {
        let role = wanted.role.as_ref().map_or_else(String::new, |role| format!("the role `{role}`, "));
        let error = Error::data(format!(
            "no turn has {role}at least {} turns before it, and a speaker who differs from that of the previous turn",
            wanted.context
        ));
        let roles =
            dialogues.iter().flat_map(|dialogue| &dialogue.turns).filter_map(|turn| turn.role.as_ref());
        let roles: BTreeSet<&Role> = roles.collect();
        return Err(match &wanted.role {
            Some(role) if !roles.contains(role) && !roles.is_empty() => {
                let roles: Vec<String> = roles.into_iter().map(Role::to_string).collect();
                error.with_hint(format!("the roles in these dialogues: {}", roles.join(", ")))
            }
            _ => error,
        });
    }
    let mut chosen: Vec<usize> = (0..suitable.len()).collect();
    if let Some(most) = wanted.samples.filter(|most| *most < chosen.len()) {
        Random::new(wanted.seed, CHOICE).shuffle(&mut chosen);
        chosen.truncate(most);
        chosen.sort_unstable();
    }
    let hard = match wanted.hard {
        0 => vec![Vec::new(); chosen.len()],
        count => similar_turns(dialogues, &suitable, &chosen, count + SPARE)?,
    };
    let (mut samples, mut leaks) = (Vec::with_capacity(chosen.len()), 0);
    for (n, hard) in chosen.into_iter().zip(hard) {
        let (d, at) = suitable[n];
        let (before, response) = (&dialogues[d].turns[..at], &dialogues[d].turns[at]);
        let names = names(before);
        leaks += usize::from(names.iter().any(|name| has_word(&response.text, name)));
        let mut random = Random::new(wanted.seed, n as u64);
        let mut candidates = vec![shown(&response.text, &names)];
        // A candidate with the same words as the right one would be right, too.
        let mut seen = HashSet::from([words_key(&candidates[0])]);
        for similar in hard {
            if candidates.len() > wanted.hard {
                break;
            }
            let (from, at) = suitable[similar];
            let text = shown(&dialogues[from].turns[at].text, &names);
            if from != d && !text.is_empty() && seen.insert(words_key(&text)) {
                candidates.push(text);
            }
        }
        // Limit the number of draws, because other dialogues may contain too few distinct responses.
        for _ in 0..100 * wanted.of {
            if candidates.len() == wanted.of {
                break;
            }
            let (from, other) = others[random.below(others.len())];
            let text = shown(&other.text, &names);
            if from != d && !text.is_empty() && seen.insert(words_key(&text)) {
                candidates.push(text);
            }
        }
        if candidates.len() < wanted.of {
            return Err(Error::data(format!("fewer than {} different responses are available", wanted.of))
                .with_hint("add more dialogues, or lower --candidates"));
        }
        let answer = random.below(wanted.of);
        candidates.swap(0, answer);
        let context =
            before.iter().map(|turn| ContextTurn { role: turn.speaker.clone(), text: turn.text.clone() });
        samples.push(Sample {
            id: format!("{}@{at}", dialogues[d].id),
            context: context.collect(),
            candidates,
            answer,
        });
    }
    Ok(ResponseSet { samples, leaks })
}

/// Number of similar turns that are found in addition to those that are needed, because some are in the same dialogue, and
/// some answers are identical.
const SPARE: usize = 100;

/// Finds similar turns by BM25. Returns, for each chosen response, up to `most` responses whose previous turn is similar to
/// its own previous turn, the most similar first. Responses are indices into `suitable`, which has their dialogues and
/// turns.
fn similar_turns(
    dialogues: &[Dialogue],
    suitable: &[(usize, usize)],
    chosen: &[usize],
    most: usize,
) -> Result<Vec<Vec<usize>>> {
    let previous = |n: usize| {
        let (dialogue, at) = suitable[n];
        dialogues[dialogue].turns[at - 1].text.clone()
    };
    let pool = Pool::with_queries(
        Items::Texts((0..suitable.len()).map(previous).collect()),
        Items::Texts(chosen.iter().map(|n| previous(*n)).collect()),
    );
    let ranker = Bm25::default();
    let scorer = ranker.prepare(&pool, &())?;
    let all: Vec<u32> = (0..suitable.len() as u32).collect();
    let nearest = |query: usize| {
        let mut scores = Vec::new();
        scorer.scores(query, &all, &mut scores)?;
        let mut order: Vec<usize> = (0..scores.len()).filter(|n| scores[*n] > 0.0).collect();
        let by_score = |a: &usize, b: &usize| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b));
        if order.len() > most {
            order.select_nth_unstable_by(most, by_score);
            order.truncate(most);
        }
        order.sort_unstable_by(by_score);
        Ok(order)
    };
    (0..chosen.len()).into_par_iter().map(nearest).collect()
}

/// Returns the distinct names of the speakers of the turns, in lowercase. Omits names of one character. Standard roles
/// such as user and agent do not count as names.
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

/// Returns whether a character can be part of a word. This includes the punctuation that IRC nicknames can contain.
fn in_word(c: char) -> bool {
    c.is_alphanumeric() || "_-[]`|^{}\\".contains(c)
}

fn has_word(text: &str, name: &str) -> bool {
    text.to_lowercase().split(|c| !in_word(c)).any(|word| word == name)
}

/// Removes names from a text, together with the punctuation around them.
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
    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Returns whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Writes the samples as JSON lines.
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

    fn wanted() -> ResponseOptions {
        ResponseOptions { of: 3, hard: 0, context: 2, strip_names: false, role: None, samples: None, seed: 4 }
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
        let set = response_set(&two(), &wanted()).unwrap();
        // "bye" has the same speaker as the turn before, so it is not a response.
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
        assert_eq!(response_set(&two(), &wanted()).unwrap(), set);
    }

    #[test]
    fn drawn_samples_are_the_same_as_in_the_whole_set() {
        let many: Vec<Dialogue> = (0..20)
            .map(|n| {
                let texts: Vec<String> = (0..6).map(|turn| format!("turn {turn} of {n}")).collect();
                let said = (0..6).map(|turn| (["ann", "bob"][turn % 2], texts[turn].as_str()));
                dialogue(&n.to_string(), &said.collect::<Vec<_>>())
            })
            .collect();
        let all = response_set(&many, &wanted()).unwrap();
        let some =
            |samples| response_set(&many, &ResponseOptions { samples: Some(samples), ..wanted() }).unwrap();
        assert_eq!((all.len(), some(10).len(), some(1_000).len()), (80, 10, 80));
        let at = |sample: &Sample| all.samples.iter().position(|other| other == sample).unwrap();
        let places: Vec<usize> = some(10).samples.iter().map(at).collect();
        assert!(places.is_sorted() && places[0] < 40 && places[9] > 40, "{places:?}");
        assert_eq!(some(1_000), all);
    }

    #[test]
    fn roles_identify_speakers_without_names() {
        let mut nameless = two();
        for turn in nameless.iter_mut().flat_map(|dialogue| &mut dialogue.turns) {
            let role = Role::from(turn.speaker.as_str());
            (turn.speaker, turn.role) = (String::new(), Some(role));
        }
        let (named, by_role) =
            (response_set(&two(), &wanted()).unwrap(), response_set(&nameless, &wanted()).unwrap());
        assert_eq!(
            by_role.samples.iter().map(|s| &s.id).collect::<Vec<_>>(),
            named.samples.iter().map(|s| &s.id).collect::<Vec<_>>()
        );
        assert_eq!((by_role.samples[0].answer, by_role.leaks), (named.samples[0].answer, 1));
    }

    #[test]
    fn names_that_reveal_a_response_are_counted_and_can_be_removed() {
        assert_eq!(response_set(&two(), &wanted()).unwrap().leaks, 1);
        let set = response_set(&two(), &ResponseOptions { strip_names: true, ..wanted() }).unwrap();
        let first = &set.samples[0];
        assert_eq!(first.candidates[first.answer], "thanks it is the log");
    }

    #[test]
    fn all_responses_can_have_the_same_role() {
        let mut dialogues = two();
        for turn in dialogues.iter_mut().flat_map(|dialogue| &mut dialogue.turns) {
            let is_agent = ["bob", "joe"].contains(&turn.speaker.as_str());
            turn.role = Some(if is_agent { Role::Agent } else { Role::User });
        }
        let of_agents = ResponseOptions { of: 2, context: 1, role: Some(Role::Agent), ..wanted() };
        let set = response_set(&dialogues, &of_agents).unwrap();
        assert_eq!(set.samples.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(), ["a@1", "b@1"]);
        let said = ["ann: run df", "which card"];
        assert!(set.samples.iter().flat_map(|s| &s.candidates).all(|text| said.contains(&text.as_str())));
        let none = ResponseOptions { role: Some(Role::System), ..of_agents };
        let e = response_set(&dialogues, &none).unwrap_err().to_string();
        assert!(e.contains("no turn has the role `system`, at least 1 turns"), "{e}");
    }

    #[test]
    fn hard_negatives_answer_similar_turns() {
        let ask =
            |id: &str, question: &str, answer: &str| dialogue(id, &[("ann", question), ("bob", answer)]);
        let dialogues = [
            ask("a", "my parcel never arrived", "can I have the order number?"),
            ask("b", "the parcel has not arrived", "sorry, which parcel is it?"),
            ask("c", "a parcel arrived broken", "we send you a new one"),
            ask("d", "cancel the subscription", "it is cancelled"),
            ask("e", "the parcel arrived broken", "We send you a new one"),
            ask("f", "how do I log in", "with your email address"),
        ];
        let options = ResponseOptions { of: 4, hard: 2, context: 1, ..wanted() };
        let set = response_set(&dialogues, &options).unwrap();
        let first = &set.samples[0];
        let count = |text: &str| first.candidates.iter().filter(|c| c.to_lowercase() == text).count();
        // "We send you a new one" has the same words as another candidate.
        let about_parcels = ["sorry, which parcel is it?", "we send you a new one"];
        assert_eq!(about_parcels.map(count), [1, 1], "{first:?}");
        assert_eq!(first.candidates[first.answer], "can I have the order number?");
        // No turn has a word in common with this one, so all wrong candidates are random.
        assert_eq!(set.samples[5].candidates.len(), 4);
        let e = response_set(&dialogues, &ResponseOptions { hard: 4, ..options }).unwrap_err();
        assert_eq!(e.to_string(), "4 candidates include at most 3 hard negatives");
    }

    #[test]
    fn too_few_responses_are_an_error() {
        let e = response_set(&two(), &ResponseOptions { of: 9, ..wanted() }).unwrap_err();
        assert_eq!(e.to_string(), "fewer than 9 different responses are available");
        assert!(response_set(&two()[..1], &wanted()).is_err());
        assert!(response_set(&two(), &ResponseOptions { context: 9, ..wanted() }).is_err());
    }
}
