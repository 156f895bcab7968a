//! Response selection: a context and some responses, one of which was really said.
//!
//! As JSON, a sample a line: `{"id", "context": [{"role", "text"}], "candidates": ["…"], "answer": 3}`, the answer counted
//! from 0. Or as the Ubuntu, Douban and E-commerce corpora are published: `label ⇥ turn ⇥ … ⇥ response`, lines with the same
//! context one after the other.

use std::path::Path;

use serde::Deserialize;

use super::each_line;
use crate::{
    rank::{Items, Pool},
    tasks::{Candidates, ListTask, Skipped},
    trec::Measure,
};
use turnwise_core::{
    error::{Error, Result},
    ids::{DialogueId, TurnNo},
};
use turnwise_corpus::{Dialogue, Turn};

#[derive(Deserialize)]
struct Sample {
    id: String,
    context: Vec<Said>,
    candidates: Vec<String>,
    answer: usize,
}

#[derive(Deserialize)]
struct Said {
    #[serde(default, alias = "speaker")]
    role: String,
    text: String,
}

/// What may have been said next, and whether it was.
type Response = (String, bool);

/// Of samples, in either layout.
pub fn response_selection(path: &Path) -> Result<ListTask> {
    let mut samples = Samples::default();
    // Lines with one context.
    let mut lines: Option<(Vec<String>, Vec<Response>)> = None;
    each_line(path, |_, text| {
        if text.trim_start().starts_with('{') {
            let sample: Sample = serde_json::from_str(text).map_err(|e| format!("this is no sample: {e}"))?;
            if sample.answer >= sample.candidates.len() {
                return Err(format!(
                    "the answer is {}, and there are {} candidates",
                    sample.answer,
                    sample.candidates.len()
                ));
            }
            let flags = sample.candidates.into_iter().enumerate().map(|(n, text)| (text, n == sample.answer));
            return samples.push(sample.id, sample.context, flags.collect());
        }
        let fields: Vec<&str> = text.split('\t').collect();
        let ([label @ ("0" | "1"), context @ .., response], true) = (&fields[..], fields.len() >= 3) else {
            return Err(
                "this is neither a sample as JSON nor `label, turns, response` with tabs between them"
                    .to_owned(),
            );
        };
        let context: Vec<String> = context.iter().map(|turn| (*turn).to_owned()).collect();
        let candidate = ((*response).to_owned(), *label == "1");
        match &mut lines {
            Some((before, candidates)) if *before == context => candidates.push(candidate),
            _ => {
                if let Some((context, candidates)) = lines.replace((context, vec![candidate])) {
                    samples.push_lines(context, candidates)?;
                }
            }
        }
        Ok(())
    })?;
    let told = |why: String| Error::data(format!("{}: {why}", path.display()));
    if let Some((context, candidates)) = lines {
        samples.push_lines(context, candidates).map_err(told)?;
    }
    samples.task().ok_or_else(|| told("there is no sample with a right and a wrong response".to_owned()))
}

#[derive(Default)]
struct Samples {
    ids: Vec<String>,
    contexts: Vec<Dialogue>,
    responses: Vec<String>,
    names: Vec<String>,
    lists: Vec<Vec<(u32, i32)>>,
    skipped: Vec<Skipped>,
}

impl Samples {
    fn push_lines(&mut self, context: Vec<String>, candidates: Vec<Response>) -> Result<(), String> {
        // Speakers take turns, the answer's being the next.
        let speakers = ["a", "b"];
        let said = context.into_iter().rev().enumerate();
        let mut context: Vec<Said> =
            said.map(|(n, text)| Said { role: speakers[n % 2].to_owned(), text }).collect();
        context.reverse();
        self.push((self.lists.len() + 1).to_string(), context, candidates)
    }

    fn push(&mut self, id: String, context: Vec<Said>, candidates: Vec<Response>) -> Result<(), String> {
        if context.is_empty() {
            return Err(format!("the sample {id} has no context"));
        }
        let right = candidates.iter().filter(|(_, right)| *right).count();
        if right == 0 || right == candidates.len() {
            Skipped::count(&mut self.skipped, "samples without a right or without a wrong response", || {
                id.clone()
            });
            return Ok(());
        }
        let turns = context.into_iter().enumerate().map(|(n, said)| Turn {
            number: TurnNo(n as u32 + 1),
            speaker: said.role,
            text: said.text,
            ..Turn::default()
        });
        let mut dialogue = Dialogue::new(DialogueId::new(id.clone()).map_err(|e| e.to_string())?);
        dialogue.turns = turns.collect();
        let mut list = Vec::new();
        for (n, (text, right)) in candidates.into_iter().enumerate() {
            list.push((self.responses.len() as u32, i32::from(right)));
            self.names.push(format!("{id}/{n}"));
            self.responses.push(text);
        }
        self.ids.push(id);
        self.contexts.push(dialogue);
        self.lists.push(list);
        Ok(())
    }

    fn task(self) -> Option<ListTask> {
        (!self.lists.is_empty()).then(|| ListTask {
            name: "response",
            about: "response selection (sentence embeddings)",
            places: (0..self.ids.len() as u32).collect(),
            pool: Pool::with_queries(Items::Texts(self.responses), Items::Dialogues(self.contexts)),
            documents: self.names,
            queries: self.ids,
            candidates: Candidates::Given(self.lists),
            measures: vec![
                ("R@1", Measure::Recall(1)),
                ("R@2", Measure::Recall(2)),
                ("R@5", Measure::Recall(5)),
                ("MRR", Measure::RecipRank),
            ],
            skipped: self.skipped,
        })
    }
}
