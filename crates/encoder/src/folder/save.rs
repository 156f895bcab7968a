//! Saves a model in a folder. turnwise and sentence-transformers can open the folder and compute the same vectors. The
//! files have the format of older versions of sentence-transformers. Newer versions also read this format.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt::Display,
    fs::{self, File},
    path::{Path, PathBuf},
};

use safetensors::{Dtype, SafeTensorError, View, serialize_to_file};
use serde_json::{Map, Value, json};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};

use crate::{
    Network,
    folder::{
        config::Architecture,
        names,
        network::{self, Parameter},
        pipeline::{Dense, Pipeline, Pooling, PoolingMode, Step},
        tokenizer::Tokenizer,
    },
    network::{Activation, RelativeBias},
};

/// A model to save.
#[derive(Debug, Clone, Copy)]
pub struct SavedModel<'a> {
    /// Parameters of the network.
    pub network: &'a Network,
    /// Architecture, which determines the names of the parameters.
    pub architecture: Architecture,
    /// Pooling, final steps, prompts and limits of the model.
    pub pipeline: &'a Pipeline,
    /// Tokenizer of the model.
    pub tokenizer: &'a Tokenizer,
    /// Name of the model from which this model was created; `None` if there is none. It is saved only for information.
    pub base: Option<&'a str>,
    /// Weight and bias of the pooling layer on the first token; `None` if the model has none. Encoders do not use it, but
    /// training can start from it.
    pub pooler: Option<&'a [Vec<f32>; 2]>,
}

/// Writes the model to a new folder. A temporary folder is written and then renamed, so `path` is never incomplete.
/// Fails if `path` exists and is not an empty folder, if the network does not match the architecture, or if a value is
/// not finite.
pub fn save(path: &Path, model: &SavedModel) -> Result<()> {
    let width = model.network.shape.hidden;
    let pooler = model.pooler.map(|[weight, bias]| {
        [
            ("pooler.dense.weight".to_owned(), vec![width, width], weight.clone()),
            ("pooler.dense.bias".to_owned(), vec![width], bias.clone()),
        ]
    });
    save_files(path, &texts(model)?, model, "", pooler.into_iter().flatten().collect())
}

/// A tensor outside the network: name, shape and elements.
pub(crate) type NamedTensor = (String, Vec<usize>, Vec<f32>);

/// Writes text files, the tensors of a network with a prefix, and more tensors to a new folder, as [`save`] does.
pub(crate) fn save_files(
    path: &Path,
    files: &[(PathBuf, String)],
    model: &SavedModel,
    prefix: &str,
    more: Vec<NamedTensor>,
) -> Result<()> {
    let not_empty = |entries: fs::ReadDir| entries.count() > 0;
    if path.exists() && !fs::read_dir(path).is_ok_and(|entries| !not_empty(entries)) {
        return Err(Error::input(format!("{} already exists", path.display()))
            .with_hint("choose another folder, or remove that one"));
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).at("create", parent)?;
    let temporary = TemporaryFolder::create(files::temporary_path(path))?;
    for (name, text) in files {
        let file = temporary.0.join(name);
        create_parent(&file)?;
        files::replace(&file, text.as_bytes())?;
    }
    let network = network::parameters(model.network);
    let named = network.iter().map(|(p, numbers)| {
        let name = format!("{prefix}{}", names::name_in(model.architecture, &p.name));
        (name, Numbers { dims: &p.dims, numbers })
    });
    let more = more.iter().map(|(name, dims, numbers)| (name.clone(), Numbers { dims, numbers }));
    write_tensors(&temporary.0.join("model.safetensors"), named.chain(more))?;
    for (folder, step) in step_folders(model.pipeline) {
        if let Step::Dense(dense) = step {
            write_dense(&temporary.0.join(folder), dense)?;
        }
    }
    files::sync_folder(&temporary.0)?;
    if path.exists() {
        // The folder is empty, as checked above. Windows cannot rename to an existing folder.
        fs::remove_dir(path).at("replace", path)?;
    }
    fs::rename(&temporary.0, path).at("create", path)?;
    files::sync_folder(parent)
}

