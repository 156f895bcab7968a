//! Ranker with two stages: ranks by dense vectors first, and then reranks the top documents by token vectors. The
//! search can rerank in the same way.

use std::cmp::Ordering;

use super::{Dense, Items, Pool, Progress, Ranker, Scorer, Step};
use turnwise_core::error::Result;
use turnwise_encoder::{Encoder, TextOptions, TokenVectors};
use turnwise_search::{matching_guided, maxsim};

/// Number of texts that are encoded in one batch.
const BATCH: usize = 64;
/// Offset that is added to the scores of reranked documents. The other scores are cosines, so reranked documents come
/// first.
const RERANKED_OFFSET: f32 = 2.0;

/// Method that scores a document for a query from the token vectors of both texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tokens {
    /// MaxSim: compares each query token with the most similar document token. If the query is a context of several
    /// turns, uses only the last turn.
    Maxsim,
    /// DialogueCSE's matching-guided similarity of the document and the turns of the context.
    Matching,
}

/// Two-stage ranker: ranks by dense vectors, then reranks the top documents by token vectors.
#[derive(Clone)]
pub struct Reranked<'e> {
    /// Dense ranker of the first stage.
    pub dense: Dense<'e>,
    /// Method that scores the documents in the second stage.
    pub by: Tokens,
    /// Number of top documents of the first stage that are reranked.
    pub top: usize,
}

impl Ranker for Reranked<'_> {
    fn name(&self) -> String {
        let by = match self.by {
            Tokens::Maxsim => "maxsim",
            Tokens::Matching => "matching",
        };
        format!("{}, best {} by {by}", self.dense.name(), self.top)
    }

    fn identity(&self) -> String {
        format!("rerank/{:?}/{}/{}", self.by, self.top, self.dense.identity())
    }

    fn prepare<'a>(&'a self, pool: &'a Pool, watch: &dyn Progress) -> Result<Box<dyn Scorer + 'a>> {
        let (encoder, options) = (self.dense.encoder, &self.dense.options.texts);
        let documents = tokens_of(encoder, &turns(&pool.documents), options, watch)?;
        let queries =
            pool.queries.as_ref().map(|queries| tokens_of(encoder, &turns(queries), options, watch));
        Ok(Box::new(Prepared {
            by: self.by,
            top: self.top,
            first: self.dense.prepare(pool, watch)?,
            documents: documents.into_iter().map(joined).collect(),
            queries: queries.transpose()?,
        }))
    }
}

/// Returns the texts of the turns of each item. A plain text counts as one turn.
fn turns(items: &Items) -> Vec<Vec<&str>> {
    match items {
        Items::Texts(texts) => texts.iter().map(|text| vec![text.as_str()]).collect(),
        Items::Dialogues(dialogues) => dialogues
            .iter()
            .map(|dialogue| dialogue.turns.iter().map(|turn| turn.text.as_str()).collect())
            .collect(),
    }
}

/// Encodes the tokens of every turn of every item. A batch can contain turns of several items.
fn tokens_of(
    encoder: &dyn Encoder,
    items: &[Vec<&str>],
    options: &TextOptions,
    watch: &dyn Progress,
) -> Result<Vec<Vec<TokenVectors>>> {
    let texts: Vec<&str> = items.iter().flatten().copied().collect();
    let mut tokens = Vec::with_capacity(texts.len());
    for chunk in texts.chunks(BATCH) {
        watch.check()?;
        tokens.extend(encoder.encode_tokens(chunk, options)?);
        watch.done(Step::Encoding, tokens.len(), texts.len());
    }
    let mut tokens = tokens.into_iter();
    Ok(items.iter().map(|turns| tokens.by_ref().take(turns.len()).collect()).collect())
}

/// Concatenates the token vectors of all turns.
fn joined(turns: Vec<TokenVectors>) -> TokenVectors {
    let mut all = turns.into_iter();
    let Some(mut joined) = all.next() else { return TokenVectors::default() };
    for turn in all {
        turn.vectors.rows().for_each(|row| joined.vectors.push(row));
        joined.ranges.extend(turn.ranges);
        joined.cut += turn.cut;
    }
    joined
}

struct Prepared<'a> {
    by: Tokens,
    top: usize,
    first: Box<dyn Scorer + 'a>,
    documents: Vec<TokenVectors>,
    queries: Option<Vec<Vec<TokenVectors>>>,
}

