//! `turnwise analyze`: shows the tokens that an analyzer makes from a text.

use std::io::Read;

use super::search::as_text;
use crate::cli::{args::AnalyzeArgs, prelude::*};
use turnwise_index::lexical::Lexical;
use turnwise_text::{Analyzer, AnalyzerChoice};

/// Result of `turnwise analyze`, printed as text or JSON. `schema` names the JSON format.
#[derive(Serialize)]
struct Analyzed {
    schema: &'static str,
    analyzer: String,
    text: String,
    tokens: Vec<ShownToken>,
}

#[derive(Serialize)]
struct ShownToken {
    term: String,
    /// Position of the token's first byte in the text.
    start: usize,
    /// Position after the token's last byte.
    end: usize,
    /// The token as it is written in the text.
    written: String,
}

pub(super) fn run(args: &AnalyzeArgs, context: &Context<'_>) -> Result<()> {
    let text = match args.text.as_str() {
        "-" => standard_input()?,
        text => text.to_owned(),
    };
    let analyzer = match args.analyzer {
        Some(AnalyzerChoice::Named(analyzer)) => analyzer,
        Some(AnalyzerChoice::Detect) => Analyzer::detect([&text]),
        None if context.settings.index.is_some() => Lexical::open(&context.existing_index()?)?.analyzer(),
        None => Analyzer::default(),
    };
    let shown = |token: turnwise_text::Token| ShownToken {
        start: token.range.start,
        end: token.range.end,
        written: text[token.range].to_owned(),
        term: token.term,
    };
    let tokens = analyzer.analyze(&text).into_iter().map(shown).collect();
    let analyzed = Analyzed { schema: "turnwise/analyze/1", analyzer: analyzer.to_string(), text, tokens };
    context.printer.result(&analyzed, |out| analyzed.write(out))
}

fn standard_input() -> Result<String> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).at("read", "standard input")?;
    as_text(bytes, "standard input")
}

impl Analyzed {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = self.tokens.iter().map(|token| token.term.chars().count()).max().unwrap_or(0);
        for ShownToken { term, start, end, written } in &self.tokens {
            // The padding after the term is needed only before another column.
            match written == term {
                true => writeln!(out, "{DIM}{start:>6}..{end:<6}{DIM:#}  {BOLD}{term}{BOLD:#}")?,
                false => writeln!(
                    out,
                    "{DIM}{start:>6}..{end:<6}{DIM:#}  {BOLD}{term:<width$}{BOLD:#}  {DIM}{written}{DIM:#}"
                )?,
            }
        }
        writeln!(out, "{DIM}{} by {}{DIM:#}", counted(self.tokens.len() as u64, "token"), self.analyzer)
    }
}
