//! Dense ranker and hybrid ranker. The dense ranker scores by the cosine similarity of an encoder's vectors. The hybrid
//! ranker scores by the weighted sum of dense and BM25 scores, with the same formula as the search.

use std::borrow::Cow;

use super::{Bm25, Items, Pool, Postprocess, Progress, Ranker, Scorer, Step};
use turnwise_core::error::Result;
use turnwise_corpus::Dialogue;
use turnwise_encoder::{Encoder, Vectors, ahead::Options};
use turnwise_search::Fusion;

/// Dense ranker: ranks by the cosine similarity of an encoder's vectors.
#[derive(Clone)]
pub struct Dense<'e> {
    /// Encoder that makes the vectors of documents and queries.
    pub encoder: &'e dyn Encoder,
    /// Encoding options.
    pub options: Options,
    /// Number of last turns of a dialogue that are encoded. If `None`, all turns are encoded.
    pub last_turns: Option<usize>,
    /// Transformation of the vectors before they are compared.
    pub postprocess: Postprocess,
    /// Description of the options that differ from their defaults. It is appended to the name of the encoder in
    /// reports.
    pub otherwise: String,
}

impl<'e> Dense<'e> {
    /// Creates a ranker with default options.
    pub fn new(encoder: &'e dyn Encoder) -> Self {
        Dense {
            encoder,
            options: Options::default(),
            last_turns: None,
            postprocess: Postprocess::None,
            otherwise: String::new(),
        }
    }
}

impl Ranker for Dense<'_> {
    fn name(&self) -> String {
        format!("{}{}", self.encoder.name(), self.otherwise)
    }

    fn identity(&self) -> String {
        // The identity includes the precision and the device, because they change the last digits of a score. This can
        // change the order of documents with nearly equal scores.
        let how = (self.encoder.fingerprint(), self.encoder.describe(), &self.options, self.postprocess);
        let last = self.last_turns.map(|turns| format!("/last {turns}")).unwrap_or_default();
        format!("dense/{}/{}/{:?}/{:?}{last}", how.0, how.1, how.2, how.3)
    }

    fn prepare<'a>(&'a self, pool: &'a Pool, watch: &dyn Progress) -> Result<Box<dyn Scorer + 'a>> {
        Ok(Box::new(Prepared::new(self, pool, watch)?))
    }
}

pub(super) struct Prepared {
    documents: Vectors,
    queries: Option<Vectors>,
}

impl Prepared {
    pub(super) fn new(dense: &Dense<'_>, pool: &Pool, watch: &dyn Progress) -> Result<Self> {
        let mut documents = encoded(dense, &pool.documents, watch)?;
        let mut queries = pool.queries.as_ref().map(|queries| encoded(dense, queries, watch)).transpose()?;
        if let Some(learned) = dense.postprocess.learn(&documents) {
            learned.apply(&mut documents);
            queries.iter_mut().for_each(|queries| learned.apply(queries));
        }
        Ok(Prepared { documents, queries })
    }

    /// Creates a scorer from existing vectors, which must be unit vectors.
    pub(super) fn given(documents: Vectors, queries: Option<Vectors>) -> Self {
        Prepared { documents, queries }
    }
}

/// Encodes all items and returns their unit vectors.
fn encoded(dense: &Dense<'_>, items: &Items, watch: &dyn Progress) -> Result<Vectors> {
    let encoder = dense.encoder;
    let mut vectors = Vectors::new(encoder.dim());
    let (mut at, all) = (0, items.len());
    while at < all {
        watch.check()?;
        let mut bytes = 0;
        let fits = |n: &usize| {
            let before = bytes;
            bytes += items.text(*n).len();
            before < encoder.chunk_bytes()
        };
        let chunk = (at..all).take_while(fits).collect::<Vec<usize>>();
        let encoded = match items {
            Items::Texts(texts) => {
                let texts: Vec<&str> = chunk.iter().map(|n| texts[*n].as_str()).collect();
                encoder.encode(&texts, &dense.options.texts)?
            }
            Items::Dialogues(dialogues) => {
                let dialogues: Vec<Cow<'_, Dialogue>> =
                    chunk.iter().map(|n| end_of(&dialogues[*n], dense.last_turns)).collect();
                let dialogues: Vec<&Dialogue> = dialogues.iter().map(AsRef::as_ref).collect();
                encoder.encode_dialogues(&dialogues, &dense.options.dialogues)?
            }
        };
        encoded.vectors.rows().for_each(|row| vectors.push(row));
        at += chunk.len();
        watch.done(Step::Encoding, at, all);
    }
    vectors.normalize();
    Ok(vectors)
}