impl Scorer for Prepared<'_> {
    fn scores(&self, query: usize, documents: &[u32], scores: &mut Vec<f32>) -> Result<()> {
        self.first.scores(query, documents, scores)?;
        let mut order: Vec<usize> = (0..documents.len()).collect();
        order.sort_by(|a, b| scores[*b].partial_cmp(&scores[*a]).unwrap_or(Ordering::Equal));
        let turns: Vec<&TokenVectors> = match &self.queries {
            Some(queries) => queries[query].iter().collect(),
            None => vec![&self.documents[query]],
        };
        for at in order.into_iter().take(self.top) {
            let document = &self.documents[documents[at] as usize];
            let score = match self.by {
                Tokens::Maxsim => turns.last().map_or(0.0, |last| maxsim(last, document)),
                Tokens::Matching => matching_guided(&turns, document),
            };
            scores[at] = RERANKED_OFFSET + score;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_core::ids::DialogueId;
    use turnwise_corpus::{Dialogue, Role};
    use turnwise_encoder::{Vectors, testing::HashEncoder};

    fn pool() -> Pool {
        let texts = ["my card is gone", "card is lost", "the parcel is late", "is my card gone", "good bye"];
        Pool::of(Items::Texts(texts.map(str::to_owned).to_vec()))
    }

    #[test]
    fn the_top_documents_are_reranked_and_come_first() {
        let encoder = HashEncoder::default();
        let dense = Dense::new(&encoder);
        let (pool, all) = (pool(), [0, 1, 2, 3, 4]);
        let texts: Vec<String> = (0..5).map(|n| pool.documents.text(n).into_owned()).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let tokens = encoder.encode_tokens(&texts, &TextOptions::default()).unwrap();
        let mut first = Vec::new();
        dense.prepare(&pool, &()).unwrap().scores(0, &all, &mut first).unwrap();
        for (by, naive) in [
            (Tokens::Maxsim, maxsim as fn(&TokenVectors, &TokenVectors) -> f32),
            (Tokens::Matching, |query, document| matching_guided(&[query], document)),
        ] {
            let ranker = Reranked { dense: dense.clone(), by, top: 3 };
            let mut scores = Vec::new();
            ranker.prepare(&pool, &()).unwrap().scores(0, &all, &mut scores).unwrap();
            let mut order = all;
            order.sort_by(|a, b| first[*b as usize].total_cmp(&first[*a as usize]));
            for (place, n) in order.iter().map(|n| *n as usize).enumerate() {
                let expected =
                    if place < 3 { RERANKED_OFFSET + naive(&tokens[0], &tokens[n]) } else { first[n] };
                assert_eq!(scores[n], expected, "{by:?} {n}");
            }
        }
    }

    #[test]
    fn a_dialogue_has_the_tokens_of_its_turns() {
        let encoder = HashEncoder::default();
        let dialogue = |id: &str, said: &[&str]| {
            let mut dialogue = Dialogue::new(DialogueId::new(id).unwrap());
            for text in said {
                dialogue.push("Ann", Role::User, *text);
            }
            dialogue
        };
        let said: [&[&str]; 3] =
            [&["my card is gone", "blocked"], &["card lost"], &["the parcel", "is late", "bye"]];
        let dialogues = said.iter().enumerate().map(|(n, said)| dialogue(&format!("d{n}"), said));
        let pool = Pool::of(Items::Dialogues(dialogues.collect()));
        let ranker = Reranked { dense: Dense::new(&encoder), by: Tokens::Maxsim, top: 3 };
        let mut scores = Vec::new();
        ranker.prepare(&pool, &()).unwrap().scores(0, &[0, 1, 2], &mut scores).unwrap();
        let tokens = |n: usize| {
            let turns = encoder.encode_tokens(said[n], &TextOptions::default()).unwrap();
            let mut all = TokenVectors { vectors: Vectors::new(encoder.dim()), ..TokenVectors::default() };
            turns.iter().for_each(|turn| turn.vectors.rows().for_each(|row| all.vectors.push(row)));
            all
        };
        for (n, score) in scores.iter().enumerate() {
            assert_eq!(*score, RERANKED_OFFSET + maxsim(&tokens(0), &tokens(n)), "{n}");
        }
        assert_eq!(joined(Vec::new()), TokenVectors::default());
    }
}
