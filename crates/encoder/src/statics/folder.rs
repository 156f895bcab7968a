//! Folder of a static encoder. `turnwise.json` describes the encoder and has the digests of the other files.
//! `words.txt` has one word per line, and `model.safetensors` has the tensors.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};
use turnwise_text::ANALYZER;

use crate::{
    Fingerprint,
    fingerprint::Fingerprinter,
    folder::{
        save::{Numbers, TemporaryFolder, bytes_of, write_tensors},
        weights::Weights,
    },
};

const DESCRIPTION: &str = "turnwise.json";
const WORDS: &str = "words.txt";
const MODEL: &str = "model.safetensors";

/// Version of the folder format.
const VERSION: u32 = 1;

/// Maximum size of `turnwise.json` in bytes. A typical file has a few hundred bytes.
const MAX_BYTES: u64 = 1 << 20;

const FIT_AGAIN: &str = "fit the encoder again, or restore its folder from a backup";

/// Contents of `turnwise.json`, the description of an encoder.
#[derive(Serialize, Deserialize)]
struct Description {
    kind: String,
    version: u32,
    /// Name of the text analyzer with which the encoder was fitted.
    analysis: String,
    settings: Value,
    /// Information about the data that the encoder was fitted on.
    about: Value,
    /// BLAKE3 digest of every file in the folder except `turnwise.json`, by file name.
    files: BTreeMap<String, String>,
}

/// Contents of a static encoder's folder, with the tensors memory-mapped.
pub(super) struct Contents {
    pub words: Vec<Box<str>>,
    description: Description,
    folder: PathBuf,
    weights: Weights,
}

/// A named tensor of a static encoder.
pub(super) struct Tensor<'a> {
    name: &'static str,
    dims: Vec<usize>,
    numbers: &'a [f32],
}

impl<'a> Tensor<'a> {
    /// Creates a one-dimensional tensor.
    pub fn vector(name: &'static str, numbers: &'a [f32]) -> Self {
        Tensor { name, dims: vec![numbers.len()], numbers }
    }

    /// Creates a matrix in row-major order.
    pub fn matrix(name: &'static str, rows: usize, numbers: &'a [f32]) -> Self {
        Tensor { name, dims: vec![rows, numbers.len() / rows.max(1)], numbers }
    }
}

/// Computes the fingerprint of a static encoder. `words` is the property that contains the encoder's words, as a name
/// and a value.
pub(super) fn fingerprint(
    kind: &str,
    dim: usize,
    flags: &[(&str, bool)],
    words: &(&str, String),
    tensors: &[Tensor],
) -> Fingerprint {
    let mut fingerprint = Fingerprinter::new(kind);
    fingerprint.text("analysis", ANALYZER).text("dim", dim);
    for (name, flag) in flags {
        fingerprint.text(name, flag);
    }
    fingerprint.text(words.0, &words.1);
    for tensor in tensors {
        fingerprint.part(tensor.name, &bytes_of(tensor.numbers));
    }
    fingerprint.finish()
}

/// Returns the kind of encoder in a folder; `None` if the folder has no valid `turnwise.json`.
pub(super) fn kind(folder: &Path) -> Option<String> {
    let path = folder.join(DESCRIPTION);
    if fs::metadata(&path).ok()?.len() > MAX_BYTES {
        return None;
    }
    let description: Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    description["kind"].as_str().map(str::to_owned)
}

/// Saves an encoder. Writes it to a new folder and then replaces `folder`, so `folder` is never incomplete. `words` has
/// one word per line. Fails if `folder` contains anything other than a static encoder.
pub(super) fn save(
    folder: &Path,
    kind: &str,
    settings: &impl Serialize,
    about: &impl Serialize,
    words: &str,
    tensors: &[Tensor],
) -> Result<()> {
    refuse_to_replace(folder)?;
    let new = TemporaryFolder::create(sibling(folder, "new"))?;
    let new = &new.0;
    files::replace(&new.join(WORDS), format!("{words}\n").as_bytes())?;
    let written = tensors.iter().filter(|tensor| !tensor.numbers.is_empty());
    let written = written.map(|t| (t.name, Numbers { dims: &t.dims, numbers: t.numbers }));
    write_tensors(&new.join(MODEL), written)?;
    let mut digests = BTreeMap::new();
    for name in [WORDS, MODEL] {
        digests.insert(name.to_owned(), digest(&new.join(name))?.to_string());
    }
    let description = Description {
        kind: kind.to_owned(),
        version: VERSION,
        analysis: ANALYZER.to_owned(),
        settings: json!(settings),
        about: json!(about),
        files: digests,
    };
    files::replace_json(&new.join(DESCRIPTION), &description)?;
    files::sync_folder(new)?;
    files::replace_folder(new, folder, &sibling(folder, "old"))
}

