//! Finds utterances of the sample dialogues with nearly the same meaning. Compares vectors from an encoder that is
//! fitted on the same dialogues.
//!
//! `cargo run --release --example duplicates`

#![allow(clippy::print_stdout)]

use turnwise::{
    Index,
    encoder::{TfidfSettings, fit_tfidf},
    samples,
    search::{SearchRequest, Searcher},
};

fn main() -> turnwise::Result<()> {
    let folder = std::env::temp_dir().join("turnwise-example-duplicates");
    let dialogues = samples::dialogues()?;
    let texts = dialogues.iter().flat_map(|d| &d.turns).map(|turn| turn.text.clone());
    let encoder = fit_tfidf(texts, &TfidfSettings::default())?;
    let index = Index::open_or_create(&folder)?;
    index.add(dialogues.clone())?;
    index.encode(&encoder)?;

    // A search with `like` needs no encoder, because the vector of the stored utterance is in the index.
    let searcher: Searcher = index.searcher()?;
    for dialogue in dialogues.iter().take(5) {
        let like = format!("{}#1", dialogue.id);
        let request = SearchRequest { like: Some(like.clone()), k: 1, ..SearchRequest::default() };
        for hit in searcher.search(&request)?.hits {
            println!("{like}: {}\n  {:.2} {}: {}", dialogue.turns[0].text, hit.score, hit.id, hit.turn.text);
        }
    }
    Ok(())
}
