//! Built-in recipes: the experiments of the papers and of our benchmarks, from `benchmarks/recipes/`.
//!
//! The paths in the recipes are relative to a data folder, which the user sets.

use std::path::{Path, PathBuf};

use super::Recipe;
use turnwise_core::error::{Error, Result};

macro_rules! built_in {
    ($($name:literal)*) => {
        /// Name and text of each recipe.
        const BUILT_IN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../benchmarks/recipes/", $name, ".toml")))),*];
    };
}

built_in! {
    "auto-sgd" "auto-three"
    "dial2vec-bitod" "dial2vec-doc2dial" "dial2vec-metalwoz" "dial2vec-multiwoz" "dial2vec-self-dialogue" "dial2vec-sgd"
    "dialoguecse-ecd" "dialoguecse-jddc" "dialoguecse-mdc"
    "dialoguecse-of-bitod" "dialoguecse-of-doc2dial" "dialoguecse-of-metalwoz" "dialoguecse-of-multiwoz"
    "dialoguecse-of-self-dialogue" "dialoguecse-of-sgd"
    "places-mdc"
    "response-post-training" "response-sentences" "response-tokens"
    "responses-chinese" "responses-ubuntu"
    "selector-ubuntu"
    "siamese-m-ecd" "siamese-m-jddc" "siamese-m-mdc" "siamese-s-ecd" "siamese-s-jddc" "siamese-s-mdc"
    "surroundings-chinese" "surroundings-mdc"
    "words-ecd" "words-jddc" "words-mdc"
}

/// Returns the description of a built-in recipe: the first line of its file, without the `#`. Empty for an unknown
/// name.
pub fn about(name: &str) -> &'static str {
    let text = BUILT_IN.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text);
    text.lines().next().unwrap_or("").trim_start_matches("# ")
}

/// Returns the names of the built-in recipes.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

impl Recipe {
    /// Returns the built-in recipe with this name; `None` for an unknown name.
    pub fn known(name: &str) -> Option<Result<Self>> {
        let (_, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
        Some(toml::from_str(text).map_err(|e| Error::Internal(format!("the recipe {name}: {e}"))))
    }

    /// Prepends a data folder to the paths of the corpora and of the dev tasks.
    pub fn below(&mut self, folder: &Path) {
        let below = |path: &mut PathBuf| *path = folder.join(&*path);
        self.corpus.iter_mut().for_each(below);
        self.dev.iter_mut().for_each(|dev| below(&mut dev.data));
    }

    /// Returns the name of the built-in recipe whose run writes the model at the path `model`: NAME for
    /// `runs/NAME/model`. Returns `None` for any other path, or if NAME is not a built-in recipe.
    pub fn that_leaves(model: &str) -> Option<&'static str> {
        let name = model.strip_prefix("runs/")?.strip_suffix("/model")?;
        names().find(|known| *known == name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_recipe_file_is_built_in_and_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks/recipes");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(files, names().map(str::to_owned).collect());
        for name in names() {
            let mut recipe = Recipe::known(name).unwrap().unwrap();
            recipe.below(Path::new("d"));
            assert!(recipe.corpus.iter().all(|path| path.starts_with("d")), "{name}");
            recipe.clone().resolve(12, 512).unwrap();
            assert!(about(name).ends_with('.') && about(name).len() > 20, "{name}: {}", about(name));
            // The base model is the result of another recipe, or a model that can be downloaded.
            assert_eq!(
                Recipe::that_leaves(&recipe.model).is_some(),
                recipe.model.starts_with("runs/"),
                "{name}: {}",
                recipe.model
            );
        }
    }
}
