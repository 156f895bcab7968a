//! Folder of a static encoder. `turnwise.json` describes the encoder and has the digests of the other files.
//! `words.txt` has one word per line, and `model.safetensors` has the tensors.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};
use turnwise_text::ANALYZER;

const DESCRIPTION: &str = "turnwise.json";
const WORDS: &str = "words.txt";
const MODEL: &str = "model.safetensors";

/// Version of the folder format.
const VERSION: u32 = 1;

/// Maximum size of a description in bytes. Typical descriptions have a few hundred bytes.
const MOST_BYTES: u64 = 1 << 20;

/// Hint for damaged folders.
pub(super) const FIT_AGAIN: &str = "fit the encoder again, or restore its folder from a backup";

/// Data to write to the description file of a static encoder.
pub(super) struct Description {
    pub kind: String,
    /// Name of the text analyzer with which the encoder was fitted.
    pub analysis: String,
    pub settings: Value,
    /// Information about the data that the encoder was fitted on.
    pub about: Value,
}

#[derive(Serialize, Deserialize)]
struct Written {
    kind: String,
    version: u32,
    analysis: String,
    settings: Value,
    about: Value,
    /// BLAKE3 digests of the other files.
    files: BTreeMap<String, String>,
}

/// Contents of a static encoder's folder, with the tensors memory-mapped.
pub(super) struct Contents {
    pub kind: String,
    pub words: Vec<Box<str>>,
    settings: Value,
    about: Value,
    folder: PathBuf,
    tensors: Mapped,
}

/// Returns the kind of encoder in a folder; `None` if the folder has no valid description.
pub(super) fn kind(folder: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct Kind {
        kind: String,
    }
    let path = folder.join(DESCRIPTION);
    if fs::metadata(&path).ok()?.len() > MOST_BYTES {
        return None;
    }
    Some(serde_json::from_slice::<Kind>(&fs::read(path).ok()?).ok()?.kind)
}

/// Converts a value to JSON. Fails only if the type cannot be serialized.
pub(super) fn to_json(value: &impl Serialize) -> Result<Value> {
    serde_json::to_value(value).map_err(|e| Error::Internal(format!("settings cannot be serialized: {e}")))
}

/// Saves an encoder. Writes it to a new folder and then replaces `folder`, so `folder` is never incomplete. Fails if
/// `folder` contains anything other than a static encoder.
pub(super) fn save<'a>(
    folder: &Path,
    description: Description,
    words: impl Iterator<Item = &'a str>,
    tensors: &[Tensor],
) -> Result<()> {
    refuse_to_replace(folder)?;
    let new = sibling(folder, "new");
    files::remove_folder(&new)?;
    fs::create_dir_all(&new).at("create", &new)?;
    let digests = BTreeMap::from([
        (WORDS.to_owned(), write_words(&new.join(WORDS), words)?.to_string()),
        (MODEL.to_owned(), write(&new.join(MODEL), tensors)?.to_string()),
    ]);
    let Description { kind, analysis, settings, about } = description;
    let written = Written { kind, version: VERSION, analysis, settings, about, files: digests };
    files::replace_json(&new.join(DESCRIPTION), &written)?;
    files::sync_folder(&new)?;
    files::replace_folder(&new, folder, &sibling(folder, "old"))
}

/// Path of a temporary folder next to `folder`. Only turnwise uses this name, so leftovers of an interrupted run can
/// be removed.
fn sibling(folder: &Path, what: &str) -> PathBuf {
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push(format!(".turnwise-{what}"));
    folder.with_file_name(name)
}

/// Returns an error if the folder contains anything other than a static encoder.
fn refuse_to_replace(folder: &Path) -> Result<()> {
    if folder.file_name().is_none() {
        return Err(Error::input(format!("{} has no folder name", folder.display()))
            .with_hint("give the path of a folder that can be replaced"));
    }
    let known = kind(folder).is_some_and(|k| super::KINDS.contains(&k.as_str()));
    let empty = || fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    if known || !folder.exists() || empty() {
        return Ok(());
    }
    Err(Error::input(format!("{} already exists and is not a static encoder", folder.display()))
        .with_hint("choose another folder, or remove it first"))
}

fn write_words<'a>(path: &Path, words: impl Iterator<Item = &'a str>) -> Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut file = BufWriter::new(File::create(path).at("create", path)?);
    for word in words {
        for bytes in [word.as_bytes(), b"\n"] {
            hasher.update(bytes);
            file.write_all(bytes).at("write", path)?;
        }
    }
    let file = file.into_inner().map_err(|e| e.into_error()).at("write", path)?;
    file.sync_all().at("flush", path)?;
    Ok(hasher.finalize())
}

