//! Mending an index: whatever can be read of the log is kept, holes are filled from sled's copy, and everything that
//! derives from the log is made anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{
    directory::KeyMap,
    frame::{self, Commit, Frame, Kind, Prepared, Totals},
    lock::WriterLock,
    log::{self, LogWriter, Position, Segment},
    manifest::{Checkpoint, Manifest},
    places::Places,
    records::{Reached, Records},
    writer,
};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
    ids::{IdKey, Seq},
};
use turnwise_corpus::Dialogue;

/// What a repair did.
#[derive(Debug, Default, Serialize)]
pub struct Repaired {
    /// Dialogues that are there now.
    pub dialogues: u64,
    /// Their turns.
    pub turns: u64,
    /// Places of the log that could not be read.
    pub damaged_places: Vec<String>,
    /// Records that were in those places and came back from sled.
    pub recovered: u64,
    /// Sequence numbers of those places that sled does not hold either: deletes, records replaced since, or losses.
    pub missing: u64,
    /// Where the damaged log lies now, for whoever wants to look.
    pub kept: Option<PathBuf>,
}

/// Mends an index. With a sound log, only what derives from it is made anew.
///
/// It may be killed at any moment and started again: the new log gets its name only when it is complete, and nothing
/// of the old one, nor sled's copy, is touched before that.
pub fn repair(root: &Path, command: &str) -> Result<Repaired> {
    let new_log = repaired_log(root);
    if Places::newest(root).is_none() && !new_log.is_dir() {
        return Err(Error::NoIndex { path: root.to_owned(), hint: None });
    }
    let _lock = WriterLock::acquire(root, command)?;
    let manifest = match Manifest::read(root) {
        Ok(manifest) => manifest,
        Err(e @ Error::FormatVersion { .. }) => return Err(e),
        Err(_) => {
            let compacted = Places::newest(root).map_or(0, |places| places.number());
            Manifest { compacted, ..Manifest::new() }
        }
    };
    let mut repaired = Repaired::default();
    if !new_log.is_dir() {
        salvage(root, &manifest, &mut repaired)?;
    }
    if new_log.is_dir() {
        repaired.kept = swap_logs(root, manifest.clone())?;
    }
    let view = writer::rebuild_derived(root, manifest)?;
    view.places.remove_others();
    repaired.dialogues = view.totals().dialogues;
    repaired.turns = view.totals().turns;
    Ok(repaired)
}

fn repaired_log(root: &Path) -> PathBuf {
    root.join("log.repaired")
}

/// An error if a repair was begun and not ended: its log must not take the place of one that has changed since.
pub(super) fn refuse_unfinished(root: &Path) -> Result<()> {
    match repaired_log(root).is_dir() {
        true => Err(Error::corrupt(root, "a repair was begun and not ended")
            .with_hint("`turnwise repair` ends what was begun")),
        false => Ok(()),
    }
}

/// The damaged logs that repairs have kept.
pub fn kept_logs(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let is_kept = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log.damaged-"))
    };
    let mut kept: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(is_kept).collect();
    kept.sort();
    kept
}

/// Reads what can be read, and writes a new log if anything cannot.
fn salvage(root: &Path, manifest: &Manifest, repaired: &mut Repaired) -> Result<()> {
    let places = Places::of(root, manifest);
    let mut salvage = Salvage::read(&places.log(), &manifest.checkpoint)?;
    if salvage.damaged.is_empty() {
        return Ok(());
    }
    repaired.damaged_places.clone_from(&salvage.damaged);
    fill_from_sled(&places, &mut salvage, repaired)?;
    let unfinished = root.join("log.new");
    files::remove_folder(&unfinished)?;
    write_log(&unfinished, &salvage)?;
    let complete = repaired_log(root);
    fs::rename(&unfinished, &complete).at("rename", &unfinished)?;
    files::sync_folder(root)
}

