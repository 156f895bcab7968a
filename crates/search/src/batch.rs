//! Batch search: encodes the queries together and runs the searches in parallel.

use rayon::prelude::*;

use super::{
    Searcher,
    query::QueryVectors,
    request::{Mode, SearchRequest},
    response::Response,
};
use turnwise_core::error::Result;
use turnwise_encoder::TextOptions;

impl Searcher {
    /// Runs several searches. Returns the responses in the order of the requests. Each response is the same as that
    /// of a single search.
    pub fn search_all(&self, requests: &[SearchRequest]) -> Vec<Result<Response>> {
        // If encoding fails, each search encodes its own query, so each request gets its own error.
        let vectors = self.encode_together(requests).unwrap_or_default();
        requests.par_iter().map(|request| self.search_with_vectors(request, &vectors)).collect()
    }

    fn encode_together(&self, requests: &[SearchRequest]) -> Result<QueryVectors> {
        let has_plain_query = |request: &&SearchRequest| {
            request.context.is_empty() && request.check().is_ok() && !request.query.is_empty()
        };
        let mut texts: Vec<&str> = Vec::new();
        for request in requests.iter().filter(has_plain_query) {
            if self.mode(request)? != Mode::Bm25 {
                texts.push(&request.query);
            }
        }
        texts.sort_unstable();
        texts.dedup();
        if texts.is_empty() {
            return Ok(QueryVectors::new());
        }
        let options = TextOptions { prompt: self.recipe()?.prompt.clone() };
        let encoder = self.encoder()?;
        // Long queries are encoded separately, because the warning about truncation belongs to one query.
        let limit = encoder.max_tokens().map_or(usize::MAX, |tokens| tokens.saturating_sub(8));
        texts.retain(|text| text.len() <= limit);
        let encoded = encoder.encode(&texts, &options)?;
        let vectors = encoded.vectors.rows().map(<[f32]>::to_vec);
        Ok(texts.into_iter().map(str::to_owned).zip(vectors).collect())
    }
}
