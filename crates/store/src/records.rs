//! Copy of the live records in the embedded database sled. If the log is damaged, [`crate::repair`] restores lost
//! records from this copy. If the copy is damaged, it is rebuilt from the log.
//!
//! Keys are sequence numbers, so keys are inserted in ascending order. With random keys, sled needs several times the
//! memory. Only the writer opens sled, because only one process at a time can open a sled database. Readers use the
//! log.

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use turnwise_core::{Error, Result, Seq, error::caught, files};

/// Size of sled's page cache in bytes. A larger cache does not help, because records are appended in key order.
const CACHE_BYTES: u64 = 64 << 20;
/// Maximum time to wait for the file lock of a database that this process has just closed.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);
/// Key under which sled stores the number of the last applied batch. This key sorts before all sequence numbers. The
/// number is updated atomically with the records.
const STATE_KEY: &[u8] = b"";
/// Value of [`STATE_KEY`] during a rebuild.
const REBUILDING: u64 = u64::MAX;

/// State of the copy of the records in sled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncState {
    /// The copy contains the records that were live after the batch with this number.
    Batch(u64),
    /// A rebuild is running or was interrupted. The copy is incomplete.
    Rebuilding,
}

/// Copy of the live records in a sled database, from which a damaged log can be repaired.
pub struct Records {
    path: PathBuf,
    db: sled::Db,
    /// Whether every call of [`Records::apply`] fails. Tests set this to check how the store handles the error.
    #[cfg(test)]
    pub(super) fails: bool,
}

impl Records {
    /// Opens the database, or creates it if it does not exist. Returns [`Error::Corrupt`] if the database is damaged.
    pub fn open(path: &Path) -> Result<Self> {
        let config = sled::Config::new()
            .path(path)
            .cache_capacity(CACHE_BYTES)
            // The log provides durability, so sled is flushed only at checkpoints.
            .flush_every_ms(None)
            .mode(sled::Mode::HighThroughput);
        let deadline = Instant::now() + LOCK_TIMEOUT;
        let db = call_sled(path, || {
            loop {
                match config.open() {
                    // After a database is dropped, sled's threads keep writing for a moment and hold the file lock. No
                    // other process can hold this lock, because the caller holds the writer lock of the index.
                    Err(e) if is_locked(&e) && Instant::now() < deadline => {
                        thread::sleep(Duration::from_millis(2));
                    }
                    outcome => return outcome,
                }
            }
        })?;
        Ok(Records {
            path: path.to_owned(),
            db,
            #[cfg(test)]
            fails: false,
        })
    }

    /// Removes the database folder. If sled's threads in this process still hold the file lock, first waits for up to
    /// 20 seconds.
    pub(super) fn remove(path: &Path) -> Result<()> {
        if let Ok(file) = File::open(path.join("db")) {
            let deadline = Instant::now() + LOCK_TIMEOUT;
            while matches!(file.try_lock(), Err(TryLockError::WouldBlock)) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(2));
            }
        }
        files::remove_folder(path)
    }

    /// Returns the number of the last applied batch, or [`SyncState::Rebuilding`] if a rebuild is incomplete. The
    /// number is 0 for a new database.
    pub fn sync_state(&self) -> Result<SyncState> {
        let value = call_sled(&self.path, || self.db.get(STATE_KEY))?;
        Ok(match value.and_then(|v| v.as_ref().try_into().ok()).map_or(0, u64::from_le_bytes) {
            REBUILDING => SyncState::Rebuilding,
            batch => SyncState::Batch(batch),
        })
    }

    /// Inserts and removes records and sets the sync state to `state`, in one atomic operation.
    pub fn apply<'a>(
        &self,
        state: SyncState,
        puts: impl Iterator<Item = (Seq, &'a [u8])>,
        removed: impl Iterator<Item = Seq>,
    ) -> Result<()> {
        #[cfg(test)]
        if self.fails {
            return Err(Error::corrupt(&self.path, "this write fails in a test"));
        }
        let mut change = sled::Batch::default();
        for (seq, json) in puts {
            change.insert(&seq.0.to_be_bytes(), json);
        }
        for seq in removed {
            change.remove(&seq.0.to_be_bytes());
        }
        let state = match state {
            SyncState::Batch(batch) => batch,
            SyncState::Rebuilding => REBUILDING,
        };
        change.insert(STATE_KEY, &state.to_le_bytes());
        call_sled(&self.path, || self.db.apply_batch(change))
    }

    /// Returns the JSON of a record, or `None` if the database does not contain the record.
    pub fn get(&self, seq: Seq) -> Result<Option<Vec<u8>>> {
        let value = call_sled(&self.path, || self.db.get(seq.0.to_be_bytes()))?;
        Ok(value.map(|v| v.to_vec()))
    }

    /// Iterates over all records in the order of their sequence numbers.
    pub fn iter(&self) -> impl Iterator<Item = Result<(Seq, Vec<u8>)>> + '_ {
        let mut inner = self.db.iter();
        let next = move || call_sled(&self.path, || inner.next().transpose()).transpose();
        std::iter::from_fn(next).filter_map(|item| match item {
            // Skip the entry of [`STATE_KEY`]: its key is too short to be a sequence number.
            Ok((key, value)) => {
                let seq = key.as_ref().try_into().ok().map(u64::from_be_bytes)?;
                Some(Ok((Seq(seq), value.to_vec())))
            }
            Err(e) => Some(Err(e)),
        })
    }

    /// Flushes all changes to disk. This makes the next opening faster.
    pub fn flush(&self) -> Result<()> {
        call_sled(&self.path, || self.db.flush()).map(|_| ())
    }
}

