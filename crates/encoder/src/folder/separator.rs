//! Adds a separator token between the turns of a dialogue, for models whose tokenizer adds nothing after a
//! text.

use std::path::Path;

use serde_json::Value;
use tokenizers::{AddedToken, processors::template::TemplateProcessing};

use super::{ModelFolder, SavedModel, Tokenizer, save, tokenizer::Parts};
use crate::network::Table;
use turnwise_core::error::{Error, Result};

/// Default name of the separator.
const SEPARATOR: &str = "[SEP]";

impl Tokenizer {
    /// Returns a tokenizer that adds a separator after every text, and the separator's id. Returns `None` if
    /// this tokenizer already adds tokens after texts.
    pub fn divided(&self) -> Result<Option<(Self, u32)>> {
        if !self.after().is_empty() {
            return Ok(None);
        }
        let unfit =
            |e: &dyn std::fmt::Display| Error::data(format!("cannot add a separator to the tokenizer: {e}"));
        let named = self.sep().and_then(|id| self.token(id));
        let separator = named.unwrap_or_else(|| SEPARATOR.to_owned());
        let mut inner = self.inner.clone();
        inner
            .add_special_tokens([AddedToken::from(separator.as_str(), true)])
            .map_err(|e| unfit(e.as_ref()))?;
        let id = inner.token_to_id(&separator).ok_or_else(|| unfit(&separator))?;
        let mut special: Vec<(String, u32)> =
            self.before().iter().filter_map(|id| Some((self.token(*id)?, *id))).collect();
        let before: String = special.iter().map(|(token, _)| format!("{token} ")).collect();
        special.push((separator.clone(), id));
        let template = TemplateProcessing::builder()
            .try_single(format!("{before}$A {separator}"))
            .map_err(|e| unfit(&e))?
            .special_tokens(special)
            .build()
            .map_err(|e| unfit(&e))?;
        inner.with_post_processor(Some(template));
        let mut settings = self.settings.clone();
        settings.insert("sep_token".to_owned(), Value::String(separator));
        let mut specials = self.specials;
        specials.sep = Some(id);
        let parts = Parts {
            inner,
            specials,
            max_tokens: self.max_tokens(),
            words: self.words().max(id as usize + 1),
            cut_front: self.cut_front,
            lowercase: self.lowercase,
            settings,
            notices: Vec::new(),
        };
        Ok(Some((Tokenizer::new(parts)?, id)))
    }
}

/// Saves a copy of a model with a separator. Returns the separator, and true if its embedding was added. Returns
/// `None` and writes nothing if the model already has a separator.
pub fn save_divided(base: &ModelFolder, name: &str, path: &Path) -> Result<Option<(String, bool)>> {
    let Some((tokenizer, id)) = base.tokenizer()?.divided()? else { return Ok(None) };
    let mut network = base.network()?;
    let width = network.shape.hidden;
    let is_new = add_rows(&mut network.embeddings.words, width, id as usize + 1);
    let saved = SavedModel {
        network: &network,
        architecture: base.architecture(),
        pipeline: base.pipeline(),
        tokenizer: &tokenizer,
        base: Some(name),
    };
    save(path, &saved)?;
    Ok(Some((tokenizer.token(id).unwrap_or_default(), is_new)))
}

/// Extends a table to at least `rows` rows. New rows are the mean of the existing rows, which is a neutral value.
fn add_rows(table: &mut Table, width: usize, rows: usize) -> bool {
    if table.rows >= rows {
        return false;
    }
    let mut mean = vec![0.0f64; width];
    for row in table.data.chunks_exact(width) {
        mean.iter_mut().zip(row).for_each(|(mean, number)| *mean += f64::from(*number));
    }
    let mean: Vec<f32> = mean.into_iter().map(|sum| (sum / table.rows.max(1) as f64) as f32).collect();
    while table.rows < rows {
        table.data.extend_from_slice(&mean);
        table.rows += 1;
    }
    true
}