/// Puts the new log in the place of the old one, which is kept beside it. What derives from the old one goes first, so
/// that nothing is ever read with the wrong log.
fn swap_logs(root: &Path, manifest: Manifest) -> Result<Option<PathBuf>> {
    let places = Places::of(root, &manifest);
    writer::forget_derived(root, manifest)?;
    files::remove_folder(&places.records())?;
    let (old, new) = (places.log(), repaired_log(root));
    let kept = match old.is_dir() {
        true => {
            let kept = free_name(root)?;
            fs::rename(&old, &kept).at("rename", &old)?;
            Some(kept)
        }
        false => None,
    };
    fs::rename(&new, &old).at("rename", &new)?;
    files::sync_folder(root)?;
    Ok(kept)
}

fn free_name(root: &Path) -> Result<PathBuf> {
    (1..1000)
        .map(|n| root.join(format!("log.damaged-{n}")))
        .find(|path| !path.exists())
        .ok_or_else(|| Error::input(format!("{} holds too many damaged logs; remove some", root.display())))
}

/// What can be read of a log.
struct Salvage {
    log: PathBuf,
    /// By sequence number. `Ok` lies in the log, `Err` was recovered.
    frames: BTreeMap<Seq, Result<Position, Vec<u8>>>,
    /// The last batch that was acknowledged, as far as anything tells.
    batch: u64,
    /// The log's end at the last checkpoint: what is unreadable before it was acknowledged once.
    known_end: Position,
    rejected: BTreeMap<String, u64>,
    damaged: Vec<String>,
    missing: BTreeSet<Seq>,
    /// The last number that a commit covers.
    committed: Seq,
    /// The number of the frame before, unless there is damage in between.
    last: Option<Seq>,
    /// Numbers between two frames that follow each other: what a compaction has dropped is not missing.
    gone: Vec<std::ops::Range<Seq>>,
}

impl Salvage {
    fn read(folder: &Path, checkpoint: &Checkpoint) -> Result<Self> {
        let mut salvage = Salvage {
            log: folder.to_owned(),
            frames: BTreeMap::new(),
            batch: checkpoint.batch,
            known_end: checkpoint.at,
            rejected: BTreeMap::new(),
            damaged: Vec::new(),
            missing: BTreeSet::new(),
            committed: checkpoint.seq,
            last: Some(Seq(0)),
            gone: Vec::new(),
        };
        let numbers = log::segments(folder)?;
        for (n, &number) in numbers.iter().enumerate() {
            if number != n as u32 + 1 {
                salvage.damaged.push(format!("segment {} of the log is missing", n + 1));
                salvage.last = None;
            }
            let covered = salvage.read_segment(number, n + 1 == numbers.len())?;
            salvage.committed = salvage.committed.max(covered);
        }
        let committed = salvage.committed;
        // What no commit follows was never acknowledged.
        salvage.frames.retain(|&seq, _| seq <= committed);
        if !salvage.damaged.is_empty() {
            let present: BTreeSet<Seq> = salvage.frames.keys().copied().collect();
            let is_gone = |seq: &Seq| {
                let after = salvage.gone.partition_point(|gone| gone.start <= *seq);
                after > 0 && salvage.gone[after - 1].contains(seq)
            };
            let lost = |seq: &Seq| !present.contains(seq) && !is_gone(seq);
            salvage.missing = (1..=committed.0).map(Seq).filter(lost).collect();
        }
        Ok(salvage)
    }

    /// A frame follows the one before; numbers in between are of nothing that is there.
    fn follow(&mut self, seq: Seq) {
        if let Some(last) = self.last
            && last.next() < seq
        {
            self.gone.push(last.next()..seq);
        }
        self.last = Some(seq);
    }

