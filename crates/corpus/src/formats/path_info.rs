//! Infers corpus and split from the path of a file: `edc/dev/select.txt` is the dev split of the corpus edc.

use std::path::{Path, absolute};

use crate::input::Input;

/// Names of corpus splits.
const SPLITS: [&str; 7] = ["train", "training", "dev", "valid", "validation", "val", "test"];

/// Corpus, split and name of a file, inferred from its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathInfo {
    /// Name of the nearest folder that is not a split.
    pub(super) corpus: Option<String>,
    /// The split, if the file or one of its folders is named after one.
    pub(super) split: Option<String>,
    stem: String,
}

impl PathInfo {
    /// Reads the path of a file. It is made absolute, so that ids do not depend on the current folder.
    pub(super) fn of(input: &Input) -> Self {
        let stem = input.stem().trim_end_matches(".txt").trim_end_matches(".tsv").to_owned();
        let path = input.path.as_deref().and_then(|path| absolute(path).ok()).unwrap_or_default();
        let folders = path.ancestors().skip(1).filter_map(|f: &Path| f.file_name()?.to_str());
        let mut split = Some(stem.clone()).filter(|stem| is_split(stem));
        let mut corpus = None;
        for folder in folders {
            if !is_split(folder) {
                corpus = Some(folder.to_owned());
                break;
            }
            split.get_or_insert_with(|| folder.to_owned());
        }
        PathInfo { corpus, split, stem }
    }

    /// Returns a prefix for ids, unique for each file: corpus, split and file name, each once.
    pub(super) fn prefix(&self) -> String {
        let stem = Some(&self.stem).filter(|stem| self.split.as_ref() != Some(stem));
        let parts: Vec<&str> = [self.corpus.as_ref(), self.split.as_ref(), stem]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        parts.join("-")
    }

    /// Returns the name of the corpus: the name of its folder, or of the file.
    pub(super) fn source(&self) -> String {
        self.corpus.as_ref().unwrap_or(&self.stem).clone()
    }
}

fn is_split(name: &str) -> bool {
    SPLITS.contains(&name.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn prefixes_have_corpus_split_and_file_once() {
        let place = |path: &str| {
            let stream = Box::new(Cursor::new(Vec::new()));
            PathInfo::of(&Input::from_stream(path.into(), Some(path.into()), stream).unwrap())
        };
        assert_eq!(place("/x/edc/dev/select.txt").prefix(), "edc-dev-select");
        assert_eq!(place("/x/edc/train/train_data.txt.sample").prefix(), "edc-train-train_data");
        assert_eq!(place("/x/douban/train.txt").prefix(), "douban-train");
        assert_eq!(place("/x/mwoz/train.tsv.1").prefix(), "mwoz-train");
        assert_eq!(place("/x/sets/mdc.sr.dev.tsv").prefix(), "sets-mdc.sr.dev");
        assert_eq!(place("/x/douban/train.txt").source(), "douban");
        assert_eq!(place("/train.txt").source(), "train");
    }
}
