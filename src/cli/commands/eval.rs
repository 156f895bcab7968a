//! `turnwise eval`: scores a run against relevance judgments, in the output format of trec_eval.

use std::collections::BTreeMap;

use crate::cli::{args::EvalArgs, prelude::*};
use turnwise_eval::trec::{Evaluation, Options, evaluate, parse_measures, read_qrels, read_run};

/// Maximum number of query ids in a warning.
const NAMED: usize = 3;

/// Result of `turnwise eval`, printed as text or JSON. `schema` names the JSON format.
#[derive(Serialize)]
struct Printed {
    schema: &'static str,
    run: String,
    all: BTreeMap<String, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queries: Option<BTreeMap<String, BTreeMap<String, f64>>>,
    /// Ids of the queries in the run that have no judgments.
    left_out: Vec<String>,
    /// Ids of the judged queries that are missing from the run.
    missing: Vec<String>,
}

pub(super) fn run(args: &EvalArgs, context: &Context<'_>) -> Result<()> {
    let measures = parse_measures(&args.measures)?;
    let (qrels, run) = (read_qrels(&args.qrels)?, read_run(&args.run)?);
    let evaluation =
        evaluate(&qrels, &run, &measures, Options { level: args.level, complete: args.complete });
    if evaluation.queries.is_empty() {
        let first = |ids: Option<&String>| ids.cloned().unwrap_or_default();
        return Err(Error::data(format!(
            "no query of {} is judged in {}",
            args.run.display(),
            args.qrels.display()
        ))
        .with_hint(format!(
            "the first query of the run is `{}`, the first judged query is `{}`",
            first(run.queries.keys().next()),
            first(qrels.queries.keys().next())
        )));
    }
    let warn = |queries: &[String], what: &str| {
        if !queries.is_empty() {
            let more = if queries.len() > NAMED { ", …" } else { "" };
            let named = queries[..queries.len().min(NAMED)].join(", ");
            let queries = counted_with(queries.len() as u64, "query", ["is", "are"]);
            context.printer.warn(format!("{queries} {what}: {named}{more}"));
        }
    };
    warn(&evaluation.unjudged, "in the run but not judged, and ignored");
    let missing = if args.complete {
        "judged but not in the run, counted as 0"
    } else {
        "judged but not in the run, ignored (-c counts them as 0)"
    };
    warn(&evaluation.missing, missing);
    context.printer.result(&printed(&evaluation, args.per_query), |out| {
        evaluation.lines(args.per_query).try_for_each(|line| writeln!(out, "{line}"))
    })
}

fn printed(evaluation: &Evaluation, each: bool) -> Printed {
    let named = |values: &[f64], of_all: bool| {
        let named = evaluation.measures.iter().zip(values).filter(|(m, _)| of_all || !m.is_of_all());
        named.map(|(measure, value)| (measure.to_string(), *value)).collect::<BTreeMap<_, _>>()
    };
    Printed {
        schema: "turnwise/eval/1",
        run: evaluation.tag.clone(),
        all: named(&evaluation.of_all(), true),
        queries: each
            .then(|| evaluation.queries.iter().map(|(query, v)| (query.clone(), named(v, false))).collect()),
        left_out: evaluation.unjudged.clone(),
        missing: evaluation.missing.clone(),
    }
}
