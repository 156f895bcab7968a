//! Checkpoints: parameters and optimizer state of a run after a step.

use std::{
    fs,
    path::{Path, PathBuf},
};

use safetensors::{Dtype, SafeTensors, serialize_to_file, tensor::TensorView};
use serde::{Deserialize, Serialize};

use crate::trainer::Trainer;
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};

/// Metadata of a checkpoint, stored in `state.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// Schema name: `turnwise/checkpoint/2`.
    schema: String,
    /// Number of steps taken before the checkpoint was saved.
    step: u64,
    /// Hash of the recipe, the data and the model. A run resumes only from its own checkpoints.
    run: String,
    /// Hash of the tensor file, to detect corruption.
    numbers: String,
}

const SCHEMA: &str = "turnwise/checkpoint/2";
const STATE: &str = "state.json";
const TENSORS: &str = "tensors.safetensors";
/// Prefixes of the tensor names for the first and the second moment of a parameter.
const MOMENTS: [&str; 2] = ["mean:", "square:"];

/// Writes the checkpoint of the current step, atomically, to a folder of checkpoints. `run` is the hash of the run.
pub(super) fn save(folder: &Path, trainer: &Trainer, run: &str) -> Result<()> {
    save_as(folder, &format!("step-{:08}", trainer.optimizer.steps()), trainer, run)
}

/// Writes the checkpoint of the current step, atomically, to the subfolder `name` of a folder of checkpoints.
pub(super) fn save_as(folder: &Path, name: &str, trainer: &Trainer, run: &str) -> Result<()> {
    let target = folder.join(name);
    let temporary = files::temporary_path(&target);
    files::remove_folder(&temporary)?;
    fs::create_dir_all(&temporary).at("create", &temporary)?;
    let moments = trainer.optimizer.state()?;
    let mut tensors: Vec<(String, Vec<u8>)> = Vec::new();
    for (parameter, moments) in trainer.parameters().iter().zip(moments) {
        tensors.push((parameter.name.clone(), bytes_of(&parameter.numbers()?)));
        for (prefix, numbers) in MOMENTS.iter().zip(moments) {
            tensors.push((format!("{prefix}{}", parameter.name), bytes_of(&numbers)));
        }
    }
    let path = temporary.join(TENSORS);
    let not_written = |e| Error::Internal(format!("{} cannot be written: {e}", path.display()));
    let views = tensors.iter().map(|(name, bytes)| {
        Ok((name, TensorView::new(Dtype::F32, vec![bytes.len() / size_of::<f32>()], bytes)?))
    });
    let views = views.collect::<std::result::Result<Vec<_>, _>>().map_err(not_written)?;
    serialize_to_file(views, None, &path).map_err(not_written)?;
    let written = fs::File::options().read(true).write(true).open(&path).at("open", &path)?;
    written.sync_all().at("flush", &path)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(&written).at("read", &path)?;
    let numbers = short(&hasher.finalize());
    let step = trainer.optimizer.steps();
    let state = State { schema: SCHEMA.to_owned(), step, run: run.to_owned(), numbers };
    files::replace_json(&temporary.join(STATE), &state)?;
    files::replace_folder(&temporary, &target, &folder.join(format!("{name}.old")))
}

/// Lists the regular checkpoints (`step-N`) of a folder with their steps, in ascending order.
pub(super) fn list(folder: &Path) -> Vec<(u64, PathBuf)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<(u64, PathBuf)> = entries
        .flatten()
        .filter_map(|e| Some((e.file_name().to_str()?.strip_prefix("step-")?.parse().ok()?, e.path())))
        .filter(|(_, path): &(u64, PathBuf)| path.join(STATE).is_file())
        .collect();
    found.sort_unstable();
    found
}

/// Removes old regular checkpoints (`step-N`). Keeps the last `kept` checkpoints; if `kept` is 0, keeps one.
pub(super) fn prune(folder: &Path, kept: usize) -> Result<()> {
    let all = list(folder);
    let old = all.len().saturating_sub(kept.max(1));
    all.iter().take(old).try_for_each(|(_, path)| files::remove_folder(path))
}

/// Restores a trainer from a checkpoint of the run with the hash `run`.
///
/// Returns [`Error::Corrupt`] if the checkpoint is damaged, and [`Error::Input`] if it belongs to a different run. The
/// trainer is unchanged in both cases.
pub(super) fn load(path: &Path, trainer: &mut Trainer, run: &str) -> Result<()> {
    let text = fs::read_to_string(path.join(STATE)).at("read", path.join(STATE))?;
    let damaged = |what: String| {
        Error::corrupt(path, what)
            .with_hint("remove this folder: the run then resumes from the previous checkpoint")
    };
    let state: State = serde_json::from_str(&text).map_err(|e| damaged(e.to_string()))?;
    if state.schema != SCHEMA {
        return Err(damaged(format!(
            "its schema is {}, but this version of turnwise reads {SCHEMA}",
            state.schema
        )));
    }
    if state.run != run {
        let path = path.display();
        return Err(Error::input(format!(
            "{path} belongs to a run with different data, a different model or different settings"
        ))
        .with_hint(
            "train into a different folder; `recipe.toml` in the folder lists the settings of that run",
        ));
    }
    let file = path.join(TENSORS);
    let bytes = fs::read(&file).at("read", &file)?;
    if short(&blake3::hash(&bytes)) != state.numbers {
        return Err(damaged(format!("the checksum of {TENSORS} does not match")));
    }
    let tensors = SafeTensors::deserialize(&bytes).map_err(|e| damaged(format!("{TENSORS}: {e}")))?;
    let read = |name: &str, length: usize| -> Result<Vec<f32>> {
        let tensor = tensors.tensor(name).map_err(|e| damaged(format!("{TENSORS}: {e}")))?;
        let numbers: Vec<f32> =
            tensor.data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let is_valid = tensor.dtype() == Dtype::F32
            && numbers.len() == length
            && numbers.iter().all(|number| number.is_finite());
        match is_valid {
            true => Ok(numbers),
            false => Err(damaged(format!("{TENSORS}: `{name}` does not hold {length} finite numbers"))),
        }
    };
    // Read everything before changing the trainer, so that an error leaves it unchanged.
    let mut all = Vec::new();
    for parameter in trainer.parameters() {
        let length = parameter.var.elem_count();
        let own = read(&parameter.name, length)?;
        let [mean, square] = MOMENTS.map(|prefix| read(&format!("{prefix}{}", parameter.name), length));
        all.push((own, [mean?, square?]));
    }
    let mut moments = Vec::with_capacity(all.len());
    for (parameter, (own, both)) in trainer.parameters().iter().zip(all) {
        parameter.set(own)?;
        moments.push(both);
    }
    trainer.optimizer.restore(state.step, moments)
}

fn short(hash: &blake3::Hash) -> String {
    hash.to_hex()[..32].to_owned()
}

fn bytes_of(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}
