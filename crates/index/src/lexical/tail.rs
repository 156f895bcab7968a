//! Search over records that are newer than the index on disk. These records are indexed in memory.

use std::{fs, path::Path};

use super::{
    Lexical, folder,
    side::{DAMAGED, Side},
    update,
};
use crate::vectors::Kind;
use turnwise_core::error::Result;
use turnwise_store::Snapshot;

impl Lexical {
    /// Opens the lexical index, and indexes in memory the records of the snapshot that are newer than the index. Later
    /// writes and rebuilds do not affect this reader.
    ///
    /// A lexical index that belongs to another log, or is newer than the snapshot, is opened without changes;
    /// [`Lexical::is_current`] is then false.
    pub fn open_at(root: &Path, snapshot: &Snapshot) -> Result<Self> {
        let with_tail = retry_while_changing(root, || Lexical::with_tail(root, snapshot));
        with_tail.or_else(|_| retry_while_changing(root, || Lexical::open(root)?.with_open_files()))
    }

    /// Number of utterances that are indexed in memory only.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    fn with_tail(root: &Path, snapshot: &Snapshot) -> Result<Self> {
        let on_disk = Lexical::open(root)?;
        let is_behind = on_disk.both(|p| p.log == snapshot.log_id() && p.at <= snapshot.end());
        if on_disk.is_current(snapshot) || !is_behind {
            return on_disk.with_open_files();
        }
        let analyzer = on_disk.analyzer;
        let open = |kind: Kind| Side::with_memory_layer(&folder(root).join(kind.name()), analyzer);
        let mut lexical = Lexical::of_sides(analyzer, open)?;
        lexical.tail = lexical.sides[0].guarded(DAMAGED, || update::catch_up(&lexical, snapshot))?;
        lexical.with_open_files()
    }

    fn with_open_files(self) -> Result<Self> {
        for side in &self.sides {
            side.guarded(DAMAGED, || side.state())?;
        }
        Ok(self)
    }
}

