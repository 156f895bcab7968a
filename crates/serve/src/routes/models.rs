//! Routes that use the models of the indexes. `/v1/embeddings` and `/v1/models` are compatible with OpenAI's API.
//! `/v1/rerank` is compatible with common rerank APIs.

use std::{collections::BTreeSet, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Call;
use crate::{
    OpenIndex,
    app::{self, Client},
    body::{self, HttpResponse},
    problem::{Outcome, Problem},
};
use turnwise_core::{
    error::Result,
    vectors::{cosine, normalize},
};
use turnwise_encoder::{Encoded, Encoder, TextOptions, selector::Selector};

/// Maximum number of inputs per request, as in OpenAI's API.
const MAX_INPUTS: usize = 2048;

/// Request of `/v1/embeddings`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EmbeddingsRequest {
    /// Input to encode: a string, a list of strings, a list of token ids, or a list of lists of token ids.
    input: Inputs,
    /// Name of the model. If there is only one model, any name selects it.
    #[serde(default)]
    model: String,
    /// Format of the vectors in the response.
    #[serde(default)]
    encoding_format: Format,
    /// Number of dimensions to which the vectors are truncated. By default, they are not truncated.
    dimensions: Option<usize>,
    /// Id of the end user, as in OpenAI's API. It is accepted and ignored.
    #[serde(rename = "user")]
    _user: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "`input` must be a string, a list of strings, a list of token ids or a list of such lists"
)]
#[schemars(inline)]
enum Inputs {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    ManyTokens(Vec<Vec<u32>>),
}

#[derive(Deserialize, JsonSchema, Default, Clone, Copy)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Format {
    #[default]
    Float,
    Base64,
}

