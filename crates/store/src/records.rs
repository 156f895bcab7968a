//! The records in sled, by sequence number: a second copy beside the log, each able to mend the other.
//!
//! Keys are sequence numbers and therefore come in order, which is what sled is good at: random keys cost it several times
//! the memory. The writer alone opens it (sled admits one process); readers in other processes use the log.

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

pub use turnwise_core::error::{caught, panic_is_caught};
use turnwise_core::{
    error::{Error, Result},
    files,
    ids::Seq,
};

/// sled's page cache. Appending in key order needs no more.
const CACHE_BYTES: u64 = 64 << 20;
/// How long an earlier opening in this process may take to let go of sled's files.
const PATIENCE: Duration = Duration::from_secs(20);
/// Sorts before every sequence number: how far this copy has come, changed in one step with it.
const REACHED_KEY: &[u8] = b"";
/// Stands under that key while the copy is made anew.
const BEING_MADE: u64 = u64::MAX;

/// How far this copy has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// It is what the log was after this batch.
    Batch(u64),
    /// It is being made anew, or that was cut short: only the first records are there.
    BeingMade,
}

/// The sled side of a store.
pub struct Records {
    path: PathBuf,
    db: sled::Db,
}

impl Records {
    /// Opens or creates it. Any failure means that it is damaged and can be made anew from the log.
    pub fn open(path: &Path) -> Result<Self> {
        let config = sled::Config::new()
            .path(path)
            .cache_capacity(CACHE_BYTES)
            // The log is what survives a crash; flushing here is asked for at checkpoints only.
            .flush_every_ms(None)
            .mode(sled::Mode::HighThroughput);
        let deadline = Instant::now() + PATIENCE;
        let db = guarded(path, || {
            loop {
                match config.open() {
                    // Writing goes on in sled's threads for a moment after it was dropped, and holds its lock. Nobody else
                    // can: the store's own lock is held by whoever comes here.
                    Err(e) if is_locked(&e) && Instant::now() < deadline => {
                        thread::sleep(Duration::from_millis(2));
                    }
                    outcome => return outcome,
                }
            }
        })?;
        Ok(Records { path: path.to_owned(), db })
    }

    /// Removes it, once an earlier opening in this process has let go of its files.
    pub(super) fn remove(path: &Path) -> Result<()> {
        if let Ok(file) = File::open(path.join("db")) {
            let deadline = Instant::now() + PATIENCE;
            while matches!(file.try_lock(), Err(TryLockError::WouldBlock)) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(2));
            }
        }
        files::remove_folder(path)
    }

    /// How far it has come.
    pub fn reached(&self) -> Result<Reached> {
        let value = guarded(&self.path, || self.db.get(REACHED_KEY))?;
        Ok(match value.and_then(|v| v.as_ref().try_into().ok()).map_or(0, u64::from_le_bytes) {
            BEING_MADE => Reached::BeingMade,
            batch => Reached::Batch(batch),
        })
    }

    /// Applies a change, after which it has come so far: all of it or nothing.
    pub fn apply<'a>(
        &self,
        reached: Reached,
        puts: impl Iterator<Item = (Seq, &'a [u8])>,
        removed: impl Iterator<Item = Seq>,
    ) -> Result<()> {
        let mut change = sled::Batch::default();
        for (seq, json) in puts {
            change.insert(&seq.0.to_be_bytes(), json);
        }
        for seq in removed {
            change.remove(&seq.0.to_be_bytes());
        }
        let reached = match reached {
            Reached::Batch(batch) => batch,
            Reached::BeingMade => BEING_MADE,
        };
        change.insert(REACHED_KEY, &reached.to_le_bytes());
        guarded(&self.path, || self.db.apply_batch(change))
    }

    /// A record.
    pub fn get(&self, seq: Seq) -> Result<Option<Vec<u8>>> {
        let value = guarded(&self.path, || self.db.get(seq.0.to_be_bytes()))?;
        Ok(value.map(|v| v.to_vec()))
    }

    /// All records in order.
    pub fn iter(&self) -> impl Iterator<Item = Result<(Seq, Vec<u8>)>> + '_ {
        let mut inner = self.db.iter();
        std::iter::from_fn(move || {
            loop {
                let next = guarded(&self.path, || inner.next().transpose());
                return match next {
                    Ok(None) => None,
                    Err(e) => Some(Err(e)),
                    Ok(Some((key, value))) => match key.as_ref().try_into() {
                        Ok(key) => Some(Ok((Seq(u64::from_be_bytes(key)), value.to_vec()))),
                        Err(_) => continue,
                    },
                };
            }
        })
    }

    /// Writes out what is in memory, to shorten the next start.
    pub fn flush(&self) -> Result<()> {
        guarded(&self.path, || self.db.flush()).map(|_| ())
    }
}

/// sled tells this in words only.
fn is_locked(error: &sled::Error) -> bool {
    matches!(error, sled::Error::Io(e) if e.to_string().starts_with("could not acquire lock"))
}

/// Calls into sled, which answers some kinds of damage with a panic.
fn guarded<T>(path: &Path, call: impl FnOnce() -> sled::Result<T>) -> Result<T> {
    match caught(call) {
        Some(Ok(value)) => Ok(value),
        Some(Err(sled::Error::Io(source))) => {
            // sled hands its causes on as text made for programmers; the kind says it better.
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
    fn a_batch_is_applied_whole_with_its_number() {
        let dir = tempfile::tempdir().unwrap();
        {
            let records = Records::open(dir.path()).unwrap();
            assert_eq!(records.reached().unwrap(), Reached::Batch(0));
            let puts = [(Seq(1), &b"one"[..]), (Seq(2), b"two")];
            records.apply(Reached::Batch(7), puts.into_iter(), std::iter::empty()).unwrap();
            records.apply(Reached::Batch(8), std::iter::empty(), std::iter::once(Seq(1))).unwrap();
        }
        let records = Records::open(dir.path()).unwrap();
        assert_eq!(records.reached().unwrap(), Reached::Batch(8));
        let all: Vec<_> = records.iter().map(Result::unwrap).collect();
        assert_eq!(all, [(Seq(2), b"two".to_vec())]);
        assert_eq!(records.get(Seq(1)).unwrap(), None);
    }

    #[test]
    fn it_opens_while_an_earlier_opening_lets_go() {
        let dir = tempfile::tempdir().unwrap();
        let earlier = Records::open(dir.path()).unwrap();
        thread::scope(|scope| {
            let later = scope.spawn(|| Records::open(dir.path()).map(drop));
            thread::sleep(Duration::from_millis(50));
            assert!(!later.is_finished(), "it did not wait");
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
                        Reached::Batch(batch),
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
                    records.reached().unwrap();
                    assert!(all.len() <= 49);
                }
                Err(e) => assert!(matches!(e, Error::Corrupt { .. } | Error::Io { .. }), "{e}"),
            }
        }
    }
}
