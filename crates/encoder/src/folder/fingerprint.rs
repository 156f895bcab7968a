//! Fingerprint of a model, computed from the parameter values and settings. It does not depend on the file layout.

use rayon::prelude::*;

use super::{
    ModelFolder, Pipeline,
    pipeline::{PoolingMode, Step},
    weights::Tensor,
};
use crate::{Fingerprint, fingerprint::Fingerprinter};
use turnwise_core::error::Result;

/// Number of elements per hashed chunk. The chunks of a large table are hashed in parallel.
const CHUNK: usize = 1 << 20;

impl ModelFolder {
    /// Returns the fingerprint that identifies the model in an index. It does not depend on the folder, the tensor
    /// names, the split into files, or the data type if the values are the same. Every other change that affects the
    /// vectors also changes the fingerprint.
    pub fn fingerprint(&self) -> Result<Fingerprint> {
        let mut all = Fingerprinter::new("transformer");
        let shape = &self.config.shape;
        all.text("architecture", self.config.architecture.name())
            .text("heads", shape.heads)
            .text("activation", format_args!("{:?}", shape.activation))
            .text("epsilon", shape.norm_epsilon.to_bits())
            .text("first position", shape.first_position);
        for (parameter, tensor) in self.layout.tensors(&self.weights)? {
            all.text(&parameter.name, format_args!("{:?}", parameter.dims)).part("numbers", &hash(&tensor)?);
        }
        settings(&mut all, &self.pipeline);
        let tokenizer = self.tokenizer()?;
        all.part("tokenizer", tokenizer.to_json()?.as_bytes())
            .text("frame", format_args!("{:?} {:?}", tokenizer.before(), tokenizer.after()))
            .text("cut in front", tokenizer.cut_front);
        Ok(all.finish())
    }
}

fn hash(tensor: &Tensor) -> Result<Vec<u8>> {
    let chunks = tensor.len().div_ceil(CHUNK);
    let hashes = (0..chunks).into_par_iter().map(|n| {
        let range = n * CHUNK..((n + 1) * CHUNK).min(tensor.len());
        Ok(blake3::hash(&tensor.part(range)?).as_bytes().to_vec())
    });
    Ok(hashes.collect::<Result<Vec<_>>>()?.concat())
}

fn settings(all: &mut Fingerprinter, pipeline: &Pipeline) {
    let modes: Vec<&str> = pipeline.pooling.modes.iter().map(|m: &PoolingMode| m.name()).collect();
    all.text("pooling", modes.join(" ")).text("prompt is pooled", pipeline.pooling.include_prompt);
    for step in &pipeline.steps {
        match step {
            Step::Normalize => all.text("normalize", ""),
            Step::Dense(dense) => all
                .text(
                    "dense",
                    format_args!("{} {} {}", dense.inputs, dense.outputs, dense.activation.class()),
                )
                .part("weight", &bytes(&dense.weight))
                .part("bias", &bytes(dense.bias.as_deref().unwrap_or(&[]))),
        };
    }
    for (name, text) in pipeline.prompts.texts.iter().filter(|(_, text)| !text.is_empty()) {
        all.text("prompt", name).text("is", text);
    }
    all.text("default prompt", pipeline.prompts.text(None).unwrap_or_default());
    all.text("max tokens", pipeline.max_tokens);
    all.text("truncate", pipeline.truncate_dim.unwrap_or(0));
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}
