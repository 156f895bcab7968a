//! `turnwise model fit`: fits encoders that need no download.

use std::{sync::mpsc, thread};

use crate::cli::{
    args::{FitArgs, FitKind, UnitArg},
    commands::convert,
    prelude::*,
};
use turnwise_corpus::{Dialogue, reader::Problems};
use turnwise_encoder::{
    Encoder,
    statics::{self, TfidfSettings, WordEncoder, words},
};

/// Parameter `a` of SIF (smooth inverse frequency), which smooths the word weights. The SIF paper uses this value.
const SIF_A: f64 = 1e-3;
/// Maximum number of documents that wait for the fitting thread.
const WAITING: usize = 1024;

#[derive(Serialize)]
struct Fitted {
    encoder: String,
    path: String,
    dim: usize,
    fingerprint: String,
    documents: u64,
    notes: Vec<String>,
}

pub(super) fn run(args: &FitArgs, context: &Context<'_>) -> Result<()> {
    let fitted = match args.kind {
        FitKind::TfidfSvd => {
            let settings = TfidfSettings {
                dim: args.dim.into(),
                seed: context.settings.seed,
                ..TfidfSettings::default()
            };
            let (encoder, documents) =
                with_documents(args, context, |documents| statics::fit_tfidf(documents, &settings))?;
            save(|| encoder.save(&args.output))?;
            Fitted::new(&encoder, args, documents, encoder.notes())
        }
        FitKind::Words => {
            let (table, notes) = table(args)?;
            let encoder = WordEncoder::mean(table);
            save(|| encoder.save(&args.output))?;
            Fitted::new(&encoder, args, 0, notes)
        }
        FitKind::Sif => {
            let (table, notes) = table(args)?;
            let (encoder, documents) =
                with_documents(args, context, |documents| WordEncoder::fit_sif(table, SIF_A, documents))?;
            save(|| encoder.save(&args.output))?;
            Fitted::new(&encoder, args, documents, notes)
        }
    };
    for note in &fitted.notes {
        context.printer.say(note);
    }
    context.printer.result(&fitted, |out| {
        let on = match fitted.documents {
            0 => String::new(),
            n => format!(", fitted on {}", counted(n, document_word(args))),
        };
        let Fitted { encoder, path, dim, .. } = &fitted;
        writeln!(out, "saved {encoder} in {path}: vectors with {dim} dimensions{on}")?;
        writeln!(out, "use it with --model {path}")
    })
}

impl Fitted {
    fn new(encoder: &dyn Encoder, args: &FitArgs, documents: u64, notes: Vec<String>) -> Self {
        let path = args.output.display().to_string();
        Fitted {
            encoder: encoder.name().to_owned(),
            // A path without a slash would be read as a model name after --model.
            path: if path.contains('/') { path } else { format!("./{path}") },
            dim: encoder.dim(),
            fingerprint: encoder.fingerprint().to_string(),
            documents,
            notes,
        }
    }
}

/// Runs `save`. If the user requests a stop, `save` still finishes, because an incomplete file would be useless.
fn save(save: impl FnOnce() -> Result<()>) -> Result<()> {
    signals::stop();
    save()
}

fn document_word(args: &FitArgs) -> &'static str {
    if args.of == UnitArg::Dialogues { "dialogue" } else { "utterance" }
}

fn table(args: &FitArgs) -> Result<(words::WordTable, Vec<String>)> {
    let path = args.word_vectors.as_deref().ok_or_else(|| Error::input("--word-vectors FILE is missing"))?;
    let (table, reading) = words::read_words(path, args.max_words)?;
    let mut notes = vec![format!("{} words read from {}", grouped(reading.words), path.display())];
    for (count, what) in [
        (reading.duplicates, "are repeated; the first is kept"),
        (reading.not_utf8, "are not UTF-8 and were skipped"),
    ] {
        if count > 0 {
            notes.push(format!("{} {what}", counted(count, "word")));
        }
    }
    Ok((table, notes))
}

/// Reads the corpus on this thread and fits the encoder on a second thread, to keep only a few documents in memory.
/// Returns the fitted encoder and the number of documents.
fn with_documents<T: Send>(
    args: &FitArgs,
    context: &Context<'_>,
    fit: impl FnOnce(mpsc::IntoIter<String>) -> Result<T> + Send,
) -> Result<(T, u64)> {
    let (sender, documents) = mpsc::sync_channel::<String>(WAITING);
    thread::scope(|scope| {
        let fitting = scope.spawn(move || fit(documents.into_iter()));
        let mut count = 0;
        let mut take = |dialogue: Dialogue| {
            let mut send = |text: String| {
                count += 1;
                // If sending fails, the fitting thread reports its error itself.
                let _ = sender.send(text);
            };
            match args.of {
                UnitArg::Dialogues => send(statics::document(&dialogue)),
                UnitArg::Utterances => dialogue.turns.into_iter().for_each(|turn| send(turn.text)),
            }
            Ok(())
        };
        let read = convert::each_dialogue_or_stored(&args.paths, &args.read, "reading", context, &mut take)
            .and_then(Problems::into_result);
        drop(sender);
        // Fitting does not check for a stop and writes nothing, so the next signal may end the program.
        let stopped = signals::allow_abort();
        if read.is_ok() && stopped.is_ok() {
            context.printer.say(format!("{} read; fitting on them", counted(count, document_word(args))));
        }
        let fitted = fitting.join().map_err(|_| Error::Internal("the fitting thread panicked".to_owned()))?;
        read?;
        stopped?;
        Ok((fitted?, count))
    })
}
