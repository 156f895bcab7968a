//! Evaluation of suggested replies: compares the suggestions for a conversation with the reply that it really got.

use std::collections::HashMap;

use super::tasks::{TaskDescription, Value};
use turnwise_core::{error::Result, random::Random, vectors::cosine};
use turnwise_encoder::{Encoder, TextOptions};
use turnwise_text::{analyze, words_key};

/// Description of the task for its results.
pub const TASK: TaskDescription<'static> =
    TaskDescription { name: "respond", about: "suggested replies compared with the true ones", skipped: &[] };

/// Number of times that random replies are drawn for each conversation, to compute the random baseline.
const DRAWS: u64 = 10;

/// Number of texts that are encoded at once.
const CHUNK: usize = 512;

/// Conversation with the reply that it got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// Id of the sample.
    pub id: String,
    /// Texts of the turns before the reply.
    pub context: Vec<String>,
    /// Text of the reply.
    pub reply: String,
}

impl Conversation {
    /// Returns the id of the dialogue that the sample was made from, if the id of the sample contains it.
    pub fn dialogue(&self) -> Option<&str> {
        self.id.rsplit_once('@').map(|(dialogue, _)| dialogue)
    }
}

/// Measure of one suggestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Similarity {
    /// 1 if the words are the same, else 0.
    SameWords,
    /// F1 score of the words: the harmonic mean of the share of the suggestion's words that are in the reply, and of the
    /// share of the reply's words that are in the suggestion.
    WordF1,
    /// Cosine of the vectors.
    Cosine,
}

impl Similarity {
    fn name(self) -> &'static str {
        match self {
            Similarity::SameWords => "same words",
            Similarity::WordF1 => "word F1",
            Similarity::Cosine => "cosine",
        }
    }
}

/// Compares suggestions with true replies. Remembers the vectors of the texts.
pub struct Judge<'a> {
    conversations: &'a [Conversation],
    encoder: Option<&'a dyn Encoder>,
    vectors: HashMap<String, Vec<f32>>,
    /// Number of suggestions to compare. The best of them counts.
    k: usize,
}

impl<'a> Judge<'a> {
    /// Creates a judge. Without an encoder, there are no cosines.
    pub fn new(
        conversations: &'a [Conversation],
        encoder: Option<&'a dyn Encoder>,
        k: usize,
    ) -> Result<Self> {
        let mut judge = Judge { conversations, encoder, vectors: HashMap::new(), k };
        judge.encode(conversations.iter().map(|conversation| conversation.reply.as_str()))?;
        Ok(judge)
    }

    /// Encodes the texts that have no vector yet.
    fn encode<'t>(&mut self, texts: impl Iterator<Item = &'t str>) -> Result<()> {
        let Some(encoder) = self.encoder else { return Ok(()) };
        let mut texts: Vec<&str> = texts.filter(|text| !self.vectors.contains_key(*text)).collect();
        texts.sort_unstable();
        texts.dedup();
        for chunk in texts.chunks(CHUNK) {
            let vectors = encoder.encode(chunk, &TextOptions::default())?.vectors;
            let owned = chunk.iter().map(|text| (*text).to_owned());
            self.vectors.extend(owned.zip(vectors.rows().map(<[f32]>::to_vec)));
        }
        Ok(())
    }

    /// Compares the suggestions for each conversation with its reply. Returns the values of the first suggestion, and of
    /// the best of the first `k`. Without suggestions, the values of a conversation are 0.
    pub fn values(&mut self, suggestions: &[Vec<String>]) -> Result<Vec<Value>> {
        self.encode(suggestions.iter().flatten().map(String::as_str))?;
        let mut similarities = vec![Similarity::SameWords, Similarity::WordF1];
        similarities.extend(self.encoder.map(|_| Similarity::Cosine));
        let mut values = Vec::new();
        for similarity in similarities {
            let all: Vec<Vec<f64>> = self
                .conversations
                .iter()
                .zip(suggestions)
                .map(|(conversation, suggested)| {
                    let of = |text: &String| self.similarity(similarity, &conversation.reply, text);
                    suggested.iter().take(self.k).map(of).collect()
                })
                .collect();
            let cutoffs = if self.k == 1 { vec![1] } else { vec![1, self.k] };
            for cutoff in cutoffs {
                let best = |of: &Vec<f64>| of.iter().take(cutoff).copied().reduce(f64::max).unwrap_or(0.0);
                let each: Vec<f64> = all.iter().map(best).collect();
                let mean = each.iter().sum::<f64>() / each.len().max(1) as f64;
                let measure = format!("{}@{cutoff}", similarity.name());
                values.push(Value { each, ..Value::new(&measure, mean) });
            }
        }
        Ok(values)
    }

    fn similarity(&self, similarity: Similarity, reply: &str, suggestion: &str) -> f64 {
        match similarity {
            Similarity::SameWords => f64::from(words_key(reply) == words_key(suggestion)),
            Similarity::WordF1 => word_f1(reply, suggestion),
            Similarity::Cosine => match (self.vectors.get(reply), self.vectors.get(suggestion)) {
                (Some(reply), Some(suggestion)) => f64::from(cosine(reply, suggestion)),
                _ => 0.0,
            },
        }
    }

    /// Sets the random baseline of values: the values of `k` replies drawn at random, averaged over several draws.
    pub fn set_baseline(&mut self, values: &mut [Value], replies: &[String], seed: u64) -> Result<()> {
        if replies.is_empty() {
            return Ok(());
        }
        let mut sums = vec![0.0; values.len()];
        for draw in 0..DRAWS {
            let mut random = Random::new(seed, draw);
            let drawn: Vec<Vec<String>> = self
                .conversations
                .iter()
                .map(|_| (0..self.k).map(|_| replies[random.below(replies.len())].clone()).collect())
                .collect();
            let of_draw = self.values(&drawn)?;
            sums.iter_mut().zip(of_draw).for_each(|(sum, value)| *sum += value.value);
        }
        for (value, sum) in values.iter_mut().zip(sums) {
            value.floor = Some(sum / DRAWS as f64);
        }
        Ok(())
    }
}

