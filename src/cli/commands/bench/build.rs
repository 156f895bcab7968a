//! `turnwise bench build`: builds test sets for the benchmark tasks.

use super::{each_dialogue, rankers};
use crate::cli::{
    args::{BuildCommand, EncoderArgs, InputArgs, LabelArg, ReadArgs, SentencesArgs, TokenArgs},
    prelude::*,
    progress::StepProgress,
};
use turnwise_core::random::Random;
use turnwise_corpus::output::Output;
use turnwise_corpus::{Dialogue, Turn};
use turnwise_eval::{
    build::{
        CandidateSelection, Drawing, Published, ResponseOptions, dialogue_set, response_set, retrieval_set,
        write_pairs,
    },
    data::{self, Sentence},
    rank::Terms,
};

pub(super) fn run(command: &BuildCommand, context: &Context<'_>) -> Result<()> {
    let seed = context.settings.seed;
    match command {
        BuildCommand::Sr { labeled, output, candidate_selection, terms } => {
            write_retrieval_set(labeled, *candidate_selection, *terms, output, context)
        }
        BuildCommand::Dsts { labeled, output, pair_sources, pairs, rankers, encoder, tokens } => {
            let wanted = Pairs { rankers, pairs: *pairs, encoder, tokens };
            write_pairs_to_score(labeled, &wanted, output, pair_sources.as_deref(), context)
        }
        BuildCommand::Dialogues { input, output, paper } => {
            write_dialogue_set(input, output, *paper, context)
        }
        BuildCommand::Response {
            input,
            output,
            candidates,
            hard_negatives,
            context: before,
            role,
            samples,
            strip_names,
        } => {
            let options = ResponseOptions {
                of: *candidates,
                hard: *hard_negatives,
                context: *before,
                strip_names: *strip_names,
                role: role.clone(),
                samples: *samples,
                seed,
            };
            write_response_set(&all_dialogues(&input.paths, &input.read, context)?, &options, output, context)
        }
    }
}

/// Writes a file atomically.
fn write(path: &Path, f: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut out = Output::create(path)?;
    out.with(f)?;
    out.finish()
}

/// Reads all dialogues of files and folders. Returns an error if a file cannot be read to its end.
pub(super) fn all_dialogues(
    paths: &[PathBuf],
    read: &ReadArgs,
    context: &Context<'_>,
) -> Result<Vec<Dialogue>> {
    let mut dialogues = Vec::new();
    let problems = each_dialogue(paths, read, "reading", context, &mut |dialogue| {
        dialogues.push(dialogue);
        Ok(())
    })?;
    problems.into_result()?;
    Ok(dialogues)
}

/// Reads sentences with their labels (intents or dialogue acts), from a table or from the turns of dialogues.
fn sentences(args: &SentencesArgs, context: &Context<'_>) -> Result<Vec<Sentence>> {
    let by_act = args.label == LabelArg::Act;
    let mut sentences: Vec<Sentence> = if args.read.from.is_none() && !by_act && data::is_labeled(&args.path)
    {
        let labeled = data::labeled(&args.path)?.into_iter();
        labeled.map(|(text, intent)| Sentence { text, intent: Some(intent) }).collect()
    } else {
        let dialogues = all_dialogues(std::slice::from_ref(&args.path), &args.read, context)?;
        let turns = || dialogues.iter().flat_map(|d| &d.turns).filter(|turn| !turn.text.trim().is_empty());
        let label = |turn: &Turn| match by_act {
            true => turn.single_act().map(str::to_owned),
            false => turn.intent.clone(),
        };
        let made: Vec<_> =
            turns().map(|turn| Sentence { text: turn.text.clone(), intent: label(turn) }).collect();
        let other = match by_act {
            true => turns().any(|turn| turn.intent.is_some()).then_some("intents: --label intent"),
            false => turns().any(|turn| turn.single_act().is_some()).then_some("dialogue acts: --label act"),
        };
        if let Some(other) = other.filter(|_| made.iter().all(|sentence| sentence.intent.is_none())) {
            let without = if by_act { "its own dialogue act" } else { "an intent" };
            return Err(Error::data(format!("{}: no turn has {without}", args.path.display()))
                .with_hint(format!("turns have {other} uses these as labels")));
        }
        made
    };
    if let Some(wanted) = args.sentences {
        Random::new(context.settings.seed, 0).shuffle(&mut sentences);
        sentences.truncate(wanted);
    }
    Ok(sentences)
}