/// Calls `open`, and repeats the call after a failure if another process committed in the meantime. A file is removed
/// only after a commit, so a failure without a commit is not temporary.
fn retry_while_changing(root: &Path, open: impl Fn() -> Result<Lexical>) -> Result<Lexical> {
    const TRIES: usize = 100;
    let commits = || Kind::ALL.map(|kind| fs::read(folder(root).join(kind.name()).join("meta.json")).ok());
    let mut before = commits();
    for _ in 1..TRIES {
        let opened = open();
        let now = commits();
        if opened.is_ok() || now == before {
            return opened;
        }
        before = now;
    }
    open()
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        collections::BTreeMap,
        sync::atomic::{AtomicBool, AtomicU64, Ordering},
        thread,
    };

    use super::*;
    use crate::lexical::{
        missing,
        tests::{catch_up, empty_index, name, put, put_turns, update},
    };
    use turnwise_core::ids::DialogueId;

    /// Returns the content of all files of the lexical index, except Tantivy's locks.
    fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
        let sides = Kind::ALL.map(|kind| folder(root).join(kind.name()));
        let entries = sides.iter().flat_map(|side| fs::read_dir(side).unwrap());
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .map(|path| (path.display().to_string(), path))
            .filter(|(name, _)| !name.ends_with(".lock"))
            .map(|(name, path)| (name, fs::read(path).unwrap()))
            .collect()
    }

    /// Searches both kinds with several queries and expressions, and returns the hits with their scores.
    fn found(lexical: &Lexical) -> Vec<Vec<(String, f32)>> {
        let queries =
            ["parcel", "late parcel refund", "the new one", "nothing of that"].map(|q| lexical.words(q));
        let syntax = ["\"late parcel\"", "+parcel -refund"].map(|q| lexical.syntax(q));
        let all = queries.iter().chain(&syntax);
        all.flat_map(|query| Kind::ALL.map(|kind| lexical.find(kind, query, 10, None).unwrap()))
            .map(|hits| hits.iter().map(|hit| (name(hit), hit.score)).collect())
            .collect()
    }

    #[test]
    fn newer_records_are_found_as_after_an_update() {
        let (dir, mut store) = empty_index();
        let root = dir.path();
        for n in 0..40 {
            put_turns(&mut store, &format!("d{n:02}"), &["the parcel is late", ["refund", "thanks"][n % 2]]);
        }
        catch_up(&mut store, root);
        put(&mut store, "d50", "the new one is late, a parcel of parcels");
        put(&mut store, "d03", "something else");
        assert!(store.delete(&DialogueId::new("d04").unwrap()).unwrap());
        store.commit(None).unwrap();

        let before = files(root);
        let snapshot = Snapshot::open(root).unwrap();
        assert!(!Lexical::open(root).unwrap().is_current(&snapshot));
        let lexical = Lexical::open_at(root, &snapshot).unwrap();
        assert!(lexical.is_current(&snapshot));
        assert_eq!(lexical.tail(), 2);
        let with_tail = found(&lexical);
        assert_eq!(files(root), before, "files are unchanged");
        assert!(with_tail[4].iter().any(|(id, _)| id == "d50#1"), "{with_tail:?}");
        assert!(with_tail.iter().flatten().all(|(id, _)| !id.starts_with("d04") && !id.starts_with("d03#")));
        let explained =
            lexical.explain(Kind::Utterances, &lexical.words("new"), &DialogueId::new("d50").unwrap(), None);
        assert_eq!(explained.unwrap().len(), 1);
        let filter = "turn = 1".parse().unwrap();
        let selected = lexical.select(&snapshot, &filter, Kind::Utterances).unwrap().unwrap();
        let hits = lexical.find(Kind::Utterances, &lexical.words("new"), 3, Some(&selected)).unwrap();
        assert_eq!(hits.iter().map(name).collect::<Vec<_>>(), ["d50#1"]);
        drop(lexical);

        assert_eq!(update(root), 2);
        let lexical = Lexical::open_at(root, &snapshot).unwrap();
        assert_eq!(lexical.tail(), 0);
        assert_eq!(found(&lexical), with_tail);
    }

    #[test]
    fn an_index_newer_than_the_snapshot_or_of_another_log_is_opened_unchanged() {
        let (dir, mut store) = empty_index();
        let root = dir.path();
        put(&mut store, "a", "a parcel");
        store.commit(None).unwrap();
        let early = Snapshot::open(root).unwrap();
        put(&mut store, "b", "another parcel");
        catch_up(&mut store, root);
        let lexical = Lexical::open_at(root, &early).unwrap();
        assert!(!lexical.is_current(&early));
        assert_eq!((lexical.tail(), found(&lexical)[0].len()), (0, 2));
        let (other, mut store) = empty_index();
        put(&mut store, "c", "a parcel");
        store.commit(None).unwrap();
        let lexical = Lexical::open_at(root, &Snapshot::open(other.path()).unwrap()).unwrap();
        assert_eq!((lexical.tail(), found(&lexical)[0].len()), (0, 2));
    }
    #[test]
    fn an_open_reader_is_not_affected_by_writes_and_rebuilds() {
        let (dir, mut store) = empty_index();
        let root = dir.path();
        put(&mut store, "anchor", "the broken anchor");
        catch_up(&mut store, root);
        let current = Snapshot::open(root).unwrap();
        let of_current = Lexical::open_at(root, &current).unwrap();
        put(&mut store, "another", "a broken parcel");
        store.commit(None).unwrap();
        let later = Snapshot::open(root).unwrap();
        let with_tail = Lexical::open_at(root, &later).unwrap();
        assert_eq!((of_current.tail(), with_tail.tail()), (0, 1));

        assert!(store.delete(&DialogueId::new("anchor").unwrap()).unwrap());
        catch_up(&mut store, root);
        Lexical::rebuild(None, root, &Snapshot::open(root).unwrap(), &|| false, &mut |_| {}).unwrap();
        let of = |lexical: &Lexical| {
            let hits = lexical.find(Kind::Utterances, &lexical.words("broken"), 3, None).unwrap();
            hits.iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(of(&of_current), ["anchor#1"]);
        assert_eq!(of(&with_tail), ["another#1", "anchor#1"]);
        assert!(of_current.is_current(&current) && with_tail.is_current(&later));
    }

    #[test]
    fn opening_is_retried_only_if_the_index_changed() {
        let (dir, mut store) = empty_index();
        let root = dir.path();
        put(&mut store, "a", "a parcel");
        catch_up(&mut store, root);
        let tries = Cell::new(0);
        let fails = |times: u32, changes: bool| {
            tries.set(0);
            retry_while_changing(root, || {
                tries.set(tries.get() + 1);
                if tries.get() > times {
                    return Lexical::open(root);
                }
                if changes {
                    let snapshot = Snapshot::open(root).unwrap();
                    Lexical::rebuild(None, root, &snapshot, &|| false, &mut |_| {}).unwrap();
                }
                Err(missing(root))
            })
        };
        assert!(fails(1, false).is_err());
        assert_eq!(tries.get(), 1);
        assert!(fails(3, true).is_ok());
        assert_eq!(tries.get(), 4);
    }

    #[test]
    fn searches_never_fail_during_writes() {
        let (dir, mut store) = empty_index();
        let root = dir.path();
        put(&mut store, "anchor", "the broken anchor");
        catch_up(&mut store, root);
        let (done, read) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let readers = [(); 2].map(|()| {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let lexical = Lexical::open_at(root, &Snapshot::open(root).unwrap()).unwrap();
                        let hits = lexical.find(Kind::Utterances, &lexical.words("anchor"), 3, None).unwrap();
                        assert_eq!(hits.iter().map(name).collect::<Vec<_>>(), ["anchor#1"]);
                        read.fetch_add(1, Ordering::Relaxed);
                    }
                })
            });
            let _ends = StopOnDrop(&done);
            // Keep writing in different ways until the readers have searched often enough.
            for n in 0.. {
                put(&mut store, &format!("d{n}"), "nothing of it");
                store.commit(None).unwrap();
                let snapshot = Snapshot::open(root).unwrap();
                match n % 3 {
                    0 => drop(Lexical::rebuild(None, root, &snapshot, &|| false, &mut |_| {}).unwrap()),
                    _ => drop(update(root)),
                }
                let has_failed = readers.iter().any(|reader| reader.is_finished());
                if has_failed || n >= 30 && read.load(Ordering::Relaxed) >= 30 {
                    break;
                }
            }
        });
    }

    /// Stops the readers even if the writer panics.
    struct StopOnDrop<'a>(&'a AtomicBool);

    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