/// Returns the F1 score of the words of two texts. Repeated words count as often as they occur in both texts.
fn word_f1(a: &str, b: &str) -> f64 {
    let words = |text: &str| -> Vec<String> { analyze(text).into_iter().map(|token| token.term).collect() };
    let (a, b) = (words(a), words(b));
    if a.is_empty() || b.is_empty() {
        return f64::from(a.is_empty() && b.is_empty());
    }
    let mut left: HashMap<&str, usize> = HashMap::new();
    a.iter().for_each(|word| *left.entry(word).or_default() += 1);
    let shared = b.iter().filter(|word| match left.get_mut(word.as_str()) {
        Some(count) if *count > 0 => {
            *count -= 1;
            true
        }
        _ => false,
    });
    2.0 * shared.count() as f64 / (a.len() + b.len()) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(id: &str, reply: &str) -> Conversation {
        Conversation { id: id.to_owned(), context: vec!["where is it".to_owned()], reply: reply.to_owned() }
    }

    fn texts(all: &[&[&str]]) -> Vec<Vec<String>> {
        all.iter().map(|of| of.iter().map(|text| (*text).to_owned()).collect()).collect()
    }

    #[test]
    fn the_best_of_the_first_suggestions_counts() {
        let conversations = [conversation("a@2", "It is on its way."), conversation("b@1", "Goodbye")];
        let mut judge = Judge::new(&conversations, None, 2).unwrap();
        let suggestions =
            texts(&[&["it was on a shelf", "It is on its way", "it is on its way"], &["Never", "goodbye!"]]);
        let values = judge.values(&suggestions).unwrap();
        let found: Vec<(&str, &[f64])> =
            values.iter().map(|value| (value.measure.as_str(), value.each.as_slice())).collect();
        // "it" and "on" are shared: 2 · 2 / (5 + 5).
        assert_eq!(
            found,
            [
                ("same words@1", [0.0, 0.0].as_slice()),
                ("same words@2", [1.0, 1.0].as_slice()),
                ("word F1@1", [0.4, 0.0].as_slice()),
                ("word F1@2", [1.0, 1.0].as_slice()),
            ]
        );
        assert_eq!(values[2].value, 0.2);
        // Only the first `k` suggestions count, and no suggestion is the worst one.
        let values =
            Judge::new(&conversations, None, 1).unwrap().values(&texts(&[&["no", "It is on its way"], &[]]));
        let values = values.unwrap();
        assert_eq!(values.iter().map(|value| value.value).collect::<Vec<_>>(), [0.0, 0.0]);
    }

    #[test]
    fn repeated_words_and_texts_without_words() {
        assert_eq!(word_f1("no no", "no"), 2.0 / 3.0);
        assert_eq!(word_f1("no", "no no"), 2.0 / 3.0);
        assert_eq!((word_f1("...", "?"), word_f1("...", "no")), (1.0, 0.0));
    }

    #[test]
    fn the_baseline_is_the_value_of_random_replies() {
        let conversations: Vec<Conversation> =
            (0..200).map(|n| conversation(&format!("d@{n}"), "yes")).collect();
        let mut judge = Judge::new(&conversations, None, 2).unwrap();
        let mut values = judge.values(&vec![vec!["yes".to_owned()]; 200]).unwrap();
        judge.set_baseline(&mut values, &["yes".to_owned(), "no".to_owned()], 1).unwrap();
        // One of two replies is right: 1/2 for one draw, 3/4 for the better of two.
        let floors: Vec<f64> = values.iter().filter_map(|value| value.floor).collect();
        assert!((floors[0] - 0.5).abs() < 0.05 && (floors[1] - 0.75).abs() < 0.05, "{floors:?}");
        assert!((floors[2] - 0.5).abs() < 0.05 && (floors[3] - 0.75).abs() < 0.05, "{floors:?}");
        assert_eq!(values[0].value, 1.0);
    }

    #[test]
    fn the_id_of_a_sample_contains_its_dialogue() {
        assert_eq!(conversation("a@b@12", "").dialogue(), Some("a@b"));
        assert_eq!(conversation("12", "").dialogue(), None);
    }
}
