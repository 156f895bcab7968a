//! `turnwise search tune`: which fusion finds best what is known to be relevant.

use std::{
    io::{self, BufRead, Write},
    path::Path,
};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::cli::{
    Context,
    args::TuneArgs,
    printer::{BOLD, DIM, counted, grouped},
};
use turnwise_core::error::{Error, IoContext, Result};
use turnwise_corpus::input::Input;
use turnwise_search::{Fusion, Labelled, Method, Quality, SearchRequest, Tuned, Tuning};

/// So many of those that were tried are shown.
const SHOWN: usize = 8;

#[derive(Serialize)]
struct Shown<'a> {
    schema: &'static str,
    index: String,
    /// Whether the index is searched like the best one from now on.
    saved: bool,
    #[serde(flatten)]
    tuned: &'a Tuned,
}

pub(super) fn run(args: &TuneArgs, context: &Context<'_>) -> Result<()> {
    let Some(file) = &args.labelled else { return forget(context) };
    let labelled = read(file)?;
    let requests: Vec<&SearchRequest> = labelled.iter().map(|l| &l.request).collect();
    let searcher = super::open(&requests, context)?;
    let tuned = searcher.tune(&labelled)?;
    let root = searcher.embedded("keeping how it was tuned")?.root();
    if let Some(first) = tuned.unknown.first() {
        context.printer.warn(format!(
            "{} left out, which {} cannot find for these queries, such as `{first}`",
            counted(tuned.unknown.len() as u64, "relevant id"),
            root.display()
        ));
    }
    let tuning = Tuning::of(&tuned).filter(|_| args.save);
    if let Some(tuning) = &tuning {
        tuning.save(root)?;
    }
    let index = root.display().to_string();
    let shown = Shown { schema: "turnwise/tune/1", index, saved: tuning.is_some(), tuned: &tuned };
    context.printer.result(&shown, |out| {
        write(&tuned, out)?;
        match &tuning {
            None if args.save => writeln!(
                out,
                "{} stays as it is: judged by queries that did not choose it, the best is no better than that",
                shown.index
            ),
            None => Ok(()),
            Some(tuning) => {
                writeln!(out, "{} is searched with {} from now on", shown.index, weights(&tuning.fusion))
            }
        }
    })
}

#[derive(Serialize)]
struct Forgotten {
    index: String,
    forgotten: bool,
}

fn forget(context: &Context<'_>) -> Result<()> {
    let root = context.existing_index()?;
    let forgotten = Forgotten { forgotten: Tuning::forget(&root)?, index: root.display().to_string() };
    context.printer.result(&forgotten, |out| match &forgotten {
        Forgotten { index, forgotten: true } => {
            writeln!(out, "{index} is searched as if it had never been tuned")
        }
        Forgotten { index, .. } => writeln!(out, "{index} was not tuned"),
    })
}

fn read(file: &Path) -> Result<Vec<Labelled>> {
    let input = Input::open(file)?;
    let name = input.name.clone();
    let mut all = Vec::new();
    for (n, line) in input.into_stream().lines().enumerate() {
        let line = line.at("read", file)?;
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |message: String| Error::Data {
            message: format!("{name}:{}: {message}", n + 1),
            hint: Some(
                "a line is like {\"query\": \"where is my refund\", \"relevant\": [\"billing-001#3\"]}"
                    .to_owned(),
            ),
        };
        all.push(labelled(&line).map_err(wrong)?);
    }
    Ok(all)
}

/// A request as JSON with the ids of what is relevant; an `id` of its own is allowed and not needed.
fn labelled(line: &str) -> std::result::Result<Labelled, String> {
    let mut fields: Map<String, Value> = serde_json::from_str(line).map_err(|e| e.to_string())?;
    fields.remove("id");
    let relevant = fields.remove("relevant").ok_or("what is `relevant` is missing")?;
    let mut relevant: Vec<String> = serde_json::from_value(relevant).map_err(|e| e.to_string())?;
    relevant.sort_unstable();
    relevant.dedup();
    let request: SearchRequest = serde_json::from_value(Value::Object(fields)).map_err(|e| e.to_string())?;
    request.check().map_err(|e| e.to_string())?;
    Ok(Labelled { request, relevant })
}

fn write(tuned: &Tuned, out: &mut dyn Write) -> io::Result<()> {
    let percent =
        |q: &Quality| format!("{:>6.1} {:>6.1} {:>8.1}", 100.0 * q.map, 100.0 * q.mrr, 100.0 * q.ndcg);
    writeln!(out, "{BOLD}   MAP    MRR  nDCG@10{BOLD:#}  over {} queries", grouped(tuned.queries as u64))?;
    for tried in tuned.tried.iter().take(SHOWN) {
        writeln!(out, "{}  {}", percent(&tried.quality), flags(&tried.fusion))?;
    }
    writeln!(out, "{DIM}{}  unasked{DIM:#}", percent(&tuned.unasked))?;
    writeln!(
        out,
        "{DIM}{}  the best, chosen by one half of the queries and judged by the other{DIM:#}",
        percent(&tuned.expected)
    )
}

/// The weights of a fusion, whatever they are.
pub(in crate::cli::commands) fn weights(fusion: &Fusion) -> String {
    match fusion.method {
        Method::Weighted => format!("--dense-weight {} --bm25-weight {}", fusion.dense, fusion.bm25),
        Method::Rrf => flags(fusion),
    }
}

/// How a fusion is asked for.
fn flags(fusion: &Fusion) -> String {
    let Fusion { dense, bm25, k, .. } = fusion;
    match fusion.method {
        Method::Weighted if *dense == 0.0 => "--mode bm25".to_owned(),
        Method::Weighted if *bm25 == 0.0 => "--mode dense".to_owned(),
        Method::Weighted => format!("--bm25-weight {bm25}"),
        Method::Rrf => format!("--fusion rrf --rrf-k {k} --bm25-weight {bm25}"),
    }
}
