//! Response selection. A sample consists of a context (the previous turns) and candidate responses, of which some are
//! right and some are wrong.
//!
//! Two formats are supported. JSON lines have one sample per line: `{"id", "context": [{"role", "text"}], "candidates":
//! ["…"], "answer": 3}`, where `answer` is the index of the right candidate, starting at 0. The Ubuntu, Douban and
//! E-commerce corpora have lines of `label ⇥ turn ⇥ … ⇥ response`, one per candidate. Adjacent lines with the same
//! context are one sample.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Candidates, LoadOptions, Loaded, RankingTask, Skipped, TaskSettings};
use crate::{
    build::response::{ContextTurn, ResponseSet, Sample},
    data::{self, each_line},
    rank::{Items, Pool},
    replies::Conversation,
    trec::Measure,
};
use turnwise_core::{
    error::{Error, Result},
    ids::{DialogueId, TurnNo},
    random::Random,
};
use turnwise_corpus::{Dialogue, Turn};

/// Settings of response selection.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct ResponseSelection {
    /// File of samples: JSON lines, or tab-separated
    ///
    /// A JSON object has the keys id, context (list of {"role", "text"}), candidates (list of texts) and answer (index
    /// of the right candidate, from 0).
    ///
    /// A tab-separated line has a label (1 for the right response, 0 for a wrong one), one column per context turn, and
    /// the response in the last column. Adjacent lines with the same context form one sample.
    #[cfg_attr(feature = "clap", arg(value_name = "FILE"))]
    pub data: PathBuf,

    /// Use only samples whose context has at least N turns
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)
    )]
    pub min_turns: usize,

    /// Use only samples whose context has at least N words
    ///
    /// Words are separated by spaces.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)
    )]
    pub min_words: usize,

    /// Remove these turns from every context, counted from 1
    ///
    /// Shows how much the score depends on them: 1,2 removes the first two turns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N,…", value_delimiter = ',', value_parser = turn_number))]
    pub without_turns: Vec<usize>,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

#[cfg(feature = "clap")]
fn turn_number(text: &str) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(0) | Err(_) => Err("turns are counted from 1, as in 1,2".to_owned()),
        Ok(number) => Ok(number),
    }
}

impl TaskSettings for ResponseSelection {
    fn command(&self, folder: &Path) -> String {
        let mut command = format!("turnwise bench response {}", folder.join(&self.data).display());
        for (option, n) in [("min-turns", self.min_turns), ("min-words", self.min_words)] {
            if n > 0 {
                command += &format!(" --{option} {n}");
            }
        }
        if !self.without_turns.is_empty() {
            let numbers: Vec<String> = self.without_turns.iter().map(usize::to_string).collect();
            command += &format!(" --without-turns {}", numbers.join(","));
        }
        command
    }

    fn files(&self) -> Vec<&Path> {
        vec![&self.data]
    }

    fn load(&self, folder: &Path, _: &LoadOptions<'_>) -> Result<Loaded> {
        let file = folder.join(&self.data);
        let task = read(&file, self)?.task();
        let task = task.ok_or_else(|| Error::Internal(format!("{} has no samples", file.display())))?;
        let hash = self.hash(&file)?;
        Ok(Loaded::new(task, &[file], hash))
    }
}

impl ResponseSelection {
    /// Reads the conversations with their right responses. Also returns a hash of the data, and the numbers of skipped
    /// samples.
    pub fn conversations(&self) -> Result<(Vec<Conversation>, String, Vec<Skipped>)> {
        let samples = read(&self.data, self)?;
        let hash = self.hash(&self.data)?;
        let conversation = |n: usize| {
            let (right, _) = samples.lists[n].iter().find(|(_, grade)| *grade > 0)?;
            Some(Conversation {
                id: samples.ids[n].clone(),
                context: samples.contexts[n].turns.iter().map(|turn| turn.text.clone()).collect(),
                reply: samples.responses[*right as usize].clone(),
            })
        };
        let conversations = (0..samples.ids.len()).filter_map(conversation).collect();
        Ok((conversations, hash, samples.skipped))
    }

    /// Returns a hash of the file and of the options that change the contexts.
    fn hash(&self, file: &Path) -> Result<String> {
        let hash = data::hash(&[file])?;
        if *self == (ResponseSelection { data: self.data.clone(), ..ResponseSelection::default() }) {
            return Ok(hash);
        }
        let changes = (self.min_turns, self.min_words, &self.without_turns);
        let hash = blake3::hash(format!("{hash} {changes:?}").as_bytes());
        Ok(hash.to_hex()[..32].to_owned())
    }

