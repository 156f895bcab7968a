//! Detects changes of the dialogues that a name refers to.

use super::{connection::Connection, manifest::Manifest, schema::missing, target::Target};
use turnwise_core::error::Result;
use turnwise_index::vectors::Kind;
use turnwise_store::Totals;

/// State of a name at one moment: manifest and totals.
#[derive(Debug, Clone, PartialEq)]
pub struct MilvusVersion {
    manifest: Manifest,
    totals: Totals,
}

/// Polls the state of a name over one connection.
pub struct ChangeWatcher {
    connection: Connection,
}

impl ChangeWatcher {
    /// Opens a connection.
    pub fn open(target: &Target) -> Result<Self> {
        Ok(ChangeWatcher { connection: Connection::open(target)? })
    }

    /// Returns the current state of the name. It is an error if the collections are not loaded, for example
    /// after a restart of the server; opening the engine loads them.
    pub fn look(&self) -> Result<MilvusVersion> {
        let connection = &self.connection;
        let Some(manifest) = connection.manifest()? else {
            return Err(missing(&connection.target.to_string()));
        };
        let name = &connection.target.name;
        let rows = Kind::ALL.map(|kind| manifest.rows(name, kind));
        for collection in rows.iter().chain([&manifest.records(name)]) {
            // No row has an empty key. The query only checks that the collection is loaded.
            connection.rows(collection, "key == \"\"", &["key"])?;
        }
        let totals = connection.totals(&manifest)?;
        Ok(MilvusVersion { manifest, totals })
    }
}