    /// Gives the last sequence number that a commit covers.
    fn read_segment(&mut self, number: u32, last: bool) -> Result<Seq> {
        let mut committed = Seq(0);
        let path = log::segment_path(&self.log, number);
        let segment = match Segment::map(&self.log, number) {
            Ok(segment) => segment,
            Err(Error::Corrupt { .. }) => {
                self.damaged.push(format!("{}: the segment's header is damaged", path.display()));
                Segment::map_unchecked(&self.log, number)?
            }
            Err(e) => return Err(e),
        };
        let mut at = log::SEGMENT_HEADER_BYTES;
        while at < segment.end() {
            match segment.frame_at(at) {
                Ok(frame) => {
                    self.follow(frame.seq);
                    match frame.kind {
                        Kind::Put | Kind::Delete => {
                            self.frames.insert(frame.seq, Ok(Position { segment: number, offset: at }));
                        }
                        Kind::Commit => {
                            committed = committed.max(frame.seq);
                            if let Ok(commit) = frame.commit() {
                                self.rejected.extend(commit.rejected);
                                self.batch = self.batch.max(commit.batch);
                            }
                        }
                    }
                    at += frame.bytes();
                }
                Err(e) => {
                    // A torn end is not damage: opening cuts it.
                    let here = Position { segment: number, offset: at };
                    if last && here >= self.known_end && !segment.has_commit_after(at) {
                        break;
                    }
                    self.damaged.push(e.to_string());
                    self.last = None;
                    match segment.next_frame(at + 1) {
                        Some(next) => at = next,
                        None => break,
                    }
                }
            }
        }
        Ok(committed)
    }
}

/// Puts back what the log lost and sled has, and lets go what sled knows to be deleted.
fn fill_from_sled(places: &Places, salvage: &mut Salvage, repaired: &mut Repaired) -> Result<()> {
    let Ok(records) = Records::open(&places.records()) else {
        repaired.missing = salvage.missing.len() as u64;
        return Ok(());
    };
    let mut still_missing = BTreeSet::new();
    for &seq in &salvage.missing {
        let json = records.get(seq).ok().flatten();
        let dialogue = json.and_then(|json| serde_json::from_slice::<Dialogue>(&json).ok());
        let Some(dialogue) = dialogue else {
            still_missing.insert(seq);
            continue;
        };
        let prepared = Prepared::new(&dialogue)?;
        let mut bytes = Vec::new();
        frame::write(&mut bytes, Kind::Put, seq, &[&prepared.prefix(), &prepared.json])?;
        salvage.frames.insert(seq, Err(bytes));
        repaired.recovered += 1;
    }
    repaired.missing = still_missing.len() as u64;
    salvage.missing = still_missing;
    if records.reached().is_ok_and(|reached| reached == Reached::Batch(salvage.batch))
        && !salvage.missing.is_empty()
    {
        drop_deleted(&records, salvage)?;
    }
    Ok(())
}

/// A lost delete would bring its dialogue back. sled, if it is up to date, knows what is there.
fn drop_deleted(records: &Records, salvage: &mut Salvage) -> Result<()> {
    let mut present = BTreeSet::new();
    for item in records.iter() {
        // Half an answer is none: without a sound list nothing is dropped.
        let Ok((seq, _)) = item else { return Ok(()) };
        present.insert(seq);
    }
    let live = replay(salvage)?;
    for (_, (seq, _)) in live {
        if !present.contains(&seq) {
            salvage.frames.remove(&seq);
        }
    }
    Ok(())
}

/// The dialogues that are there after all frames, with their turns.
fn replay(salvage: &Salvage) -> Result<KeyMap<(Seq, u32)>> {
    let mut live: KeyMap<(Seq, u32)> = KeyMap::default();
    each_frame(salvage, |frame, _| {
        let id: IdKey = frame.id_key();
        match frame.kind {
            Kind::Put => live.insert(id, (frame.seq, frame.turns())),
            _ => live.remove(&id),
        };
        Ok(())
    })?;
    Ok(live)
}