/// Returns the tensors of a network, with a prefix.
pub(crate) fn named_tensors(
    network: &Network,
    architecture: Architecture,
    prefix: &str,
) -> impl Iterator<Item = NamedTensor> {
    network::parameters(network).into_iter().map(move |(parameter, numbers)| {
        let name = format!("{prefix}{}", names::name_in(architecture, &parameter.name));
        (name, parameter.dims, numbers.to_vec())
    })
}

/// Creates the parent folder of a path.
pub(crate) fn create_parent(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), |folder| fs::create_dir_all(folder).at("create", folder))
}

/// Temporary folder that is being written. It is removed on drop, unless it was renamed.
pub(crate) struct TemporaryFolder(pub PathBuf);

impl TemporaryFolder {
    /// Creates an empty folder and its parents. An existing folder with this path is removed first.
    pub fn create(path: PathBuf) -> Result<Self> {
        files::remove_folder(&path)?;
        fs::create_dir_all(&path).at("create", &path)?;
        Ok(TemporaryFolder(path))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // If the folder was renamed, there is nothing to remove. After an error, a failed cleanup is ignored, because
        // the first error matters more.
        files::remove_folder(&self.0).ok();
    }
}

/// Returns an error if the network does not match the architecture, or if a value is not finite.
pub(super) fn check(network: &Network, architecture: Architecture) -> Result<()> {
    let name = architecture.name();
    let misfit = |what: &str| Err(Error::Internal(format!("a {name} cannot be saved: {what}")));
    let shape = &network.shape;
    if !architecture.is_trainable() {
        return misfit("the architecture can only be read");
    }
    if network.embeddings.types.is_some() != architecture.has_segments() {
        return misfit("its segment embeddings do not fit the architecture");
    }
    if network.relative_bias.is_some() != architecture.has_relative_bias() {
        return misfit("its relative position bias does not fit the architecture");
    }
    if architecture.counts_from_padding() != (shape.first_position > 0) {
        return misfit("its first position does not fit the architecture");
    }
    if network.layers.is_empty() || !shape.hidden.is_multiple_of(shape.heads.max(1)) {
        return misfit("it has no layers, or its width is not divisible by its heads");
    }
    for (Parameter { name, dims }, numbers) in network::parameters(network) {
        if numbers.len() != dims.iter().product::<usize>() {
            return misfit(&format!("`{name}` has {} numbers and the shape {dims:?}", numbers.len()));
        }
        if let Some(at) = numbers.iter().position(|v| !v.is_finite()) {
            return Err(Error::data(format!(
                "the model was not saved: `{name}` contains {} at index {at}",
                numbers[at]
            ))
            .with_hint("training diverged; try a smaller learning rate"));
        }
    }
    Ok(())
}

fn write_dense(folder: &Path, dense: &Dense) -> Result<()> {
    let (weight, bias) = ([dense.outputs, dense.inputs], [dense.outputs]);
    let weight = ("linear.weight".to_owned(), Numbers { dims: &weight, numbers: &dense.weight });
    let bias = dense.bias.as_ref().map(|b| ("linear.bias".to_owned(), Numbers { dims: &bias, numbers: b }));
    write_tensors(&folder.join("model.safetensors"), std::iter::once(weight).chain(bias))?;
    files::sync_folder(folder)
}

/// Writes named tensors to a safetensors file. Replaces an existing file.
pub(crate) fn write_tensors<'a, S: AsRef<str> + Ord + Display>(
    path: &Path,
    tensors: impl Iterator<Item = (S, Numbers<'a>)>,
) -> Result<()> {
    // transformers rejects a file if the metadata does not contain a `format`.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    // safetensors creates the file with private permissions, so give it the permissions of a normal new file.
    let temporary = files::temporary_path(path);
    serialize_to_file(tensors, Some(metadata), &temporary).map_err(|e| match e {
        SafeTensorError::IoError(source) => Error::Io { action: "write", path: path.to_owned(), source },
        other => Error::Internal(format!("{} cannot be written: {other}", path.display())),
    })?;
    let as_usual = File::create(path).and_then(|file| file.metadata()).at("create", path)?.permissions();
    fs::set_permissions(&temporary, as_usual).at("change", &temporary)?;
    fs::rename(&temporary, path).at("replace", path)?;
    // Windows flushes only files that are open for writing.
    let file = File::options().write(true).open(path).at("open", path)?;
    file.sync_all().at("flush", path)
}

