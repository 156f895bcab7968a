//! Corpus statistics. Dialogues are counted one at a time, and the statistics of several threads can be merged.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use crate::{Dialogue, Role, Time};
use turnwise_core::{ids::IdKey, script::is_unspaced};

/// Counts and distributions of a set of dialogues.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Statistics {
    /// Number of dialogues.
    pub dialogues: u64,
    /// Number of turns.
    pub turns: u64,
    /// Number of distinct speaker names. Empty names are not counted.
    pub speakers: u64,
    /// Number of distinct threads (see [`Dialogue::thread`]). Absent from the serialized statistics if it is 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub threads: u64,
    /// Number of words in the texts of turns, as counted by [`count_words`].
    pub words: u64,
    /// Number of characters in the texts of turns.
    pub characters: u64,
    /// Distribution of turns per dialogue.
    pub turns_per_dialogue: Histogram,
    /// Distribution of words per turn.
    pub words_per_turn: Histogram,
    /// Distribution of speakers per dialogue. All turns without a speaker name count as one speaker.
    pub speakers_per_dialogue: Histogram,
    /// Number of dialogues by source.
    pub sources: BTreeMap<String, u64>,
    /// Number of dialogues by language. Dialogues without a language are counted as `unknown`.
    pub languages: BTreeMap<String, u64>,
    /// Number of dialogues by domain. A dialogue with several domains is counted for each domain.
    pub domains: BTreeMap<String, u64>,
    /// Number of turns by role. Turns without a role are counted as `none`.
    pub roles: BTreeMap<String, u64>,
    /// Number of turns by intent.
    pub intents: BTreeMap<String, u64>,
    /// Number of turns with dialog acts.
    pub turns_with_acts: u64,
    /// The earliest and the latest time of a dialogue or a turn. `None` if no dialogue or turn has a time.
    pub times: Option<(Time, Time)>,
    /// Hashes of the distinct speaker names.
    #[serde(skip)]
    names: HashSet<IdKey>,
    /// Hashes of the distinct threads.
    #[serde(skip)]
    thread_names: HashSet<IdKey>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Histogram of integers: the number of occurrences of each value.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(into = "Summary")]
pub struct Histogram(BTreeMap<u64, u64>);

/// Summary of a distribution.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Smallest value.
    pub min: u64,
    /// Median. For an even number of values, the smaller of the two middle values.
    pub median: u64,
    /// Mean.
    pub mean: f64,
    /// Largest value.
    pub max: u64,
}

impl From<Histogram> for Summary {
    fn from(histogram: Histogram) -> Self {
        histogram.summary()
    }
}

impl Histogram {
    fn add(&mut self, value: u64) {
        *self.0.entry(value).or_default() += 1;
    }

    /// Returns the minimum, median, mean and maximum. They are all 0 if the histogram is empty.
    pub fn summary(&self) -> Summary {
        let count: u64 = self.0.values().sum();
        let sum: u64 = self.0.iter().map(|(value, n)| value * n).sum();
        let mut seen = 0;
        let median = self.0.iter().find(|(_, n)| {
            seen += **n;
            seen * 2 >= count
        });
        Summary {
            min: self.0.keys().next().copied().unwrap_or(0),
            median: median.map_or(0, |(value, _)| *value),
            mean: if count == 0 { 0.0 } else { sum as f64 / count as f64 },
            max: self.0.keys().next_back().copied().unwrap_or(0),
        }
    }
}

impl Statistics {
    /// Adds a dialogue to the counts and distributions.
    pub fn add(&mut self, dialogue: &Dialogue) {
        self.dialogues += 1;
        self.turns += dialogue.turns.len() as u64;
        self.turns_per_dialogue.add(dialogue.turns.len() as u64);
        count(&mut self.sources, &dialogue.source);
        count(&mut self.languages, dialogue.language.as_deref().unwrap_or("unknown"));
        dialogue.domains.iter().for_each(|domain| count(&mut self.domains, domain));
        dialogue.time.into_iter().for_each(|time| self.add_time(time));
        let speakers = dialogue.speakers();
        self.speakers_per_dialogue.add(speakers.len() as u64);
        for name in speakers.into_iter().filter(|name| !name.is_empty()) {
            self.names.insert(IdKey::of(name));
        }
        self.speakers = self.names.len() as u64;
        self.thread_names.extend(dialogue.thread().map(|name| IdKey::of(&name)));
        self.threads = self.thread_names.len() as u64;
        for turn in &dialogue.turns {
            let words = count_words(&turn.text);
            self.words += words;
            self.words_per_turn.add(words);
            self.characters += turn.text.chars().count() as u64;
            count(&mut self.roles, turn.role.as_ref().map_or("none", Role::as_str));
            turn.intent.iter().for_each(|intent| count(&mut self.intents, intent));
            turn.time.into_iter().for_each(|time| self.add_time(time));
            self.turns_with_acts += u64::from(!turn.acts.is_empty());
        }
    }

