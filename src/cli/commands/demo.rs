//! `turnwise demo`: ingests the sample dialogues and searches them.

use std::{sync::Arc, time::Instant};

use crate::{
    cli::{
        commands::{
            best_model::Model,
            encode::{self, Encoded},
            index,
            ingest::ingest_silently,
            search,
            summary::{Files, Summary},
        },
        prelude::*,
    },
    samples,
};
use turnwise_corpus::{
    formats,
    input::Input,
    walk::{Plan, Source},
};
use turnwise_search::{Response, SearchRequest, Searcher};
use turnwise_store::{Snapshot, Store, ingest::IngestOptions};

/// Query of the first search. A sample dialogue has the same meaning in other words.
const QUERY: &str = "the card machine kept my card";
/// Context of the second query, [`FOLLOW_UP`], which is ambiguous without these turns.
const CONTEXT: [&str; 2] = ["I was charged twice for my subscription this month", "I see both payments here"];
const FOLLOW_UP: &str = "so when do I get it back?";
/// Id of the dialogue for the third search, which finds dialogues similar to it.
const SIMILAR_TO: &str = "deliveries-001";

#[derive(Serialize)]
struct Demo {
    ingest: Summary,
    /// Description of the encoder for the user. If the encoder is not the default model, the description gives the
    /// reason.
    encoder: String,
    encoded: Encoded,
    searches: Vec<Response>,
}

/// Returns the heading and the request of each example search.
fn questions() -> [(String, SearchRequest); 3] {
    let base = SearchRequest { k: 3, ..SearchRequest::default() };
    let query = |query: &str, context| SearchRequest { query: query.to_owned(), context, ..base.clone() };
    let like = SearchRequest { like: Some(SIMILAR_TO.to_owned()), ..base.clone() };
    let with_context = query(FOLLOW_UP, CONTEXT.map(str::to_owned).to_vec());
    [
        (format!("? {QUERY}"), query(QUERY, Vec::new())),
        (format!("? {} … {FOLLOW_UP}", CONTEXT.join(" … ")), with_context),
        (format!("? dialogues like {SIMILAR_TO}"), like),
    ]
}

/// Name of the demo index.
const NAME: &str = "demo";

/// Returns an error if the index name is not the name of the demo index.
pub(crate) fn check_name(index: &str) -> Result<()> {
    if index == NAME {
        return Ok(());
    }
    Err(Error::input(format!("`turnwise demo` always creates the index {NAME}, not {index}")).with_hint(
        format!("remove -i, or fill {index} with your own data: `turnwise ingest -i {index} FILE…`"),
    ))
}

/// Returns an ingest plan (a list of inputs) with the sample dialogues.
pub(super) fn samples_plan() -> Result<Plan> {
    let mut plan = Plan::default();
    for (name, text) in samples::SUPPORT {
        let input = Input::from_stream((*name).to_owned(), None, Box::new(text.as_bytes()))?;
        plan.sources.push(Source::opened(input, formats::by_name("jsonl")?));
    }
    Ok(plan)
}

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    let root = context.settings.indexes_dir.join(NAME);
    let plan = samples_plan()?;
    let files = Files::of(&plan);
    let mut store = Store::open_or_create(&root, context.command_line)?;
    store.notices().iter().for_each(|notice| context.printer.warn(notice));
    let started = Instant::now();
    let outcome = ingest_silently(&mut store, plan, &IngestOptions::default());
    let totals = store.view().totals();
    store.close()?;
    let ingested = outcome?;
    let snapshot = Snapshot::open(&root)?;
    index::update(&root, &snapshot, context)?;
    let seconds = started.elapsed().as_secs_f64();
    let model = Model::best(&root, &snapshot, context)?;
    let encoded = encode::everything(model.encoder.as_ref(), &model.name, &root, context)?;
    index::graphs(&root, &snapshot, context)?;
    let searcher = Searcher::over(&root, snapshot)?.with_encoder(Arc::from(model.encoder))?;
    let questions = questions();
    let searches =
        questions.iter().map(|(_, request)| searcher.search(request)).collect::<Result<Vec<_>>>()?;
    let ingest = Summary::new(root.display().to_string(), files, &ingested, totals, seconds);
    let shown = Demo { ingest, encoder: model.note, encoded, searches };
    context.printer.result(&shown, |out| {
        shown.ingest.write(out)?;
        writeln!(out, "\n{}", shown.encoder)?;
        shown.encoded.write(out)?;
        for ((question, _), found) in questions.iter().zip(&shown.searches) {
            writeln!(out, "\n{BOLD}{question}{BOLD:#}\n")?;
            search::write(found, out)?;
        }
        writeln!(out, "\n{DIM}Now try these, after `turnwise` or `cargo run --release --`:{DIM:#}")?;
        for line in [
            "search -i demo \"my own words\"",
            "corpus show -i demo deliveries-001",
            "stats -i demo",
            "serve -i demo",
            "ingest -i chats FILE…",
        ] {
            writeln!(out, "  {line}")?;
        }
        Ok(())
    })
}
