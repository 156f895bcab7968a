//! Safetensors files of a model. Files are memory-mapped and their headers are checked. Values are read as f32.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs::File,
    ops::Range,
    path::{Path, PathBuf},
};

use half::{bf16, f16};
use memmap2::Mmap;
use safetensors::{Dtype, tensor::Metadata};
use serde_json::Value;
use turnwise_core::error::{Error, IoContext, Result, closest_name};

use crate::{folder::config, hub::ONNX};

const DOWNLOAD_AGAIN: &str = "the file is damaged or incomplete; download the model again";

/// Weights of a model: named tensors in one or more memory-mapped files.
#[derive(Debug, Default)]
pub struct Weights {
    files: Vec<(PathBuf, Mmap)>,
    tensors: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    file: usize,
    dtype: Dtype,
    dims: Vec<usize>,
    bytes: Range<usize>,
}

/// A tensor of a memory-mapped safetensors file.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    name: &'a str,
    path: &'a Path,
    dtype: Dtype,
    dims: &'a [usize],
    bytes: &'a [u8],
}

impl Weights {
    /// Opens the weights in a folder: `model.safetensors`, or the shards listed in
    /// `model.safetensors.index.json`. Fails if a file is missing or damaged.
    pub fn open(folder: &Path) -> Result<Self> {
        let single = folder.join("model.safetensors");
        if single.exists() {
            return Self::open_file(&single);
        }
        let index = folder.join("model.safetensors.index.json");
        match config::Object::read(&index)? {
            Some(index) => Self::open_shards(folder, &index),
            None => Err(no_weights(folder)),
        }
    }

    /// Opens the weights in a single file.
    pub fn open_file(path: &Path) -> Result<Self> {
        let mut weights = Weights::default();
        weights.tensors = weights.add(path)?;
        Ok(weights)
    }

    fn open_shards(folder: &Path, index: &config::Object) -> Result<Self> {
        let map = index.get("weight_map").and_then(Value::as_object);
        let map = map.ok_or_else(|| index.wrong("`weight_map` is missing").with_hint(DOWNLOAD_AGAIN))?;
        let mut shards: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, shard) in map {
            let plain = |s: &&str| !s.contains(['/', '\\']) && s.ends_with(".safetensors");
            let shard = shard.as_str().filter(plain);
            let shard = shard.ok_or_else(|| {
                index.wrong(format!("the tensor `{name}` is not in a safetensors file of the same folder"))
            })?;
            shards.entry(shard).or_default().push(name);
        }
        let mut weights = Weights::default();
        for (shard, names) in shards {
            let path = folder.join(shard);
            if !path.exists() {
                return Err(index
                    .wrong(format!("the shard `{shard}` with {} tensors is missing", names.len()))
                    .with_hint("download all files of the model again"));
            }
            let mut in_shard = weights.add(&path)?;
            for name in names {
                let entry = in_shard.remove(name).ok_or_else(|| {
                    index
                        .wrong(format!("the tensor `{name}` is not in `{shard}` as listed"))
                        .with_hint(DOWNLOAD_AGAIN)
                })?;
                weights.tensors.insert(name.to_owned(), entry);
            }
        }
        Ok(weights)
    }

    /// Memory-maps a file and adds it to `files`. Returns its tensors by name, but does not add them to `tensors`.
    fn add(&mut self, path: &Path) -> Result<BTreeMap<String, Entry>> {
        let file = File::open(path).at("open", path)?;
        // SAFETY: the map is only read. If another program truncates the file, a signal kills this process, as in every
        // program that maps its weights.
        let map = unsafe { Mmap::map(&file) }.at("map", path)?;
        let (metadata, data) = read_header(path, &map)?;
        let entries = metadata.tensors().into_iter().map(|(name, info)| {
            let bytes = data + info.data_offsets.0..data + info.data_offsets.1;
            let entry = Entry { file: self.files.len(), dtype: info.dtype, dims: info.shape.clone(), bytes };
            (name, entry)
        });
        let entries = entries.collect();
        self.files.push((path.to_owned(), map));
        Ok(entries)
    }

    /// Returns the names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Returns the tensor with this name; `None` if it is missing.
    pub fn get(&self, name: &str) -> Option<Tensor<'_>> {
        let (name, entry) = self.tensors.get_key_value(name)?;
        let (path, map) = &self.files[entry.file];
        let bytes = &map[entry.bytes.clone()];
        Some(Tensor { name, path, dtype: entry.dtype, dims: &entry.dims, bytes })
    }

    /// Returns the tensor with this name. Fails if it is missing or has a different shape or an unsupported data type.
    pub fn expect(&self, name: &str, dims: &[usize]) -> Result<Tensor<'_>> {
        let tensor = self.get(name).ok_or_else(|| self.missing(name))?;
        if tensor.dims != dims {
            return Err(Error::data(format!(
                "{}: the tensor `{}` has the shape {:?}, but the configuration requires {dims:?}",
                tensor.path.display(),
                tensor.name,
                tensor.dims,
            ))
            .with_hint("weights and configuration do not match; download all files of the model again"));
        }
        tensor.number_type()?;
        Ok(tensor)
    }

    fn missing(&self, name: &str) -> Error {
        let path = self.files.first().map(|(path, _)| path.display().to_string()).unwrap_or_default();
        let hint = match closest_name(name, self.names()) {
            Some(near) => format!("the most similar name in the file is `{near}`"),
            None => "the tensor names are those of a different architecture".to_owned(),
        };
        Error::data(format!("{path}: the tensor `{name}` is missing")).with_hint(hint)
    }
}

