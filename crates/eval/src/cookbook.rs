//! Collections of benchmark recipes: the built-in recipes, or the recipes in a folder. A recipe contains a task,
//! rankers and expected values.

use std::path::{Path, PathBuf};

use super::recipe::{Paper, Recipe};
use turnwise_core::error::{Error, IoContext, Result, closest_name};

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        /// Built-in recipes, as pairs of a name and a TOML text.
        const BUILT_IN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../benchmarks/", $name, ".toml")))),*];
    };
}

built_in!(
    "dial2vec-bitod",
    "dial2vec-doc2dial",
    "dial2vec-interlocutors",
    "dial2vec-metalwoz",
    "dial2vec-multiwoz",
    "dial2vec-pooling",
    "dial2vec-self-dialogue",
    "dial2vec-sgd",
    "dialoguecse-banking77",
    "dialoguecse-ecd-dsts",
    "dialoguecse-ecd-sr",
    "dialoguecse-jddc-dsts",
    "dialoguecse-jddc-sr",
    "dialoguecse-mdc-dsts",
    "dialoguecse-mdc-sr",
    "dialoguecse-negatives-ecd",
    "dialoguecse-negatives-jddc",
    "dialoguecse-scale",
    "dialoguecse-temperature-ecd",
    "dialoguecse-temperature-jddc",
    "dialoguecse-turns",
    "locomo",
    "response-inner",
    "response-inter",
    "response-long",
    "response-mixing",
    "response-pooling",
    "response-turns-all",
    "response-turns-without-1-2",
    "response-turns-without-3-4",
    "response-ubuntu",
);

/// Benchmark recipe with its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Named {
    /// Name of the recipe, which is the file name without its extension.
    pub name: String,
    /// Content of the recipe file.
    pub recipe: Recipe,
}

impl Named {
    /// Returns the path of the first data file of the recipe that does not exist. Returns `None` if all files exist.
    /// `data` is the data folder.
    pub fn missing(&self, data: &Path) -> Option<PathBuf> {
        self.recipe
            .task
            .settings()
            .files()
            .into_iter()
            .map(|file| data.join(file))
            .find(|path| !path.exists())
    }

    /// Returns whether this recipe differs from the built-in recipe of the same name. Returns false if no built-in
    /// recipe has this name.
    pub fn is_changed(&self) -> Result<bool> {
        let built_in = BUILT_IN.iter().find(|(name, _)| *name == self.name);
        built_in.map_or(Ok(false), |(name, text)| Ok(Named::parse(name, text, name)? != *self))
    }

    /// Parses a recipe. `from` names the source in error messages.
    fn parse(name: &str, text: &str, from: &str) -> Result<Self> {
        let recipe: Recipe = toml::from_str(text).map_err(|e| Error::Data {
            message: format!("{from}: {}", e.message()),
            // An error about a missing key has no position.
            hint: e
                .span()
                .filter(|span| span.start > 0)
                .map(|span| format!("on line {}", text[..span.start].matches('\n').count() + 1)),
        })?;
        recipe.check(name)?;
        Ok(Named { name: name.to_owned(), recipe })
    }

    /// Reads a recipe from a file.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let from = path.display().to_string();
        let text = String::from_utf8(std::fs::read(path).at("read", path)?).map_err(|e| {
            Error::data(format!("{from}: invalid UTF-8 at byte {}", e.utf8_error().valid_up_to()))
        })?;
        Named::parse(&name, &text, &from)
    }
}

/// Returns all recipes, sorted by name. Reads the recipes in a folder if a folder is given. Otherwise, returns the
/// built-in recipes.
pub fn all(folder: Option<&Path>) -> Result<Vec<Named>> {
    let Some(folder) = folder else {
        return BUILT_IN.iter().map(|(name, text)| Named::parse(name, text, name)).collect();
    };
    let entries = std::fs::read_dir(folder).at("read", folder)?;
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()
        .at("read", folder)?;
    files.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    files.sort();
    match files.is_empty() {
        false => files.iter().map(|path| Named::read(path)).collect(),
        true => Err(Error::input(format!("{} contains no recipes (*.toml)", folder.display()))
            .with_hint("without --recipes, the built-in recipes are used")),
    }
}

/// Selects the recipes whose paper is in `papers` and whose name contains one of the texts in `only`. An empty list
/// does not restrict the selection. Returns an error if a text in `only` occurs in no name.
pub fn chosen(recipes: Vec<Named>, papers: &[Paper], only: &[String]) -> Result<Vec<Named>> {
    if let Some(unknown) =
        only.iter().find(|only| !recipes.iter().any(|named| named.name.contains(only.as_str())))
    {
        let names = recipes.iter().map(|named| named.name.as_str());
        let hint = closest_name(unknown, names).map_or_else(
            || "`turnwise bench list` shows all recipes".to_owned(),
            |name| format!("did you mean `{name}`?"),
        );
        return Err(Error::input(format!("no recipe has `{unknown}` in its name")).with_hint(hint));
    }
    let chosen = |named: &Named| {
        (papers.is_empty() || papers.contains(&named.recipe.paper))
            && (only.is_empty() || only.iter().any(|only| named.name.contains(only)))
    };
    Ok(recipes.into_iter().filter(chosen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_of_the_folder_is_built_in() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks");
        assert_eq!(all(Some(&folder)).unwrap(), all(None).unwrap());
    }

    #[test]
    fn recipes_are_selected_by_paper_and_name() {
        let names = |papers: &[Paper], only: &[&str]| -> Vec<String> {
            let only: Vec<String> = only.iter().map(|o| (*o).to_owned()).collect();
            chosen(all(None).unwrap(), papers, &only).unwrap().into_iter().map(|n| n.name).collect()
        };
        assert_eq!(names(&[], &[]).len(), BUILT_IN.len());
        assert_eq!(names(&[Paper::Dial2vec], &["sgd", "jddc"]), ["dial2vec-sgd"]);
        assert!(names(&[Paper::Dialoguecse], &[]).iter().all(|name| name.starts_with("dialoguecse")));
        assert!(chosen(all(None).unwrap(), &[], &["nothing".to_owned()]).is_err());
    }
}
