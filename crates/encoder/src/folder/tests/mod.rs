//! Tests with small model folders, valid and invalid. [`Builder`] has its own list of the tensor names in the
//! `transformers` library, so a wrong name in the reader is detected.

use std::{collections::BTreeMap, fs, path::PathBuf};

use half::{bf16, f16};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;
use turnwise_core::error::{Class, Error};

use crate::folder::ModelFolder;

mod architectures;
mod opened;
mod refused;
mod saving;
mod static_embedding;
mod tokenizers;

pub const HIDDEN: usize = 8;
pub const INTERMEDIATE: usize = 12;
pub const LAYERS: usize = 2;
pub const WORDS: usize = 24;
pub const POSITIONS: usize = 18;

/// Builds a model folder for a test.
pub struct Builder {
    folder: TempDir,
    pub config: Value,
    pub tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
    pub dtype: Dtype,
    written: bool,
}

/// Returns values for a tensor. They depend on the tensor name, so a swapped tensor is detected.
pub fn numbers(name: &str, count: usize) -> Vec<f32> {
    let seed = name.bytes().fold(17u32, |sum, b| sum.wrapping_mul(31).wrapping_add(b.into()));
    // f32, f16 and bf16 represent multiples of 1/64 between -1 and 1 exactly.
    (0..count as u32)
        .map(|n| (seed.wrapping_add(n.wrapping_mul(2_654_435_761)) >> 25) as f32 / 64.0 - 1.0)
        .collect()
}

pub const VOCABULARY: [&str; 20] = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "##s", "a", "b", "c", "##b", "##c",
    "Hello", "é", "e", "你", "好", "!", ".",
];

impl Builder {
    pub fn bert() -> Self {
        let config = json!({
            "model_type": "bert", "architectures": ["BertModel"], "hidden_size": HIDDEN,
            "num_hidden_layers": LAYERS, "num_attention_heads": 2, "intermediate_size": INTERMEDIATE,
            "hidden_act": "gelu", "layer_norm_eps": 1e-12, "max_position_embeddings": POSITIONS,
            "type_vocab_size": 2, "vocab_size": WORDS, "pad_token_id": 0, "position_embedding_type": "absolute",
        });
        let mut builder = Builder::with(config, &BERT_LAYER, "encoder.layer");
        builder.tensor("embeddings.token_type_embeddings.weight", &[2, HIDDEN]);
        builder.tensor("pooler.dense.weight", &[HIDDEN, HIDDEN]);
        builder.tensor("pooler.dense.bias", &[HIDDEN]);
        builder.write("vocab.txt", &(VOCABULARY.join("\n") + "\n"));
        builder
    }

    pub fn distilbert() -> Self {
        let config = json!({
            "model_type": "distilbert", "dim": HIDDEN, "n_layers": LAYERS, "n_heads": 2,
            "hidden_dim": INTERMEDIATE, "activation": "gelu", "max_position_embeddings": POSITIONS,
            "vocab_size": WORDS, "pad_token_id": 0, "sinusoidal_pos_embds": false,
        });
        let builder = Builder::with(config, &DISTIL_LAYER, "transformer.layer");
        builder.write("vocab.txt", &(VOCABULARY.join("\n") + "\n"));
        builder
    }

