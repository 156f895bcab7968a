//! `/v1/clusters` and `/v1/stats`: topics and statistics of a whole index.

use axum::{
    body::{Body, Bytes},
    http::Response,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::Call;
use crate::{
    Opened, body,
    problem::{Outcome, Problem},
};
use turnwise_corpus::{filter::Filter, stats::Statistics};
use turnwise_search::{
    clusters::{Clusters, Wanted, clusters},
    statistics,
};

/// Number of terms and of central dialogues per cluster.
const TERMS: usize = 8;
const CENTRAL: usize = 3;
/// Largest number of dialogues on the map. The cost is quadratic.
const MAX_POINTS: usize = 2_000;

/// Response of `/v1/clusters`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Topics {
    /// `turnwise/clusters/1`, the same schema as in `turnwise clusters --format json`.
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

pub(super) async fn topics(call: Call) -> Outcome<Response<Body>> {
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
        let analyzer = opened.searcher.engine().analyzer();
        let wanted = Wanted {
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

pub(super) async fn stats(call: Call) -> Outcome<Response<Body>> {
    surveyed(call, "stats".to_owned(), |opened, filter| {
        let snapshot = opened.snapshot("counting everything")?;
        let statistics = statistics(snapshot, filter, &|_| {}, &mut |_| Ok(()))?;
        bytes(&Stats { schema: "turnwise/stats/1", generation: snapshot.generation(), statistics })
    })
    .await
}

/// Computes a response over the matching dialogues that the client may see, or takes it from the cache.
async fn surveyed(
    call: Call,
    key: String,
    make: impl FnOnce(&Opened, Option<&Filter>) -> Outcome<Bytes> + Send + 'static,
) -> Outcome<Response<Body>> {
    let filter = call.filter()?;
    let key = format!("{key} {}", filter.as_ref().map(ToString::to_string).unwrap_or_default());
    let index = call.query_value("index");
    let opened = call.client.opened(&call.app, index.as_deref())?;
    let found = call
        .app
        .surveying
        .run(move || opened.surveys.answer(&key, || make(&opened, filter.as_ref())))
        .await?;
    Ok(body::of(found, "application/json"))
}

fn bytes(found: &impl Serialize) -> Outcome<Bytes> {
    let bytes = serde_json::to_vec(found).map_err(|e| Problem::internal(e.to_string()))?;
    Ok(bytes.into())
}
