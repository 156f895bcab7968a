//! The sample corpus: 240 English and 40 Chinese support dialogues in 12 domains, and pairs of sentences, written for
//! turnwise.

macro_rules! support {
    ($($name:literal),* $(,)?) => {
        /// The files of the support corpus: name and canonical JSONL.
        pub const SUPPORT: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../examples/support/", $name)))),*];
    };
}

support!(
    "banking.jsonl",
    "billing.jsonl",
    "clinic.jsonl",
    "deliveries.jsonl",
    "flights.jsonl",
    "hotels.jsonl",
    "insurance.jsonl",
    "refunds.jsonl",
    "restaurant.jsonl",
    "software.jsonl",
    "telecom.jsonl",
    "utilities.jsonl",
    "zh.jsonl",
);

/// Pairs of sentences that one person scored: score, sentence and sentence, with tabs between them.
pub const PAIRS: &str = include_str!("../examples/benchmarks/pairs.tsv");
