//! Sample data written for turnwise: 240 English and 40 Chinese support dialogues in 12 domains, and scored
//! sentence pairs.

macro_rules! support {
    ($($name:literal),* $(,)?) => {
        /// Files of the support corpus: name and content (canonical JSONL).
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

/// Sentence pairs scored by one person. Tab-separated lines: score, sentence, sentence.
pub const PAIRS: &str = include_str!("../examples/benchmarks/pairs.tsv");