impl<'a> Tensor<'a> {
    /// Returns the shape: `[rows, columns]` for a matrix, `[length]` for a vector.
    pub fn dims(&self) -> &'a [usize] {
        self.dims
    }

    /// Reads the elements as f32. Fails if an element is not finite.
    pub fn numbers(&self) -> Result<Vec<f32>> {
        let bytes = self.part(0..self.len())?;
        let words = bytes.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]);
        let numbers: Vec<f32> = words.map(f32::from_le_bytes).collect();
        match numbers.iter().position(|v| !v.is_finite()) {
            None => Ok(numbers),
            Some(at) => Err(self.not_finite(at, numbers[at])),
        }
    }

    /// Returns one of several parts of the tensor with the same number of rows. The number of rows must be divisible by
    /// the number of parts.
    pub fn rows(self, part: usize, parts: usize) -> Self {
        let bytes = self.bytes.len() / parts;
        Tensor { bytes: &self.bytes[part * bytes..(part + 1) * bytes], ..self }
    }

    /// Reads the elements as integers. Fails if the data type is not I32 or I64.
    pub fn integers(&self) -> Result<Vec<i64>> {
        match self.dtype {
            Dtype::I32 => {
                Ok(self.bytes.as_chunks().0.iter().map(|b| i64::from(i32::from_le_bytes(*b))).collect())
            }
            Dtype::I64 => Ok(self.bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect()),
            other => Err(self.wrong(&format!("has the type {other:?}; I32 or I64 is expected"))),
        }
    }

    /// Returns an error about this tensor. `what` continues the sentence that starts with its name.
    pub fn wrong(&self, what: &str) -> Error {
        Error::data(format!("{}: the tensor `{}` {what}", self.path.display(), self.name))
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.number_type().unwrap_or(1)
    }

    /// Returns a range of the elements as little-endian f32 bytes. Fails if the data type is not F32, F16 or BF16.
    pub fn part(&self, range: Range<usize>) -> Result<Cow<'a, [u8]>> {
        let width = self.number_type()?;
        let bytes = &self.bytes[range.start * width..range.end * width];
        let pairs = bytes.chunks_exact(2).map(|b| [b[0], b[1]]);
        Ok(match self.dtype {
            Dtype::F16 => pairs.flat_map(|b| f16::from_le_bytes(b).to_f32().to_le_bytes()).collect(),
            Dtype::BF16 => pairs.flat_map(|b| bf16::from_le_bytes(b).to_f32().to_le_bytes()).collect(),
            _ => Cow::Borrowed(bytes),
        })
    }

    /// Returns the number of bytes per element. Fails if the data type is not supported.
    fn number_type(&self) -> Result<usize> {
        match self.dtype {
            Dtype::F32 => Ok(4),
            Dtype::F16 | Dtype::BF16 => Ok(2),
            other => Err(Error::data(format!(
                "{}: the tensor `{}` has the type {other:?}, which is not supported",
                self.path.display(),
                self.name
            ))
            .with_hint("save the model as F32, F16 or BF16")),
        }
    }

    fn not_finite(&self, at: usize, value: f32) -> Error {
        let position = match self.dims {
            [_, columns] => format!("row {}, column {}", at / columns, at % columns),
            _ => format!("index {at}"),
        };
        Error::data(format!(
            "{}: the tensor `{}` contains {value} at {position} (counted from 0)",
            self.path.display(),
            self.name
        ))
        .with_hint("training diverged; use an earlier checkpoint, or download the model again")
    }
}

