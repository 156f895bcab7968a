//! Reads the context of a query, and the dialogue for a similarity search, from files.

use std::io::Read;

use crate::cli::prelude::*;
use turnwise_corpus::{
    Dialogue,
    formats::{self, Fit, Problem, ReadOptions},
    input::Input,
};

/// Maximum number of bytes to read from a context file that is not a dialogue; the rest is ignored.
const MOST_BYTES: u64 = 64 << 20;

/// Returns the turns of a dialogue file, or the lines of any other file. Turns and lines without text are skipped.
pub(super) fn turns(file: &Path, context: &Context<'_>) -> Result<Vec<String>> {
    let input = Input::open(file)?;
    let name = input.name.clone();
    let turns: Vec<String> = match read(input, context)? {
        Ok(dialogue) => dialogue.turns.into_iter().map(|turn| turn.text).collect(),
        Err(input) => {
            let mut text = String::new();
            input.into_stream().take(MOST_BYTES).read_to_string(&mut text).at("read", file)?;
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
pub(super) fn dialogue(file: &Path, context: &Context<'_>) -> Result<Dialogue> {
    read(Input::open(file)?, context)?.map_err(|input| {
        Error::data(format!("{} is not a dialogue in a known format", input.name))
            .with_hint("`turnwise corpus formats` lists the known formats")
    })
}

/// Reads the only dialogue of an input. Returns the input unread if its format is not a known dialogue format.
fn read(input: Input, context: &Context<'_>) -> Result<std::result::Result<Dialogue, Input>> {
    let Some((format, Fit::Yes | Fit::Maybe)) = formats::sniff(&input.probe()) else { return Ok(Err(input)) };
    let name = input.name.clone();
    context.printer.detail(format!("reading {name} as {}", format.name));
    only(format.read(input, &ReadOptions::default())?, &name).map(Ok)
}

/// Returns the dialogue, or an error if there is not exactly one.
fn only(mut dialogues: formats::Dialogues, name: &str) -> Result<Dialogue> {
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
