//! Ranker that scores each response together with its context.

use super::{Items, Pool, Progress, Ranker, Scorer};
use turnwise_core::error::{Error, Result};
use turnwise_encoder::selector::{Sample, Selector};

/// Ranks texts for a context with a selector. A query that is a text is a context of one turn.
#[derive(Debug, Clone, Copy)]
pub struct BySelector<'s> {
    /// The selector.
    pub selector: &'s Selector,
    /// Part of the context that the selector reads.
    pub history: LastPart,
}

/// Part of a context that a selector reads. The default is the whole context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LastPart {
    /// Number of turns at the end of the context.
    pub turns: Option<usize>,
    /// Number of tokens at the end of the context.
    pub tokens: Option<usize>,
}

impl LastPart {
    /// Returns the suffixes of a ranker's name that stand for this part, such as `+last-512-tokens`.
    fn suffixes(self) -> String {
        let turns = self.turns.map(|n| format!("+last-{n}"));
        let tokens = self.tokens.map(|n| format!("+last-{n}-tokens"));
        turns.into_iter().chain(tokens).collect()
    }
}

impl Ranker for BySelector<'_> {
    fn name(&self) -> String {
        format!("selector {}{}", self.selector.name(), self.history.suffixes())
    }

    fn identity(&self) -> String {
        format!("selector/{}{}", self.selector.fingerprint(), self.history.suffixes())
    }

    fn prepare<'a>(&'a self, pool: &'a Pool, _: &dyn Progress) -> Result<Box<dyn Scorer + 'a>> {
        match &pool.documents {
            Items::Texts(texts) => Ok(Box::new(Prepared { ranker: self, texts, contexts: pool.queries() })),
            Items::Dialogues(_) => {
                Err(Error::input("a selector ranks texts, but the documents of this task are dialogues")
                    .with_hint(
                        "use it for response selection: `turnwise bench response FILE -r selector:DIR`",
                    ))
            }
        }
    }
}

struct Prepared<'a> {
    ranker: &'a BySelector<'a>,
    texts: &'a [String],
    contexts: &'a Items,
}

impl Scorer for Prepared<'_> {
    fn scores(&self, query: usize, documents: &[u32], scores: &mut Vec<f32>) -> Result<()> {
        let mut context: Vec<&str> = match self.contexts {
            Items::Texts(texts) => vec![&texts[query]],
            Items::Dialogues(dialogues) => {
                dialogues[query].turns.iter().map(|turn| turn.text.as_str()).collect()
            }
        };
        let responses: Vec<&str> = documents.iter().map(|n| self.texts[*n as usize].as_str()).collect();
        let BySelector { selector, history } = self.ranker;
        if let Some(turns) = history.turns {
            context.drain(..context.len().saturating_sub(turns));
        }
        let sample = Sample { last_tokens: history.tokens, ..Sample::new(&context, &responses) };
        let mut selected = selector.select_all(&[sample])?;
        *scores = selected.pop().map(|selected| selected.outputs).unwrap_or_default();
        Ok(())
    }
}
