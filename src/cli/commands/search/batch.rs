//! `search --queries`: answers a file of queries as JSON lines or as a TREC run.

use std::{
    collections::HashMap,
    io::{BufRead, BufWriter},
};

use serde_json::{Map, Value};

use crate::cli::{prelude::*, printer::write_json_line};
use turnwise_corpus::input::Input;
use turnwise_search::{Response, SearchRequest};

/// Number of queries that are answered together. After each group, the command prints the results and checks whether
/// the user requested a stop.
const GROUP: usize = 256;

/// One line of a file of queries.
struct QueryLine {
    /// Id given in the file, or else the line number.
    id: String,
    line: u64,
    request: SearchRequest,
}

/// One line of the output: the results of one query.
#[derive(Serialize)]
struct Answer<'a> {
    id: &'a str,
    #[serde(flatten)]
    response: &'a Response,
}

pub(super) fn run(
    file: &Path,
    run: Option<&str>,
    base: SearchRequest,
    selector: Option<&str>,
    context: &Context<'_>,
) -> Result<()> {
    if let Some(name) = run.filter(|name| !fits_trec(name)) {
        return Err(Error::input(format!("`{name}` is not a valid name of a TREC run"))
            .with_hint("use one word without spaces"));
    }
    let input = Input::open(file)?;
    let name = input.name.clone();
    // All lines are parsed before the first search, so that a mistake in any line is reported early.
    let mut all: Vec<QueryLine> = Vec::new();
    let mut lines = HashMap::new();
    for (n, line) in input.into_stream().lines().enumerate() {
        let line = line.at("read", file)?;
        if !line.trim().is_empty() {
            let query = parse_line(&line, n as u64 + 1, &base).map_err(|e| at(&name, n as u64 + 1, e))?;
            if let Some(before) = lines.insert(query.id.clone(), query.line) {
                let twice = Error::data(format!("the id `{}` is already used in line {before}", query.id));
                return Err(at(&name, query.line, twice));
            }
            all.push(query);
        }
    }
    if all.is_empty() {
        return Err(Error::data(format!("{name} has no queries")));
    }
    let requests: Vec<&SearchRequest> = all.iter().map(|query| &query.request).collect();
    let searcher = super::with_selector(super::open(&requests, context)?, selector, context)?;
    let mut progress = ProgressBar::new(context.printer, "searching", "queries", Some(all.len() as u64));
    let mut out = BufWriter::new(anstream::stdout().lock());
    let mut warned = std::collections::BTreeSet::new();
    let mut done = 0;
    let mut failed = None;
    for group in all.chunks(GROUP) {
        if signals::stopped() {
            out.flush().at("write to", "standard output")?;
            let hint = format!("{} answered; the output is complete up to there", counted(done, "query"));
            return Err(Error::Interrupted { hint: Some(hint) });
        }
        let requests: Vec<SearchRequest> = group.iter().map(|query| query.request.clone()).collect();
        for (query, response) in group.iter().zip(searcher.search_all(&requests)) {
            let response = match response.map_err(|e| at(&name, query.line, e)) {
                Ok(response) => response,
                // A query that cannot be answered, such as `like` with an unknown id, does not stop the others.
                Err(e @ Error::Data { .. }) => {
                    if let Some(earlier) = failed.replace(e) {
                        progress.say(&format!("error: {}", earlier.message_and_hint()));
                    }
                    continue;
                }
                Err(e) => return Err(e),
            };
            for warning in &response.warnings {
                if warned.insert(warning.clone()) {
                    progress.say(&format!("warning: {warning}"));
                }
            }
            match run {
                Some(run) => trec(&query.id, &response, run, &mut out)?,
                None => write_json_line(&Answer { id: &query.id, response: &response }, &mut out)
                    .at("write to", "standard output")?,
            }
            done += 1;
        }
        progress.set(done, done);
    }
    out.flush().at("write to", "standard output")?;
    match failed {
        Some(e) => Err(e),
        None => Ok(()),
    }
}

/// Parses a line: either a plain query, or a JSON object with fields that override the command's options.
fn parse_line(line: &str, number: u64, base: &SearchRequest) -> Result<QueryLine> {
    let wrong = |e: serde_json::Error| Error::data(e.to_string());
    let (id, request) = if line.trim_start().starts_with('{') {
        let mut given: Map<String, Value> = serde_json::from_str(line).map_err(wrong)?;
        let id = match given.remove("id") {
            None => number.to_string(),
            Some(Value::String(id)) => id,
            Some(Value::Number(n)) => n.to_string(),
            Some(other) => {
                return Err(Error::data(format!("the id is {other}, but it must be a string or a number")));
            }
        };
        let Ok(Value::Object(mut all)) = serde_json::to_value(base) else {
            return Err(Error::Internal("a request is not a JSON object".to_owned()));
        };
        for (key, value) in given {
            match (all.get_mut(&key), value) {
                (Some(Value::Object(there)), Value::Object(more)) => there.extend(more),
                (_, value) => {
                    all.insert(key, value);
                }
            }
        }
        (id, serde_json::from_value(Value::Object(all)).map_err(wrong)?)
    } else {
        (number.to_string(), SearchRequest { query: line.to_owned(), ..base.clone() })
    };
    request.check()?;
    Ok(QueryLine { id, line: number, request })
}

/// Adds the file and the line number to an error about a request.
fn at(file: &str, line: u64, e: Error) -> Error {
    match &e {
        Error::Input { message, hint } | Error::Data { message, hint } => {
            Error::Data { message: format!("{file}:{line}: {message}"), hint: hint.clone() }
        }
        _ => e,
    }
}

fn fits_trec(name: &str) -> bool {
    !name.is_empty() && !name.contains(char::is_whitespace)
}

/// Writes the hits of a query as lines of a TREC run: `query Q0 document rank score run`.
fn trec(query: &str, response: &Response, run: &str, out: &mut dyn Write) -> Result<()> {
    for (n, hit) in response.hits.iter().enumerate() {
        if let Some(name) = [query, &hit.id].into_iter().find(|name| !fits_trec(name)) {
            let message = format!("`{name}` contains a space, which is not possible in a TREC run");
            return Err(
                Error::data(message).with_hint("remove --run to get JSON lines, which have no such limit")
            );
        }
        writeln!(out, "{query} Q0 {} {} {} {run}", hit.id, n + 1, hit.score)
            .at("write to", "standard output")?;
    }
    Ok(())
}
