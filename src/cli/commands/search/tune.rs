//! `turnwise search tune`: finds the best settings for combining lexical and dense scores, from labeled queries.

use std::io::BufRead;

use serde_json::{Map, Value};

use crate::cli::{args::TuneArgs, prelude::*};
use turnwise_corpus::input::Input;
use turnwise_search::{Fusion, FusionMethod, LabeledQuery, Quality, SearchRequest, Tuned, Tuning};

/// Maximum number of fusion settings (ways to combine lexical and dense scores) to print, best first.
const SHOWN: usize = 8;

#[derive(Serialize)]
struct Shown<'a> {
    schema: &'static str,
    index: String,
    /// Whether the best settings were saved as the defaults of the index.
    saved: bool,
    #[serde(flatten)]
    tuned: &'a Tuned,
}

pub(super) fn run(args: &TuneArgs, context: &Context<'_>) -> Result<()> {
    let Some(file) = &args.labeled else { return forget(context) };
    let labeled = read(file)?;
    let requests: Vec<&SearchRequest> = labeled.iter().map(|l| &l.request).collect();
    let searcher = super::open(&requests, context)?;
    let tuned = searcher.tune(&labeled)?;
    let root = searcher.embedded("tuning the search")?.root();
    if let Some(first) = tuned.unknown.first() {
        let (ids, root) = (counted(tuned.unknown.len() as u64, "relevant id"), root.display());
        context.printer.warn(format!(
            "{ids} ignored, because {root} cannot return them for these queries, such as `{first}`"
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
                "{} is unchanged: on held-out queries, the best settings are no better than the defaults",
                shown.index
            ),
            None => Ok(()),
            Some(tuning) => {
                writeln!(out, "{} now uses {} by default", shown.index, weights(&tuning.fusion))
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
    let outcome = if forgotten.forgotten { "uses the built-in defaults again" } else { "was not tuned" };
    context.printer.result(&forgotten, |out| writeln!(out, "{} {outcome}", forgotten.index))
}

fn read(file: &Path) -> Result<Vec<LabeledQuery>> {
    let input = Input::open(file)?;
    let name = input.name.clone();
    let mut all = Vec::new();
    for (n, line) in input.into_stream().lines().enumerate() {
        let line = line.at("read", file)?;
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |message: String| {
            Error::data(format!("{name}:{}: {message}", n + 1)).with_hint(
                r##"a line looks like {"query": "where is my refund", "relevant": ["billing-001#3"]}"##,
            )
        };
        all.push(labeled(&line).map_err(wrong)?);
    }
    Ok(all)
}

/// Parses a line: a JSON request with the ids of its relevant results (`relevant`). A field `id` is ignored.
fn labeled(line: &str) -> std::result::Result<LabeledQuery, String> {
    let mut fields: Map<String, Value> = serde_json::from_str(line).map_err(|e| e.to_string())?;
    fields.remove("id");
    let relevant = fields.remove("relevant").ok_or("`relevant` is missing")?;
    let mut relevant: Vec<String> = serde_json::from_value(relevant).map_err(|e| e.to_string())?;
    relevant.sort_unstable();
    relevant.dedup();
    let request: SearchRequest = serde_json::from_value(Value::Object(fields)).map_err(|e| e.to_string())?;
    request.check().map_err(|e| e.to_string())?;
    Ok(LabeledQuery { request, relevant })
}

fn write(tuned: &Tuned, out: &mut dyn Write) -> io::Result<()> {
    let percent =
        |q: &Quality| format!("{:>6.1} {:>6.1} {:>8.1}", 100.0 * q.map, 100.0 * q.mrr, 100.0 * q.ndcg);
    writeln!(out, "{BOLD}   MAP    MRR  nDCG@10{BOLD:#}  over {} queries", grouped(tuned.queries as u64))?;
    for tried in tuned.tried.iter().take(SHOWN) {
        writeln!(out, "{}  {}", percent(&tried.quality), flags(&tried.fusion))?;
    }
    writeln!(out, "{DIM}{}  default{DIM:#}", percent(&tuned.default_quality))?;
    let expected = percent(&tuned.expected);
    writeln!(
        out,
        "{DIM}{expected}  best on held-out queries (chosen on one half, measured on the other){DIM:#}"
    )
}

/// Formats fusion settings as command-line options. A weighted sum gets both weights, even if one of them is 0.
pub(in crate::cli::commands) fn weights(fusion: &Fusion) -> String {
    match fusion.method {
        FusionMethod::Context | FusionMethod::Weighted => {
            let method = if fusion.method == FusionMethod::Context { "context" } else { "weighted" };
            format!("--fusion {method} --dense-weight {} --bm25-weight {}", fusion.dense, fusion.bm25)
        }
        FusionMethod::Rrf => flags(fusion),
    }
}

/// Formats fusion settings as command-line options. Omits the dense weight, to keep the text short.
fn flags(fusion: &Fusion) -> String {
    let Fusion { dense, bm25, k, .. } = fusion;
    match fusion.method {
        FusionMethod::Weighted if *dense == 0.0 => "--mode bm25".to_owned(),
        FusionMethod::Weighted if *bm25 == 0.0 => "--mode dense".to_owned(),
        FusionMethod::Weighted => format!("--fusion weighted --bm25-weight {bm25}"),
        FusionMethod::Context => format!("--fusion context --bm25-weight {bm25}"),
        FusionMethod::Rrf => format!("--fusion rrf --rrf-k {k} --bm25-weight {bm25}"),
    }
}
