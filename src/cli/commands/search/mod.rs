//! `turnwise search`: utterances and dialogues by their words, or by their meaning.

mod dense;
mod found;

use std::time::Instant;

use crate::{
    cli::{
        Context,
        args::{SearchArgs, SearchMode, SearchOf},
    },
    error::{Error, Result},
    ids::UtteranceId,
    index::lexical::{Lexical, LexicalQuery},
    store::Snapshot,
};

pub(super) use dense::by_vector;
pub(super) use found::Found;
use found::{Hit, Marks};

pub(super) fn run(args: &SearchArgs, context: &Context<'_>) -> Result<()> {
    let root = context.existing_index()?;
    let snapshot = Snapshot::open(&root)?;
    if args.mode == SearchMode::Dense {
        let found = dense::run(args, &root, &snapshot, context)?;
        return context.printer.result(&found, |out| found.write(out));
    }
    let lexical = Lexical::open(&root)?;
    let started = Instant::now();
    let query = match args.syntax {
        true => lexical.syntax(&args.query),
        false => lexical.words(&args.query),
    };
    if query.is_empty() {
        return Err(Error::Input {
            message: format!("`{}` holds no word to look for", args.query),
            hint: Some("type the words you remember, in any order".to_owned()),
        });
    }
    for warning in query.warnings() {
        context.printer.warn(format!("in the query: {warning}"));
    }
    if !lexical.is_current(&snapshot) {
        context
            .printer
            .warn("the search index is behind the records; `turnwise index build` brings it up to date");
    }
    let asked = Asked { text: &args.query, query, lexical: &lexical, snapshot: &snapshot, started };
    let found = match args.of {
        SearchOf::Utterances => asked.utterances(args.k, args.window)?,
        SearchOf::Dialogues => asked.dialogues(args.k, args.window)?,
    };
    context.printer.result(&found, |out| found.write(out))
}

/// The utterances with the words of a text.
pub(super) fn search(
    lexical: &Lexical,
    snapshot: &Snapshot,
    text: &str,
    k: usize,
    window: usize,
) -> Result<Found> {
    let started = Instant::now();
    Asked { text, query: lexical.words(text), lexical, snapshot, started }.utterances(k, window)
}

struct Asked<'a> {
    text: &'a str,
    query: LexicalQuery,
    lexical: &'a Lexical,
    snapshot: &'a Snapshot,
    started: Instant,
}

impl Asked<'_> {
    fn marks(&self) -> Marks {
        Marks { analyzer: self.lexical.analyzer(), terms: self.query.terms().to_vec() }
    }

    fn utterances(&self, k: usize, window: usize) -> Result<Found> {
        let found = self.lexical.utterances(&self.query, k)?;
        let found = found.into_iter().map(|found| (found.score, found.utterance)).collect();
        let hits = hits(found, self.snapshot, window)?;
        Ok(Found::new("utterances", self.text, hits, self.marks(), self.started))
    }

    fn dialogues(&self, k: usize, window: usize) -> Result<Found> {
        let mut hits = Vec::new();
        for found in self.lexical.dialogues(&self.query, k)? {
            // A dialogue that was deleted since the index was built is simply not there any more.
            let Some(dialogue) = self.snapshot.get(&found.dialogue)? else { continue };
            let best = self.lexical.best_turn(&self.query, &found.dialogue)?;
            let at = dialogue.turns.iter().position(|turn| Some(turn.number) == best).unwrap_or(0);
            hits.push(Hit::of_dialogue(found.score, dialogue, at, window));
        }
        Ok(Found::new("dialogues", self.text, hits, self.marks(), self.started))
    }
}

fn hits(found: Vec<(f32, UtteranceId)>, snapshot: &Snapshot, window: usize) -> Result<Vec<Hit>> {
    let mut hits = Vec::new();
    for (score, utterance) in found {
        // A dialogue that was deleted since the index was built is simply not there any more.
        let Some(dialogue) = snapshot.get(&utterance.dialogue)? else { continue };
        let Some(at) = dialogue.turns.iter().position(|t| t.number == utterance.turn) else { continue };
        hits.push(Hit::of_utterance(score, &utterance, dialogue, at, window));
    }
    Ok(hits)
}
