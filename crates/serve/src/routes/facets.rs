//! `/v1/facets`.

use axum::{
    body::Body,
    http::{Response, StatusCode},
};

use super::Call;
use crate::{body, problem::Outcome};
use turnwise_search::USUAL;

/// So many values of a field.
const MOST: usize = 50;

pub(super) async fn facets(call: Call) -> Outcome<Response<Body>> {
    let mut fields: Vec<String> = call.all_asked("field").collect();
    if fields.is_empty() {
        fields = USUAL.map(str::to_owned).to_vec();
    }
    let filter = call.filter()?;
    let index = call.asked("index");
    let opened = call.asker.opened(&call.app, index.as_deref())?;
    let counted =
        call.app.pool.run(move || Ok(opened.searcher.facets(filter.as_ref(), &fields, MOST)?)).await?;
    Ok(body::json(StatusCode::OK, &counted))
}