/// Returns the parsed header of a safetensors file, and the byte offset at which the tensor data starts. Fails if the
/// file is damaged.
fn read_header(path: &Path, file: &[u8]) -> Result<(Metadata, usize)> {
    let damaged = |what: String| Error::data(format!("{}: {what}", path.display())).with_hint(DOWNLOAD_AGAIN);
    if file.starts_with(b"version https://git-lfs") {
        return Err(damaged("the file is a Git LFS pointer, not the weights".to_owned())
            .with_hint("run `git lfs pull` in the repository of the model"));
    }
    let Some((length, rest)) = file.split_first_chunk::<8>() else {
        return Err(damaged(format!("the file is truncated: it has only {} bytes", file.len())));
    };
    let length = u64::from_le_bytes(*length);
    let Some(header) = usize::try_from(length).ok().and_then(|n| rest.get(..n)) else {
        return Err(damaged(format!(
            "the header should have {length} bytes, but the file has {}: it is truncated or not a safetensors file",
            file.len()
        )));
    };
    let metadata: Metadata = serde_json::from_slice(header).map_err(|e| match unknown_type(header) {
        Some((name, dtype)) => damaged(format!("the tensor `{name}` has the unknown type `{dtype}`"))
            .with_hint("save the model as F32, F16 or BF16"),
        None => damaged(format!("the header is damaged: {e}")),
    })?;
    let data = 8 + header.len();
    let whole = data + metadata.data_len();
    if whole != file.len() {
        let state = if file.len() < whole { "truncated" } else { "too long" };
        return Err(damaged(format!(
            "the file is {state}: it should have {whole} bytes, but has {}",
            file.len()
        )));
    }
    Ok((metadata, data))
}

/// Finds a tensor with an unknown data type in a header that could not be parsed. Returns the tensor name and the
/// type.
fn unknown_type(header: &[u8]) -> Option<(String, String)> {
    let header: BTreeMap<String, Value> = serde_json::from_slice(header).ok()?;
    header.into_iter().filter(|(name, _)| name != "__metadata__").find_map(|(name, tensor)| {
        let dtype = tensor.get("dtype")?;
        let unknown = serde_json::from_value::<Dtype>(dtype.clone()).is_err();
        unknown.then(|| (name, dtype.as_str().map_or_else(|| dtype.to_string(), str::to_owned)))
    })
}

/// Creates the error for a folder without safetensors weights. If the folder contains a pickle file, the message names
/// it.
fn no_weights(folder: &Path) -> Error {
    let pickle = |name: &str| {
        [".bin", ".pt", ".pth", ".ckpt", ".pkl"].iter().any(|ending| name.ends_with(ending))
            && name != "training_args.bin"
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut pickles: Vec<String> =
        entries.filter_map(|e| e.file_name().into_string().ok()).filter(|n| pickle(n)).collect();
    pickles.sort();
    match pickles.first() {
        Some(file) => Error::data(format!(
            "{} has weights only as a pickle (`{file}`); loading a pickle can run arbitrary code",
            folder.display()
        ))
        .with_hint(format!(
            "if you trust the model, convert it with Python: from sentence_transformers import \
             SentenceTransformer; SentenceTransformer({:?}).save(\"converted\")",
            folder.display().to_string()
        )),
        None => match exported(folder) {
            Some(file) => {
                let folder = folder.display();
                Error::data(format!("{folder} has weights only in ONNX format (`{file}`)")).with_hint(ONNX)
            }
            None => Error::data(format!("{} contains no model.safetensors", folder.display()))
                .with_hint("download all files of the model again"),
        },
    }
}

/// Returns a file in ONNX format in a model folder, or in its subfolder `onnx`.
fn exported(folder: &Path) -> Option<String> {
    ["", "onnx/"].into_iter().find_map(|inner| {
        let entries = std::fs::read_dir(folder.join(inner)).into_iter().flatten().flatten();
        let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.find(|name| name.ends_with(".onnx")).map(|name| format!("{inner}{name}"))
    })
}
