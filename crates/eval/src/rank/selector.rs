//! Ranker that scores each response together with its context.

use super::{Items, Pool, Progress, Ranker, Scorer};
use turnwise_core::error::{Error, Result};
use turnwise_encoder::selector::Selector;

/// Ranks texts for a context with a selector. A query that is a text is a context of one turn.
#[derive(Debug, Clone, Copy)]
pub struct BySelector<'s> {
    /// The selector.
    pub selector: &'s Selector,
}

impl Ranker for BySelector<'_> {
    fn name(&self) -> String {
        format!("selector {}", self.selector.name())
    }

    fn identity(&self) -> String {
        format!("selector/{}", self.selector.fingerprint())
    }

    fn prepare<'a>(&'a self, pool: &'a Pool, _: &dyn Progress) -> Result<Box<dyn Scorer + 'a>> {
        match &pool.documents {
            Items::Texts(texts) => {
                Ok(Box::new(Prepared { selector: self.selector, texts, contexts: pool.queries() }))
            }
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
    selector: &'a Selector,
    texts: &'a [String],
    contexts: &'a Items,
}

impl Scorer for Prepared<'_> {
    fn scores(&self, query: usize, documents: &[u32], scores: &mut Vec<f32>) -> Result<()> {
        let context: Vec<&str> = match self.contexts {
            Items::Texts(texts) => vec![&texts[query]],
            Items::Dialogues(dialogues) => {
                dialogues[query].turns.iter().map(|turn| turn.text.as_str()).collect()
            }
        };
        let responses: Vec<&str> = documents.iter().map(|n| self.texts[*n as usize].as_str()).collect();
        *scores = self.selector.select(&context, &responses)?.outputs;
        Ok(())
    }
}
