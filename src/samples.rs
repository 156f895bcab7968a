//! Sample data written for turnwise: 240 English and 40 Chinese support dialogues in 12 domains, and sentence pairs
//! with similarity scores.

macro_rules! support {
    ($($name:literal),* $(,)?) => {
        /// Files of the support dialogues, as pairs of file name and content (turnwise's JSONL format).
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

/// Sentence pairs with similarity scores from 1 to 5, all given by one person. A line has three tab-separated columns:
/// score, first sentence, second sentence.
pub const PAIRS: &str = include_str!("../examples/benchmarks/pairs.tsv");

/// Returns the support dialogues of [`SUPPORT`].
pub fn dialogues() -> turnwise_core::Result<Vec<turnwise_corpus::Dialogue>> {
    let lines = SUPPORT.iter().flat_map(|(_, text)| text.lines());
    lines
        .map(|line| serde_json::from_str(line).map_err(|e| turnwise_core::Error::Internal(e.to_string())))
        .collect()
}
