//! `turnwise completions`, `man`, `corpus schema` and `corpus formats`, which print facts about turnwise itself.

use crate::cli::{definition, prelude::*, printer::Printer};
use turnwise_corpus::{formats, json_schema};

pub(super) fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut definition(), "turnwise", &mut script);
    raw(&script)
}

/// Prints the manual pages of the program and all its commands.
pub(super) fn manual() -> Result<()> {
    let mut page = Vec::new();
    let mut command = definition();
    command.build();
    pages(&command, "", &mut page).at("write to", "standard output")?;
    raw(&page)
}

fn pages(command: &clap::Command, parents: &str, out: &mut Vec<u8>) -> io::Result<()> {
    let name = if parents.is_empty() {
        command.get_name().to_owned()
    } else {
        format!("{parents}-{}", command.get_name())
    };
    clap_mangen::Man::new(command.clone().name(name.clone())).render(out)?;
    for inner in command.get_subcommands().filter(|c| c.get_name() != "help") {
        pages(inner, &name, out)?;
    }
    Ok(())
}

fn raw(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).at("write to", "standard output")
}

pub(super) fn schema(context: &Context<'_>) -> Result<()> {
    let schema = json_schema();
    let printer: &Printer = context.printer;
    printer.result(&schema, |out| {
        serde_json::to_writer_pretty(&mut *out, &schema)?;
        writeln!(out)
    })
}

#[derive(Serialize)]
struct Readable {
    name: &'static str,
    about: &'static str,
}

pub(super) fn formats(context: &Context<'_>) -> Result<()> {
    let formats: Vec<Readable> =
        formats::all().iter().map(|f| Readable { name: f.name, about: f.about }).collect();
    let width = formats.iter().map(|f| f.name.len()).max().unwrap_or(0);
    context.printer.results(&formats, |out| {
        formats.iter().try_for_each(|f| writeln!(out, "{BOLD}{:width$}{BOLD:#}  {}", f.name, f.about))
    })
}
