//! What the hub says about a model: its commit, and each file's name, size and digest.

use serde::Deserialize;

use super::{Client, Progress, Spec, Trouble};
use crate::hub::{KNOWN, cache::is_commit, files};
use turnwise_core::error::{Error, Result, nearest};

/// A revision and those of its files that an encoder reads.
pub(super) struct Listing {
    pub(super) commit: String,
    pub(super) files: Vec<Listed>,
}

/// One file.
pub(super) struct Listed {
    pub(super) path: String,
    pub(super) bytes: u64,
    /// What names its content in the cache: the SHA-256 of a large file, git's digest of a small one.
    pub(super) etag: String,
    pub(super) sha256: Option<String>,
}

#[derive(Deserialize)]
struct Answered {
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
    /// Where a file is.
    pub(super) fn url(&self, client: &Client, spec: &Spec, file: &Listed) -> String {
        format!("{}/{}/resolve/{}/{}", client.endpoint, spec.repository, self.commit, file.path)
    }
}

/// Asks for it.
pub(super) fn fetch(spec: &Spec, client: &Client, watch: &mut dyn Progress) -> Result<Listing, Trouble> {
    // In an address a revision is one word.
    let revision = spec.revision().replace('/', "%2F");
    let url = format!("{}/api/models/{}/revision/{revision}?blobs=true", client.endpoint, spec.repository);
    let (answer, text) = client.text(&url, watch)?;
    if answer.status != 200 {
        let code = answer.header("x-error-code").unwrap_or_default();
        return Err(refusal(spec, answer.status, code, client.has_token()).into());
    }
    let nonsense = |what: &str| {
        Trouble::Unreachable(format!("{} does not answer as a hub does: {what}", client.endpoint))
    };
    let answered: Answered = serde_json::from_slice(&text).map_err(|e| nonsense(&e.to_string()))?;
    if !is_commit(&answered.sha) {
        return Err(nonsense("it tells no commit"));
    }
    let names = answered.siblings.iter().map(|s| s.rfilename.as_str());
    let chosen: Vec<String> =
        files::choose(&spec.repository, names)?.into_iter().map(str::to_owned).collect();
    let mut listed = Vec::new();
    for sibling in answered.siblings.into_iter().filter(|s| chosen.contains(&s.rfilename)) {
        let path = sibling.rfilename;
        let file = match (sibling.lfs, sibling.size, sibling.blob_id) {
            (Some(lfs), _, _) => {
                let sha256 = lfs.sha256.to_lowercase();
                Listed { path, bytes: lfs.size, etag: sha256.clone(), sha256: Some(sha256) }
            }
            (None, Some(bytes), Some(etag)) => Listed { path, bytes, etag, sha256: None },
            _ => return Err(nonsense(&format!("it does not tell size and digest of {path}"))),
        };
        let is_digest = |text: &str, long: bool| {
            text.bytes().all(|b| b.is_ascii_hexdigit())
                && (if long { text.len() == 64 } else { text.len() >= 40 })
        };
        if !is_digest(&file.etag, file.sha256.is_some()) {
            return Err(nonsense(&format!("`{}` is no digest of {}", file.etag, file.path)));
        }
        listed.push(file);
    }
    // The small ones first: what is wrong with a model mostly stands in them.
    listed.sort_by(|a, b| (a.bytes, &a.path).cmp(&(b.bytes, &b.path)));
    Ok(Listing { commit: answered.sha, files: listed })
}

fn refusal(spec: &Spec, status: u16, code: &str, has_token: bool) -> Error {
    let repository = &spec.repository;
    let near =
        nearest(repository, KNOWN.iter().map(|known| known.repository)).filter(|near| near != repository);
    let meant = near.map(|near| format!("did you mean `{near}`?"));
    let (message, hint) = match (status, code) {
        (_, "RevisionNotFound") => (
            format!("{repository} has no revision `{}`", spec.revision()),
            Some("main is the usual one".to_owned()),
        ),
        (_, "GatedRepo") => (
            format!("{repository} is gated: its owners grant access one by one ({status})"),
            Some("ask for access on its page, then set HF_TOKEN to a token of yours".to_owned()),
        ),
        (401 | 403, _) if has_token => (
            format!(
                "the hub refuses {repository} ({status}): it does not exist, or HF_TOKEN may not read it"
            ),
            meant.or_else(|| Some("check the name, and that the token is valid and may read it".to_owned())),
        ),
        (401 | 403, _) => (
            format!("the hub refuses {repository} ({status}): it does not exist, or it is private"),
            meant.or_else(|| Some("check the name; for a private model set HF_TOKEN".to_owned())),
        ),
        (404, _) => (
            format!("the hub has no model {repository} ({status})"),
            meant.or_else(|| {
                Some("check the name; `turnwise model list` shows those that are known".to_owned())
            }),
        ),
        _ => (format!("the hub answers {status} to the question for {repository}"), None),
    };
    Error::Input { message, hint }
}
