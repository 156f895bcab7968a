//! Repair of a damaged index.
//!
//! Repair keeps all readable frames of the log and restores lost records from the copy in sled. Then it rebuilds all
//! data that is derived from the log.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{
    Checkpoint, IndexPaths, KeyMap, Manifest, Position, Prepared, Totals,
    frame::{self, Commit, Frame, Kind},
    lock::WriterLock,
    log::{self, LogWriter, Segment},
    records::{Records, SyncState},
    writer,
};
use turnwise_core::{Error, IoContext, Result, Seq, files};
use turnwise_corpus::Dialogue;

/// Result of a repair.
#[derive(Debug, Default, Serialize)]
pub struct Repaired {
    /// Number of dialogues after the repair.
    pub dialogues: u64,
    /// Number of turns in these dialogues.
    pub turns: u64,
    /// Descriptions of the damaged parts of the log.
    pub damaged_places: Vec<String>,
    /// Number of lost records that were restored from the sled database.
    pub recovered: u64,
    /// Number of sequence numbers that neither the log nor sled contains. They belonged to deletes, to records that
    /// were replaced later, or to lost records.
    pub missing: u64,
    /// New path of the damaged log, which was renamed. `None` if no log was renamed.
    pub kept: Option<PathBuf>,
}

/// Repairs an index. If the log is intact, only rebuilds the data that is derived from it. `command` is stored in the
/// lock file.
///
/// After an interruption, the repair can be run again. The old log and sled do not change until the new log is
/// complete.
pub fn repair(root: &Path, command: &str) -> Result<Repaired> {
    let new_log = repaired_log(root);
    if IndexPaths::newest(root).is_none() && !new_log.is_dir() {
        return Err(Error::NoIndex { path: root.to_owned(), hint: None });
    }
    let _lock = WriterLock::acquire(root, command)?;
    let manifest = match Manifest::read(root) {
        Ok(manifest) => manifest,
        Err(e @ Error::FormatVersion { .. }) => return Err(e),
        Err(_) => {
            let compacted = IndexPaths::newest(root).map_or(0, |paths| paths.number());
            Manifest { compacted, ..Manifest::default() }
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
    view.paths.remove_others();
    repaired.dialogues = view.totals().dialogues;
    repaired.turns = view.totals().turns;
    Ok(repaired)
}

fn repaired_log(root: &Path) -> PathBuf {
    root.join("log.repaired")
}

/// Returns an error if a repair is unfinished. Without this check, a writer could change the log, and finishing the
/// repair would then discard the changes.
pub(super) fn refuse_unfinished(root: &Path) -> Result<()> {
    if repaired_log(root).is_dir() {
        return Err(Error::corrupt(root, "a repair was started but not finished")
            .with_hint("`turnwise repair` finishes it"));
    }
    Ok(())
}

/// Returns the paths of the damaged logs that earlier repairs have renamed and kept.
pub fn kept_logs(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let is_kept = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log.damaged-"))
    };
    let mut kept: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(is_kept).collect();
    kept.sort();
    kept
}

/// Reads all undamaged frames of the log. If the log is damaged, restores lost records from sled and writes a new log.
fn salvage(root: &Path, manifest: &Manifest, repaired: &mut Repaired) -> Result<()> {
    let paths = IndexPaths::of(root, manifest);
    // Opening sled would create a missing folder.
    let records = paths.records().is_dir().then(|| Records::open(&paths.records()).ok()).flatten();
    let mut salvage = Salvage::read(&paths.log(), &manifest.checkpoint, records.as_ref())?;
    if salvage.damaged.is_empty() {
        return Ok(());
    }
    repaired.damaged_places.clone_from(&salvage.damaged);
    fill_from_sled(records.as_ref(), &mut salvage, repaired)?;
    let unfinished = root.join("log.new");
    files::remove_folder(&unfinished)?;
    write_log(&unfinished, &salvage)?;
    let complete = repaired_log(root);
    fs::rename(&unfinished, &complete).at("rename", &unfinished)?;
    files::sync_folder(root)
}

/// Replaces the old log with the repaired log. First removes the data derived from the old log, because this data must
/// never be used with the new log. Renames the old log and returns its new path, or `None` if there was no old log.
fn swap_logs(root: &Path, manifest: Manifest) -> Result<Option<PathBuf>> {
    let paths = IndexPaths::of(root, &manifest);
    writer::forget_derived(root, manifest)?;
    files::remove_folder(&paths.records())?;
    let (old, new) = (paths.log(), repaired_log(root));
    let mut kept = None;
    if old.is_dir() {
        fs::rename(&old, kept.insert(free_name(root)?)).at("rename", &old)?;
    }
    fs::rename(&new, &old).at("rename", &new)?;
    files::sync_folder(root)?;
    Ok(kept)
}

fn free_name(root: &Path) -> Result<PathBuf> {
    (1..1000).map(|n| root.join(format!("log.damaged-{n}"))).find(|path| !path.exists()).ok_or_else(|| {
        Error::input(format!(
            "{} contains too many damaged logs (log.damaged-N); remove some",
            root.display()
        ))
    })
}

/// The readable parts of a log.
struct Salvage {
    log: PathBuf,
    /// Frames by sequence number: `Ok` is a position in the log, `Err` contains the bytes of a frame restored from
    /// sled.
    frames: BTreeMap<Seq, Result<Position, Vec<u8>>>,
    /// Number of the last known batch.
    batch: u64,
    /// End of the log at the last checkpoint. Unreadable bytes before this position are always damage.
    known_end: Position,
    rejected: BTreeMap<String, u64>,
    damaged: Vec<String>,
    missing: BTreeSet<Seq>,
    /// Last sequence number that a commit covers.
    committed: Seq,
    /// Sequence number of the previous frame. `None` after damage.
    last: Option<Seq>,
    /// Ranges of sequence numbers that are absent although no damage separates the frames before and after them. A
    /// compaction has removed these records, so they do not count as missing.
    compacted_away: Vec<std::ops::Range<Seq>>,
    /// Batch number of the previous commit.
    last_batch: u64,
    /// Length of `compacted_away` at the previous commit.
    gaps_before: usize,
    /// Length of `damaged` at the previous commit.
    reported: usize,
    /// True if sled contains batches that are missing at the end of the log.
    lost_end: bool,
}

impl Salvage {
    fn read(folder: &Path, checkpoint: &Checkpoint, records: Option<&Records>) -> Result<Self> {
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
            compacted_away: Vec::new(),
            last_batch: 0,
            gaps_before: 0,
            reported: 0,
            lost_end: false,
        };
        let numbers = log::segments(folder)?;
        let mut next = 1;
        for (n, &number) in numbers.iter().enumerate() {
            if number > next {
                salvage.damaged.push(match number - 1 {
                    last if last == next => format!("log segment {next} is missing"),
                    last => format!("log segments {next} to {last} are missing"),
                });
                salvage.last = None;
            }
            next = number.saturating_add(1);
            let covered = salvage.read_segment(number, n + 1 == numbers.len())?;
            salvage.committed = salvage.committed.max(covered);
        }
        salvage.check_end(checkpoint, records);
        let committed = salvage.committed;
        // Frames without a later commit were never acknowledged.
        salvage.frames.retain(|&seq, _| seq <= committed);
        if !salvage.damaged.is_empty() {
            let present: BTreeSet<Seq> = salvage.frames.keys().copied().collect();
            let is_compacted_away = |seq: &Seq| {
                let gaps = &salvage.compacted_away;
                let after = gaps.partition_point(|gap| gap.start <= *seq);
                after > 0 && gaps[after - 1].contains(seq)
            };
            let lost = |seq: &Seq| !present.contains(seq) && !is_compacted_away(seq);
            salvage.missing = (1..=committed.0).map(Seq).filter(lost).collect();
        }
        Ok(salvage)
    }

    /// Records damage if the log ends before the last checkpoint or before the last batch in sled. This never happens
    /// in an intact log.
    fn check_end(&mut self, checkpoint: &Checkpoint, records: Option<&Records>) {
        let mut known = checkpoint.batch;
        if let Some(records) = records
            && let Ok(SyncState::Batch(batch)) = records.sync_state()
            && batch > self.last_batch.max(known)
        {
            let last = records.iter().map_while(Result::ok).map(|(seq, _)| seq).max();
            self.committed = self.committed.max(last.unwrap_or_default());
            known = batch;
            self.lost_end = true;
        }
        if self.last_batch < known && self.damaged.is_empty() {
            self.damaged.push(log::ends_early(self.last_batch, known));
        }
        self.batch = self.batch.max(known);
    }

    /// Records the number of the batch that a commit ends.
    ///
    /// Batch numbers are consecutive, so a skipped batch number means that batches are missing. In this case, the
    /// sequence numbers skipped since the previous commit count as lost, not as compacted away.
    fn note_batch(&mut self, batch: u64, path: &Path, offset: u64) {
        if batch != self.last_batch + 1 {
            self.compacted_away.truncate(self.gaps_before);
            // After damage that has already been reported, a gap is expected.
            if self.reported == self.damaged.len() {
                self.damaged.push(format!(
                    "{}: at byte {offset}: batch {batch} follows batch {}",
                    path.display(),
                    self.last_batch
                ));
            }
        }
        self.last_batch = batch;
        self.gaps_before = self.compacted_away.len();
        self.reported = self.damaged.len();
    }

    /// Records the sequence number of the next frame. If there is a gap after the previous sequence number, adds the
    /// gap to `compacted_away`.
    fn note_sequence(&mut self, seq: Seq) {
        if let Some(last) = self.last
            && last.next() < seq
        {
            self.compacted_away.push(last.next()..seq);
        }
        self.last = Some(seq);
    }

    /// Reads the frames of a segment. `last` is true for the last segment of the log. Returns the last sequence number
    /// that a commit in the segment covers, or 0 if the segment has no commit.
    fn read_segment(&mut self, number: u32, last: bool) -> Result<Seq> {
        let mut committed = Seq(0);
        let segment = Segment::map(&self.log, number, u64::MAX)?;
        self.damaged.extend(segment.check_header().err().map(|e| e.to_string()));
        for (offset, frame) in segment.frames(log::SEGMENT_HEADER_BYTES).skipping_damage() {
            let here = Position { segment: number, offset };
            let frame = match frame {
                Ok(frame) => frame,
                // An incomplete batch at the end is not damage: opening the index truncates it.
                Err(_) if last && here >= self.known_end && !segment.has_commit_after(offset) => break,
                Err(e) => {
                    self.damaged.push(e.to_string());
                    self.last = None;
                    continue;
                }
            };
            self.note_sequence(frame.seq);
            if frame.kind != Kind::Commit {
                self.frames.insert(frame.seq, Ok(here));
                continue;
            }
            committed = committed.max(frame.seq);
            if let Ok(commit) = frame.commit() {
                self.note_batch(commit.batch, segment.path(), offset);
                self.rejected.extend(commit.rejected);
                self.batch = self.batch.max(commit.batch);
            }
        }
        Ok(committed)
    }
}

