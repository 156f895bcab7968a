//! Data sets for the dial2vec tasks. Selects dialogues with exactly one domain, and compares the size of the data set
//! with the size in the dial2vec paper.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::Serialize;

use crate::tasks::Skipped;
use turnwise_core::error::{Error, Result};
use turnwise_corpus::Dialogue;

/// Name and size of a corpus in Table 1 of the dial2vec paper.
struct Corpus {
    name: &'static str,
    /// Numbers of dialogues in the splits train, dev and test.
    dialogues: [usize; 3],
    domains: usize,
}

const CORPORA: [Corpus; 6] = [
    Corpus { name: "bitod", dialogues: [2_952, 70, 106], domains: 6 },
    Corpus { name: "doc2dial", dialogues: [3_474, 661, 661], domains: 4 },
    Corpus { name: "metalwoz", dialogues: [30_307, 3_788, 3_789], domains: 47 },
    Corpus { name: "multiwoz", dialogues: [8_437, 1_077, 1_084], domains: 7 },
    Corpus { name: "self-dialogue", dialogues: [19_331, 2_416, 2_417], domains: 28 },
    Corpus { name: "sgd", dialogues: [16_142, 836, 1_331], domains: 45 },
];
const SPLITS: [&str; 3] = ["train", "dev", "test"];

/// A data set of the dial2vec paper: one split of a corpus, for example `sgd/dev`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    corpus: usize,
    split: usize,
}

impl FromStr for Published {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (corpus, split) = text.split_once('/').unwrap_or((text, ""));
        let names = || CORPORA.iter().map(|corpus| corpus.name);
        let corpus = names().position(|name| name == corpus);
        let corpus =
            corpus.ok_or_else(|| Error::unknown_name("corpus of dial2vec's paper", text, names()))?;
        let split = SPLITS.iter().position(|name| *name == split);
        let split = split.ok_or_else(|| {
            Error::input(format!("`{text}` does not name a split of a corpus"))
                .with_hint(format!("use {0}/train, {0}/dev or {0}/test", CORPORA[corpus].name))
        })?;
        Ok(Published { corpus, split })
    }
}

impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", CORPORA[self.corpus].name, SPLITS[self.split])
    }
}

impl Published {
    /// Returns the number of dialogues in this data set, according to the dial2vec paper.
    pub fn dialogues(&self) -> usize {
        CORPORA[self.corpus].dialogues[self.split]
    }

    /// Returns the number of domains in all three splits of the corpus together, according to the dial2vec paper.
    pub fn domains(&self) -> usize {
        CORPORA[self.corpus].domains
    }

    /// Returns whether dialogues with any number of domains are kept. This is the case for a train split, because
    /// training ignores domains.
    fn keeps_all(&self) -> bool {
        self.split == 0
    }
}

/// Dialogues for the dial2vec tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct DialogueSet {
    /// Dialogues with exactly one domain. For a train split, dialogues with any number of domains.
    pub dialogues: Vec<Dialogue>,
    /// Numbers of dialogues that were skipped, with the reasons.
    pub skipped: Vec<Skipped>,
    /// Number of dialogues per domain.
    pub domains: BTreeMap<String, usize>,
}

/// Sizes of our data set and of the data set in the dial2vec paper. The sizes are different.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SizeDifference {
    /// Number of dialogues and number of domains in our data set.
    pub here: (usize, usize),
    /// Number of dialogues and number of domains in the data set of the dial2vec paper.
    pub paper: (usize, usize),
}

/// Selects the dialogues with exactly one domain. If `published` is a train split, selects all dialogues. Returns an
/// error if no dialogue is selected.
pub fn dialogue_set(dialogues: Vec<Dialogue>, published: Option<Published>) -> Result<DialogueSet> {
    let mut set = DialogueSet { dialogues: Vec::new(), skipped: Vec::new(), domains: BTreeMap::new() };
    set.dialogues = match published {
        Some(published) if published.keeps_all() => dialogues,
        _ => with_one_domain(dialogues, &mut set.skipped),
    };
    for domain in set.dialogues.iter().flat_map(|dialogue| &dialogue.domains) {
        *set.domains.entry(domain.clone()).or_default() += 1;
    }
    match set.dialogues.is_empty() {
        false => Ok(set),
        true => Err(Error::data("no dialogue has exactly one domain")
            .with_hint("a domain is a label of a dialogue; `turnwise corpus stats PATH` lists the domains")),
    }
}

