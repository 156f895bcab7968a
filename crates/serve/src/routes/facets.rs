//! `/v1/facets`: number of dialogues per value of a field.

use axum::{
    body::Body,
    http::{Response, StatusCode},
};

use super::Call;
use crate::{body, problem::Outcome};
use turnwise_search::DEFAULT_FACETS;

/// Largest number of values per field.
const MOST: usize = 50;

pub(super) async fn facets(call: Call) -> Outcome<Response<Body>> {
    let mut fields: Vec<String> = call.query_values("field").collect();
    if fields.is_empty() {
        fields = DEFAULT_FACETS.map(str::to_owned).to_vec();
    }
    let filter = call.filter()?;
    let index = call.query_value("index");
    let opened = call.client.opened(&call.app, index.as_deref())?;
    let counted =
        call.app.pool.run(move || Ok(opened.searcher.facets(filter.as_ref(), &fields, MOST)?)).await?;
    Ok(body::json(StatusCode::OK, &counted))
}
