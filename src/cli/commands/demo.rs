//! `turnwise demo`: the sample dialogues, ingested and searched.

use std::{io::Cursor, sync::atomic::AtomicBool};

use serde::Serialize;

use crate::{
    cli::{
        Context,
        commands::{
            index,
            search::{self, Found},
            summary::{Files, Summary},
        },
        printer::{BOLD, DIM},
        signals,
    },
    corpus::{
        formats,
        input::Input,
        walk::{Plan, Source},
    },
    error::Result,
    samples,
    store::{
        Snapshot, Store,
        ingest::{Control, IngestOptions, ingest},
    },
};

/// Asked at the end: two in English, one in Chinese.
const QUERIES: [&str; 3] =
    ["it says delivered but there is no parcel", "charged twice this month", "包裹显示签收但我没收到"];

#[derive(Serialize)]
struct Shown {
    ingest: Summary,
    searches: Vec<Found>,
}

pub(super) fn run(context: &Context<'_>) -> Result<()> {
    let root = context.settings.indexes_dir.join("demo");
    let mut plan = Plan::default();
    for (name, text) in samples::SUPPORT {
        let input = Input::from_stream((*name).to_owned(), None, Box::new(Cursor::new(text.as_bytes())))?;
        plan.sources.push(Source::opened(input, formats::by_name("jsonl")?));
    }
    let files = Files::of(&plan);
    let mut store = Store::open_or_create(&root, context.command_line)?;
    store.notices().iter().for_each(|notice| context.printer.warn(notice));
    let started = std::time::Instant::now();
    let stop: &AtomicBool = signals::stop();
    let control = Control { stop, progress: &mut |_| {}, acknowledged: &mut |_| {}, resumed: &mut |_| {} };
    let outcome = ingest(&mut store, plan, &IngestOptions::default(), control);
    let totals = store.view().totals();
    store.close()?;
    let ingested = outcome?;
    let snapshot = Snapshot::open(&root)?;
    index::update(&root, &snapshot, context)?;
    let seconds = started.elapsed().as_secs_f64();
    let searches = QUERIES
        .iter()
        .map(|query| search::search(&root, &snapshot, query, 3, 1))
        .collect::<Result<Vec<_>>>()?;
    let name = root.display().to_string();
    let shown = Shown { ingest: Summary::new(name, files, &ingested, totals, seconds), searches };
    context.printer.result(&shown, |out| {
        shown.ingest.write(out)?;
        for (query, found) in QUERIES.iter().zip(&shown.searches) {
            writeln!(out, "\n{BOLD}? {query}{BOLD:#}\n")?;
            found.write(out)?;
        }
        writeln!(out, "\n{DIM}Now try, with `turnwise` or `cargo run --release --` in front:{DIM:#}")?;
        for line in [
            "search -i demo \"my own words\"",
            "corpus show -i demo deliveries-001",
            "stats -i demo",
            "ingest -i chats FILE…",
        ] {
            writeln!(out, "  {line}")?;
        }
        Ok(())
    })
}
