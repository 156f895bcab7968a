//! `sentence_bert_config.json`: settings of sentence-transformers for the network and its tokenizer.

use std::path::Path;

use serde_json::Value;

use super::json::Object;
use turnwise_core::error::Result;

/// Possible file names. In older versions, the name depends on the architecture.
const NAMES: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];

/// Contents of the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of tokens per text.
    pub max_tokens: Option<usize>,
    /// True if texts are converted to lower case before tokenization.
    pub lowercase: bool,
}

impl Settings {
    /// Reads the file from the folder of the network. Without a file, nothing is set.
    pub fn read(folder: &Path) -> Result<Self> {
        for name in NAMES {
            if let Some(file) = Object::read(&folder.join(name))? {
                return Self::new(&file);
            }
        }
        Ok(Settings::default())
    }

    fn new(file: &Object) -> Result<Self> {
        for (key, value) in file.values() {
            let harmless = match (key.as_str(), value) {
                ("max_seq_length" | "do_lower_case" | "unpad_inputs", _) | (_, Value::Null) => true,
                ("transformer_task", task) => task == "feature-extraction",
                ("module_output_name", name) => name == "token_embeddings",
                ("modality_config", Value::Object(kinds)) => kinds.iter().all(|(kind, how)| {
                    kind != "text" || how.get("method_output_name").is_some_and(|o| o == "last_hidden_state")
                }),
                (_, Value::Object(values)) => values.is_empty(),
                _ => false,
            };
            if !harmless {
                return Err(file.wrong(format!("the setting `{key}`: {value} is not supported")));
            }
        }
        let max_tokens = file.count("max_seq_length")?;
        if max_tokens == Some(0) {
            return Err(file.wrong("`max_seq_length` is 0"));
        }
        Ok(Settings { max_tokens, lowercase: file.flag("do_lower_case")?.unwrap_or(false) })
    }
}
