//! `turnwise demo`: the sample dialogues, ingested and searched.

use std::{
    io::Cursor,
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use serde::Serialize;

use crate::{
    cli::{
        Context,
        commands::{
            best_model::Model,
            encode::{self, Encoded},
            index, search,
            summary::{Files, Summary},
        },
        printer::{BOLD, DIM},
        signals,
    },
    samples,
};
use turnwise_core::error::{Error, Result};
use turnwise_corpus::{
    formats,
    input::Input,
    walk::{Plan, Source},
};
use turnwise_search::{Response, SearchRequest, Searcher};
use turnwise_store::{
    Snapshot, Store,
    ingest::{Control, IngestOptions, ingest},
};

/// Asked at the end: an utterance, by words and meaning; the samples say it in other words.
const QUERY: &str = "the card machine kept my card";
/// Asked in the light of what was said before it, without which it could be about anything.
const SAID_BEFORE: [&str; 2] =
    ["I was charged twice for my subscription this month", "I see both payments here"];
const THEN: &str = "so when do I get it back?";
/// A dialogue to which others are similar.
const SIMILAR: &str = "deliveries-001";

#[derive(Serialize)]
struct Shown {
    ingest: Summary,
    /// Which encoder, and why that one.
    encoder: String,
    encoded: Encoded,
    searches: Vec<Response>,
}

/// The questions that are answered, and how they are told to people.
fn questions() -> [(String, SearchRequest); 3] {
    let base = SearchRequest { k: 3, ..SearchRequest::default() };
    let said = SAID_BEFORE.map(str::to_owned).to_vec();
    [
        (format!("? {QUERY}"), SearchRequest { query: QUERY.to_owned(), ..base.clone() }),
        (
            format!("? {} … {THEN}", SAID_BEFORE.join(" … ")),
            SearchRequest { query: THEN.to_owned(), context: said, ..base.clone() },
        ),
        (format!("? dialogues like {SIMILAR}"), SearchRequest { like: Some(SIMILAR.to_owned()), ..base }),
    ]
}

/// The index that it makes.
const NAME: &str = "demo";

/// Refuses to be told another index than its own.
pub(crate) fn check_name(index: &str) -> Result<()> {
    if index == NAME {
        return Ok(());
    }
    Err(Error::input(format!("the demonstration makes the index {NAME}, not {index}")).with_hint(format!(
        "leave -i away, or fill {index} with what you have: `turnwise ingest -i {index} FILE…`"
    )))
}

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    let root = context.settings.indexes_dir.join(NAME);
    let mut plan = Plan::default();
    for (name, text) in samples::SUPPORT {
        let input = Input::from_stream((*name).to_owned(), None, Box::new(Cursor::new(text.as_bytes())))?;
        plan.sources.push(Source::opened(input, formats::by_name("jsonl")?));
    }
    let files = Files::of(&plan);
    let mut store = Store::open_or_create(&root, context.command_line)?;
    store.notices().iter().for_each(|notice| context.printer.warn(notice));
    let started = Instant::now();
    let stop: &AtomicBool = signals::stop();
    let control = Control { stop, progress: &mut |_| {}, acknowledged: &mut |_| {}, resumed: &mut |_| {} };
    let outcome = ingest(&mut store, plan, &IngestOptions::default(), control);
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
    let name = root.display().to_string();
    let encoder = model.said;
    let shown =
        Shown { ingest: Summary::new(name, files, &ingested, totals, seconds), encoder, encoded, searches };
    context.printer.result(&shown, |out| {
        shown.ingest.write(out)?;
        writeln!(out, "\n{}", shown.encoder)?;
        shown.encoded.write(out)?;
        for ((question, _), found) in questions.iter().zip(&shown.searches) {
            writeln!(out, "\n{BOLD}{question}{BOLD:#}\n")?;
            search::write(found, out)?;
        }
        writeln!(out, "\n{DIM}Now try, with `turnwise` or `cargo run --release --` in front:{DIM:#}")?;
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
