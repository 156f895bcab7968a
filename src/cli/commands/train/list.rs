//! `turnwise train list`: lists the built-in recipes.

use crate::cli::{args::ListArgs, prelude::*};
use turnwise_train::recipe::{Recipe, known_about, known_names};

/// A built-in recipe: an objective with a base model, data and options.
#[derive(Debug, Serialize)]
struct Entry {
    name: &'static str,
    objective: &'static str,
    /// Name of the model that training starts from.
    model: String,
    about: &'static str,
    /// Files of the recipe that are missing.
    missing: Vec<PathBuf>,
}

pub(super) fn run(args: &ListArgs, context: &Context<'_>) -> Result<()> {
    let entry = |name: &'static str| -> Result<Entry> {
        let unknown = || Error::Internal(format!("no recipe {name}"));
        let mut recipe = Recipe::known(name).ok_or_else(unknown)??;
        recipe.below(&args.data);
        let needed = recipe.corpus.iter().chain(recipe.dev.iter().map(|dev| &dev.data));
        Ok(Entry {
            name,
            objective: recipe.objective.name(),
            missing: needed.filter(|path| !path.exists()).cloned().collect(),
            model: recipe.model,
            about: known_about(name),
        })
    };
    let entries = known_names().map(entry).collect::<Result<Vec<Entry>>>()?;
    context.printer.results(&entries, |out| {
        let width = |of: fn(&Entry) -> &str| entries.iter().map(|e| of(e).len()).max().unwrap_or(0);
        let widths = [width(|e| e.name), width(|e| e.objective), width(|e| &e.model)];
        entries.iter().try_for_each(|entry| line(entry, widths, out))?;
        let folder = args.data.display();
        let command = format!("turnwise train NAME --data {folder} -o runs/NAME");
        writeln!(out, "{DIM}data: {folder}; to run a recipe: {command}{DIM:#}")
    })
}

fn line(entry: &Entry, [name, objective, model]: [usize; 3], out: &mut dyn Write) -> io::Result<()> {
    let (style, here) = match entry.missing.as_slice() {
        [] => (NAME, "has data "),
        _ => (BOLD, "no data  "),
    };
    write!(
        out,
        "{style}{:name$}{style:#}  {:objective$}  {:model$}",
        entry.name, entry.objective, entry.model
    )?;
    writeln!(out, "  {here}  {DIM}{}{DIM:#}", entry.about)
}