/// Returns the dialogues with exactly one domain. Counts the other dialogues in `skipped`.
pub(crate) fn with_one_domain(mut dialogues: Vec<Dialogue>, skipped: &mut Vec<Skipped>) -> Vec<Dialogue> {
    dialogues.retain(|dialogue| {
        match dialogue.domains.len() {
            0 => Skipped::count(skipped, "dialogues without a domain", &dialogue.id),
            1 => return true,
            _ => Skipped::count(skipped, "dialogues with several domains", &dialogue.id),
        }
        false
    });
    dialogues
}

impl DialogueSet {
    /// Compares the size with the size in the dial2vec paper. Returns `None` if there is no difference. The paper
    /// counts the domains in all splits of a corpus, so fewer domains do not count as a difference.
    pub fn differs(&self, published: Published) -> Option<SizeDifference> {
        let here = (self.dialogues.len(), self.domains.len());
        let paper = (published.dialogues(), published.domains());
        (here.0 != paper.0 || here.1 > paper.1).then_some(SizeDifference { here, paper })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_core::ids::DialogueId;
    use turnwise_corpus::Role;

    fn dialogue(n: usize, domains: &[&str]) -> Dialogue {
        let mut dialogue = Dialogue::new(DialogueId::new(format!("d{n}")).unwrap());
        dialogue.push("Ann", Role::User, "hello");
        dialogue.domains = domains.iter().map(|d| (*d).to_owned()).collect();
        dialogue
    }

    #[test]
    fn only_a_train_split_keeps_dialogues_without_exactly_one_domain() {
        let given =
            || vec![dialogue(1, &["a"]), dialogue(2, &["a", "b"]), dialogue(3, &[]), dialogue(4, &["b"])];
        let set = dialogue_set(given(), None).unwrap();
        assert_eq!((set.dialogues.len(), set.domains.len(), set.skipped.len()), (2, 2, 2));
        let train = dialogue_set(given(), Some("sgd/train".parse().unwrap())).unwrap();
        assert_eq!((train.dialogues.len(), train.skipped.len(), train.domains["b"]), (4, 0, 2));
        assert!(dialogue_set(vec![dialogue(1, &[])], None).is_err());
    }

    #[test]
    fn sizes_are_compared_with_the_paper() {
        let dev: Published = "bitod/dev".parse().unwrap();
        let of = |n: usize, domains: usize| {
            let names: Vec<String> = (0..domains).map(|d| d.to_string()).collect();
            dialogue_set((0..n).map(|n| dialogue(n, &[&names[n % domains]])).collect(), Some(dev)).unwrap()
        };
        assert_eq!(of(70, 6).differs(dev), None);
        assert_eq!(of(70, 3).differs(dev), None);
        assert_eq!(of(70, 7).differs(dev), Some(SizeDifference { here: (70, 7), paper: (70, 6) }));
        assert_eq!(of(69, 6).differs(dev), Some(SizeDifference { here: (69, 6), paper: (70, 6) }));
    }

    #[test]
    fn a_published_set_is_named_by_corpus_and_split() {
        let set: Published = "self-dialogue/test".parse().unwrap();
        assert_eq!(
            (set.to_string().as_str(), set.dialogues(), set.domains()),
            ("self-dialogue/test", 2_417, 28)
        );
        assert_eq!(
            "sdg/dev".parse::<Published>().unwrap_err().to_string(),
            "unknown corpus of dial2vec's paper `sdg/dev`"
        );
        assert_eq!(
            "sgd".parse::<Published>().unwrap_err().to_string(),
            "`sgd` does not name a split of a corpus"
        );
    }
}
