//! Reading and writing of tensors in safetensors files.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};

use turnwise_core::error::{Error, IoContext, Result};

/// A named tensor.
pub(super) struct Tensor<'a> {
    name: &'static str,
    shape: Vec<usize>,
    numbers: &'a [f32],
}

impl<'a> Tensor<'a> {
    pub fn new(name: &'static str, shape: Vec<usize>, numbers: &'a [f32]) -> Self {
        assert_eq!(shape.iter().product::<usize>(), numbers.len());
        Tensor { name, shape, numbers }
    }
}

/// Converts f32 values to little-endian bytes.
pub(super) fn bytes_of(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// Writes tensors to a file and returns its digest.
pub(super) fn write(path: &Path, tensors: &[Tensor]) -> Result<blake3::Hash> {
    let mut header = serde_json::Map::new();
    let mut at = 0;
    for tensor in tensors {
        let end = at + tensor.numbers.len() * 4;
        let entry = serde_json::json!({ "dtype": "F32", "shape": tensor.shape, "data_offsets": [at, end] });
        header.insert(tensor.name.to_owned(), entry);
        at = end;
    }
    let mut header = serde_json::Value::Object(header).to_string().into_bytes();
    // The data must start at a multiple of eight bytes.
    header.resize(header.len().next_multiple_of(8), b' ');

    let mut hasher = blake3::Hasher::new();
    let mut file = BufWriter::new(File::create(path).at("create", path)?);
    let mut put = |bytes: &[u8]| {
        hasher.update(bytes);
        file.write_all(bytes).at("write", path)
    };
    put(&(header.len() as u64).to_le_bytes())?;
    put(&header)?;
    for tensor in tensors {
        tensor.numbers.chunks(1 << 16).try_for_each(|part| put(&bytes_of(part)))?;
    }
    let file = file.into_inner().map_err(|e| e.into_error()).at("write", path)?;
    file.sync_all().at("flush", path)?;
    Ok(hasher.finalize())
}

/// A memory-mapped safetensors file.
pub(super) struct Mapped {
    map: Mmap,
}

impl Mapped {
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).at("open", path)?;
        // SAFETY: the folder of an encoder is written under another name and never changed after that.
        let map = unsafe { Mmap::map(&file) }.at("map", path)?;
        Ok(Mapped { map })
    }

    pub fn digest(&self) -> blake3::Hash {
        blake3::hash(&self.map)
    }

    fn all(&self, path: &Path) -> Result<SafeTensors<'_>> {
        SafeTensors::deserialize(&self.map).map_err(|e| wrong(path, format!("invalid safetensors file: {e}")))
    }

    /// Returns true if the file has a tensor with this name.
    pub fn has(&self, path: &Path, name: &str) -> Result<bool> {
        Ok(self.all(path)?.tensor(name).is_ok())
    }

    /// Returns the shape and the elements of a tensor. Returns an error if an element is not finite.
    pub fn get(&self, path: &Path, name: &str) -> Result<(Vec<usize>, Vec<f32>)> {
        let wrong = |what: String| wrong(path, what);
        let all = self.all(path)?;
        let tensor = all.tensor(name).map_err(|_| wrong(format!("the tensor `{name}` is missing")))?;
        if tensor.dtype() != Dtype::F32 {
            return Err(wrong(format!(
                "the tensor `{name}` has the type {:?} instead of F32",
                tensor.dtype()
            )));
        }
        let number = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let numbers: Vec<f32> = tensor.data().chunks_exact(4).map(number).collect();
        match numbers.iter().position(|n| !n.is_finite()) {
            Some(at) => Err(wrong(format!("number {at} of the tensor `{name}` is {}", numbers[at]))),
            None => Ok((tensor.shape().to_vec(), numbers)),
        }
    }
}

fn wrong(path: &Path, what: String) -> Error {
    Error::corrupt(path, what).with_hint(super::folder::FIT_AGAIN)
}