fn write_retrieval_set(
    labeled: &SentencesArgs,
    selection: CandidateSelection,
    terms: Terms,
    output: &Path,
    context: &Context<'_>,
) -> Result<()> {
    let (with, without): (Vec<Sentence>, Vec<Sentence>) =
        sentences(labeled, context)?.into_iter().partition(|sentence| sentence.intent.is_some());
    if !without.is_empty() {
        let what = counted(without.len() as u64, "sentence");
        let label = match labeled.label {
            LabelArg::Intent => "an intent",
            LabelArg::Act => "exactly one dialogue act",
        };
        context.printer.warn(format!("{what} without {label} skipped"));
    }
    let with =
        with.into_iter().map(|sentence| (sentence.text, sentence.intent.unwrap_or_default())).collect();
    let set =
        retrieval_set(with, selection, terms, context.settings.seed, &StepProgress::new(context.printer))?;
    write(output, |out| set.write(out))?;
    context.printer.say(format!("wrote {}", counted(set.sentences.len() as u64, "sentence")));
    match set.without_positive() {
        0 => {}
        n => context.printer.warn(format!("{} without a positive candidate", counted(n as u64, "sentence"))),
    }
    Ok(())
}

/// Options of `turnwise bench build dsts` that select the sentence pairs.
struct Pairs<'a> {
    rankers: &'a [String],
    pairs: usize,
    encoder: &'a EncoderArgs,
    tokens: &'a TokenArgs,
}

fn write_pairs_to_score(
    labeled: &SentencesArgs,
    wanted: &Pairs<'_>,
    output: &Path,
    pair_sources: Option<&Path>,
    context: &Context<'_>,
) -> Result<()> {
    let sentences = sentences(labeled, context)?;
    let progress = StepProgress::new(context.printer);
    let mut drawing = Drawing::new(&sentences, wanted.rankers.len(), wanted.pairs, context.settings.seed)?;
    let options = rankers::RankerOptions {
        encoder: wanted.encoder,
        tokens: wanted.tokens,
        classes: None,
        memory: None,
        seed: context.settings.seed,
    };
    rankers::each(wanted.rankers, &options, context, &mut |ranker| {
        drawing.draw_neighbors(ranker, &progress)
    })?;
    let pairs = drawing.finish(&progress)?;
    drop(progress);
    write(output, |out| write_pairs(&pairs, out))?;
    if let Some(key) = pair_sources {
        write(key, |out| {
            pairs.iter().enumerate().try_for_each(|(n, p)| writeln!(out, "{}\t{}", n + 1, p.by))
        })?;
    }
    context.printer.say(format!("wrote {} to be scored", counted(pairs.len() as u64, "pair")));
    if pairs.len() < wanted.pairs {
        let requested = wanted.pairs;
        context
            .printer
            .warn(format!("the sentences have no more pairs than these; {requested} were requested"));
    }
    Ok(())
}

fn write_dialogue_set(
    input: &InputArgs,
    output: &Path,
    paper: Option<Published>,
    context: &Context<'_>,
) -> Result<()> {
    let set = dialogue_set(all_dialogues(&input.paths, &input.read, context)?, paper)?;
    write(output, |out| {
        set.dialogues.iter().try_for_each(|dialogue| {
            serde_json::to_writer(&mut *out, dialogue)?;
            writeln!(out)
        })
    })?;
    let (dialogues, domains) = (set.dialogues.len(), set.domains.len());
    let (dialogues, domains) = (counted(dialogues as u64, "dialogue"), counted(domains as u64, "domain"));
    context.printer.say(format!("wrote {dialogues} of {domains}"));
    for skipped in &set.skipped {
        context.printer.warn(format!("skipped: {} {} ({})", skipped.count, skipped.what, skipped.first));
    }
    match paper.and_then(|paper| set.differs(paper).map(|differs| (paper, differs))) {
        None => {
            if let Some(paper) = paper {
                let (has, of, here) = (paper.dialogues(), paper.domains(), set.domains.len());
                context.printer.say(format!(
                    "matches the paper: {paper} has {has} dialogues there, too; {here} of its {of} domains are here"
                ));
            }
            Ok(())
        }
        Some((paper, differs)) => Err(Error::Assertion(format!(
            "does not match the paper: {paper} has {} dialogues in the paper but {} here; {} domains over all splits in the paper \
             but {} here (the file was written anyway)",
            differs.paper.0, differs.here.0, differs.paper.1, differs.here.1
        ))),
    }
}

fn write_response_set(
    dialogues: &[Dialogue],
    wanted: &ResponseOptions,
    output: &Path,
    context: &Context<'_>,
) -> Result<()> {
    let set = response_set(dialogues, wanted)?;
    write(output, |out| set.write(out))?;
    context.printer.say(format!("wrote {}", counted(set.len() as u64, "sample")));
    if set.leaks > 0 && !wanted.strip_names {
        let leaks = counted(set.leaks as u64, "response");
        context.printer.warn(format!(
            "{leaks} can be recognized by the name of a speaker; --strip-names removes the names"
        ));
    }
    Ok(())
}
