//! Reads files in any known format and prints what they hold, without an index.
//!
//! `cargo run --release --example formats -- chats.csv exports/`

#![allow(clippy::print_stdout)]

use std::path::PathBuf;

use turnwise::corpus::{formats::ReadOptions, walk};

fn main() -> turnwise::Result<()> {
    let mut paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if paths.is_empty() {
        paths.push("examples/support".into());
    }
    for source in walk::plan(&paths, None)?.sources {
        let (mut dialogues, mut turns, mut problems) = (0, 0, 0);
        let (name, format) = (source.name.clone(), source.format.name());
        for item in source.read(&ReadOptions::default())? {
            match item {
                Ok(dialogue) => {
                    dialogues += 1;
                    turns += dialogue.turns.len();
                }
                Err(_) => problems += 1,
            }
        }
        println!("{name} ({format}): {dialogues} dialogues, {turns} turns, {problems} problems");
    }
    Ok(())
}