/// Converts f32 values to little-endian bytes.
pub(crate) fn bytes_of(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// A tensor to save. Tensors are converted to bytes one at a time, to save memory.
pub(crate) struct Numbers<'a> {
    pub dims: &'a [usize],
    pub numbers: &'a [f32],
}

impl View for Numbers<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        self.dims
    }

    fn data(&self) -> Cow<'_, [u8]> {
        bytes_of(self.numbers).into()
    }

    fn data_len(&self) -> usize {
        self.numbers.len() * 4
    }
}

/// Returns the paths and contents of all text files of a saved model. Fails if the network does not match the
/// architecture, or if a value is not finite.
pub fn texts(model: &SavedModel) -> Result<Vec<(PathBuf, String)>> {
    let mut files = network_texts(model)?;
    let mut add = |path: PathBuf, value: Value| {
        // The format `{:#}` of a `Value` is indented JSON.
        files.push((path, format!("{value:#}\n")));
    };
    add("modules.json".into(), modules(model.pipeline));
    add("1_Pooling/config.json".into(), pooling(&model.pipeline.pooling, model.network.shape.hidden));
    for (folder, step) in step_folders(model.pipeline) {
        if let Step::Dense(dense) = step {
            let config = json!({
                "in_features": dense.inputs,
                "out_features": dense.outputs,
                "bias": dense.bias.is_some(),
                "activation_function": dense.activation.class(),
            });
            add(folder.join("config.json"), config);
        }
    }
    add(
        "sentence_bert_config.json".into(),
        json!({ "max_seq_length": model.pipeline.max_tokens, "do_lower_case": model.tokenizer.parts.lowercase }),
    );
    add("config_sentence_transformers.json".into(), sentence_transformers(model));
    Ok(files)
}

/// Returns the paths and contents of the files of a network and of its tokenizer. Fails if the network does not match
/// the architecture, or if a value is not finite.
pub(crate) fn network_texts(model: &SavedModel) -> Result<Vec<(PathBuf, String)>> {
    check(model.network, model.architecture)?;
    Ok(vec![
        ("config.json".into(), format!("{:#}\n", config(model))),
        ("tokenizer_config.json".into(), format!("{:#}\n", tokenizer(model))),
        ("tokenizer.json".into(), model.tokenizer.to_json()?),
    ])
}

/// Returns the steps after pooling, each with its folder relative to the model's folder, such as `2_Dense`.
pub fn step_folders(pipeline: &Pipeline) -> impl Iterator<Item = (PathBuf, &Step)> {
    (2..).zip(&pipeline.steps).map(|(n, step)| (PathBuf::from(format!("{n}_{}", kind(step))), step))
}

fn kind(step: &Step) -> &'static str {
    match step {
        Step::Dense(_) => "Dense",
        Step::Normalize => "Normalize",
    }
}

fn config(model: &SavedModel) -> Value {
    let (network, architecture) = (model.network, model.architecture);
    let (shape, embeddings) = (&network.shape, &network.embeddings);
    let activation = match shape.activation {
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu_new",
        Activation::Relu => "relu",
        Activation::Silu => "silu",
    };
    let padding = match architecture.counts_from_padding() {
        true => Some(shape.first_position - 1),
        false => model.tokenizer.specials().pad.map(|id| id as usize),
    };
    let mut config = json!({
        "model_type": architecture.name(),
        "architectures": [architecture.class()],
        "vocab_size": embeddings.words.rows,
        "max_position_embeddings": embeddings.positions.as_ref().map(|positions| positions.rows),
        "pad_token_id": padding.unwrap_or(0),
    });
    let sizes = match architecture {
        Architecture::DistilBert => json!({
            "dim": shape.hidden,
            "n_layers": network.layers.len(),
            "n_heads": shape.heads,
            "hidden_dim": shape.intermediate,
            "activation": activation,
        }),
        _ => json!({
            "hidden_size": shape.hidden,
            "num_hidden_layers": network.layers.len(),
            "num_attention_heads": shape.heads,
            "intermediate_size": shape.intermediate,
            "hidden_act": activation,
            "layer_norm_eps": decimal(shape.norm_epsilon),
        }),
    };
    join(&mut config, sizes);
    match architecture {
        Architecture::DistilBert => (),
        Architecture::MpNet => {
            config["relative_attention_num_buckets"] = json!(RelativeBias::BUCKETS);
        }
        _ => {
            config["type_vocab_size"] = json!(embeddings.types.as_ref().map(|types| types.rows));
            config["position_embedding_type"] = json!("absolute");
        }
    }
    config
}

