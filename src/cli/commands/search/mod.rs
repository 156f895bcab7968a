//! `turnwise search` finds items for a query; `turnwise similar` finds items similar to a stored one.

mod batch;
mod explanation;
mod hits;
mod tune;

pub(super) use {
    hits::{speaker, write},
    tune::weights,
};

use std::{io::Read, sync::Arc};

use crate::cli::{
    args::{SearchArgs, SearchCommand, SimilarArgs},
    encoders,
    prelude::*,
};
use turnwise_corpus::{
    Dialogue,
    formats::{self, Fit, Problem, ReadOptions},
    input::Input,
};
use turnwise_encoder::{DeviceChoice, Encoder, transformer::Settings};
use turnwise_index::vectors::Recipe;
use turnwise_search::{SearchRequest, Searcher};

pub(super) fn run(args: &SearchArgs, context: &Context<'_>) -> Result<()> {
    if let Some(SearchCommand::Tune(tune)) = &args.command {
        return match &args.query {
            None => tune::run(tune, context),
            Some(query) => Err(Error::input(format!("`search tune` takes no query, but got `{query}`"))
                .with_hint("to search for the word `tune`, put the whole query in quotes")),
        };
    }
    let base = SearchRequest { of: args.of, syntax: args.syntax, decay: args.decay, ..args.how.request() };
    // Clap does not check this because the subcommand replaces the required arguments.
    if args.run.is_some() && args.queries.is_none() {
        return Err(Error::input("--run needs a file of queries")
            .with_hint("name it with --queries, or remove --run"));
    }
    if let Some(file) = &args.queries {
        return batch::run(file, args.run.as_deref(), base, args.how.ranking.selector(), context);
    }
    let mut turns = turns_of(args.context.as_deref(), &args.turns, args.query.as_deref(), context)?;
    // The last turn is the query; the turns before it are its context.
    let query = turns.pop().unwrap_or_default();
    let request = SearchRequest { query, context: turns, ..base };
    answer(&request, args.how.ranking.selector(), context)
}

/// Returns the turns of a conversation: those of a file or the given ones, and then the last turn if it is given.
pub(super) fn turns_of(
    file: Option<&Path>,
    turns: &[String],
    last: Option<&str>,
    context: &Context<'_>,
) -> Result<Vec<String>> {
    let mut turns = match file {
        Some(file) => turns_of_file(file, context)?,
        None => turns.to_vec(),
    };
    turns.extend(last.map(str::to_owned));
    Ok(turns)
}

pub(super) fn similar(args: &SimilarArgs, context: &Context<'_>) -> Result<()> {
    let dialogue = args.dialogue.as_deref().map(|file| dialogue_of_file(file, context)).transpose()?;
    let dialogue = dialogue.map(Box::new);
    let request = SearchRequest { like: args.id.clone(), dialogue, ..args.how.request() };
    answer(&request, args.how.ranking.selector(), context)
}

fn answer(request: &SearchRequest, selector: Option<&str>, context: &Context<'_>) -> Result<()> {
    request.check()?;
    let searcher = with_selector(open(&[request], context)?, selector, context)?;
    let found = searcher.search(request)?;
    found.warnings.iter().for_each(|warning| context.printer.warn(warning));
    context.printer.result(&found, |out| write(&found, out))
}

/// Opens the index for searching. Also opens the encoder if a request needs it.
fn open(requests: &[&SearchRequest], context: &Context<'_>) -> Result<Searcher> {
    let searcher = context.searcher()?;
    for request in requests {
        if let Some(recipe) = searcher.needs_encoder(request)? {
            let encoder = encoder_of(&recipe, &searcher.engine().place(), context)?;
            return searcher.with_encoder(encoder);
        }
    }
    Ok(searcher)
}

/// Adds the named selector to a searcher.
pub(super) fn with_selector(
    searcher: Searcher,
    selector: Option<&str>,
    context: &Context<'_>,
) -> Result<Searcher> {
    let Some(name) = selector else { return Ok(searcher) };
    let selector = encoders::selector(context, name, DeviceChoice::default(), None)?;
    Ok(searcher.with_selector(Arc::new(selector)))
}

