//! Reads the context of a query, and the dialogue for a similarity search, from files.

use std::io::Read;

use crate::cli::prelude::*;
use turnwise_corpus::{
    Dialogue,
    formats::{self, Fit, Problem, ReadOptions},
    input::Input,
};

/// Largest file read as context, in bytes.
const MOST_BYTES: u64 = 64 << 20;

/// Returns the turns of a dialogue file, or the lines of any other file.
pub(super) fn turns(file: &Path, context: &Context<'_>) -> Result<Vec<String>> {
    let input = Input::open(file)?;
    let name = input.name.clone();
    let turns: Vec<String> = match formats::sniff(&input.probe()) {
        Some((format, Fit::Yes | Fit::Maybe)) => {
            context.printer.detail(format!("reading {name} as {}", format.name));
            let dialogue = only(format.read(input, &ReadOptions::default())?, &name)?;
            dialogue.turns.into_iter().map(|turn| turn.text).collect()
        }
        _ => {
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
    let input = Input::open(file)?;
    let name = input.name.clone();
    match formats::sniff(&input.probe()) {
        Some((format, Fit::Yes | Fit::Maybe)) => {
            context.printer.detail(format!("reading {name} as {}", format.name));
            only(format.read(input, &ReadOptions::default())?, &name)
        }
        _ => Err(Error::data(format!("{name} is not a dialogue in a known format"))
            .with_hint("`turnwise corpus formats` lists the known formats")),
    }
}

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
