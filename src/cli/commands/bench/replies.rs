//! `turnwise bench respond`: compares suggested replies with the true ones.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use super::{searched::program, table};
use crate::cli::{
    args::{RespondBenchArgs, value_name},
    commands::search::encoder_of,
    encoders,
    prelude::*,
};
use turnwise_core::random::Random;
use turnwise_corpus::{Turn, filter::Filter, output::Output};
use turnwise_encoder::{DeviceChoice, Encoder, selector::Selector};
use turnwise_eval::{
    replies::{self, Conversation, Judge},
    result::{Data, Done, Of},
    tasks::{Outcome, Skipped, TaskDescription, Value},
};
use turnwise_search::{RespondRequest, Searcher};
use turnwise_store::Snapshot;

/// Maximum number of replies from which the random baseline is drawn, each from a different dialogue.
const RANDOM_REPLIES: usize = 1_000;

/// Maximum number of warnings about replies that are printed for a ranker.
const SHOWN_WARNINGS: usize = 3;

pub(super) fn run(args: &RespondBenchArgs, context: &Context<'_>) -> Result<()> {
    let open = |given: &String| -> Result<(String, Arc<Selector>)> {
        let (name, _) = encoders::find_selector(context, given)?;
        let selector = encoders::selector(context, given, DeviceChoice::default(), None)?;
        Ok((format!("selector {name}"), Arc::new(selector)))
    };
    let selectors: Vec<_> = args.selectors.iter().map(open).collect::<Result<_>>()?;
    let (bench, mut searcher) = Bench::open(args, context)?;
    let mut judge = Judge::new(&bench.conversations, bench.encoder.as_deref(), args.k)?;
    let mut output = args.output.as_deref().map(Output::create).transpose()?;
    let search = ("search".to_owned(), String::new());
    let mut results = vec![bench.measure(&searcher, search, &mut judge, output.as_mut())?];
    for (name, selector) in selectors {
        let ranker = (name, selector.fingerprint().to_string());
        searcher = searcher.with_selector(selector);
        results.push(bench.measure(&searcher, ranker, &mut judge, output.as_mut())?);
    }
    bench.set_baseline(&searcher, &mut judge, &mut results)?;
    for (done, path) in &results {
        done.write(path)?;
    }
    output.map(Output::finish).transpose()?;
    let results: Vec<Done> = results.into_iter().map(|(done, _)| done).collect();
    let printed = table::Printed::all(&results, context.settings.seed);
    context.printer.results(&printed, |out| table::write(out, &printed, &args.results))
}

/// Conversations and the settings with which replies to them are suggested.
struct Bench<'a> {
    args: &'a RespondBenchArgs,
    context: &'a Context<'a>,
    encoder: Option<Arc<dyn Encoder>>,
    conversations: Vec<Conversation>,
    data: Data,
    skipped: Vec<Skipped>,
}

/// Line of the file of suggestions.
#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    ranker: &'a str,
    context: &'a [String],
    reply: &'a str,
    suggestions: &'a [String],
}

impl<'a> Bench<'a> {
    /// Reads the conversations, and opens the index.
    fn open(args: &'a RespondBenchArgs, context: &'a Context<'a>) -> Result<(Self, Searcher)> {
        let (mut conversations, hash, mut skipped) = args.samples.conversations()?;
        conversations.retain(|conversation| {
            let has_text = conversation.context.iter().any(|turn| !turn.trim().is_empty());
            if !has_text {
                Skipped::count(&mut skipped, "samples whose context has no text", &conversation.id);
            }
            has_text
        });
        if conversations.is_empty() {
            return Err(Error::data(format!("{}: no context has text", args.samples.data.display())));
        }
        let mut searcher = context.searcher()?;
        let snapshot = searcher.embedded("`bench respond`")?.snapshot();
        // The values depend on the index, too.
        let state = format!("{hash} {} {:?}", snapshot.log_id(), snapshot.end());
        let data = Data {
            paths: vec![
                args.samples.data.display().to_string(),
                format!("index {}", snapshot.root().display()),
            ],
            hash: blake3::hash(state.as_bytes()).to_hex()[..32].to_owned(),
            size: format!("{}, {} each", counted(conversations.len() as u64, "context"), suggestions(args.k)),
        };
        let mut encoder = None;
        if let Some(recipe) = searcher.engine().recipe().cloned() {
            let opened = encoder_of(&recipe, &searcher.engine().place(), context)?;
            encoder = Some(Arc::clone(&opened));
            searcher = searcher.with_encoder(opened)?;
        }
        Ok((Bench { args, context, encoder, conversations, data, skipped }, searcher))
    }

