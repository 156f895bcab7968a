//! Routes about a whole index: topics (`/v1/clusters`), statistics (`/v1/stats`) and facets (`/v1/facets`). Also the
//! route of the benchmark report (`/v1/benchmarks`).

use axum::{body::Bytes, http::StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use super::Call;
use crate::{
    OpenIndex,
    body::{self, HttpResponse},
    problem::{Outcome, Problem},
};
use turnwise_corpus::{filter::Filter, stats::Statistics};
use turnwise_search::{
    DEFAULT_FACETS,
    clusters::{ClusterOptions, Clusters, clusters},
    statistics,
};

/// Number of characteristic terms returned per cluster.
const TERMS: usize = 8;
/// Number of dialogues returned per cluster: those nearest to the cluster center.
const CENTRAL: usize = 3;
/// Maximum number of dialogues on the map. The time to compute the map is quadratic in this number.
const MAX_POINTS: usize = 2_000;

/// Response of `/v1/clusters`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Topics {
    /// Name and version of the response schema: `turnwise/clusters/1`. The output of `turnwise clusters --format json`
    /// has the same schema.
    schema: &'static str,
    seed: u64,
    analyzer: String,
    #[serde(flatten)]
    clusters: Clusters,
}

/// Response of `/v1/stats`.
#[derive(Serialize)]
struct Stats {
    schema: &'static str,
    generation: u64,
    #[serde(flatten)]
    statistics: Statistics,
}

pub(super) async fn topics(call: Call) -> Outcome<HttpResponse> {
    let k = call.number("k", 1, 10_000)?;
    let seed = call.number("seed", 0, u64::MAX)?.unwrap_or(0);
    let drawn = call.number("map", 0, MAX_POINTS as u64)?.unwrap_or(0) as usize;
    let key = format!("clusters {k:?} {seed} {drawn}");
    surveyed(call, key, move |opened, filter| {
        let snapshot = opened.snapshot("finding topics")?;
        let Some(dense) = opened.searcher.vectors() else {
            return Err(Problem::unavailable("this index has no vectors, which are needed to find topics")
                .hint("`turnwise encode -i INDEX` creates the vectors"));
        };
        // Users read the terms, and a stem is often not a word.
        let analyzer = opened.searcher.engine().analyzer().without_stemming();
        let wanted = ClusterOptions {
            k: k.map(|k| k as usize),
            seed,
            terms: TERMS,
            central: CENTRAL,
            drawn,
            analyzer,
            filter,
        };
        let clusters = clusters(snapshot, dense.vectors(), &wanted, &|| false)?;
        bytes(&Topics { schema: "turnwise/clusters/1", seed, analyzer: analyzer.to_string(), clusters })
    })
    .await
}

pub(super) async fn stats(call: Call) -> Outcome<HttpResponse> {
    surveyed(call, "stats".to_owned(), |opened, filter| {
        let snapshot = opened.snapshot("counting everything")?;
        let statistics = statistics(snapshot, filter, &|_| {}, &mut |_| Ok(()))?;
        bytes(&Stats { schema: "turnwise/stats/1", generation: snapshot.generation(), statistics })
    })
    .await
}

/// Returns the cached response for `key` and the filter of the request. If no response is cached, computes it with
/// `make`. The filter that `make` receives matches only dialogues that the client may see.
async fn surveyed(
    call: Call,
    key: String,
    make: impl FnOnce(&OpenIndex, Option<&Filter>) -> Outcome<Bytes> + Send + 'static,
) -> Outcome<HttpResponse> {
    let filter = call.filter()?;
    let key = format!("{key} {}", filter.as_ref().map(ToString::to_string).unwrap_or_default());
    let opened = call.opened()?;
    let found = call
        .app
        .survey_pool
        .run(move || opened.surveys.answer(&key, || make(&opened, filter.as_ref())))
        .await?;
    Ok(body::of(found, "application/json"))
}

fn bytes(found: &impl Serialize) -> Outcome<Bytes> {
    let bytes = serde_json::to_vec(found).map_err(|e| Problem::internal(e.to_string()))?;
    Ok(bytes.into())
}

/// Maximum number of values per field in `/v1/facets`.
const MAX_VALUES: usize = 50;

pub(super) async fn facets(call: Call) -> Outcome<HttpResponse> {
    let mut fields: Vec<String> = call.query_values("field").collect();
    if fields.is_empty() {
        fields = DEFAULT_FACETS.map(str::to_owned).to_vec();
    }
    let filter = call.filter()?;
    let opened = call.opened()?;
    // Usually, the counts come from the columns of the lexical index, which takes milliseconds.
    let counted =
        call.app.pool.run(move || Ok(opened.searcher.facets(filter.as_ref(), &fields, MAX_VALUES)?)).await?;
    Ok(body::ok(&counted))
}

pub(super) async fn benchmarks(call: Call) -> Outcome<HttpResponse> {
    // The report contains names of data and models of the whole server.
    if !call.client.is_unrestricted() {
        let message = "this API key has restrictions, but the benchmark report covers all data";
        return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", message));
    }
    let hooks = call.app.hooks.clone();
    match call.app.survey_pool.run(move || Ok(hooks.report()?)).await? {
        Some(page) => Ok(body::of(page, "text/html; charset=utf-8")),
        None => Err(Problem::not_found("no benchmark results yet")
            .hint("run a benchmark, for example: turnwise bench dialogues chats.jsonl -r model -r bm25")),
    }
}