    pub fn roberta() -> Self {
        let mut builder = Builder::bert();
        builder.set("model_type", json!("roberta"));
        builder.set("pad_token_id", json!(1));
        builder.set("layer_norm_eps", json!(1e-5));
        builder.remove("vocab.txt");
        let vocabulary =
            ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "h", "e", "l", "o", "Ġ", "he", "ll", "hell", "a"];
        let vocabulary: BTreeMap<&str, usize> = vocabulary.into_iter().zip(0..).collect();
        builder.json("vocab.json", &json!(vocabulary));
        builder.write("merges.txt", "#version: 0.2\nh e\nl l\nhe ll\n");
        builder
    }

    pub fn mpnet() -> Self {
        let config = json!({
            "model_type": "mpnet", "architectures": ["MPNetForMaskedLM"], "hidden_size": HIDDEN,
            "num_hidden_layers": LAYERS, "num_attention_heads": 2, "intermediate_size": INTERMEDIATE,
            "hidden_act": "gelu", "layer_norm_eps": 1e-5, "max_position_embeddings": POSITIONS,
            "relative_attention_num_buckets": 32, "vocab_size": WORDS, "pad_token_id": 1, "bos_token_id": 0,
        });
        let mut builder = Builder::with(config, &MPNET_LAYER, "encoder.layer");
        builder.tensor("encoder.relative_attention_bias.weight", &[32, 2]);
        builder.tensor("pooler.dense.weight", &[HIDDEN, HIDDEN]);
        builder.tensor("pooler.dense.bias", &[HIDDEN]);
        let vocabulary =
            ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "hello", "world", "##s", "a", "b", "c", "d", "<mask>"];
        builder.write("vocab.txt", &(vocabulary.join("\n") + "\n"));
        builder
    }

    pub fn modern_bert() -> Self {
        let config = json!({
            "model_type": "modernbert", "architectures": ["ModernBertForMaskedLM"], "hidden_size": HIDDEN,
            "num_hidden_layers": LAYERS, "num_attention_heads": 2, "intermediate_size": INTERMEDIATE,
            "hidden_activation": "gelu", "norm_eps": 1e-5, "max_position_embeddings": 32, "local_attention": 8,
            "global_attn_every_n_layers": 3, "global_rope_theta": 160_000.0, "local_rope_theta": 9000.0,
            "position_embedding_type": "absolute", "vocab_size": WORDS, "pad_token_id": 0,
        });
        let mut builder = Builder::empty(config);
        builder.tensor("embeddings.tok_embeddings.weight", &[WORDS, HIDDEN]);
        builder.tensor("embeddings.norm.weight", &[HIDDEN]);
        builder.tensor("final_norm.weight", &[HIDDEN]);
        for n in 0..LAYERS {
            builder.tensor(&format!("layers.{n}.attn.Wqkv.weight"), &[3 * HIDDEN, HIDDEN]);
            builder.tensor(&format!("layers.{n}.attn.Wo.weight"), &[HIDDEN, HIDDEN]);
            builder.tensor(&format!("layers.{n}.mlp.Wi.weight"), &[2 * INTERMEDIATE, HIDDEN]);
            builder.tensor(&format!("layers.{n}.mlp.Wo.weight"), &[HIDDEN, INTERMEDIATE]);
            builder.tensor(&format!("layers.{n}.mlp_norm.weight"), &[HIDDEN]);
            if n > 0 {
                builder.tensor(&format!("layers.{n}.attn_norm.weight"), &[HIDDEN]);
            }
        }
        builder.word_pieces();
        builder
    }

    /// Builds a NomicBERT, with the keys of its own code or with those of the `transformers` library.
    pub fn nomic_bert(own: bool) -> Self {
        let config = match own {
            true => json!({
                "model_type": "nomic_bert", "auto_map": { "AutoModel": "modeling.NomicBertModel" }, "n_embd": HIDDEN,
                "n_layer": LAYERS, "n_head": 2, "n_inner": INTERMEDIATE, "activation_function": "swiglu",
                "layer_norm_epsilon": 1e-12, "n_positions": 32, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0,
                "rotary_emb_interleaved": false, "rotary_scaling_factor": null, "prenorm": false, "causal": false,
                "qkv_proj_bias": false, "mlp_fc1_bias": false, "type_vocab_size": 2, "vocab_size": WORDS,
            }),
            false => json!({
                "model_type": "nomic_bert", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
                "num_attention_heads": 2, "head_dim": HIDDEN / 2, "intermediate_size": INTERMEDIATE,
                "hidden_act": "silu", "layer_norm_eps": 1e-12, "max_position_embeddings": 32,
                "rope_parameters": { "rope_theta": 1000.0, "rope_type": "default" }, "type_vocab_size": 2,
                "vocab_size": WORDS,
            }),
        };
        let mut builder = Builder::empty(config);
        builder.tensor("embeddings.word_embeddings.weight", &[WORDS, HIDDEN]);
        builder.tensor("embeddings.token_type_embeddings.weight", &[2, HIDDEN]);
        builder.norm("emb_ln");
        for n in 0..LAYERS {
            let name = |part: &str| format!("encoder.layers.{n}.{part}");
            builder.tensor(&name("attn.Wqkv.weight"), &[3 * HIDDEN, HIDDEN]);
            builder.tensor(&name("attn.out_proj.weight"), &[HIDDEN, HIDDEN]);
            builder.tensor(&name("mlp.fc11.weight"), &[INTERMEDIATE, HIDDEN]);
            builder.tensor(&name("mlp.fc12.weight"), &[INTERMEDIATE, HIDDEN]);
            builder.tensor(&name("mlp.fc2.weight"), &[HIDDEN, INTERMEDIATE]);
            builder.norm(&name("norm1"));
            builder.norm(&name("norm2"));
        }
        builder.word_pieces();
        builder
    }

    pub fn gte() -> Self {
        let config = json!({
            "model_type": "new", "architectures": ["NewModel"], "hidden_size": HIDDEN,
            "num_hidden_layers": LAYERS, "num_attention_heads": 2, "intermediate_size": INTERMEDIATE,
            "hidden_act": "gelu", "layer_norm_eps": 1e-12, "layer_norm_type": "layer_norm",
            "max_position_embeddings": 32, "position_embedding_type": "rope", "rope_theta": 500_000,
            "rope_scaling": { "factor": 2.0, "type": "ntk" }, "pack_qkv": true, "logn_attention_scale": false,
            "type_vocab_size": 0, "vocab_size": WORDS, "pad_token_id": 0,
        });
        let mut builder = Builder::empty(config);
        builder.tensor("embeddings.word_embeddings.weight", &[WORDS, HIDDEN]);
        builder.norm("embeddings.LayerNorm");
        for n in 0..LAYERS {
            let name = |part: &str| format!("encoder.layer.{n}.{part}");
            builder.tensor(&name("attention.qkv_proj.weight"), &[3 * HIDDEN, HIDDEN]);
            builder.tensor(&name("attention.qkv_proj.bias"), &[3 * HIDDEN]);
            builder.tensor(&name("attention.o_proj.weight"), &[HIDDEN, HIDDEN]);
            builder.tensor(&name("attention.o_proj.bias"), &[HIDDEN]);
            builder.tensor(&name("mlp.up_gate_proj.weight"), &[2 * INTERMEDIATE, HIDDEN]);
            builder.tensor(&name("mlp.down_proj.weight"), &[HIDDEN, INTERMEDIATE]);
            builder.tensor(&name("mlp.down_proj.bias"), &[HIDDEN]);
            builder.norm(&name("attn_ln"));
            builder.norm(&name("mlp_ln"));
        }
        builder.word_pieces();
        builder
    }

    pub fn jina_bert() -> Self {
        let config = json!({
            "model_type": "bert", "architectures": ["JinaBertForMaskedLM"], "hidden_size": HIDDEN,
            "auto_map": { "AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel" },
            "num_hidden_layers": LAYERS, "num_attention_heads": 2, "intermediate_size": INTERMEDIATE,
            "hidden_act": "gelu", "feed_forward_type": "geglu", "position_embedding_type": "alibi",
            "layer_norm_eps": 1e-12, "max_position_embeddings": 32, "type_vocab_size": 2, "vocab_size": WORDS,
            "pad_token_id": 0,
        });
        let mut builder = Builder::empty(config);
        builder.tensor("embeddings.word_embeddings.weight", &[WORDS, HIDDEN]);
        builder.tensor("embeddings.token_type_embeddings.weight", &[2, HIDDEN]);
        builder.norm("embeddings.LayerNorm");
        for n in 0..LAYERS {
            let name = |part: &str| format!("encoder.layer.{n}.{part}");
            for (part, dims) in &BERT_LAYER[..5] {
                builder.tensor(&name(&format!("{part}.weight")), dims);
                builder.tensor(&name(&format!("{part}.bias")), &dims[..1]);
            }
            builder.tensor(&name("mlp.gated_layers.weight"), &[2 * INTERMEDIATE, HIDDEN]);
            builder.tensor(&name("mlp.wo.weight"), &[HIDDEN, INTERMEDIATE]);
            builder.tensor(&name("mlp.wo.bias"), &[HIDDEN]);
            builder.norm(&name("mlp.layernorm"));
        }
        builder.word_pieces();
        builder
    }

    /// Builds a Gemma 3 for embeddings, or a Qwen3.
    pub fn decoder(gemma: bool) -> Self {
        const HEAD: usize = 6;
        let mut config = json!({
            "model_type": "qwen3", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": 2,
            "num_key_value_heads": 1, "head_dim": HEAD, "intermediate_size": INTERMEDIATE, "hidden_act": "silu",
            "rms_norm_eps": 1e-6, "rope_theta": 1_000_000, "max_position_embeddings": 32, "attention_bias": false,
            "use_sliding_window": false, "vocab_size": WORDS,
        });
        if gemma {
            let of_gemma = json!({
                "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh", "rope_local_base_freq": 10_000,
                "query_pre_attn_scalar": HEAD, "sliding_window": 6, "use_bidirectional_attention": true,
                "layer_types": ["sliding_attention", "full_attention"], "attn_logit_softcapping": null,
            });
            config.as_object_mut().unwrap().extend(of_gemma.as_object().unwrap().clone());
        }
        let mut builder = Builder::empty(config);
        builder.tensor("embed_tokens.weight", &[WORDS, HIDDEN]);
        builder.tensor("norm.weight", &[HIDDEN]);
        for n in 0..LAYERS {
            let name = |part: &str| format!("layers.{n}.{part}.weight");
            builder.tensor(&name("self_attn.q_proj"), &[2 * HEAD, HIDDEN]);
            builder.tensor(&name("self_attn.k_proj"), &[HEAD, HIDDEN]);
            builder.tensor(&name("self_attn.v_proj"), &[HEAD, HIDDEN]);
            builder.tensor(&name("self_attn.o_proj"), &[HIDDEN, 2 * HEAD]);
            builder.tensor(&name("self_attn.q_norm"), &[HEAD]);
            builder.tensor(&name("self_attn.k_norm"), &[HEAD]);
            builder.tensor(&name("mlp.gate_proj"), &[INTERMEDIATE, HIDDEN]);
            builder.tensor(&name("mlp.up_proj"), &[INTERMEDIATE, HIDDEN]);
            builder.tensor(&name("mlp.down_proj"), &[HIDDEN, INTERMEDIATE]);
            builder.tensor(&name("input_layernorm"), &[HIDDEN]);
            builder.tensor(&name("post_attention_layernorm"), &[HIDDEN]);
            if gemma {
                builder.tensor(&name("pre_feedforward_layernorm"), &[HIDDEN]);
                builder.tensor(&name("post_feedforward_layernorm"), &[HIDDEN]);
            }
        }
        builder.word_pieces();
        builder
    }

    fn norm(&mut self, name: &str) {
        self.tensor(&format!("{name}.weight"), &[HIDDEN]);
        self.tensor(&format!("{name}.bias"), &[HIDDEN]);
    }

    /// Writes a vocabulary of word pieces, and the tokenizer class that reads it.
    fn word_pieces(&self) {
        self.write("vocab.txt", &(VOCABULARY.join("\n") + "\n"));
        self.json("tokenizer_config.json", &json!({ "tokenizer_class": "BertTokenizer" }));
    }

    pub fn empty(config: Value) -> Self {
        Builder {
            folder: TempDir::new().unwrap(),
            config,
            tensors: BTreeMap::new(),
            dtype: Dtype::F32,
            written: false,
        }
    }

    fn with(config: Value, layer: &[(&str, &[usize])], layers: &str) -> Self {
        let mut builder = Builder::empty(config);
        builder.tensor("embeddings.word_embeddings.weight", &[WORDS, HIDDEN]);
        builder.tensor("embeddings.position_embeddings.weight", &[POSITIONS, HIDDEN]);
        builder.tensor("embeddings.LayerNorm.weight", &[HIDDEN]);
        builder.tensor("embeddings.LayerNorm.bias", &[HIDDEN]);
        for n in 0..LAYERS {
            for (part, dims) in layer {
                builder.tensor(&format!("{layers}.{n}.{part}.weight"), dims);
                builder.tensor(&format!("{layers}.{n}.{part}.bias"), &dims[..1]);
            }
        }
        builder
    }

    pub fn tensor(&mut self, name: &str, dims: &[usize]) {
        self.tensors.insert(name.to_owned(), (dims.to_vec(), numbers(name, dims.iter().product())));
    }

    /// Renames all tensors with `spell` and keeps the values.
    pub fn rename(&mut self, spell: impl Fn(&str) -> String) {
        self.tensors =
            std::mem::take(&mut self.tensors).into_iter().map(|(name, t)| (spell(&name), t)).collect();
    }

    pub fn set(&mut self, key: &str, value: Value) {
        self.config[key] = value;
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("model")
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn json(&self, name: &str, value: &Value) {
        self.write(name, &value.to_string());
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.path().join(name)).unwrap();
    }

    pub fn modules(&self, modules: &[(&str, &str)]) {
        let entries = modules.iter().enumerate();
        let entries = entries.map(
            |(n, (path, class))| json!({ "idx": n, "name": n.to_string(), "path": path, "type": class }),
        );
        self.json("modules.json", &entries.collect());
    }

    /// Writes settings of sentence-transformers. Also writes `modules.json`, because the settings are ignored without
    /// it.
    pub fn sentence(&self, settings: &Value) {
        self.json("sentence_bert_config.json", settings);
        let class = |name: &str| format!("sentence_transformers.models.{name}");
        self.modules(&[("", &class("Transformer")), ("1_Pooling", &class("Pooling"))]);
        self.json("1_Pooling/config.json", &json!({}));
    }

    /// Returns the bytes of a safetensors file with the selected tensors.
    pub fn safetensors(&self, pick: impl Fn(&str) -> bool) -> Vec<u8> {
        let bytes: BTreeMap<&str, (Vec<u8>, &[usize])> = self
            .tensors
            .iter()
            .filter(|(name, _)| pick(name))
            .map(|(name, (dims, numbers))| (name.as_str(), (encode(numbers, self.dtype), &dims[..])))
            .collect();
        let views = bytes
            .iter()
            .map(|(name, (bytes, dims))| (*name, TensorView::new(self.dtype, dims.to_vec(), bytes).unwrap()));
        safetensors::serialize(views, None).unwrap()
    }

    /// Writes the configuration and the weights, once. A test can then damage a file.
    pub fn finish(&mut self) {
        if !std::mem::replace(&mut self.written, true) {
            self.json("config.json", &self.config);
            fs::write(self.path().join("model.safetensors"), self.safetensors(|_| true)).unwrap();
        }
    }

    pub fn open(&mut self) -> Result<ModelFolder, Error> {
        self.finish();
        ModelFolder::open(&self.path())
    }

    /// Opens the folder and reads network and tokenizer, which must fail. Returns the class, message and hint of the
    /// error.
    pub fn error(&mut self) -> (Class, String, String) {
        let all = self.open().and_then(|f| {
            f.network()?;
            f.tokenizer()?;
            Ok(())
        });
        let error = all.expect_err("the folder opens");
        (error.class(), error.to_string(), error.hint().unwrap_or_default())
    }

    /// Opens the folder, which must fail with a data error. Checks that the error message contains all parts. Returns
    /// the hint.
    #[track_caller]
    pub fn refused(&mut self, parts: &[&str]) -> String {
        let (class, message, hint) = self.error();
        assert_eq!(class, Class::Data, "{message}");
        for part in parts {
            assert!(message.contains(part), "`{part}` is not in `{message}`");
        }
        hint
    }
}