fn digest(path: &Path) -> Result<blake3::Hash> {
    let file = File::open(path).at("open", path)?;
    Ok(blake3::Hasher::new().update_reader(file).at("read", path)?.finalize())
}

/// Returns the path of a temporary folder next to `folder`. The name of the temporary folder contains `what`. Only
/// turnwise uses such names, so leftovers of an interrupted run can be removed.
fn sibling(folder: &Path, what: &str) -> PathBuf {
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push(format!(".turnwise-{what}"));
    folder.with_file_name(name)
}

/// Returns an error if the folder contains anything other than a static encoder, or if its path has no folder name.
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

/// Opens a folder and checks the digests of its files. Fails if a file is damaged, or if the version of the folder
/// format or of the text analyzer is not the current version.
pub(super) fn open(folder: &Path) -> Result<Contents> {
    let path = folder.join(DESCRIPTION);
    if !path.exists() {
        return Err(Error::input(format!("{} is not a static encoder", folder.display())).with_hint(
            format!("the folder of a static encoder contains {DESCRIPTION}, {WORDS} and {MODEL}"),
        ));
    }
    let bytes = fs::read(&path).at("read", &path)?;
    let damaged = |path: &Path, what: String| Error::corrupt(path, what).with_hint(FIT_AGAIN);
    let description: Value = serde_json::from_slice(&bytes).map_err(|e| damaged(&path, e.to_string()))?;
    // Check the version first, because other versions can have different fields.
    let version = &description["version"];
    if *version != json!(VERSION) {
        let path = path.display();
        return Err(Error::input(format!(
            "{path} has version {version}, but this turnwise supports version {VERSION}"
        ))
        .with_hint("use the turnwise that wrote it, or fit the encoder again"));
    }
    let description: Description =
        serde_json::from_value(description).map_err(|e| damaged(&path, e.to_string()))?;
    if description.analysis != ANALYZER {
        return Err(Error::input(format!(
            "{} was fitted with the text analyzer `{}`, but this turnwise uses `{ANALYZER}`",
            folder.display(),
            description.analysis
        ))
        .with_hint("fit the encoder again"));
    }
    for name in [WORDS, MODEL] {
        let path = folder.join(name);
        if description.files.get(name) != Some(&digest(&path)?.to_string()) {
            let what = format!("the file is damaged: its digest differs from the one in {DESCRIPTION}");
            return Err(damaged(&path, what));
        }
    }
    let path = folder.join(WORDS);
    let words = fs::read(&path).at("read", &path)?;
    let words = String::from_utf8(words).map_err(|_| damaged(&path, "the words are not UTF-8".to_owned()))?;
    Ok(Contents {
        words: words.split_terminator('\n').map(Box::from).collect(),
        description,
        folder: folder.to_owned(),
        weights: Weights::open_file(&folder.join(MODEL)).map_err(|e| e.with_hint(FIT_AGAIN))?,
    })
}

impl Contents {
    /// Returns the kind of the encoder, such as `tfidf-svd`.
    pub fn kind(&self) -> &str {
        &self.description.kind
    }

    /// Returns the settings of the encoder.
    pub fn settings<T: DeserializeOwned>(&self) -> Result<T> {
        self.read(&self.description.settings)
    }

    /// Returns information about the data that the encoder was fitted on.
    pub fn about<T: DeserializeOwned>(&self) -> Result<T> {
        self.read(&self.description.about)
    }

    fn read<T: DeserializeOwned>(&self, value: &Value) -> Result<T> {
        T::deserialize(value)
            .map_err(|e| Error::corrupt(self.folder.join(DESCRIPTION), e.to_string()).with_hint(FIT_AGAIN))
    }

    /// Reads a one-dimensional tensor with `length` elements.
    pub fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>> {
        let numbers = self.weights.expect(name, &[length]).and_then(|tensor| tensor.numbers());
        numbers.map_err(|e| e.with_hint(FIT_AGAIN))
    }

    /// Reads a matrix with `rows` rows. Returns the number of columns and the elements.
    pub fn matrix(&self, name: &str, rows: usize) -> Result<(usize, Vec<f32>)> {
        let columns = match self.weights.get(name).map(|tensor| tensor.dims()) {
            Some([found, columns]) if *found == rows && rows > 0 && *columns > 0 => *columns,
            _ => return Err(self.damaged(format!("`{name}` is not a matrix with {rows} rows"))),
        };
        let numbers = self.weights.expect(name, &[rows, columns]).and_then(|tensor| tensor.numbers());
        Ok((columns, numbers.map_err(|e| e.with_hint(FIT_AGAIN))?))
    }

    /// Creates the error for contents that contradict each other.
    pub fn damaged(&self, what: String) -> Error {
        Error::corrupt(&self.folder, what).with_hint(FIT_AGAIN)
    }
}