    /// Asks for replies to all contexts, and compares them with the true replies. `ranker` is the name of what chooses the
    /// replies, and the fingerprint of its model. Returns the result and the path for it.
    fn measure(
        &self,
        searcher: &Searcher,
        (ranker, identity): (String, String),
        judge: &mut Judge<'_>,
        mut output: Option<&mut Output>,
    ) -> Result<(Done, PathBuf)> {
        let RespondBenchArgs { k, mode, decay, role, .. } = self.args;
        let mode_suffix = mode.map_or_else(String::new, |mode| format!(" --mode {}", value_name(&mode)));
        let ranker = ranker + &mode_suffix;
        let started = Instant::now();
        let suggested = self.suggest(searcher, &ranker)?;
        if let Some(output) = &mut output {
            for (conversation, suggestions) in self.conversations.iter().zip(&suggested) {
                let Conversation { id, context, reply } = conversation;
                let line = Line { id, ranker: &ranker, context, reply, suggestions };
                output.with(|out| {
                    serde_json::to_writer(&mut *out, &line)?;
                    writeln!(out)
                })?;
            }
        }
        let values = judge.values(&suggested)?;
        let queries = self.conversations.iter().map(|conversation| conversation.id.clone()).collect();
        let outcome = Outcome { values, queries, ..Outcome::default() };
        let options = format!("respond/{k}/{role:?}/{decay}");
        // The search itself is measured, so the result depends on the build of turnwise.
        let identity = format!("respond/{identity}{mode_suffix}/{}", program());
        let of = Of {
            task: TaskDescription { skipped: &self.skipped, ..replies::TASK },
            options: &options,
            data: &self.data,
            ranker: (&ranker, &identity),
            seed: self.context.settings.seed,
        };
        Ok((of.done(outcome, started.elapsed().as_secs_f64()), of.path(&self.args.results)))
    }

    /// Returns the suggestions for each conversation.
    fn suggest(&self, searcher: &Searcher, ranker: &str) -> Result<Vec<Vec<String>>> {
        let printer = self.context.printer;
        let total = self.conversations.len() as u64;
        let mut progress = ProgressBar::new(printer, "asking for replies", "contexts", Some(total));
        let (mut all, mut warnings) = (Vec::with_capacity(self.conversations.len()), BTreeSet::new());
        for conversation in &self.conversations {
            signals::check()?;
            let request = RespondRequest {
                context: conversation.context.clone(),
                decay: self.args.decay,
                k: self.args.k,
                mode: self.args.mode,
                filter: conversation.dialogue().map(Filter::not_of_dialogue).transpose()?,
                role: self.args.role.clone(),
                ..RespondRequest::default()
            };
            let found = searcher.respond(&request)?;
            all.push(found.replies.into_iter().map(|reply| reply.text).collect());
            warnings.extend(found.warnings);
            progress.set(all.len() as u64, all.len() as u64);
        }
        drop(progress);
        let shown = if warnings.len() > SHOWN_WARNINGS + 1 { SHOWN_WARNINGS } else { warnings.len() };
        warnings.iter().take(shown).for_each(|warning| printer.warn(format!("{ranker}: {warning}")));
        if shown < warnings.len() {
            printer.warn(format!("{ranker}: {} more warnings", warnings.len() - shown));
        }
        Ok(all)
    }

    /// Sets the random baseline of all results.
    fn set_baseline(
        &self,
        searcher: &Searcher,
        judge: &mut Judge<'_>,
        results: &mut [(Done, PathBuf)],
    ) -> Result<()> {
        let seed = self.context.settings.seed;
        let snapshot = searcher.embedded("`bench respond`")?.snapshot();
        let replies = random_replies(snapshot, self.args, seed)?;
        let mut floors: Vec<Value> = results.first().map_or_else(Vec::new, |(done, _)| done.values.clone());
        judge.set_baseline(&mut floors, &replies, seed)?;
        for value in results.iter_mut().flat_map(|(done, _)| &mut done.values) {
            value.floor = floors.iter().find(|floor| floor.measure == value.measure).and_then(|f| f.floor);
        }
        Ok(())
    }
}

fn suggestions(count: usize) -> String {
    counted(count as u64, "suggestion")
}

/// Returns random replies of an index: at most one of a dialogue. A reply is a turn after a turn of another speaker.
fn random_replies(snapshot: &Snapshot, args: &RespondBenchArgs, seed: u64) -> Result<Vec<String>> {
    let mut random = Random::new(seed, 0);
    let mut keys: Vec<_> = snapshot.live().map(|(_, key)| key).collect();
    random.shuffle(&mut keys);
    let mut replies = Vec::new();
    for key in keys {
        signals::check()?;
        let Some((_, dialogue)) = snapshot.record(key)? else { continue };
        let is_reply = |pair: &&[Turn]| match pair {
            [before, turn] => {
                let has_role = args.role.is_none() || turn.role == args.role;
                before.who() != turn.who() && has_role && !turn.text.trim().is_empty()
            }
            _ => false,
        };
        let of_dialogue: Vec<&[Turn]> = dialogue.turns.windows(2).filter(is_reply).collect();
        if of_dialogue.is_empty() {
            continue;
        }
        replies.extend(of_dialogue[random.below(of_dialogue.len())].last().map(|turn| turn.text.clone()));
        if replies.len() == RANDOM_REPLIES {
            break;
        }
    }
    Ok(replies)
}