/// Opens the encoder that made the vectors of an index. `index` is the folder or address of the index, for hints.
pub(super) fn encoder_of(recipe: &Recipe, index: &str, context: &Context<'_>) -> Result<Arc<dyn Encoder>> {
    let settings = Settings {
        precision: recipe.precision.parse().ok(),
        tokens: recipe.tokens.clone(),
        ..Settings::default()
    };
    let encoder = encoders::open(context, &recipe.model, &settings).map_err(|e| {
        let option = if index.contains("://") { "--engine" } else { "-i" };
        let hint = match e.hint() {
            Some(_) if Path::new(&recipe.model).is_absolute() && !Path::new(&recipe.model).exists() => format!(
                "if the model was moved, update its location: `turnwise encode {option} {index} --model FOLDER`"
            ),
            Some(hint) => hint.to_owned(),
            None => return e,
        };
        match e {
            Error::Unavailable { .. } | Error::Input { .. } => {
                e.with_hint(format!("{hint}; or use lexical search only: --mode bm25"))
            }
            other => other,
        }
    })?;
    Ok(Arc::from(encoder))
}

/// Maximum number of bytes of a text file that is not a dialogue.
const MOST_BYTES: u64 = 64 << 20;

/// Reads a text file of limited size. Returns an error if it is not UTF-8.
pub(super) fn read_text(input: impl Read, name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    input.take(MOST_BYTES + 1).read_to_end(&mut bytes).at("read", Path::new(name))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(
            Error::input(format!("{name} has more than {} MB", MOST_BYTES >> 20)).with_hint("split the file")
        );
    }
    as_text(bytes, name)
}

/// Converts bytes to a text. Returns an error if they are not UTF-8.
pub(super) fn as_text(bytes: Vec<u8>, name: &str) -> Result<String> {
    String::from_utf8(bytes).map_err(|e| {
        Error::data(format!("{name}: invalid UTF-8 at byte {}", e.utf8_error().valid_up_to()))
            .with_hint("convert it, for example with `iconv -f LATIN1 -t UTF-8`")
    })
}

/// Returns true if a text starts like a JSON object or a JSON list of strings, lists or objects. `[ann] hello` does not.
fn looks_like_json(text: &str) -> bool {
    let inner = text.trim_start().strip_prefix(['{', '[']);
    inner.is_some_and(|inner| inner.trim_start().starts_with(['"', '{', '[', '}', ']']))
}

/// Returns the turns of a dialogue file, or the lines of any other file. Turns and lines without text are skipped.
fn turns_of_file(file: &Path, context: &Context<'_>) -> Result<Vec<String>> {
    let input = Input::open(file)?;
    let name = input.name.clone();
    let turns: Vec<String> = match read_dialogue(input, context)? {
        Ok(dialogue) => dialogue.turns.into_iter().map(|turn| turn.text).collect(),
        Err(input) => {
            let text = read_text(input.into_stream(), &name)?;
            if looks_like_json(&text) {
                return Err(Error::data(format!("{name} looks like JSON, but is not a dialogue in a known format"))
                    .with_hint(
                        "write {\"messages\": [{\"role\": \"user\", \"content\": \"…\"}]}, or one turn per line; `turnwise \
                         corpus formats` lists all formats",
                    ));
            }
            text.lines().map(str::to_owned).collect()
        }
    };
    let turns: Vec<String> = turns.into_iter().filter(|turn| !turn.trim().is_empty()).collect();
    match turns.is_empty() {
        true => Err(Error::data(format!("{name} has no text"))),
        false => Ok(turns),
    }
}

/// Reads a file with exactly one dialogue.
fn dialogue_of_file(file: &Path, context: &Context<'_>) -> Result<Dialogue> {
    read_dialogue(Input::open(file)?, context)?.map_err(|input| {
        Error::data(format!("{} is not a dialogue in a known format", input.name))
            .with_hint("`turnwise corpus formats` lists the known formats")
    })
}

/// Reads the only dialogue of an input. If the input is not in a known dialogue format, returns the unread input as
/// `Ok(Err(input))`.
fn read_dialogue(input: Input, context: &Context<'_>) -> Result<std::result::Result<Dialogue, Input>> {
    let Some((format, Fit::Yes | Fit::Maybe)) = formats::sniff(&input.probe()) else { return Ok(Err(input)) };
    let name = input.name.clone();
    context.printer.detail(format!("reading {name} as {}", format.name));
    only_dialogue(format.read(input, &ReadOptions::default())?, &name).map(Ok)
}

/// Returns the only dialogue of the list. Returns an error if the list does not contain exactly one dialogue.
fn only_dialogue(mut dialogues: formats::Dialogues, name: &str) -> Result<Dialogue> {
    let first = match dialogues.next() {
        Some(Ok(dialogue)) => dialogue,
        Some(Err(Problem::Record(reject) | Problem::File(reject))) => {
            return Err(Error::data(reject.to_string()));
        }
        None => return Err(Error::data(format!("{name} has no dialogue"))),
    };
    match dialogues.next() {
        None => Ok(first),
        Some(_) => Err(Error::data(format!("{name} has more than one dialogue"))
            .with_hint("use a file with exactly one dialogue")),
    }
}
