//! By meaning first, and the best of that token by token, as a search ranks again.

use std::cmp::Ordering;

use super::{Dense, Items, Pool, Ranker, Scorer, Step, Watch};
use crate::{
    encoder::{Encoder, TextOptions, TokenVectors},
    error::{Error, Result},
    search::late::{matching_guided, maxsim},
};

/// So many texts have their tokens made at a time.
const AT_ONCE: usize = 64;
/// Above what any cosine is, so that what was ranked again stands before what was not.
const ABOVE: f32 = 2.0;

/// How texts are compared token by token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tokens {
    /// Each token of the query with the one of the document that is most like it. Of a context, the last turn is the query.
    Maxsim,
    /// DialogueCSE's matching-guided embedding: the document as the turns of the context see it.
    Matching,
}

/// An encoder that ranks twice.
#[derive(Clone)]
pub struct Reranked<'e> {
    /// By its vectors,
    pub dense: Dense<'e>,
    /// and then by those of its tokens,
    pub by: Tokens,
    /// so many of the best.
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

    fn prepare<'a>(&'a self, pool: &'a Pool, watch: &dyn Watch) -> Result<Box<dyn Scorer + 'a>> {
        let Items::Texts(documents) = &pool.documents else {
            return Err(Error::Input {
                message: "texts are ranked again token by token, and here dialogues are ranked".to_owned(),
                hint: Some("leave the rankers `maxsim` and `matching` to the other tasks".to_owned()),
            });
        };
        let (encoder, options) = (self.dense.encoder, &self.dense.options.texts);
        let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
        let queries = match &pool.queries {
            None => None,
            Some(Items::Texts(texts)) => {
                Some(texts.iter().map(|text| vec![text.as_str()]).collect::<Vec<_>>())
            }
            Some(Items::Dialogues(dialogues)) => {
                let turns = |n: usize| dialogues[n].turns.iter().map(|turn| turn.text.as_str()).collect();
                Some((0..dialogues.len()).map(turns).collect())
            }
        };
        Ok(Box::new(Prepared {
            by: self.by,
            top: self.top,
            first: self.dense.prepare(pool, watch)?,
            documents: tokens(encoder, &documents, options, watch)?,
            queries: queries
                .map(|queries| {
                    // All turns of all contexts in one go, then each with its own.
                    let flat: Vec<&str> = queries.iter().flatten().copied().collect();
                    let mut tokens = tokens(encoder, &flat, options, watch)?.into_iter();
                    Ok::<_, Error>(
                        queries.iter().map(|turns| tokens.by_ref().take(turns.len()).collect()).collect(),
                    )
                })
                .transpose()?,
        }))
    }
}

fn tokens(
    encoder: &dyn Encoder,
    texts: &[&str],
    options: &TextOptions,
    watch: &dyn Watch,
) -> Result<Vec<TokenVectors>> {
    let mut tokens = Vec::with_capacity(texts.len());
    for chunk in texts.chunks(AT_ONCE) {
        watch.check()?;
        tokens.extend(encoder.encode_tokens(chunk, options)?);
        watch.done(Step::Encoding, tokens.len(), texts.len());
    }
    Ok(tokens)
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
            scores[at] = ABOVE + score;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::testing::HashEncoder;

    fn pool() -> Pool {
        let texts = ["my card is gone", "card is lost", "the parcel is late", "is my card gone", "good bye"];
        Pool::of(Items::Texts(texts.map(str::to_owned).to_vec()))
    }

    #[test]
    fn the_best_are_ranked_again_and_stand_before_the_others() {
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
                let expected = if place < 3 { ABOVE + naive(&tokens[0], &tokens[n]) } else { first[n] };
                assert_eq!(scores[n], expected, "{by:?} {n}");
            }
        }
    }

    #[test]
    fn dialogues_are_not_ranked_again() {
        let encoder = HashEncoder::default();
        let dense = Dense::new(&encoder);
        let ranker = Reranked { dense, by: Tokens::Maxsim, top: 3 };
        let pool = Pool::of(Items::Dialogues(Vec::new()));
        assert!(ranker.prepare(&pool, &()).is_err());
    }
}
