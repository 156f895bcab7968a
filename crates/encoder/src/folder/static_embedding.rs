//! Static embedding models: a table with one vector for each token, and no layers. The vector of a text is the mean of
//! the vectors of its tokens.
//!
//! Two libraries write such models: sentence-transformers (the module `StaticEmbedding`) and model2vec. In a file of
//! model2vec, several tokens can share a row of the table, and each token can have a weight.

use serde_json::Value;
use turnwise_core::error::{Error, Result};

use crate::{
    folder::{
        config::{Architecture, Config, MOST_TOKENS, Object, Variant},
        weights::{Tensor, Weights},
    },
    network::{Embeddings, Network, Shape, Table},
};

/// Name of the table in files of sentence-transformers.
const TABLE: &str = "embedding.weight";

/// Name of the table in files of model2vec.
const TABLE_OF_MODEL2VEC: &str = "embeddings";

/// Returns true if `config.json` is that of a model2vec model.
pub fn is_config_of_model2vec(file: &Object) -> Result<bool> {
    Ok(file.text("model_type")? == Some(Architecture::Static.name()))
}

/// Returns true if model2vec wrote the weights.
pub fn is_model2vec(weights: &Weights) -> bool {
    weights.get(TABLE).is_none() && weights.get(TABLE_OF_MODEL2VEC).is_some()
}

/// Returns true if the vectors of a model2vec model without `modules.json` are normalized.
pub fn normalizes(file: &Object) -> Result<bool> {
    Ok(file.flag("normalize")?.unwrap_or(false))
}

/// Tensors of a static embedding model.
struct Tensors<'a> {
    table: Tensor<'a>,
    rows: usize,
    width: usize,
    /// Row of the table for each token; `None` if token `n` has row `n`.
    mapping: Option<Vec<usize>>,
    /// Weight of each token.
    weights: Option<Tensor<'a>>,
}

impl<'a> Tensors<'a> {
    fn find(weights: &'a Weights) -> Result<Self> {
        let name = if is_model2vec(weights) { TABLE_OF_MODEL2VEC } else { TABLE };
        let table = match weights.get(name) {
            Some(table) => table,
            None => weights.expect(name, &[])?,
        };
        let [rows, width] = *table.dims() else {
            return Err(table.wrong("must be a matrix"));
        };
        if rows == 0 || width == 0 {
            return Err(table.wrong("is empty"));
        }
        let mapping = match weights.get("mapping") {
            Some(mapping) => Some(checked_rows(&mapping, rows)?),
            None => None,
        };
        let tokens = mapping.as_ref().map_or(rows, Vec::len);
        let weights = match weights.get("weights") {
            Some(_) => Some(weights.expect("weights", &[tokens])?),
            None => None,
        };
        Ok(Tensors { table, rows, width, mapping, weights })
    }

    fn tokens(&self) -> usize {
        self.mapping.as_ref().map_or(self.rows, Vec::len)
    }

    /// Returns the vectors of all tokens, one row each.
    fn vectors(&self) -> Result<Vec<f32>> {
        let table = self.table.numbers()?;
        let mut vectors = match &self.mapping {
            None => table,
            Some(mapping) => {
                mapping.iter().flat_map(|row| &table[row * self.width..][..self.width]).copied().collect()
            }
        };
        if let Some(weights) = &self.weights {
            for (vector, weight) in vectors.chunks_exact_mut(self.width).zip(weights.numbers()?) {
                vector.iter_mut().for_each(|x| *x *= weight);
            }
        }
        Ok(vectors)
    }
}

/// Reads the rows of the tokens. Fails if a row does not exist.
fn checked_rows(mapping: &Tensor<'_>, rows: usize) -> Result<Vec<usize>> {
    let numbers = mapping.integers()?;
    let checked = numbers.iter().map(|row| usize::try_from(*row).ok().filter(|row| *row < rows));
    match checked.collect::<Option<Vec<usize>>>() {
        Some(mapping) if !mapping.is_empty() => Ok(mapping),
        _ => Err(mapping.wrong(&format!("must have rows from 0 to {}", rows - 1))),
    }
}

/// Returns the configuration, which follows from the weights.
pub fn config(weights: &Weights) -> Result<Config> {
    let tensors = Tensors::find(weights)?;
    Ok(Config {
        architecture: Architecture::Static,
        // A network without layers has no heads.
        shape: Shape::bert(tensors.width, 1, 1),
        layers: 0,
        words: tensors.tokens(),
        positions: MOST_TOKENS,
        types: 0,
        padding: None,
        variant: Variant { embedding_norm_is_missing: true, ..Variant::default() },
    })
}

/// Reads the network: word embeddings without layers.
pub fn network(config: &Config, weights: &Weights) -> Result<Network> {
    let words = Table { rows: config.words, data: Tensors::find(weights)?.vectors()? };
    let embeddings = Embeddings { words, positions: None, types: None, turns: None, roles: None, norm: None };
    Ok(Network {
        shape: config.shape.clone(),
        embeddings,
        relative_bias: None,
        layers: Vec::new(),
        final_norm: None,
    })
}

/// Returns the id of the unknown token of a tokenizer, which model2vec removes from texts.
pub fn unknown_token(tokenizer: &tokenizers::Tokenizer) -> Result<Option<u32>> {
    let model = serde_json::to_value(tokenizer.get_model());
    let model = model.map_err(|e| Error::Internal(format!("the tokenizer cannot be serialized: {e}")))?;
    Ok(match &model["unk_token"] {
        Value::String(token) => tokenizer.token_to_id(token),
        _ => model["unk_id"].as_u64().map(|id| id as u32),
    })
}