/// Restores lost records from sled. If sequence numbers are still missing and sled is up to date, also drops the
/// dialogues that sled does not contain.
fn fill_from_sled(records: Option<&Records>, salvage: &mut Salvage, repaired: &mut Repaired) -> Result<()> {
    let Some(records) = records else {
        repaired.missing = salvage.missing.len() as u64;
        return Ok(());
    };
    let mut still_missing = BTreeSet::new();
    for seq in std::mem::take(&mut salvage.missing) {
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
    if records.sync_state().is_ok_and(|state| state == SyncState::Batch(salvage.batch))
        && (salvage.lost_end || !salvage.missing.is_empty())
    {
        drop_deleted(records, salvage)?;
    }
    Ok(())
}

/// Drops the dialogues that sled does not contain. Without this step, a deleted dialogue would reappear if its delete
/// frame was lost. sled must be up to date.
fn drop_deleted(records: &Records, salvage: &mut Salvage) -> Result<()> {
    // If sled cannot be read completely, drop nothing.
    let present: Result<BTreeSet<Seq>> = records.iter().map(|item| item.map(|(seq, _)| seq)).collect();
    let Ok(present) = present else { return Ok(()) };
    let mut live: KeyMap<Seq> = KeyMap::default();
    for_each_frame(salvage, |frame, _| {
        match frame.kind {
            Kind::Put => live.insert(frame.id_key(), frame.seq),
            _ => live.remove(&frame.id_key()),
        };
        Ok(())
    })?;
    live.values().filter(|seq| !present.contains(seq)).for_each(|seq| drop(salvage.frames.remove(seq)));
    Ok(())
}

fn for_each_frame(salvage: &Salvage, mut f: impl FnMut(&Frame<'_>, &[u8]) -> Result<()>) -> Result<()> {
    let mut segment: Option<Segment> = None;
    for found in salvage.frames.values() {
        match found {
            Err(bytes) => {
                let frame = Frame::read(bytes).map_err(|why| Error::Internal(why.into()))?;
                f(&frame, bytes)?;
            }
            Ok(at) => {
                let current = match segment.take() {
                    Some(current) if current.number() == at.segment => current,
                    _ => Segment::map(&salvage.log, at.segment, u64::MAX)?,
                };
                let current = segment.insert(current);
                let frame = current.frame_at(at.offset)?;
                let from = at.offset as usize;
                f(&frame, &current.bytes()[from..from + frame.bytes() as usize])?;
            }
        }
    }
    Ok(())
}

/// Writes the salvaged frames to a new log, in batches.
fn write_log(folder: &Path, salvage: &Salvage) -> Result<()> {
    const BATCH_BYTES: usize = 4 << 20;
    let mut out = LogWriter::create(folder)?;
    let mut live: KeyMap<u32> = KeyMap::default();
    let mut buffer = Vec::new();
    let mut commit = Commit { rejected: salvage.rejected.clone(), ..Commit::default() };
    let mut last = Seq(0);
    let mut flush = |buffer: &mut Vec<u8>, totals: Totals, last: Seq| -> Result<()> {
        out.next_position()?;
        commit.batch += 1;
        commit.totals = totals;
        frame::write_commit(buffer, last, &commit)?;
        out.append(buffer)?;
        buffer.clear();
        commit.rejected.clear();
        Ok(())
    };
    let mut totals = Totals::default();
    for_each_frame(salvage, |frame, bytes| {
        let replaced = match frame.kind {
            Kind::Put => {
                totals.add(frame.turns());
                live.insert(frame.id_key(), frame.turns())
            }
            _ => live.remove(&frame.id_key()),
        };
        replaced.into_iter().for_each(|turns| totals.subtract(turns));
        buffer.extend_from_slice(bytes);
        last = frame.seq;
        if buffer.len() >= BATCH_BYTES { flush(&mut buffer, totals, last) } else { Ok(()) }
    })?;
    // The last commit must cover all assigned sequence numbers, so that none is assigned again.
    flush(&mut buffer, totals, last.max(salvage.committed))
}
