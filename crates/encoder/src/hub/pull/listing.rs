//! Requests the file list of a model from the hub: the commit, and the name, size and digest of each file.

use serde::Deserialize;
use turnwise_core::error::{Error, Result, closest_name};

use crate::hub::{
    KNOWN,
    cache::is_commit,
    files,
    pull::{Client, FetchError, Progress, Spec},
};

/// The files to download for a model, at one commit.
pub(super) struct Listing {
    pub(super) commit: String,
    pub(super) files: Vec<Listed>,
}

pub(super) struct Listed {
    pub(super) path: String,
    pub(super) bytes: u64,
    /// Name of the file's blob in the cache: the SHA-256 of a large file, or the git digest of a small file.
    pub(super) etag: String,
    pub(super) sha256: Option<String>,
}

#[derive(Deserialize)]
struct ModelInfo {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

impl Listing {
    pub(super) fn url(&self, client: &Client, spec: &Spec, file: &Listed) -> String {
        format!("{}/{}/resolve/{}/{}", client.endpoint, spec.repository, self.commit, file.path)
    }
}

/// Requests the file list of a model. Fails if the model or its revision does not exist.
pub(super) fn fetch(spec: &Spec, client: &Client, watch: &mut dyn Progress) -> Result<Listing, FetchError> {
    // The API expects the revision as one path segment.
    let revision = spec.revision().replace('/', "%2F");
    let url = format!("{}/api/models/{}/revision/{revision}?blobs=true", client.endpoint, spec.repository);
    let (response, text) = client.text(&url, watch)?;
    if response.status != 200 {
        let code = response.header("x-error-code").unwrap_or_default();
        return Err(refusal(spec, response.status, code, client.token.is_some()).into());
    }
    let invalid =
        |what: &str| FetchError::Unreachable(format!("invalid response from {}: {what}", client.endpoint));
    let info: ModelInfo = serde_json::from_slice(&text).map_err(|e| invalid(&e.to_string()))?;
    if !is_commit(&info.sha) {
        return Err(invalid("no commit"));
    }
    let names = info.siblings.iter().map(|s| s.rfilename.as_str());
    let chosen: Vec<String> =
        files::choose(&spec.repository, names)?.into_iter().map(str::to_owned).collect();
    let mut listed = Vec::new();
    for sibling in info.siblings.into_iter().filter(|s| chosen.contains(&s.rfilename)) {
        let path = sibling.rfilename;
        let file = match (sibling.lfs, sibling.size, sibling.blob_id) {
            (Some(lfs), _, _) => {
                let sha256 = lfs.sha256.to_lowercase();
                Listed { path, bytes: lfs.size, etag: sha256.clone(), sha256: Some(sha256) }
            }
            (None, Some(bytes), Some(etag)) => Listed { path, bytes, etag, sha256: None },
            _ => return Err(invalid(&format!("no size or digest of {path}"))),
        };
        let lengths = if file.sha256.is_some() { 64..=64 } else { 40..=usize::MAX };
        if !lengths.contains(&file.etag.len()) || !file.etag.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(invalid(&format!("invalid digest `{}` of {}", file.etag, file.path)));
        }
        listed.push(file);
    }
    // Small files come first, so that an unsupported configuration is detected before the weights are downloaded.
    listed.sort_by(|a, b| (a.bytes, &a.path).cmp(&(b.bytes, &b.path)));
    Ok(Listing { commit: info.sha, files: listed })
}

/// Creates the error for a response with an HTTP status other than 200. `code` is the hub's own error code; empty if
/// there is none.
fn refusal(spec: &Spec, status: u16, code: &str, has_token: bool) -> Error {
    let repository = &spec.repository;
    let (message, hint) = match (status, code) {
        (_, "RevisionNotFound") => {
            let message = format!("{repository} has no revision `{}`", spec.revision());
            return Error::input(message).with_hint("the default revision is main");
        }
        (_, "GatedRepo") => {
            let message = format!("{repository} is gated: its owners must grant you access ({status})");
            let hint = "request access on the model's page, then set HF_TOKEN to your token";
            return Error::input(message).with_hint(hint);
        }
        (401 | 403, _) if has_token => (
            format!(
                "the hub denies access to {repository} ({status}): it does not exist, or HF_TOKEN has no access to it"
            ),
            "check the name, and that the token is valid and has read access",
        ),
        (401 | 403, _) => (
            format!("the hub denies access to {repository} ({status}): it does not exist, or it is private"),
            "check the name; for a private model, set HF_TOKEN",
        ),
        (404, _) => (
            format!("the hub has no model {repository} ({status})"),
            "check the name; `turnwise model list` shows the built-in models",
        ),
        _ => return Error::input(format!("the hub returned HTTP status {status} for {repository}")),
    };
    let near = closest_name(repository, KNOWN.iter().map(|known| known.repository));
    match near.filter(|near| near != repository) {
        Some(near) => Error::input(message).with_hint(format!("did you mean `{near}`?")),
        None => Error::input(message).with_hint(hint),
    }
}