    fn add_time(&mut self, time: Time) {
        let (first, last) = self.times.get_or_insert((time, time));
        *first = time.min(*first);
        *last = time.max(*last);
    }

    /// Returns the combined statistics of the dialogues counted by `self` and those counted by `other`.
    #[must_use]
    pub fn joined(mut self, other: Statistics) -> Self {
        self.dialogues += other.dialogues;
        self.turns += other.turns;
        self.words += other.words;
        self.characters += other.characters;
        self.turns_with_acts += other.turns_with_acts;
        merge(&mut self.turns_per_dialogue.0, other.turns_per_dialogue.0);
        merge(&mut self.words_per_turn.0, other.words_per_turn.0);
        merge(&mut self.speakers_per_dialogue.0, other.speakers_per_dialogue.0);
        merge(&mut self.sources, other.sources);
        merge(&mut self.languages, other.languages);
        merge(&mut self.domains, other.domains);
        merge(&mut self.roles, other.roles);
        merge(&mut self.intents, other.intents);
        if let Some((first, last)) = other.times {
            self.add_time(first);
            self.add_time(last);
        }
        self.names.extend(other.names);
        self.speakers = self.names.len() as u64;
        self.thread_names.extend(other.thread_names);
        self.threads = self.thread_names.len() as u64;
        self
    }
}

fn merge<K: Ord>(counts: &mut BTreeMap<K, u64>, more: BTreeMap<K, u64>) {
    for (key, count) in more {
        *counts.entry(key).or_default() += count;
    }
}

fn count(map: &mut BTreeMap<String, u64>, name: &str) {
    // Most names are already in the map. For these names, `entry` would allocate a string needlessly.
    match map.get_mut(name) {
        Some(n) => *n += 1,
        None => {
            map.insert(name.to_owned(), 1);
        }
    }
}

/// Returns the number of words in a text. A word is a run of letters and digits, which can contain apostrophes. Each
/// character of a script without spaces between words, such as Han, counts as a word.
pub fn count_words(text: &str) -> u64 {
    let mut words = 0;
    let mut inside = false;
    for c in text.chars() {
        if is_unspaced(c) {
            words += 1;
            inside = false;
        } else if c.is_alphanumeric() {
            words += u64::from(!inside);
            inside = true;
        } else if c != '\'' && c != '\u{2019}' {
            inside = false;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(n: u32) -> Dialogue {
        serde_json::from_value(serde_json::json!({
            "id": format!("d{n}"), "source": "s", "language": "en", "domains": ["x"],
            "turns": [{"speaker": format!("p{n}"), "role": "user", "text": "it's fine, 两个字", "intent": "i"},
                      {"speaker": "agent", "role": "agent", "text": "ok", "time": format!("2026-01-0{n}T00:00:00Z")}]
        }))
        .unwrap()
    }

    #[test]
    fn merged_statistics_equal_those_of_one_pass() {
        let mut one = Statistics::default();
        let mut parts = [Statistics::default(), Statistics::default()];
        for n in 1..=5 {
            one.add(&example(n));
            parts[n as usize % 2].add(&example(n));
        }
        let [a, b] = parts;
        let show = |s: &Statistics| serde_json::to_value(s).unwrap();
        assert_eq!(show(&a.joined(b)), show(&one));
        assert_eq!((one.dialogues, one.turns, one.speakers, one.words), (5, 10, 6, 30));
        assert_eq!(one.turns_per_dialogue.summary(), Summary { min: 2, median: 2, mean: 2.0, max: 2 });
        assert_eq!(one.times.unwrap().1.to_string(), "2026-01-05T00:00:00Z");
    }

    #[test]
    fn words_of_mixed_text() {
        assert_eq!(count_words("don't  stop-me now"), 4);
        assert_eq!(count_words("查询 order7 状态"), 5);
        assert_eq!(count_words(" ... "), 0);
    }
}
