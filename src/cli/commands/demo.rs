//! `turnwise demo`: the sample dialogues, ingested and searched.

use std::{io::Cursor, path::Path, sync::atomic::AtomicBool, time::Instant};

use serde::Serialize;

use crate::{
    cli::{
        Context,
        commands::{
            encode::{self, Encoded},
            index, model,
            search::{self, Found},
            summary::{Files, Summary},
        },
        encoders,
        printer::{BOLD, DIM},
        signals,
    },
    corpus::{
        formats,
        input::Input,
        walk::{Plan, Source},
    },
    encoder::{
        Encoder, TextOptions,
        statics::{self, TfidfSettings},
        transformer::Settings,
    },
    error::{Class, Error, Result},
    index::{
        dense::{DenseReader, Look},
        lexical::Lexical,
        vectors::Kind,
    },
    samples,
    store::{
        Snapshot, Store,
        ingest::{Control, IngestOptions, ingest},
    },
};

/// Asked at the end, by their words: two in English, one in Chinese.
const QUERIES: [&str; 3] =
    ["it says delivered but there is no parcel", "charged twice this month", "包裹显示签收但我没收到"];
/// Asked by what they mean: the samples say it in other words.
const MEANT: [&str; 2] = ["somebody stole my package", "I paid two times for the same thing"];

#[derive(Serialize)]
struct Shown {
    ingest: Summary,
    searches: Vec<Found>,
    /// Which encoder, and why that one.
    encoder: String,
    encoded: Encoded,
    by_meaning: Vec<Found>,
}

/// The encoder of the demo.
struct Model {
    encoder: Box<dyn Encoder>,
    name: String,
    /// Which it is, and why.
    said: String,
}

impl Model {
    /// The default model if it is here or can be fetched, else one that is fitted on the dialogues themselves.
    fn best(root: &Path, snapshot: &Snapshot, context: &Context<'_>) -> Result<Self> {
        let name = encoders::DEFAULT_MODEL;
        let here = match context.model(name) {
            Ok(_) => Ok(()),
            Err(_) => model::fetch(name, context),
        };
        match here {
            Ok(()) => {
                let encoder = encoders::open(context, name, &Settings::default())?;
                let said = format!("Vectors by {name}, the default model ({}).", encoder.describe());
                Ok(Model { encoder, name: name.to_owned(), said })
            }
            Err(e) if e.class() == Class::Interrupted => Err(e),
            Err(why) => {
                let folder = root.with_file_name("demo-tfidf-svd");
                let documents = snapshot.dialogues().collect::<Result<Vec<_>>>()?;
                let fitted = statics::fit_tfidf(
                    documents.iter().map(statics::document),
                    &TfidfSettings { seed: context.settings.seed, ..TfidfSettings::default() },
                )?;
                fitted.save(&folder)?;
                let said = format!(
                    "Vectors by TF-IDF and SVD, fitted on these dialogues, because {name} cannot be had: {why}. \
                     `turnwise model pull` fetches it."
                );
                Ok(Model { encoder: Box::new(fitted), name: folder.display().to_string(), said })
            }
        }
    }
}

fn by_meaning(root: &Path, snapshot: &Snapshot, encoder: &dyn Encoder, query: &str) -> Result<Found> {
    let started = Instant::now();
    let encoded = encoder.encode(&[query], &TextOptions::default())?;
    let Some(reader) = DenseReader::open(root, snapshot)? else {
        return Err(Error::Internal("the demo's index has no vectors".to_owned()));
    };
    let look = Look { k: 3, ..Look::default() };
    search::by_vector(&reader, snapshot, Kind::Utterances, (query, encoded.vectors.row(0)), &look, 1, started)
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
    let lexical = Lexical::open(&root)?;
    let searches = QUERIES
        .iter()
        .map(|query| search::search(&lexical, &snapshot, query, 3, 1))
        .collect::<Result<Vec<_>>>()?;
    let model = Model::best(&root, &snapshot, context)?;
    let encoded = encode::everything(model.encoder.as_ref(), &model.name, &root, context)?;
    let by_meaning = MEANT
        .iter()
        .map(|query| by_meaning(&root, &snapshot, model.encoder.as_ref(), query))
        .collect::<Result<Vec<_>>>()?;
    let name = root.display().to_string();
    let encoder = model.said;
    let shown = Shown {
        ingest: Summary::new(name, files, &ingested, totals, seconds),
        searches,
        encoder,
        encoded,
        by_meaning,
    };
    context.printer.result(&shown, |out| {
        shown.ingest.write(out)?;
        for (query, found) in QUERIES.iter().zip(&shown.searches) {
            writeln!(out, "\n{BOLD}? {query}{BOLD:#}\n")?;
            found.write(out)?;
        }
        writeln!(out, "\n{}", shown.encoder)?;
        shown.encoded.write(out)?;
        for (query, found) in MEANT.iter().zip(&shown.by_meaning) {
            writeln!(out, "\n{BOLD}? {query}{BOLD:#} {DIM}(by meaning){DIM:#}\n")?;
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