/// Returns whether an error means that the database is locked. sled reports this only in the error text.
fn is_locked(error: &sled::Error) -> bool {
    matches!(error, sled::Error::Io(e) if e.to_string().starts_with("could not acquire lock"))
}

/// Calls sled and converts its errors and panics to [`Error`]. sled panics on some kinds of damage.
fn call_sled<T>(path: &Path, call: impl FnOnce() -> sled::Result<T>) -> Result<T> {
    match caught(call) {
        Some(Ok(value)) => Ok(value),
        Some(Err(sled::Error::Io(source))) => {
            // sled's error text is written for sled developers. The text of the error kind is clearer.
            let source = std::io::Error::from(source.kind());
            Err(Error::Io { action: "use the records in", path: path.to_owned(), source })
        }
        Some(Err(e)) => Err(Error::corrupt(path, format!("sled reports: {e}"))),
        None => Err(Error::corrupt(path, "sled cannot read its files")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_applied_atomically_with_its_number() {
        let dir = tempfile::tempdir().unwrap();
        {
            let records = Records::open(dir.path()).unwrap();
            assert_eq!(records.sync_state().unwrap(), SyncState::Batch(0));
            let puts = [(Seq(1), &b"one"[..]), (Seq(2), b"two")];
            records.apply(SyncState::Batch(7), puts.into_iter(), std::iter::empty()).unwrap();
            records.apply(SyncState::Batch(8), std::iter::empty(), std::iter::once(Seq(1))).unwrap();
        }
        let records = Records::open(dir.path()).unwrap();
        assert_eq!(records.sync_state().unwrap(), SyncState::Batch(8));
        let all: Vec<_> = records.iter().map(Result::unwrap).collect();
        assert_eq!(all, [(Seq(2), b"two".to_vec())]);
        assert_eq!(records.get(Seq(1)).unwrap(), None);
    }

    #[test]
    fn open_waits_for_an_earlier_handle_to_close() {
        let dir = tempfile::tempdir().unwrap();
        let earlier = Records::open(dir.path()).unwrap();
        thread::scope(|scope| {
            let later = scope.spawn(|| Records::open(dir.path()).map(drop));
            thread::sleep(Duration::from_millis(50));
            assert!(!later.is_finished(), "open did not wait");
            drop(earlier);
            later.join().unwrap().unwrap();
        });
    }

    #[test]
    fn damage_is_an_error_or_an_old_state_but_never_a_panic() {
        let dir = tempfile::tempdir().unwrap();
        {
            let records = Records::open(dir.path()).unwrap();
            for batch in 1..50 {
                let value = [batch as u8; 3000];
                records
                    .apply(
                        SyncState::Batch(batch),
                        std::iter::once((Seq(batch), &value[..])),
                        std::iter::empty(),
                    )
                    .unwrap();
            }
        }
        let db = dir.path().join("db");
        let good = std::fs::read(&db).unwrap();
        for at in (0..good.len()).step_by(good.len() / 40) {
            let mut bad = good.clone();
            let until = (at + 50).min(bad.len());
            bad[at..until].fill(0xa5);
            std::fs::write(&db, &bad).unwrap();
            match Records::open(dir.path())
                .and_then(|r| r.iter().collect::<Result<Vec<_>>>().map(|all| (r, all)))
            {
                Ok((records, all)) => {
                    records.sync_state().unwrap();
                    assert!(all.len() <= 49);
                }
                Err(e) => assert!(matches!(e, Error::Corrupt { .. } | Error::Io { .. }), "{e}"),
            }
        }
    }
}
