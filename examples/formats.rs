//! Reads files in any known format and prints the number of dialogues and turns in them. Needs no index.
//!
//! `cargo run --release --example formats -- chats.csv exports/`

#![allow(clippy::print_stdout)]

use std::path::PathBuf;

use turnwise::corpus::{ReadEvent, Reader};

fn main() -> turnwise::Result<()> {
    let mut paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if paths.is_empty() {
        paths.push("examples/support".into());
    }
    let (mut dialogues, mut turns) = (0, 0);
    let mut event = |event: ReadEvent<'_>| {
        if let ReadEvent::Rejected(reject) = event {
            println!("{reject}");
        }
        Ok(())
    };
    let problems = Reader::default().each_dialogue(&paths, &mut event, &mut |dialogue| {
        dialogues += 1;
        turns += dialogue.turns.len();
        Ok(())
    })?;
    println!("{dialogues} dialogues, {turns} turns, {} problems", problems.rejected);
    Ok(())
}
