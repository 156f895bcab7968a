//! `/v1/rerank`: ranks texts by their cosine with a query. Compatible with common rerank APIs.

use axum::{
    body::Body,
    http::{Response, StatusCode},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Call, embeddings};
use crate::{
    body,
    problem::{Outcome, Problem},
};
use turnwise_core::vectors::cosine;
use turnwise_encoder::{Encoder, TextOptions};

/// Largest number of documents per request.
const MOST: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RerankRequest {
    query: String,
    documents: Vec<Document>,
    top_n: Option<usize>,
    #[serde(default)]
    return_documents: bool,
    #[serde(default)]
    model: String,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a document must be a string or an object with a `text`")]
enum Document {
    Plain(String),
    Object { text: String },
}

impl Document {
    fn text(&self) -> &str {
        match self {
            Document::Plain(text) | Document::Object { text } => text,
        }
    }
}

pub(super) async fn rerank(mut call: Call) -> Outcome<Response<Body>> {
    let request: RerankRequest = body::parse(&call.body().await?)?;
    let wrong = |message: String, param: &str| Err(Problem::request(message).param(param));
    if request.query.trim().is_empty() {
        return wrong("the query is empty".to_owned(), "query");
    }
    if request.documents.is_empty() || request.documents.len() > MOST {
        let count = request.documents.len();
        return wrong(
            format!("the number of documents must be between 1 and {MOST}, but is {count}"),
            "documents",
        );
    }
    if request.top_n == Some(0) {
        return wrong("`top_n` must be at least 1".to_owned(), "top_n");
    }
    let (encoder, prompt) = embeddings::encoder(&call, &request.model)?;
    let pool = call.app.pool.clone();
    let answer = pool.run(move || answer(&request, encoder.as_ref(), prompt)).await?;
    Ok(body::json(StatusCode::OK, &answer))
}

fn answer(request: &RerankRequest, encoder: &dyn Encoder, prompt: Option<String>) -> Outcome<Value> {
    let texts: Vec<&str> =
        std::iter::once(request.query.as_str()).chain(request.documents.iter().map(Document::text)).collect();
    let made = encoder.encode(&texts, &TextOptions { prompt })?;
    let query = made.vectors.row(0);
    let mut ranked: Vec<(usize, f32)> =
        made.vectors.rows().skip(1).map(|row| cosine(query, row)).enumerate().collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    ranked.truncate(request.top_n.unwrap_or(usize::MAX));
    let result = |(index, score): &(usize, f32)| {
        let mut result = json!({"index": index, "relevance_score": score});
        if request.return_documents {
            result["document"] = json!({"text": request.documents[*index].text()});
        }
        result
    };
    Ok(json!({
        "model": encoder.name(),
        "results": ranked.iter().map(result).collect::<Vec<Value>>(),
        "usage": {"total_tokens": made.spent.tokens},
    }))
}
