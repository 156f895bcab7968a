//! Saving of a model. turnwise and sentence-transformers can open it and compute the same vectors.

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

/// A model to save.
#[derive(Debug, Clone, Copy)]
pub struct SavedModel<'a> {
    /// Parameters of the network.
    pub network: &'a Network,
    /// Architecture, which determines the names of the parameters.
    pub architecture: Architecture,
    /// Pipeline around the network.
    pub pipeline: &'a Pipeline,
    /// Tokenizer of the model.
    pub tokenizer: &'a Tokenizer,
    /// Name of the model that this model was trained from, for information.
    pub base: Option<&'a str>,
}

/// Writes the model to a new folder. It is written to a temporary folder and then renamed, so the folder is
/// never incomplete.
pub fn save(path: &Path, model: &SavedModel) -> Result<()> {
    let not_empty = |entries: fs::ReadDir| entries.count() > 0;
    if path.exists() && !fs::read_dir(path).is_ok_and(|entries| !not_empty(entries)) {
        return Err(Error::input(format!("{} already exists", path.display()))
            .with_hint("choose another folder, or remove that one"));
    }
    let files = save_config::texts(model)?;
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).at("create", parent)?;
    let temporary = TemporaryFolder(files::temporary_path(path));
    files::remove_folder(&temporary.0)?;
    fs::create_dir(&temporary.0).at("create", &temporary.0)?;
    for (name, text) in files {
        write_text(&temporary.0.join(name), &text)?;
    }
    let network = parameters::of(model.network);
    let named = network.iter().map(|(p, numbers)| {
        (parameters::name_in(model.architecture, &p.name), Numbers { dims: &p.dims, numbers })
    });
    write_tensors(&temporary.0.join("model.safetensors"), named)?;
    for (folder, step) in save_config::step_folders(model.pipeline) {
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

/// Temporary folder that is being written; removed on drop.
struct TemporaryFolder(PathBuf);

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // After the rename nothing is left. After an error, that error is reported, not one from this cleanup.
        files::remove_folder(&self.0).ok();
    }
}

/// Returns an error if the network does not match the architecture, or if a value is not finite.
pub(super) fn check(network: &Network, architecture: Architecture) -> Result<()> {
    let name = architecture.name();
    let misfit = |what: &str| Err(Error::Internal(format!("a {name} cannot be saved: {what}")));
    let shape = &network.shape;
    if network.embeddings.types.is_some() == (architecture == Architecture::DistilBert) {
        return misfit("its segment embeddings do not fit the architecture");
    }
    if architecture.counts_from_padding() != (shape.first_position > 0) {
        return misfit("its first position does not fit the architecture");
    }
    if network.layers.is_empty() || !shape.hidden.is_multiple_of(shape.heads.max(1)) {
        return misfit("it has no layers, or its width is not divisible by its heads");
    }
    for (Parameter { name, dims }, numbers) in parameters::of(network) {
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
    // transformers refuses files without the name of the library that wrote them.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    // safetensors writes to a private file and renames it. The permissions are changed to those of a normal new
    // file.
    let temporary = files::temporary_path(path);
    serialize_to_file(tensors, Some(metadata), &temporary).map_err(|e| match e {
        SafeTensorError::IoError(source) => Error::Io { action: "write", path: path.to_owned(), source },
        other => Error::Internal(format!("{} cannot be written: {other}", path.display())),
    })?;
    let as_usual = File::create(path).and_then(|file| file.metadata()).at("create", path)?.permissions();
    fs::set_permissions(&temporary, as_usual).at("change", &temporary)?;
    fs::rename(&temporary, path).at("replace", path)?;
    flush(path)
}

/// Tensor to write. It is converted to bytes when it is written, one tensor at a time.
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