fn each_frame(salvage: &Salvage, mut f: impl FnMut(&Frame<'_>, &[u8]) -> Result<()>) -> Result<()> {
    let mut segment: Option<Segment> = None;
    for found in salvage.frames.values() {
        match found {
            Err(bytes) => {
                let frame = Frame::read(bytes).map_err(|why| Error::Internal(why.into()))?;
                f(&frame, bytes)?;
            }
            Ok(place) => {
                if segment.as_ref().is_none_or(|s| s.number() != place.segment) {
                    segment = Some(Segment::map_unchecked(&salvage.log, place.segment)?);
                }
                let Some(segment) = &segment else { continue };
                let frame = segment.frame_at(place.offset)?;
                let from = place.offset as usize;
                f(&frame, &segment.bytes()[from..from + frame.bytes() as usize])?;
            }
        }
    }
    Ok(())
}

/// Writes the salvaged frames as a new log, in batches as an ingest would.
fn write_log(folder: &Path, salvage: &Salvage) -> Result<()> {
    const BATCH_BYTES: usize = 4 << 20;
    let mut out = LogWriter::create(folder)?;
    let mut live: KeyMap<(Seq, u32)> = KeyMap::default();
    let mut buffer = Vec::new();
    let mut commit = Commit { rejected: salvage.rejected.clone(), ..Commit::default() };
    let mut last = Seq(0);
    let mut flush = |buffer: &mut Vec<u8>, totals: Totals, last: Seq| -> Result<()> {
        out.place()?;
        commit.batch += 1;
        commit.totals = totals;
        let payload = serde_json::to_vec(&commit).map_err(|e| Error::Internal(e.to_string()))?;
        frame::write(buffer, Kind::Commit, last, &[&payload])?;
        out.append(buffer)?;
        buffer.clear();
        commit.rejected.clear();
        Ok(())
    };
    let mut totals = Totals::default();
    each_frame(salvage, |frame, bytes| {
        let gone = match frame.kind {
            Kind::Put => {
                totals.dialogues += 1;
                totals.turns += u64::from(frame.turns());
                live.insert(frame.id_key(), (frame.seq, frame.turns()))
            }
            _ => live.remove(&frame.id_key()),
        };
        if let Some((_, turns)) = gone {
            totals.dialogues -= 1;
            totals.turns -= u64::from(turns);
        }
        buffer.extend_from_slice(bytes);
        last = frame.seq;
        if buffer.len() >= BATCH_BYTES { flush(&mut buffer, totals, last) } else { Ok(()) }
    })?;
    // A number is never given twice, even if the last ones are gone.
    flush(&mut buffer, totals, last.max(salvage.committed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Snapshot, Store, verify};
    use turnwise_core::ids::DialogueId;
    use turnwise_corpus::Role;

    fn damaged(root: &Path) {
        let mut store = Store::open_or_create(root, "test").unwrap();
        for n in 0..50 {
            let mut dialogue = Dialogue::new(DialogueId::new(format!("d{n}")).unwrap());
            dialogue.push("a", Role::User, format!("text {n}"));
            dialogue.check().unwrap();
            store.put(&Prepared::new(&dialogue).unwrap()).unwrap();
            if n % 10 == 9 {
                store.commit(None).unwrap();
            }
        }
        store.close().unwrap();
        let path = log::segment_path(&Places::first(root).log(), 1);
        let mut bytes = fs::read(&path).unwrap();
        bytes[700] ^= 1;
        fs::write(&path, bytes).unwrap();
    }

    /// A repair that is killed after each of its steps, then started again.
    #[test]
    fn a_repair_can_be_killed_between_any_two_steps() {
        for steps in 0..5 {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path();
            damaged(root);
            let manifest = Manifest::read(root).unwrap();
            if steps >= 1 {
                salvage(root, &manifest, &mut Repaired::default()).unwrap();
            }
            if steps >= 2 {
                writer::forget_derived(root, manifest.clone()).unwrap();
            }
            if steps >= 3 {
                files::remove_folder(&Places::first(root).records()).unwrap();
            }
            if steps >= 4 {
                fs::rename(Places::first(root).log(), root.join("log.damaged-1")).unwrap();
            }
            // Whatever is there now, nobody takes it for sound.
            assert!(!verify::verify(root, "test", &mut |_| {}).unwrap().damage.is_empty(), "{steps}");
            // Nor does anybody write to what the repair is going to replace.
            assert!(steps == 0 || Store::open(root, "test").is_err(), "{steps}");
            repair(root, "test").unwrap();
            assert!(verify::verify(root, "test", &mut |_| {}).unwrap().damage.is_empty(), "{steps}");
            assert_eq!(Snapshot::open(root).unwrap().dialogues().count(), 50, "{steps}");
            assert!(!repaired_log(root).exists() && root.join("log.damaged-1").exists());
        }
    }
}
