//! Adds the sample dialogues to an index and searches them by keywords.
//!
//! `cargo run --release --example search -- "the parcel never came"`

#![allow(clippy::print_stdout)]

use turnwise::{Index, samples, search::SearchRequest};

fn main() -> turnwise::Result<()> {
    let query = std::env::args().nth(1).unwrap_or_else(|| "the parcel never came".to_owned());
    let folder = std::env::temp_dir().join("turnwise-example-search");
    let index = Index::open_or_create(&folder)?;
    let added = index.add(samples::dialogues()?)?;
    println!("{} dialogues added, {} were in the index already", added.added, added.unchanged);

    let request = SearchRequest { query, k: 3, ..SearchRequest::default() };
    for hit in index.searcher()?.search(&request)?.hits {
        println!("{:.2}  {}  {}", hit.score, hit.id, hit.turn.text);
    }
    Ok(())
}
