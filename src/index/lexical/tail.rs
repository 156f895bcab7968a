//! What came since the index was built, taken in in memory for those who search.

use std::path::Path;

use super::{
    DIALOGUES, Lexical, UTTERANCES, folder,
    side::{Progress, Side},
    update,
};
use crate::{
    error::Result,
    store::{Snapshot, records::caught},
};

impl Lexical {
    /// Opens what is there and takes in, in memory, what a snapshot holds besides: what is found then is what would be found
    /// if the index had been brought up to it, and the files stay as they are. Where that cannot be done, because the index is
    /// of another log or changes meanwhile, it is as it is; [`Lexical::is_current`] tells.
    pub fn open_at(root: &Path, snapshot: &Snapshot) -> Result<Self> {
        let lexical = Lexical::open(root)?;
        if lexical.is_current(snapshot) || !lexical.is_behind(snapshot) {
            return Ok(lexical);
        }
        let with_tail = caught(|| lexical.with_tail(root, snapshot));
        Ok(with_tail.and_then(Result::ok).unwrap_or(lexical))
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

    fn with_tail(&self, root: &Path, snapshot: &Snapshot) -> Result<Self> {
        let over = |name| Side::over(&folder(root).join(name), self.analyzer);
        let mut lexical = Lexical {
            analyzer: self.analyzer,
            utterances: over(UTTERANCES)?,
            dialogues: over(DIALOGUES)?,
            tail: 0,
        };
        lexical.tail = update::take_in(&lexical, snapshot)?;
        Ok(lexical)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use super::*;
    use crate::{
        ids::DialogueId,
        index::{
            lexical::tests::{begun, name, put, put_turns, take_in, update},
            vectors::Kind,
        },
    };

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
}
