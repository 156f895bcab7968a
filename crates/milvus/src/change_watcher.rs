//! Whether what a name stands for is still as it was.

use super::{connection::Connection, manifest::Manifest, schema::missing, target::Target};
use turnwise_core::error::Result;
use turnwise_index::vectors::Kind;
use turnwise_store::frame::Totals;

/// What a name stood for at a moment.
#[derive(Debug, Clone, PartialEq)]
pub struct MilvusVersion {
    manifest: Manifest,
    totals: Totals,
}

/// Looks at a name again and again, over one connection.
pub struct ChangeWatcher {
    connection: Connection,
}

impl ChangeWatcher {
    /// Connects.
    pub fn open(target: &Target) -> Result<Self> {
        Ok(ChangeWatcher { connection: Connection::open(target)? })
    }

    /// What the name stands for now. An error also where it cannot be searched, as after a start of the server: opening the
    /// engine mends that.
    pub fn look(&self) -> Result<MilvusVersion> {
        let connection = &self.connection;
        let Some(manifest) = connection.manifest()? else {
            return Err(missing(&connection.target.to_string()));
        };
        let name = &connection.target.name;
        let rows = Kind::ALL.map(|kind| manifest.rows(name, kind));
        for collection in rows.iter().chain([&manifest.records(name)]) {
            // Nothing has no key, and yet only what is loaded can be asked.
            connection.rows(collection, "key == \"\"", &["key"])?;
        }
        let totals = connection.totals(&manifest)?;
        Ok(MilvusVersion { manifest, totals })
    }
}
