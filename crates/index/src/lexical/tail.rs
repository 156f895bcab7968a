//! What came since the index was built, taken in in memory for those who search.

use std::{fs, path::Path};

use super::{
    DIALOGUES, Lexical, UTTERANCES, folder,
    side::{Progress, Side},
    update,
};
use turnwise_core::error::Result;
use turnwise_store::{Snapshot, records::caught};

impl Lexical {
    /// Opens what is there and takes in, in memory, what a snapshot holds besides: what is found then is what would be found
    /// if the index had been brought up to it, and the files stay as they are. Where that cannot be done, because the index is
    /// of another log or has come further, it is as it is; [`Lexical::is_current`] tells. Every file it needs is held open:
    /// whoever writes to the index or makes it anew takes nothing away from it.
    pub fn open_at(root: &Path, snapshot: &Snapshot) -> Result<Self> {
        let with_tail = while_it_changes(root, || Lexical::with_tail(root, snapshot));
        with_tail.or_else(|_| while_it_changes(root, || Lexical::open(root)?.held()))
    }

    /// How many utterances were taken in in memory.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Whether it is of the same log and has not come as far.
    fn is_behind(&self, snapshot: &Snapshot) -> bool {
        let behind = |p: Progress| p.log == snapshot.log_id() && p.at <= snapshot.end();
        [&self.utterances, &self.dialogues].into_iter().all(|side| side.progress().is_some_and(behind))
    }

    fn with_tail(root: &Path, snapshot: &Snapshot) -> Result<Self> {
        let there = Lexical::open(root)?;
        if there.is_current(snapshot) || !there.is_behind(snapshot) {
            return there.held();
        }
        let over = |name| Side::over(&folder(root).join(name), there.analyzer);
        let mut lexical = Lexical {
            analyzer: there.analyzer,
            utterances: over(UTTERANCES)?,
            dialogues: over(DIALOGUES)?,
            tail: 0,
        };
        let taken = caught(|| update::take_in(&lexical, snapshot));
        lexical.tail = taken.unwrap_or_else(|| Err(lexical.utterances.is_damaged()))?;
        lexical.held()
    }

    /// With all its files open.
    fn held(self) -> Result<Self> {
        for side in [&self.utterances, &self.dialogues] {
            // Tantivy answers some kinds of damage with a panic.
            caught(|| side.seen().map(|_| ())).unwrap_or_else(|| Err(side.is_damaged()))?;
        }
        Ok(self)
    }
}

/// Opens what may change or be replaced meanwhile: a failure counts only if nothing changed. No file is removed before the
/// commit that names it has been replaced.
fn while_it_changes(root: &Path, open: impl Fn() -> Result<Lexical>) -> Result<Lexical> {
    /// Nobody commits so often that it takes more than a few.
    const TRIES: usize = 100;
    let commits =
        || [UTTERANCES, DIALOGUES].map(|side| fs::read(folder(root).join(side).join("meta.json")).ok());
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
    use crate::{
        lexical::{
            missing,
            tests::{begun, name, put, put_turns, take_in, update},
        },
        vectors::Kind,
    };
    use turnwise_core::ids::DialogueId;

    /// Every file with its bytes, but for Tantivy's locks.
    fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
        let sides = [UTTERANCES, DIALOGUES].map(|name| folder(root).join(name));
        let entries = sides.iter().flat_map(|side| fs::read_dir(side).unwrap());
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .map(|path| (path.display().to_string(), path))
            .filter(|(name, _)| !name.ends_with(".lock"))
            .map(|(name, path)| (name, fs::read(path).unwrap()))
            .collect()
    }

    /// What is found, with scores, of each kind and for some queries and expressions.
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
    fn what_came_since_is_found_as_if_the_index_had_been_brought_up_to_it() {
        let (dir, mut store) = begun();
        let root = dir.path();
        for n in 0..40 {
            put_turns(&mut store, &format!("d{n:02}"), &["the parcel is late", ["refund", "thanks"][n % 2]]);
        }
        take_in(&mut store, root);
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
        assert_eq!(files(root), before, "files are left as they are");
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
    fn an_index_that_is_ahead_of_a_snapshot_or_of_another_log_is_left_as_it_is() {
        let (dir, mut store) = begun();
        let root = dir.path();
        put(&mut store, "a", "a parcel");
        store.commit(None).unwrap();
        let early = Snapshot::open(root).unwrap();
        put(&mut store, "b", "another parcel");
        take_in(&mut store, root);
        let lexical = Lexical::open_at(root, &early).unwrap();
        assert!(!lexical.is_current(&early));
        assert_eq!((lexical.tail(), found(&lexical)[0].len()), (0, 2));
        let (other, mut store) = begun();
        put(&mut store, "c", "a parcel");
        store.commit(None).unwrap();
        let lexical = Lexical::open_at(root, &Snapshot::open(other.path()).unwrap()).unwrap();
        assert_eq!((lexical.tail(), found(&lexical)[0].len()), (0, 2));
    }
    #[test]
    fn what_was_opened_stays_though_the_index_is_written_and_made_anew() {
        let (dir, mut store) = begun();
        let root = dir.path();
        put(&mut store, "anchor", "the broken anchor");
        take_in(&mut store, root);
        let current = Snapshot::open(root).unwrap();
        let of_current = Lexical::open_at(root, &current).unwrap();
        put(&mut store, "another", "a broken parcel");
        store.commit(None).unwrap();
        let later = Snapshot::open(root).unwrap();
        let with_tail = Lexical::open_at(root, &later).unwrap();
        assert_eq!((of_current.tail(), with_tail.tail()), (0, 1));

        assert!(store.delete(&DialogueId::new("anchor").unwrap()).unwrap());
        take_in(&mut store, root);
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
    fn a_failure_counts_if_nothing_changed_meanwhile() {
        let (dir, mut store) = begun();
        let root = dir.path();
        put(&mut store, "a", "a parcel");
        take_in(&mut store, root);
        let tries = Cell::new(0);
        let fails = |times: u32, changes: bool| {
            tries.set(0);
            while_it_changes(root, || {
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
    fn whoever_searches_is_never_disturbed_by_who_writes() {
        let (dir, mut store) = begun();
        let root = dir.path();
        put(&mut store, "anchor", "the broken anchor");
        take_in(&mut store, root);
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
            let _ends = Ends(&done);
            // What is looked for is found in whatever way the index is written, until there was time to look often.
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

    /// Ends the reading also where the writing fails.
    struct Ends<'a>(&'a AtomicBool);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
