//! Generates dialogues that differ in every field that a filter can test, with rare and frequent words in two scripts.

use serde_json::json;
use turnwise_corpus::Dialogue;

const WORDS: [&str; 24] = [
    "card",
    "refund",
    "parcel",
    "late",
    "hotel",
    "room",
    "please",
    "thanks",
    "invoice",
    "tomorrow",
    "broken",
    "screen",
    "password",
    "reset",
    "train",
    "ticket",
    "cancel",
    "don't",
    "100%",
    "naïve",
    "订单",
    "退款",
    "什么时候",
    "到货",
];

/// Pseudo-random number generator with a fixed sequence for each seed.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }

    pub fn sentence(&mut self, words: usize) -> String {
        // Words at the start of the list are more frequent.
        let word = |n: &mut Numbers| {
            let most = 1 + n.below(WORDS.len());
            WORDS[n.below(most)]
        };
        (0..words).map(|_| word(self)).collect::<Vec<_>>().join(" ")
    }
}

/// Returns a dialogue that depends only on its number and version. It belongs to one of three corpora.
pub fn dialogue(number: usize, version: u64) -> Dialogue {
    dialogue_in(number, version, None)
}

/// Returns the same dialogue as [`dialogue`], but in the given corpus, if one is given.
pub fn dialogue_in(number: usize, version: u64, corpus: Option<&str>) -> Dialogue {
    let mut n = Numbers(0x9e37_79b9 + (number as u64) * 7919 + version * 104_729);
    for _ in 0..5 {
        n.below(2);
    }
    let turns: Vec<_> = (0..1 + n.below(6))
        .map(|at| {
            let mut turn = json!({
                "role": (["user", "agent"][at % 2]), "speaker": (["Ann", "Bo \"B\"", "Çe"][n.below(3)]),
                "text": n.sentence_of(2 + at),
            });
            if n.below(3) == 0 {
                turn["intent"] = json!(["ask", "complain"][n.below(2)]);
            }
            if n.below(4) == 0 {
                turn["metadata"] = json!({"stars": n.below(5), "tag_%": (["x", "y"][n.below(2)])});
            }
            turn
        })
        .collect();
    let mut dialogue: Dialogue = serde_json::from_value(json!({
        "id": format!("d{number:04}"), "source": (["", "shop", "bank \\ \"new\""][n.below(3)]),
        "title": (["A case", "Another_case 50%"][n.below(2)]), "language": (["en", "zh"][n.below(2)]),
        "time": format!("2026-0{}-1{}T09:00:00Z", 1 + n.below(9), n.below(9)),
        "domains": [(["hotels", "trains"][n.below(2)]), (["food", "taxi", "it's"][n.below(3)])],
        "metadata": {"channel": (["phone", "chat"][n.below(2)]), "score": n.below(100) as f64 / 4.0, "list": [n.below(3), "many"]},
        "turns": turns,
    }))
    .unwrap();
    if let Some(corpus) = corpus {
        corpus.clone_into(&mut dialogue.source);
    }
    dialogue.check().unwrap();
    dialogue
}

impl Numbers {
    /// Returns a sentence of at least `least` and at most `2 * least` words.
    fn sentence_of(&mut self, least: usize) -> String {
        let words = least + self.below(least + 1);
        self.sentence(words)
    }
}
