//! `turnwise bench compare`: compares two results query by query.

use crate::cli::prelude::*;
use turnwise_eval::{
    result::Done,
    significance::{Difference, compare},
};

#[derive(Serialize)]
struct Compared {
    schema: &'static str,
    a: String,
    b: String,
    differences: Vec<Difference>,
}

pub(super) fn run(a: &Path, b: &Path, context: &Context<'_>) -> Result<()> {
    let (first, second) = (Done::read(a)?, Done::read(b)?);
    if (&first.task, &first.data.hash) != (&second.task, &second.data.hash) {
        let of = |done: &Done| format!("{} on {}", done.task, done.data.paths.join(", "));
        return Err(Error::input(format!(
            "{} is a result of {}, but {} of {}",
            a.display(),
            of(&first),
            b.display(),
            of(&second)
        ))
        .with_hint("both results must be of the same task on the same data"));
    }
    let differences = compare(&first, &second, context.settings.seed);
    if differences.is_empty() {
        return Err(Error::data(format!(
            "the two results of {} share no measure with per-query values",
            first.task
        ))
        .with_hint("a correlation is one number over all pairs; `--export` writes the scores of the pairs"));
    }
    let compared =
        Compared { schema: "turnwise/bench-compare/1", a: first.ranker, b: second.ranker, differences };
    context.printer.result(&compared, |out| {
        writeln!(out, "{BOLD}{}{BOLD:#} against {BOLD}{}{BOLD:#}", compared.b, compared.a)?;
        for d in &compared.differences {
            let [a, b, low, high] = [d.a, d.b, d.interval.0, d.interval.1].map(|value| 100.0 * value);
            let least = if d.p < 0.0002 { "<" } else { "=" };
            let p = d.p.max(0.0002);
            writeln!(
                out,
                "  {:>8}  {a:5.1} → {b:5.1}  {:+5.1}  {DIM}95% {low:+.1} to {high:+.1}, p {least} {p:.4}, {} queries{DIM:#}",
                d.measure,
                b - a,
                d.queries
            )?;
        }
        Ok(())
    })
}
