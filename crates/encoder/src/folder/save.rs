//! Writing a model, so that it opens here and in sentence-transformers and gives the same vectors.

use std::{
    borrow::Cow,
    collections::HashMap,
    fs::{self, File},
    path::{Path, PathBuf},
};

use safetensors::{Dtype, SafeTensorError, View, serialize_to_file};

use super::{
    config::Architecture,
    parameters::{self, Parameter},
    pipeline::{Dense, Pipeline, Step},
    save_config,
    tokenizer::Tokenizer,
};
use crate::Network;
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};

/// What makes up a model that is to be saved.
#[derive(Debug, Clone, Copy)]
pub struct SavedModel<'a> {
    /// The parameters.
    pub network: &'a Network,
    /// Under which names they are written.
    pub architecture: Architecture,
    /// What stands before and after the network.
    pub pipeline: &'a Pipeline,
    /// Its tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// What it was made of, for people: the name of the model that was trained further.
    pub base: Option<&'a str>,
}

/// Writes the model into a new folder. It is written beside it first and then renamed: the folder is whole, or not
/// there.
pub fn save(path: &Path, model: &SavedModel) -> Result<()> {
    let taken = |entries: fs::ReadDir| entries.count() > 0;
    if path.exists() && !fs::read_dir(path).is_ok_and(|entries| !taken(entries)) {
        return Err(Error::input(format!("{} exists already", path.display()))
            .with_hint("name another folder, or remove that one"));
    }
    let files = save_config::texts(model)?;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).at("create", parent)?;
    let beside = Beside(files::beside(path));
    files::remove_folder(&beside.0)?;
    fs::create_dir(&beside.0).at("create", &beside.0)?;
    for (name, text) in files {
        write_text(&beside.0.join(name), &text)?;
    }
    let network = parameters::of(model.network);
    let named = network.iter().map(|(p, numbers)| {
        (parameters::name_in(model.architecture, &p.name), Numbers { dims: &p.dims, numbers })
    });
    write_tensors(&beside.0.join("model.safetensors"), named)?;
    for (folder, step) in save_config::step_folders(model.pipeline) {
        if let Step::Dense(dense) = step {
            write_dense(&beside.0.join(folder), dense)?;
        }
    }
    files::sync_folder(&beside.0)?;
    if path.exists() {
        // Empty, as was seen above; Windows renames onto nothing only.
        fs::remove_dir(path).at("replace", path)?;
    }
    fs::rename(&beside.0, path).at("create", path)?;
    files::sync_folder(parent)
}

/// The folder that is being written; gone if the writing fails.
struct Beside(PathBuf);

impl Drop for Beside {
    fn drop(&mut self) {
        // After the renaming there is nothing; after an error that error is what counts.
        files::remove_folder(&self.0).ok();
    }
}

/// Whether the network can be written under the names of that architecture, with numbers that can be read again.
pub(super) fn check(network: &Network, architecture: Architecture) -> Result<()> {
    let name = architecture.name();
    let misfit = |what: &str| Err(Error::Internal(format!("a {name} cannot be saved: {what}")));
    let shape = &network.shape;
    if network.embeddings.types.is_some() == (architecture == Architecture::DistilBert) {
        return misfit("the table of segments is missing, or one too many");
    }
    if architecture.counts_from_padding() != (shape.first_position > 0) {
        return misfit("its first position is another's");
    }
    if network.layers.is_empty() || !shape.hidden.is_multiple_of(shape.heads.max(1)) {
        return misfit("it has no layers, or its heads do not divide its width");
    }
    for (Parameter { name, dims }, numbers) in parameters::of(network) {
        if numbers.len() != dims.iter().product::<usize>() {
            return misfit(&format!("`{name}` has {} numbers and the shape {dims:?}", numbers.len()));
        }
        if let Some(at) = numbers.iter().position(|v| !v.is_finite()) {
            return Err(Error::data(format!(
                "the model is not saved: `{name}` holds {} at {at}",
                numbers[at]
            ))
            .with_hint("training has gone wrong; try a smaller learning rate"));
        }
    }
    Ok(())
}

fn write_text(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).at("create", folder)?;
    }
    fs::write(path, text).at("write", path)?;
    flush(path)
}

fn flush(path: &Path) -> Result<()> {
    // Windows flushes only files that are open for writing.
    let file = File::options().read(true).write(true).open(path).at("open", path)?;
    file.sync_all().at("flush", path)
}

fn write_dense(folder: &Path, dense: &Dense) -> Result<()> {
    let (weight, bias) = ([dense.outputs, dense.inputs], [dense.outputs]);
    let weight = ("linear.weight".to_owned(), Numbers { dims: &weight, numbers: &dense.weight });
    let bias = dense.bias.as_ref().map(|b| ("linear.bias".to_owned(), Numbers { dims: &bias, numbers: b }));
    write_tensors(&folder.join("model.safetensors"), std::iter::once(weight).chain(bias))?;
    files::sync_folder(folder)
}

fn write_tensors<'a>(path: &Path, tensors: impl Iterator<Item = (String, Numbers<'a>)>) -> Result<()> {
    // transformers refuses files that do not say which library wrote them.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    // It writes to a private file beside it and renames that; into one that is there, who may read it is as usual.
    let beside = files::beside(path);
    serialize_to_file(tensors, Some(metadata), &beside).map_err(|e| match e {
        SafeTensorError::IoError(source) => Error::Io { action: "write", path: path.to_owned(), source },
        other => Error::Internal(format!("{} cannot be written: {other}", path.display())),
    })?;
    let as_usual = File::create(path).and_then(|file| file.metadata()).at("create", path)?.permissions();
    fs::set_permissions(&beside, as_usual).at("change", &beside)?;
    fs::rename(&beside, path).at("replace", path)?;
    flush(path)
}

/// Numbers on their way into a file: bytes are made of one tensor at a time.
struct Numbers<'a> {
    dims: &'a [usize],
    numbers: &'a [f32],
}

impl View for Numbers<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        self.dims
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>().into()
    }

    fn data_len(&self) -> usize {
        self.numbers.len() * 4
    }
}