    /// Returns the context without the turns to remove. Returns `None` if the sample is not used.
    fn changed(&self, context: Vec<ContextTurn>) -> Option<Vec<ContextTurn>> {
        let words: usize = context.iter().map(|turn| turn.text.split_whitespace().count()).sum();
        if context.len() < self.min_turns || words < self.min_words {
            return None;
        }
        let kept = context.into_iter().enumerate().filter(|(n, _)| !self.without_turns.contains(&(n + 1)));
        Some(kept.map(|(_, turn)| turn).collect()).filter(|kept: &Vec<_>| !kept.is_empty())
    }
}

/// Candidate response, and whether it is a right response.
type Response = (String, bool);

/// Reads the samples of a file with JSON lines or tab-separated lines. Returns an error if there are none.
fn read<'s>(path: &Path, settings: &'s ResponseSelection) -> Result<Samples<'s>> {
    let mut samples = Samples { settings: Some(settings), ..Samples::default() };
    // Adjacent lines with the same context form one sample.
    let mut lines: Option<(Vec<String>, Vec<Response>)> = None;
    each_line(path, |_, text| {
        if text.trim_start().starts_with('{') {
            let sample: Sample = serde_json::from_str(text).map_err(|e| {
                let made = "`turnwise bench build response` makes samples from dialogues";
                format!("not a sample of response selection: {e}; {made}")
            })?;
            if sample.answer >= sample.candidates.len() {
                return Err(format!(
                    "the answer is {}, but there are only {} candidates, counted from 0",
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
                "expected a sample as JSON, or a label, turns and a response separated by tabs".to_owned()
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
    let error = |why: String| Error::data(format!("{}: {why}", path.display()));
    if let Some((context, candidates)) = lines {
        samples.push_lines(context, candidates).map_err(error)?;
    }
    match (samples.lists.is_empty(), samples.unused) {
        (false, _) => Ok(samples),
        (true, 0) => Err(error("no sample has both a correct and a wrong response".to_owned())),
        (true, unused) => {
            Err(error(format!("no sample is left: the contexts of {unused} samples are too short"))
                .with_hint("lower --min-turns or --min-words, or remove fewer turns"))
        }
    }
}

impl ResponseSet {
    /// Returns a task with at most `most` of the samples, drawn at random. Returns `None` if there are no samples.
    pub fn into_task(self, most: usize, seed: u64) -> Result<Option<RankingTask>> {
        let mut chosen = self.into_samples();
        Random::new(seed, 0).shuffle(&mut chosen);
        chosen.truncate(most);
        chosen.sort_by(|a, b| a.id.cmp(&b.id));
        let mut samples = Samples::default();
        for sample in chosen {
            let flags = sample.candidates.into_iter().enumerate().map(|(n, text)| (text, n == sample.answer));
            samples.push(sample.id, sample.context, flags.collect()).map_err(Error::data)?;
        }
        Ok(samples.task())
    }
}

#[derive(Default)]
struct Samples<'s> {
    /// Settings that select the samples and change their contexts.
    settings: Option<&'s ResponseSelection>,
    /// Number of samples that the settings exclude.
    unused: usize,
    ids: Vec<String>,
    contexts: Vec<Dialogue>,
    responses: Vec<String>,
    names: Vec<String>,
    lists: Vec<Vec<(u32, i32)>>,
    skipped: Vec<Skipped>,
}

impl Samples<'_> {
    fn push_lines(&mut self, context: Vec<String>, candidates: Vec<Response>) -> Result<(), String> {
        // The format contains no speakers. Assume that two speakers alternate, also between the last turn and the
        // response.
        let speakers = ["a", "b"];
        let said = context.into_iter().rev().enumerate();
        let mut context: Vec<ContextTurn> =
            said.map(|(n, text)| ContextTurn { role: speakers[n % 2].to_owned(), text }).collect();
        context.reverse();
        self.push((self.lists.len() + 1).to_string(), context, candidates)
    }

    fn push(
        &mut self,
        id: String,
        context: Vec<ContextTurn>,
        candidates: Vec<Response>,
    ) -> Result<(), String> {
        if context.is_empty() {
            return Err(format!("sample {id} has no context"));
        }
        let right = candidates.iter().filter(|(_, right)| *right).count();
        if right == 0 || right == candidates.len() {
            Skipped::count(&mut self.skipped, "samples without a correct or without a wrong response", id);
            return Ok(());
        }
        let context = match self.settings {
            None => context,
            Some(settings) => match settings.changed(context) {
                Some(changed) => changed,
                None => {
                    self.unused += 1;
                    return Ok(());
                }
            },
        };
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

    fn task(self) -> Option<RankingTask> {
        (!self.lists.is_empty()).then(|| RankingTask {
            name: "response",
            about: "response selection (sentence embeddings)",
            pool_indices: (0..self.ids.len() as u32).collect(),
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
