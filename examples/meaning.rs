//! Fits a TF-IDF + SVD encoder on the sample dialogues, encodes them, and searches by meaning and by keywords together.
//!
//! `cargo run --release --example meaning -- "where is my package?"`

#![allow(clippy::print_stdout)]

use std::sync::Arc;

use turnwise::{
    Index,
    encoder::{Encoder, TfidfSettings, fit_tfidf},
    samples,
    search::SearchRequest,
};

fn main() -> turnwise::Result<()> {
    let query = std::env::args().nth(1).unwrap_or_else(|| "where is my package?".to_owned());
    let folder = std::env::temp_dir().join("turnwise-example-meaning");
    let dialogues = samples::dialogues()?;

    // Fit latent semantic analysis (TF-IDF + SVD) on the utterances. To use a sentence-transformers model instead, call
    // `encoder::open`.
    let texts = dialogues.iter().flat_map(|d| &d.turns).map(|turn| turn.text.clone());
    let encoder: Arc<dyn Encoder> = Arc::new(fit_tfidf(texts, &TfidfSettings::default())?);

    let index = Index::open_or_create(folder.join("index"))?;
    index.add(dialogues)?;
    let filled = index.encode(encoder.as_ref())?;
    index.build()?;
    println!("{} utterances and {} dialogues encoded", filled.utterances, filled.dialogues);

    let searcher = index.searcher()?.with_encoder(encoder)?;
    let request = SearchRequest { query, k: 3, ..SearchRequest::default() };
    for hit in searcher.search(&request)?.hits {
        println!("{:.2}  {}  {}", hit.score, hit.id, hit.turn.text);
    }
    Ok(())
}