/// Converts an f32 to the f64 with the same shortest decimal form: 1e-12, not 9.999999960041972e-13.
fn decimal(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(f64::from(number))
}

fn join(value: &mut Value, more: Value) {
    if let (Value::Object(value), Value::Object(more)) = (value, more) {
        value.extend(more);
    }
}

fn modules(pipeline: &Pipeline) -> Value {
    let entry = |n: usize, path: String, kind: &str| {
        let class = format!("sentence_transformers.models.{kind}");
        json!({ "idx": n, "name": n.to_string(), "path": path, "type": class })
    };
    let fixed = [entry(0, String::new(), "Transformer"), entry(1, "1_Pooling".to_owned(), "Pooling")];
    let steps = (2..)
        .zip(step_folders(pipeline))
        .map(|(n, (folder, step))| entry(n, folder.display().to_string(), kind(step)));
    fixed.into_iter().chain(steps).collect()
}

fn pooling(pooling: &Pooling, hidden: usize) -> Value {
    let mut config = json!({
        "word_embedding_dimension": hidden,
        "include_prompt": pooling.include_prompt,
    });
    // Flags cannot express an order of modes. A list can, but only new versions of sentence-transformers support lists.
    let in_order: Vec<_> = PoolingMode::ALL.into_iter().filter(|m| pooling.modes.contains(m)).collect();
    let modes = match in_order == pooling.modes {
        true => {
            PoolingMode::ALL.iter().map(|m| (m.flag().to_owned(), json!(pooling.modes.contains(m)))).collect()
        }
        false => {
            let names: Vec<_> = pooling.modes.iter().map(|m| m.name()).collect();
            Map::from_iter([("pooling_mode".to_owned(), json!(names))])
        }
    };
    join(&mut config, Value::Object(modes));
    config
}

fn sentence_transformers(model: &SavedModel) -> Value {
    let pipeline = model.pipeline;
    let mut config = json!({
        "__version__": { "turnwise": env!("CARGO_PKG_VERSION") },
        "prompts": pipeline.prompts.texts,
        "default_prompt_name": pipeline.prompts.default,
    });
    if let Some(similarity) = &pipeline.similarity {
        config["similarity_fn_name"] = json!(similarity);
    }
    if let Some(dim) = pipeline.truncate_dim {
        config["truncate_dim"] = json!(dim);
    }
    if let Some(base) = model.base {
        config["turnwise"] = json!({ "base": base });
    }
    config
}

/// Returns the contents of `tokenizer_config.json`. This file selects a tokenizer class that reads only
/// `tokenizer.json`. That is enough, because `tokenizer.json` already contains the effects of the original settings.
fn tokenizer(model: &SavedModel) -> Value {
    let tokenizer = &model.tokenizer.parts;
    let mut settings = tokenizer.settings.clone();
    for done in
        ["do_lower_case", "strip_accents", "tokenize_chinese_chars", "do_basic_tokenize", "never_split"]
    {
        settings.remove(done);
    }
    let inputs = match model.architecture {
        Architecture::Bert => json!(["input_ids", "token_type_ids", "attention_mask"]),
        _ => json!(["input_ids", "attention_mask"]),
    };
    let side = if tokenizer.cut_front { "left" } else { "right" };
    let own = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": inputs,
        "model_max_length": model.pipeline.max_tokens,
        "truncation_side": side,
    });
    let mut settings = Value::Object(settings);
    join(&mut settings, own);
    settings
}
