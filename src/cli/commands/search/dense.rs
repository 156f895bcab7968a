//! By meaning: the utterances and dialogues whose vectors are nearest to that of the query.

use std::{path::Path, time::Instant};

use super::found::{Found, Hit, Marks};
use crate::{
    cli::{
        Context,
        args::{SearchArgs, SearchOf},
        encoders,
        printer::counted,
    },
    encoder::{Encoder, TextOptions, transformer::Settings},
    error::{Error, Result},
    index::{
        dense::{DenseReader, Look},
        vectors::{Kind, Recipe},
    },
    store::Snapshot,
};

/// So many dialogues are looked at one by one without it being worth a word.
const LONG_TAIL: usize = 10_000;

pub(super) fn run(
    args: &SearchArgs,
    root: &Path,
    snapshot: &Snapshot,
    context: &Context<'_>,
) -> Result<Found> {
    if args.syntax {
        return Err(Error::Input {
            message: "--syntax is for words, and --mode dense goes by meaning".to_owned(),
            hint: Some("leave one of them out".to_owned()),
        });
    }
    if args.query.trim().is_empty() {
        return Err(Error::Input {
            message: "the query is empty".to_owned(),
            hint: Some("type a sentence that is like what you look for".to_owned()),
        });
    }
    let kind = match args.of {
        SearchOf::Utterances => Kind::Utterances,
        SearchOf::Dialogues => Kind::Dialogues,
    };
    let Some(reader) = DenseReader::open(root, snapshot)? else {
        return Err(Error::Input {
            message: format!("{} has no vectors yet", root.display()),
            hint: Some(format!("`turnwise encode -i {}` makes them", root.display())),
        });
    };
    tell(&reader, kind, root, context);
    let recipe = reader.vectors().recipe();
    let encoder = encoder(recipe, root, context)?;
    let started = Instant::now();
    let encoded = encoder.encode(&[&args.query], &TextOptions { prompt: recipe.prompt.clone() })?;
    let look = Look { k: args.k, exact: args.exact, ..Look::default() };
    let query = (args.query.as_str(), encoded.vectors.row(0));
    by_vector(&reader, snapshot, kind, query, &look, args.window, started)
}

/// What a query, in words and in numbers, finds.
pub(in crate::cli::commands) fn by_vector(
    reader: &DenseReader,
    snapshot: &Snapshot,
    kind: Kind,
    (text, query): (&str, &[f32]),
    look: &Look,
    window: usize,
    started: Instant,
) -> Result<Found> {
    let mut hits = Vec::new();
    for found in reader.search(snapshot, kind, query, look)? {
        let Some(dialogue) = snapshot.get(&found.dialogue)? else { continue };
        hits.push(match found.utterance() {
            Some(id) => {
                let Some(at) = dialogue.turns.iter().position(|t| t.number == id.turn) else { continue };
                Hit::of_utterance(found.score, &id, dialogue, at, window)
            }
            None => Hit::of_dialogue(found.score, dialogue, 0, window),
        });
    }
    Ok(Found::new(kind.name(), text, hits, Marks::of(text), started))
}

/// The encoder that made the vectors, which alone can make a query for them.
fn encoder(recipe: &Recipe, root: &Path, context: &Context<'_>) -> Result<Box<dyn Encoder>> {
    let settings = Settings {
        precision: recipe.precision.parse().ok(),
        tokens: recipe.tokens.clone(),
        ..Settings::default()
    };
    let encoder = encoders::open(context, &recipe.model, &settings)?;
    if encoder.fingerprint() == recipe.fingerprint {
        return Ok(encoder);
    }
    Err(Error::Input {
        message: format!(
            "the vectors in {} were made by another encoder: {} was {} then and is {} now",
            root.display(),
            recipe.model,
            recipe.fingerprint,
            encoder.fingerprint()
        ),
        hint: Some(format!(
            "`turnwise encode -i {} --replace` makes them anew with what is there now",
            root.display()
        )),
    })
}

/// What is not found, and what takes long.
fn tell(reader: &DenseReader, kind: Kind, root: &Path, context: &Context<'_>) {
    let (without, root) = (reader.without(kind), root.display());
    if without > 0 {
        let what = counted(without, kind.name().trim_end_matches('s'));
        context.printer.warn(format!(
            "{what} cannot be found by meaning yet; `turnwise encode -i {root}` and then \
             `turnwise index build -i {root}` change that"
        ));
    }
    if reader.tail() > LONG_TAIL {
        let what = counted(reader.tail() as u64, "dialogue");
        context.printer.warn(format!(
            "{what} have to be looked at one by one; `turnwise index build -i {root}` makes that faster"
        ));
    }
}
