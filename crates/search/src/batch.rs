//! Many requests at once: their queries are encoded together, and all processors look.

use rayon::prelude::*;

use super::{
    Searcher,
    query::Known,
    request::{Mode, SearchRequest},
    response::Response,
};
use turnwise_core::error::Result;
use turnwise_encoder::TextOptions;

impl Searcher {
    /// Answers requests, in their order; each is answered as it would be alone.
    pub fn search_all(&self, requests: &[SearchRequest]) -> Vec<Result<Response>> {
        // What cannot be encoded together is tried again one by one, so that each gets its own error.
        let known = self.encode_together(requests).unwrap_or_default();
        requests.par_iter().map(|request| self.search_knowing(request, &known)).collect()
    }

    fn encode_together(&self, requests: &[SearchRequest]) -> Result<Known> {
        let alone = |request: &&SearchRequest| {
            request.context.is_empty() && request.check().is_ok() && !request.query.is_empty()
        };
        let mut texts: Vec<&str> = Vec::new();
        for request in requests.iter().filter(alone) {
            if self.mode(request)? != Mode::Bm25 {
                texts.push(&request.query);
            }
        }
        texts.sort_unstable();
        texts.dedup();
        if texts.is_empty() {
            return Ok(Known::new());
        }
        let options = TextOptions { prompt: self.recipe()?.prompt.clone() };
        let encoder = self.encoder()?;
        // Only one by one it can be told which was too long.
        let limit = encoder.max_tokens().map_or(usize::MAX, |tokens| tokens.saturating_sub(8));
        texts.retain(|text| text.len() <= limit);
        let encoded = encoder.encode(&texts, &options)?;
        let vectors = encoded.vectors.rows().map(<[f32]>::to_vec);
        Ok(texts.into_iter().map(str::to_owned).zip(vectors).collect())
    }
}
