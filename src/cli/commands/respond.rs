//! `turnwise respond`: suggests replies to a conversation.

use std::{collections::HashSet, ffi::OsStr};

use super::search::{encoder_of, read_text, speaker, turns_of, with_selector};
use crate::cli::{args::RespondArgs, encoders, prelude::*};
use turnwise_encoder::DeviceChoice;
use turnwise_search::{Replies, Reply, RespondRequest, rank_replies};

/// Maximum number of lines of a file of candidates.
const MAX_CANDIDATES: usize = 1_000;

pub(super) fn run(args: &RespondArgs, context: &Context<'_>) -> Result<()> {
    let turns = turns_of(args.context.as_deref(), &args.turns, args.turn.as_deref(), context)?;
    if turns.is_empty() {
        return Err(Error::input("there is no conversation to answer").with_hint(
            "pass its last turn, as in `turnwise respond \"my parcel never arrived\"`, or a file with all turns: --context FILE",
        ));
    }
    let candidates = args.candidates.as_deref().map(candidates).transpose()?;
    let (lines, candidates) =
        candidates.map(|all| all.into_iter().unzip::<usize, String, Vec<_>, Vec<_>>()).unzip();
    let request = RespondRequest {
        context: turns,
        candidates,
        decay: args.decay,
        k: args.k,
        mode: args.mode,
        filter: args.filter.clone(),
        select: None,
        role: args.role.clone(),
    };
    request.check()?;
    let mut found = match &args.selector {
        // A selector that ranks given candidates needs no index.
        Some(selector) if request.candidates.is_some() => {
            rank_replies(&encoders::selector(context, selector, DeviceChoice::default(), None)?, &request)?
        }
        _ => find(&request, args, context)?,
    };
    for reply in &mut found.replies {
        reply.candidate = reply.candidate.and_then(|n| lines.as_ref()?.get(n).copied());
    }
    found.warnings.iter().for_each(|warning| context.printer.warn(warning));
    context.printer.result(&found, |out| write(&found, out))?;
    if args.selector.is_none() && !found.replies.is_empty() {
        context.printer.suggest(
            "a selector chooses the replies that fit the whole conversation: `turnwise train selector --corpus INDEX -o \
             runs/replies`, then --selector runs/replies",
        );
    }
    Ok(())
}

/// Searches an index for replies.
fn find(request: &RespondRequest, args: &RespondArgs, context: &Context<'_>) -> Result<Replies> {
    let mut searcher = with_selector(context.searcher()?, args.selector.as_deref(), context)?;
    if searcher.respond_needs_encoder(request)
        && let Some(recipe) = searcher.engine().recipe().cloned()
    {
        let encoder = encoder_of(&recipe, &searcher.engine().place(), context)?;
        searcher = searcher.with_encoder(encoder)?;
    }
    searcher.respond(request)
}

/// Reads the candidates from a text file, one per line, with the indices of their lines. Blank lines and repeated lines are
/// skipped.
fn candidates(file: &Path) -> Result<Vec<(usize, String)>> {
    let text = read_text(std::fs::File::open(file).at("open", file)?, &file.display().to_string())?;
    let is_table = ["csv", "tsv"].iter().any(|ending| file.extension() == Some(OsStr::new(ending)));
    if is_table || is_json(&text) {
        let kind = if is_table { "a table" } else { "JSON" };
        return Err(Error::data(format!("{} is {kind}, not a text file", file.display()))
            .with_hint("write one candidate reply per line, without quotes"));
    }
    let (mut seen, mut lines) = (HashSet::new(), Vec::new());
    for (n, line) in text.lines().map(str::trim).enumerate() {
        if !line.is_empty() && seen.insert(line) {
            lines.push((n, line.to_owned()));
        }
    }
    match lines.len() {
        0 => Err(Error::data(format!("{} has no text", file.display()))
            .with_hint("write one candidate reply per line")),
        n if n > MAX_CANDIDATES => Err(Error::input(format!(
            "{} has {} candidates; at most {} can be compared",
            file.display(),
            grouped(n as u64),
            grouped(MAX_CANDIDATES as u64)
        ))
        .with_hint("split the file")),
        _ => Ok(lines),
    }
}

/// Returns true if a text, or its first line, is a JSON object or array. A line such as `{{name}}, hello` is not.
fn is_json(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let parsed = [text, first].map(serde_json::from_str::<serde_json::Value>);
    parsed.iter().any(|value| value.as_ref().is_ok_and(|value| value.is_object() || value.is_array()))
}

fn write(found: &Replies, out: &mut dyn Write) -> std::io::Result<()> {
    if found.replies.is_empty() {
        return writeln!(out, "no replies found");
    }
    for (n, Reply { text, score, candidate, said }) in found.replies.iter().enumerate() {
        let from = match (said, candidate) {
            (Some(said), _) => {
                format!("  {}#{}  {}", said.dialogue, said.turn.number, speaker(&said.turn))
            }
            (None, Some(candidate)) => format!("  line {}", candidate + 1),
            (None, None) => String::new(),
        };
        writeln!(out, "{:2}. {score:.3}{DIM}{from}{DIM:#}", n + 1)?;
        writeln!(out, "    {text}")?;
        if let Some(said) = said {
            writeln!(out, "{DIM}    in answer to: {}{DIM:#}", said.answered.text)?;
        }
    }
    Ok(())
}