fn encode(numbers: &[f32], dtype: Dtype) -> Vec<u8> {
    match dtype {
        Dtype::F32 => numbers.iter().flat_map(|n| n.to_le_bytes()).collect(),
        Dtype::F16 => numbers.iter().flat_map(|n| f16::from_f32(*n).to_le_bytes()).collect(),
        Dtype::BF16 => numbers.iter().flat_map(|n| bf16::from_f32(*n).to_le_bytes()).collect(),
        Dtype::F64 => numbers.iter().flat_map(|n| f64::from(*n).to_le_bytes()).collect(),
        other => unreachable!("{other:?} is not written here"),
    }
}

pub const BERT_LAYER: [(&str, &[usize]); 8] = [
    ("attention.self.query", &[HIDDEN, HIDDEN]),
    ("attention.self.key", &[HIDDEN, HIDDEN]),
    ("attention.self.value", &[HIDDEN, HIDDEN]),
    ("attention.output.dense", &[HIDDEN, HIDDEN]),
    ("attention.output.LayerNorm", &[HIDDEN]),
    ("intermediate.dense", &[INTERMEDIATE, HIDDEN]),
    ("output.dense", &[HIDDEN, INTERMEDIATE]),
    ("output.LayerNorm", &[HIDDEN]),
];

pub const MPNET_LAYER: [(&str, &[usize]); 8] = [
    ("attention.attn.q", &[HIDDEN, HIDDEN]),
    ("attention.attn.k", &[HIDDEN, HIDDEN]),
    ("attention.attn.v", &[HIDDEN, HIDDEN]),
    ("attention.attn.o", &[HIDDEN, HIDDEN]),
    ("attention.LayerNorm", &[HIDDEN]),
    ("intermediate.dense", &[INTERMEDIATE, HIDDEN]),
    ("output.dense", &[HIDDEN, INTERMEDIATE]),
    ("output.LayerNorm", &[HIDDEN]),
];
pub const DISTIL_LAYER: [(&str, &[usize]); 8] = [
    ("attention.q_lin", &[HIDDEN, HIDDEN]),
    ("attention.k_lin", &[HIDDEN, HIDDEN]),
    ("attention.v_lin", &[HIDDEN, HIDDEN]),
    ("attention.out_lin", &[HIDDEN, HIDDEN]),
    ("sa_layer_norm", &[HIDDEN]),
    ("ffn.lin1", &[INTERMEDIATE, HIDDEN]),
    ("ffn.lin2", &[HIDDEN, INTERMEDIATE]),
    ("output_layer_norm", &[HIDDEN]),
];
