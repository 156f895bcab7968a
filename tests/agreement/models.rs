//! Tests with small models that a Python script creates. They cover all architectures, poolings, dense layers, prompts
//! and lengths.

use std::{collections::BTreeSet, fs, path::PathBuf, sync::OnceLock};

use crate::{
    support::{CLOSE, Peers, Rows, Work, skip, text},
    texts,
};

/// Models and their vectors, created once for all tests.
pub struct Models {
    work: Work,
    pub names: Vec<String>,
    pub texts: Vec<String>,
    pub file: PathBuf,
}

impl Models {
    pub fn find(test: &str) -> Option<&'static Self> {
        static MADE: OnceLock<Option<Models>> = OnceLock::new();
        let made = MADE.get_or_init(|| {
            let peers = Peers::find(test)?;
            let work = Work::new();
            // All unusual texts, and enough other texts to train a vocabulary.
            let texts = texts::stored();
            let file = work.texts("texts.jsonl", &texts);
            fs::create_dir(work.path("models")).unwrap();
            let names = peers.reference(&["models", text(&file), text(&work.path("models"))]);
            let names = names.lines().map(str::to_owned).collect();
            Some(Models { work, names, texts, file })
        });
        if made.is_none() {
            skip(test, "there are no models without the Python packages");
        }
        made.as_ref()
    }

    pub fn folder(&self, name: &str) -> PathBuf {
        self.work.path("models").join(name)
    }

    /// Returns the vectors of sentence-transformers for the texts, with a prompt or without one.
    pub fn vectors(&self, name: &str, prompt: Option<&str>) -> Rows {
        let prompt = prompt.map(|prompt| format!(".{prompt}")).unwrap_or_default();
        Rows::read(&self.folder(&format!("{name}{prompt}.npy")))
    }

    /// Returns the prompts for which vectors exist.
    fn prompts_of(&self, name: &str) -> Vec<String> {
        let files = fs::read_dir(self.work.path("models")).unwrap();
        let files = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let prompt =
            |file: String| Some(file.strip_prefix(name)?.strip_prefix('.')?.strip_suffix(".npy")?.to_owned());
        files.filter_map(prompt).collect()
    }
}

/// Compares the vectors of the texts that have tokens. The tokenizers of these models add no special tokens, so some
/// texts have no tokens. For such texts, the vectors of sentence-transformers depend on the batch; those of turnwise
/// are zero.
#[track_caller]
pub fn agree_where_there_are_tokens(ours: &Rows, theirs: &Rows, texts: &[String], what: &str) {
    let nothing = texts.iter().position(String::is_empty).expect("the empty text");
    let (kept, without): (Vec<usize>, Vec<usize>) =
        (0..texts.len()).partition(|n| ours.row(*n) != ours.row(nothing));
    assert!(without.len() < 30, "{what}: {} texts without tokens", without.len());
    for n in without {
        assert!(!texts[n].chars().any(char::is_alphanumeric), "{what}: {:?} lost its tokens", texts[n]);
    }
    let texts: Vec<&String> = kept.iter().map(|n| &texts[*n]).collect();
    let theirs = theirs.select(kept.iter().copied());
    ours.select(kept.iter().copied()).agree(&theirs, CLOSE, &texts, what);
}

/// Compares every model whose name has this prefix.
#[track_caller]
fn agree(test: &str, begins: &str, at_least: usize) {
    let Some(models) = Models::find(test) else { return };
    let chosen: Vec<&String> = models.names.iter().filter(|name| name.starts_with(begins)).collect();
    assert!(chosen.len() >= at_least, "{begins}: only {chosen:?}");
    for name in chosen {
        let prompts = models.prompts_of(name);
        for prompt in std::iter::once(None).chain(prompts.iter().map(|prompt| Some(prompt.as_str()))) {
            let work = Work::new();
            let mut more = vec!["--precision", "f32"];
            more.extend(prompt.iter().flat_map(|prompt| ["--prompt", prompt]));
            let ours = work.embed(&models.folder(name), &models.file, &more);
            let what = format!("{name}, prompt {prompt:?}");
            let theirs = models.vectors(name, prompt);
            match begins {
                // A text without known tokens has a zero vector in all libraries.
                "static" => ours.agree(&theirs, CLOSE, &models.texts, &what),
                _ => agree_where_there_are_tokens(&ours, &theirs, &models.texts, &what),
            }
        }
    }
}

#[test]
fn bert_with_every_pooling_dense_layer_length_and_prompt() {
    agree("bert_with_every_pooling_dense_layer_length_and_prompt", "bert-", 13);
}

#[test]
fn roberta() {
    agree("roberta", "roberta", 1);
}

#[test]
fn xlm_roberta() {
    agree("xlm_roberta", "xlm-roberta", 2);
}

#[test]
fn distilbert() {
    agree("distilbert", "distilbert", 1);
}

#[test]
fn mpnet() {
    agree("mpnet", "mpnet", 1);
}

#[test]
fn modernbert() {
    agree("modernbert", "modernbert", 2);
}

#[test]
fn nomic_bert() {
    agree("nomic_bert", "nomic", 1);
}

#[test]
fn gte() {
    agree("gte", "gte", 2);
}

#[test]
fn decoders() {
    agree("decoders", "qwen3", 1);
    agree("decoders", "gemma3", 1);
}

#[test]
fn static_embeddings() {
    agree("static_embeddings", "static", 4);
}

#[test]
fn different_models_and_prompts_give_different_vectors() {
    let test = "different_models_and_prompts_give_different_vectors";
    let Some(models) = Models::find(test) else { return };
    // If all models had the same vectors, their agreement would prove nothing.
    let prints = |rows: Rows| format!("{:?}", rows.row(rows.count - 1));
    let different: BTreeSet<String> =
        models.names.iter().map(|name| prints(models.vectors(name, None))).collect();
    assert_eq!(different.len(), models.names.len());
    for name in ["bert-prompts", "bert-prompts-left-out", "bert-default-prompt"] {
        assert_eq!(models.prompts_of(name).len(), 2, "{name}");
        assert_ne!(prints(models.vectors(name, Some("query"))), prints(models.vectors(name, None)), "{name}");
    }
    let mut rows: Vec<String> =
        (0..models.texts.len()).map(|n| format!("{:?}", models.vectors("bert-mean", None).row(n))).collect();
    rows.sort();
    rows.dedup();
    assert!(rows.len() > models.texts.len() / 2, "only {} vectors differ", rows.len());
}