#[derive(Serialize)]
struct Answer<'a> {
    object: &'static str,
    data: Vec<One>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct One {
    object: &'static str,
    index: usize,
    embedding: Numbers,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Numbers {
    Floats(Vec<f32>),
    Base64(String),
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: u64,
    total_tokens: u64,
}

pub(super) async fn embeddings(mut call: Call) -> Outcome<HttpResponse> {
    let request: EmbeddingsRequest = body::parse(&call.body().await?)?;
    let (encoder, prompt) = encoder(&call, &request.model)?;
    let pool = call.app.pool.clone();
    pool.run(move || answer(&request, encoder.as_ref(), prompt)).await
}

/// Finds the encoder with the name `model` among the indexes that the client may access. Also returns the prompt that
/// was used for the vectors of the index. If there is only one model, any name selects it, because clients often send a
/// fixed name.
pub(super) fn encoder(call: &Call, model: &str) -> Outcome<(Arc<dyn Encoder>, Option<String>)> {
    let all = allowed_indexes(call, &call.client);
    let named = all.iter().find(|(_, opened)| name(opened).is_some_and(|name| is_called(&name, model)));
    let different = all.iter().filter_map(|(_, opened)| name(opened)).collect::<BTreeSet<_>>();
    let (_, opened) = match named {
        Some(named) => named,
        None if different.len() > 1 => {
            let names = different.into_iter().collect::<Vec<_>>().join(", ");
            return Err(Problem::not_found(format!("model `{model}` does not exist"))
                .param("model")
                .hint(format!("available models: {names}")));
        }
        None => all.iter().find(|(_, opened)| name(opened).is_some()).ok_or_else(|| {
            Problem::unavailable("no model is available, because no index has vectors")
                .hint("`turnwise encode -i INDEX` creates the vectors")
        })?,
    };
    match (&opened.encoder, &opened.without_encoder) {
        (Some(encoder), _) => {
            let recipe = opened.searcher.engine().recipe();
            Ok((encoder.clone(), recipe.and_then(|recipe| recipe.prompt.clone())))
        }
        (None, Some(why)) => Err(app::no_encoder(why)),
        (None, None) => Err(Problem::internal("an index with vectors has no encoder")),
    }
}

fn allowed_indexes(call: &Call, client: &Client) -> Vec<(String, Arc<OpenIndex>)> {
    let may = |name: &str| client.0.as_ref().is_none_or(|key| key.allows_index(name));
    call.app.opened().into_iter().filter(|(name, _)| may(name)).collect()
}

fn name(opened: &OpenIndex) -> Option<String> {
    opened.searcher.engine().recipe().map(|recipe| recipe.name.clone())
}

/// Returns whether two names refer to the same model. Ignores the name of the organization, which is the part before
/// the last `/`.
fn is_called(name: &str, model: &str) -> bool {
    name == model || name.rsplit('/').next() == model.rsplit('/').next()
}

fn answer(
    request: &EmbeddingsRequest,
    encoder: &dyn Encoder,
    prompt: Option<String>,
) -> Outcome<HttpResponse> {
    let wrong = |message: String, param: &str| Err(Problem::request(message).param(param));
    let lengths = request.input.lengths();
    if lengths.is_empty() || lengths.len() > MAX_INPUTS {
        return wrong(
            format!("the number of inputs must be between 1 and {MAX_INPUTS}, but is {}", lengths.len()),
            "input",
        );
    }
    if let Some(n) = lengths.iter().position(|length| *length == 0) {
        return wrong(format!("input[{n}] is empty"), "input");
    }
    if request.dimensions.is_some_and(|n| n == 0 || n > encoder.dim()) {
        return wrong(format!("`dimensions` must be between 1 and {}", encoder.dim()), "dimensions");
    }
    let made = request.input.encode(encoder, &TextOptions { prompt })?;
    let tokens = made.spent.tokens;
    let data = made.vectors.rows().enumerate().map(|(index, row)| One {
        object: "embedding",
        index,
        embedding: numbers(row, request, encoder.normalizes()),
    });
    Ok(body::ok(&Answer {
        object: "list",
        data: data.collect(),
        model: encoder.name(),
        usage: Usage { prompt_tokens: tokens, total_tokens: tokens },
    }))
}

impl Inputs {
    fn lengths(&self) -> Vec<usize> {
        match self {
            Inputs::Text(text) => vec![text.len()],
            Inputs::Texts(texts) => texts.iter().map(String::len).collect(),
            Inputs::Tokens(ids) => vec![ids.len()],
            Inputs::ManyTokens(all) => all.iter().map(Vec::len).collect(),
        }
    }

    fn encode(&self, encoder: &dyn Encoder, options: &TextOptions) -> Result<Encoded> {
        match self {
            Inputs::Text(text) => encoder.encode(&[text], options),
            Inputs::Texts(texts) => {
                encoder.encode(&texts.iter().map(String::as_str).collect::<Vec<_>>(), options)
            }
            Inputs::Tokens(ids) => encoder.encode_ids(&[ids], options),
            Inputs::ManyTokens(all) => {
                encoder.encode_ids(&all.iter().map(Vec::as_slice).collect::<Vec<_>>(), options)
            }
        }
    }
}

/// Converts a vector to the requested format and number of dimensions. The result is a unit vector, as in OpenAI's API.
/// `normalized` is true if `row` already is a unit vector.
fn numbers(row: &[f32], request: &EmbeddingsRequest, normalized: bool) -> Numbers {
    let mut row = row[..request.dimensions.unwrap_or(row.len())].to_vec();
    if request.dimensions.is_some() || !normalized {
        normalize(&mut row);
    }
    match request.encoding_format {
        Format::Float => Numbers::Floats(row),
        Format::Base64 => Numbers::Base64(base64(row.iter().flat_map(|number| number.to_le_bytes()))),
    }
}

fn base64(bytes: impl Iterator<Item = u8>) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = bytes.collect();
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word =
            three.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for n in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * n) & 63) as usize];
            text.push(if n <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

pub(super) async fn list(call: Call) -> Outcome<HttpResponse> {
    let data: Vec<_> = names(&call).iter().map(|name| described(name)).collect();
    Ok(body::ok(&json!({"object": "list", "data": data})))
}

pub(super) async fn one(call: Call) -> Outcome<HttpResponse> {
    let wanted = call.last_of_path()?;
    let names = names(&call);
    match names.iter().find(|name| is_called(name, &wanted)) {
        Some(name) => Ok(body::ok(&described(name))),
        None => Err(Problem::not_found(format!("model `{wanted}` does not exist")).param("model")),
    }
}

/// Returns the names of the models of those indexes that the client may access.
fn names(call: &Call) -> BTreeSet<String> {
    allowed_indexes(call, &call.client).iter().filter_map(|(_, opened)| name(opened)).collect()
}

fn described(name: &str) -> serde_json::Value {
    json!({"id": name, "object": "model", "created": 0, "owned_by": "turnwise"})
}

/// Maximum number of documents per request of `/v1/rerank`.
const MAX_DOCUMENTS: usize = 1_000;

/// Request of `/v1/rerank`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RerankRequest {
    /// The query.
    query: String,
    /// The texts to rank.
    documents: Vec<Document>,
    /// Maximum number of results.
    top_n: Option<usize>,
    /// Whether to return the text of each result.
    #[serde(default)]
    return_documents: bool,
    /// Name of the model. If it is missing, the selector of the server is used if there is one. If there is only one model,
    /// any name selects it.
    #[serde(default)]
    model: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a document must be a string or an object with a `text`")]
#[schemars(inline)]
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

pub(super) async fn rerank(mut call: Call) -> Outcome<HttpResponse> {
    let request: RerankRequest = body::parse(&call.body().await?)?;
    let wrong = |message: String, param: &str| Err(Problem::request(message).param(param));
    if request.query.trim().is_empty() {
        return wrong("the query is empty".to_owned(), "query");
    }
    if request.documents.is_empty() || request.documents.len() > MAX_DOCUMENTS {
        let count = request.documents.len();
        return wrong(
            format!("the number of documents must be between 1 and {MAX_DOCUMENTS}, but is {count}"),
            "documents",
        );
    }
    if request.top_n == Some(0) {
        return wrong("`top_n` must be at least 1".to_owned(), "top_n");
    }
    let pool = call.app.pool.clone();
    let selector = call.app.hooks.selector();
    if let Some(selector) = selector.filter(|s| request.model.is_empty() || request.model == s.name()) {
        let answer = pool.run(move || ranked_by(&request, &selector)).await?;
        return Ok(body::ok(&answer));
    }
    let (encoder, prompt) = encoder(&call, &request.model)?;
    let answer = pool.run(move || ranked(&request, encoder.as_ref(), prompt)).await?;
    Ok(body::ok(&answer))
}

/// Ranks the documents by a selector, which reads the query and a document together.
fn ranked_by(request: &RerankRequest, selector: &Selector) -> Outcome<Value> {
    let texts: Vec<&str> = request.documents.iter().map(Document::text).collect();
    let selected = selector.select(&[&request.query], &texts)?;
    let ranked: Vec<(usize, f32)> = selected.outputs.into_iter().enumerate().collect();
    let shown = |output: f32| selector.activation().apply(output);
    Ok(results(request, selector.name(), ranked, &shown, selected.tokens))
}

fn ranked(request: &RerankRequest, encoder: &dyn Encoder, prompt: Option<String>) -> Outcome<Value> {
    let texts: Vec<&str> =
        std::iter::once(request.query.as_str()).chain(request.documents.iter().map(Document::text)).collect();
    let made = encoder.encode(&texts, &TextOptions { prompt })?;
    let query = made.vectors.row(0);
    let ranked: Vec<(usize, f32)> =
        made.vectors.rows().skip(1).map(|row| cosine(query, row)).enumerate().collect();
    Ok(results(request, encoder.name(), ranked, &|cosine| cosine, made.spent.tokens))
}

/// Sorts the documents by their scores, best first, and returns the response. `shown` converts a score to the score in
/// the response.
fn results(
    request: &RerankRequest,
    model: &str,
    mut ranked: Vec<(usize, f32)>,
    shown: &dyn Fn(f32) -> f32,
    tokens: u64,
) -> Value {
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    ranked.truncate(request.top_n.unwrap_or(usize::MAX));
    let result = |(index, score): &(usize, f32)| {
        let mut result = json!({"index": index, "relevance_score": shown(*score)});
        if request.return_documents {
            result["document"] = json!({"text": request.documents[*index].text()});
        }
        result
    };
    json!({
        "model": model,
        "results": ranked.iter().map(result).collect::<Vec<Value>>(),
        "usage": {"total_tokens": tokens},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_follows_the_standard() {
        for (text, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("\u{3ff}>", "z78+"),
        ] {
            assert_eq!(base64(text.bytes()), coded);
        }
    }

    #[test]
    fn models_are_found_with_and_without_their_organization() {
        assert!(is_called("sentence-transformers/all-MiniLM-L6-v2", "all-MiniLM-L6-v2"));
        assert!(is_called("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"));
        assert!(!is_called("e5-small", "all-MiniLM-L6-v2"));
    }
}