/// Returns the end of a dialogue: its last `last` turns, or all turns if `last` is `None`.
fn end_of(dialogue: &Dialogue, last: Option<usize>) -> Cow<'_, Dialogue> {
    let too_many = last.map_or(0, |last| dialogue.turns.len().saturating_sub(last));
    match too_many {
        0 => Cow::Borrowed(dialogue),
        n => Cow::Owned(Dialogue { turns: dialogue.turns[n..].to_vec(), ..dialogue.clone() }),
    }
}

impl Scorer for Prepared {
    fn scores(&self, query: usize, documents: &[u32], scores: &mut Vec<f32>) -> Result<()> {
        let query = self.queries.as_ref().unwrap_or(&self.documents).row(query);
        scores.clear();
        // If all documents are requested in order, their vectors are contiguous and can be scored in one call.
        if documents.len() == self.documents.len()
            && documents.iter().enumerate().all(|(n, d)| n == *d as usize)
        {
            turnwise_nearest::products(query, self.documents.flat(), self.documents.dim(), scores);
            return Ok(());
        }
        let mut one = Vec::new();
        for document in documents {
            turnwise_nearest::products(query, self.documents.row(*document as usize), query.len(), &mut one);
            scores.extend(&one);
        }
        Ok(())
    }

    fn vectors(&self) -> Option<&Vectors> {
        Some(&self.documents)
    }
}

/// Hybrid ranker: combines a dense ranker with BM25.
#[derive(Clone)]
pub struct Hybrid<'e> {
    /// Dense ranker.
    pub dense: Dense<'e>,
    /// BM25 ranker.
    pub words: Bm25,
    /// Fusion of the dense score and the BM25 score.
    pub fusion: Fusion,
}

impl Ranker for Hybrid<'_> {
    fn name(&self) -> String {
        format!("{} + {} × {}", self.dense.name(), self.fusion.bm25, self.words.name())
    }

    fn identity(&self) -> String {
        format!("hybrid/{:?}/{}/{}", self.fusion, self.dense.identity(), self.words.identity())
    }

    fn prepare<'a>(&'a self, pool: &'a Pool, watch: &dyn Progress) -> Result<Box<dyn Scorer + 'a>> {
        let (dense, words) = (self.dense.prepare(pool, watch)?, self.words.prepare(pool, watch)?);
        Ok(Box::new(PreparedHybrid { dense, words, fusion: self.fusion }))
    }
}

struct PreparedHybrid<'a> {
    dense: Box<dyn Scorer + 'a>,
    words: Box<dyn Scorer + 'a>,
    fusion: Fusion,
}

impl Scorer for PreparedHybrid<'_> {
    fn scores(&self, query: usize, documents: &[u32], scores: &mut Vec<f32>) -> Result<()> {
        let mut words = Vec::new();
        self.words.scores(query, documents, &mut words)?;
        self.dense.scores(query, documents, scores)?;
        scores
            .iter_mut()
            .zip(&words)
            .for_each(|(score, words)| *score = self.fusion.weighted(*score, *words));
        Ok(())
    }

    fn vectors(&self) -> Option<&Vectors> {
        self.dense.vectors()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_core::ids::DialogueId;
    use turnwise_corpus::Role;

    #[test]
    fn the_end_of_a_dialogue_is_its_last_turns() {
        let mut dialogue = Dialogue::new(DialogueId::new("d").unwrap());
        for text in ["a", "b", "c"] {
            dialogue.push("x", Role::User, text);
        }
        let said = |last| -> Vec<String> {
            end_of(&dialogue, last).turns.iter().map(|turn| turn.text.clone()).collect()
        };
        assert_eq!(said(Some(2)), ["b", "c"]);
        assert_eq!(said(Some(3)), ["a", "b", "c"]);
        assert_eq!(said(Some(9)), said(None));
    }
}