/// Reads a folder and checks the digests of its files. Fails if a file is damaged, or if the folder format or the text
/// analyzer has a different version.
pub(super) fn open(folder: &Path) -> Result<Contents> {
    let path = folder.join(DESCRIPTION);
    if !path.exists() {
        return Err(Error::input(format!("{} is not a static encoder", folder.display())).with_hint(
            format!("the folder of a static encoder contains {DESCRIPTION}, {WORDS} and {MODEL}"),
        ));
    }
    let bytes = fs::read(&path).at("read", &path)?;
    let damaged = |path: &Path, what: String| Error::corrupt(path, what).with_hint(FIT_AGAIN);
    // Check the version first, because other versions can have different fields.
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let version: Version = serde_json::from_slice(&bytes).map_err(|e| damaged(&path, e.to_string()))?;
    if version.version != VERSION {
        let message = format!(
            "{} has version {}, but this turnwise supports version {VERSION}",
            path.display(),
            version.version
        );
        return Err(
            Error::input(message).with_hint("use the turnwise that wrote it, or fit the encoder again")
        );
    }
    let written: Written = serde_json::from_slice(&bytes).map_err(|e| damaged(&path, e.to_string()))?;
    if written.analysis != ANALYZER {
        let message = format!(
            "{} was fitted with the text analyzer `{}`, but this turnwise uses `{ANALYZER}`",
            folder.display(),
            written.analysis
        );
        return Err(Error::input(message).with_hint("fit the encoder again"));
    }
    let check = |name: &str, digest: blake3::Hash| match written.files.get(name) {
        Some(known) if *known == digest.to_string() => Ok(()),
        _ => Err(damaged(
            &folder.join(name),
            format!("the file is damaged: its digest differs from the one in {DESCRIPTION}"),
        )),
    };
    let words_path = folder.join(WORDS);
    let words = fs::read(&words_path).at("read", &words_path)?;
    check(WORDS, blake3::hash(&words))?;
    let tensors = Mapped::open(&folder.join(MODEL))?;
    check(MODEL, tensors.digest())?;
    let words =
        String::from_utf8(words).map_err(|_| damaged(&words_path, "the words are not UTF-8".to_owned()))?;
    Ok(Contents {
        kind: written.kind,
        words: words.split_terminator('\n').map(Box::from).collect(),
        settings: written.settings,
        about: written.about,
        folder: folder.to_owned(),
        tensors,
    })
}

impl Contents {
    /// Settings of the encoder.
    pub fn settings<T: DeserializeOwned>(&self) -> Result<T> {
        self.read(&self.settings)
    }

    /// Information about the data that the encoder was fitted on.
    pub fn about<T: DeserializeOwned>(&self) -> Result<T> {
        self.read(&self.about)
    }

    fn read<T: DeserializeOwned>(&self, value: &Value) -> Result<T> {
        T::deserialize(value)
            .map_err(|e| Error::corrupt(self.folder.join(DESCRIPTION), e.to_string()).with_hint(FIT_AGAIN))
    }

    /// Reads a one-dimensional tensor with `length` elements.
    pub fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>> {
        let path = self.folder.join(MODEL);
        let (shape, numbers) = self.tensors.get(&path, name)?;
        match shape == [length] {
            true => Ok(numbers),
            false => Err(Self::misshapen(&path, name, &shape, &length.to_string())),
        }
    }

    /// Reads a matrix with `rows` rows. Returns the number of columns and the elements.
    pub fn rows(&self, name: &str, rows: usize) -> Result<(usize, Vec<f32>)> {
        let path = self.folder.join(MODEL);
        let (shape, numbers) = self.tensors.get(&path, name)?;
        match shape.as_slice() {
            [found, width] if *found == rows && rows > 0 && *width > 0 => Ok((*width, numbers)),
            _ => Err(Self::misshapen(&path, name, &shape, &format!("{rows}, n"))),
        }
    }

    /// Returns true if the file has a tensor with this name.
    pub fn has(&self, name: &str) -> Result<bool> {
        self.tensors.has(&self.folder.join(MODEL), name)
    }

    /// Error for contents that contradict each other.
    pub fn damaged(&self, what: String) -> Error {
        Error::corrupt(&self.folder, what).with_hint(FIT_AGAIN)
    }

    fn misshapen(path: &Path, name: &str, shape: &[usize], wanted: &str) -> Error {
        Error::corrupt(path, format!("the tensor `{name}` has the shape {shape:?} instead of [{wanted}]"))
            .with_hint(FIT_AGAIN)
    }
}

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

/// Writes tensors to a safetensors file and returns its BLAKE3 digest.
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
        // SAFETY: `save` writes a new folder and replaces the old one. It never changes an existing file.
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
