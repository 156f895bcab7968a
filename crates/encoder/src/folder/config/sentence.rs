//! Settings of sentence-transformers: `sentence_bert_config.json`.

use std::path::Path;

use serde_json::Value;
use turnwise_core::error::Result;

use super::Object;

/// Possible names of the file with the settings of sentence-transformers. Older versions of sentence-transformers use
/// a different name for each architecture.
const NAMES: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];

/// Contents of `sentence_bert_config.json`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SentenceSettings {
    /// Maximum number of tokens per text; `None` if the file does not set a maximum.
    pub max_tokens: Option<usize>,
    /// True if texts are converted to lower case before tokenization.
    pub lowercase: bool,
}

impl SentenceSettings {
    /// Reads `sentence_bert_config.json`, or the corresponding file of older versions, from the folder of the network.
    /// Returns the default settings if none of these files exists.
    pub fn read(folder: &Path) -> Result<Self> {
        for name in NAMES {
            if let Some(file) = Object::read(&folder.join(name))? {
                return Self::new(&file);
            }
        }
        Ok(SentenceSettings::default())
    }

    fn new(file: &Object) -> Result<Self> {
        for (key, value) in &file.values {
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
        let max_tokens = file.positive("max_seq_length")?;
        Ok(SentenceSettings { max_tokens, lowercase: file.flag("do_lower_case")?.unwrap_or(false) })
    }
}
