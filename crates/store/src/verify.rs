//! Verification of all checksums and counts of an index. Does not change any records.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::{
    KeyMap, Position, Snapshot, Totals,
    frame::{Frame, Kind},
    lock::WriterLock,
    log,
    records::{Records, SyncState},
    table::Entry,
    tail::entry_of,
};
use turnwise_core::{Error, IdKey, Result, Seq};
use turnwise_corpus::Dialogue;

/// Result of a verification.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Number of the last batch in the verified state of the index.
    pub batch: u64,
    /// Number of readable log segments.
    pub segments: usize,
    /// Number of frames with a correct checksum.
    pub frames: u64,
    /// Number of log bytes read.
    pub bytes: u64,
    /// Number of live dialogues in the log.
    pub dialogues: u64,
    /// Number of turns in these dialogues.
    pub turns: u64,
    /// Number of directory tables checked.
    pub tables: usize,
    /// Result of comparing the copy of the records in sled with the log.
    pub records: RecordsChecked,
    /// Damage that was found, at most 1000 entries.
    pub damage: Vec<Damage>,
}

/// Result of comparing the copy of the records in the embedded database sled with the log.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordsChecked {
    /// Not compared, because the log is damaged, or because the index or sled is unreadable.
    #[default]
    NotReached,
    /// Compared. The value is the number of records in sled.
    Compared(u64),
    /// Not compared, because a writer has the index open. The text describes the process of the writer. The log was
    /// verified nevertheless.
    InUse(String),
    /// Not compared: a writer was killed before sled received the last batches. The next writer applies them.
    Behind {
        /// Number of the last batch in sled.
        at: u64,
        /// Number of the last batch in the log.
        of: u64,
    },
    /// Not compared: a writer was killed while it rebuilt sled from the log. The next writer rebuilds sled.
    BeingMade,
}

/// Damage in a file or folder of the index.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub struct Damage {
    /// Path of the damaged file or folder.
    pub path: PathBuf,
    /// Description and position of the damage.
    pub what: String,
}

/// Maximum number of entries in [`Report::damage`].
const MAX_DAMAGE: usize = 1000;

impl Report {
    fn add(&mut self, path: impl Into<PathBuf>, what: impl Into<String>) {
        if self.damage.len() < MAX_DAMAGE {
            self.damage.push(Damage { path: path.into(), what: what.into() });
        }
    }

    fn add_error(&mut self, e: Error) -> Result<()> {
        match e {
            Error::Corrupt { path, what, .. } => {
                self.add(path, what);
                Ok(())
            }
            other => Err(other),
        }
    }
}

/// Verifies an index. `command` is stored in the lock file. After each log segment, `progress` receives the number of
/// bytes read from this segment.
pub fn verify(root: &Path, command: &str, progress: &mut dyn FnMut(u64)) -> Result<Report> {
    let mut report = Report::default();
    let lock = match WriterLock::acquire(root, command) {
        Ok(lock) => Ok(lock),
        Err(Error::Busy { holder, .. }) => Err(holder),
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::NoIndex { path: root.to_owned(), hint: None });
        }
        Err(e) => return Err(e),
    };
    let snapshot = match Snapshot::open(root) {
        Ok(snapshot) => snapshot,
        Err(e) => return report.add_error(e).map(|()| report),
    };
    report.batch = snapshot.batch();
    let live = check_log(&snapshot, &mut report, progress)?;
    let log_is_sound = report.damage.is_empty();
    for table in snapshot.directory.tables() {
        report.tables += 1;
        table.verify().or_else(|e| report.add_error(e))?;
    }
    // If the log is damaged, comparing other files with it would only report consequences of this damage.
    if !log_is_sound {
        return Ok(report);
    }
    check_directory(&snapshot, &live, &mut report);
    match lock {
        Ok(_lock) => check_records(&snapshot, &live, &mut report)?,
        Err(holder) => report.records = RecordsChecked::InUse(holder),
    }
    Ok(report)
}

/// Checks and replays all frames up to the last commit. Returns the directory entries of the live dialogues, by id key.
fn check_log(
    snapshot: &Snapshot,
    report: &mut Report,
    progress: &mut dyn FnMut(u64),
) -> Result<KeyMap<Entry>> {
    let end = snapshot.state.at;
    let mut live = KeyMap::<Entry>::default();
    let mut seq = Seq(0);
    let mut batch = 0;
    let mut totals = Totals::default();
    for number in 1..=end.segment {
        let segment = match snapshot.segment(number) {
            Ok(segment) => segment,
            Err(Error::Io { source, path, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                report.add(path, "this log segment is missing");
                continue;
            }
            Err(e) => {
                report.add_error(e)?;
                continue;
            }
        };
        report.segments += 1;
        let stop = if number == end.segment { end.offset } else { segment.end() };
        for (at, frame) in segment.frames(log::SEGMENT_HEADER_BYTES).up_to(stop).skipping_damage() {
            let frame = match frame {
                Ok(frame) => frame,
                Err(e) => {
                    report.add_error(e)?;
                    continue;
                }
            };
            report.frames += 1;
            let wrong =
                |report: &mut Report, what: &str| report.add(segment.path(), format!("at byte {at}: {what}"));
            match frame.kind {
                Kind::Commit => match frame.commit() {
                    Err(e) => wrong(report, &format!("the commit is unreadable: {e}")),
                    Ok(commit) => {
                        if commit.batch != batch + 1 {
                            wrong(report, &format!("batch {} follows batch {batch}", commit.batch));
                        }
                        if commit.totals != totals && report.damage.is_empty() {
                            wrong(report, "the totals in the commit do not match the records");
                        }
                        batch = commit.batch;
                    }
                },
                Kind::Put | Kind::Delete => {
                    if frame.seq <= seq {
                        wrong(report, &format!("sequence number {} follows {seq}", frame.seq));
                    }
                    seq = frame.seq;
                    let entry = entry_of(&frame, Position { segment: number, offset: at });
                    if let Err(what) = replay(&frame, entry, &mut live, &mut totals) {
                        wrong(report, &what);
                    }
                }
            }
        }
        report.bytes += stop;
        progress(stop);
    }
    report.dialogues = totals.dialogues;
    report.turns = totals.turns;
    if report.damage.is_empty() && totals != snapshot.totals() {
        let known = snapshot.totals();
        report.add(
            snapshot.root().join("manifest.json"),
            format!("it counts {} dialogues, but the log contains {}", known.dialogues, totals.dialogues),
        );
    }
    Ok(live)
}

fn replay(
    frame: &Frame<'_>,
    entry: Entry,
    live: &mut KeyMap<Entry>,
    totals: &mut Totals,
) -> Result<(), String> {
    let replaced = if !entry.deleted {
        let dialogue: Dialogue =
            serde_json::from_slice(frame.json()).map_err(|e| format!("the record is unreadable: {e}"))?;
        if dialogue.id.key() != entry.id || IdKey::of_bytes(frame.json()) != entry.content {
            return Err("the record does not match its keys".into());
        }
        if dialogue.turns.len() != entry.turns as usize {
            return Err("the record does not have the number of turns in its frame".into());
        }
        totals.add(entry.turns);
        live.insert(entry.id, entry)
    } else {
        live.remove(&entry.id)
    };
    if let Some(replaced) = replaced {
        totals.subtract(replaced.turns);
    }
    Ok(())
}

fn check_directory(snapshot: &Snapshot, live: &KeyMap<Entry>, report: &mut Report) {
    let folder = snapshot.paths().tables();
    let mut count = 0;
    for entry in snapshot.directory.live() {
        count += 1;
        if live.get(&entry.id) != Some(&entry) {
            report.add(&folder, format!("the entry of record {} does not match the log", entry.seq));
        }
    }
    if count != live.len() {
        report.add(
            &folder,
            format!("the directory contains {count} dialogues, but the log contains {}", live.len()),
        );
    }
}

fn check_records(snapshot: &Snapshot, live: &KeyMap<Entry>, report: &mut Report) -> Result<()> {
    let folder = snapshot.paths().records();
    if !folder.is_dir() {
        // Opening sled would create the folder, and verification changes nothing.
        report.records = RecordsChecked::Compared(0);
        if snapshot.batch() > 0 {
            report.add(&folder, "this folder is missing");
        }
        return Ok(());
    }
    let records = match Records::open(&folder) {
        Ok(records) => records,
        Err(e) => return report.add_error(e),
    };
    match records.sync_state() {
        // After a crash, sled may lack the last batches. The next writer applies them.
        Ok(SyncState::Batch(at)) if at < snapshot.batch() && at >= snapshot.manifest.checkpoint.batch => {
            report.records = RecordsChecked::Behind { at, of: snapshot.batch() };
            return Ok(());
        }
        Ok(SyncState::Rebuilding) => {
            report.records = RecordsChecked::BeingMade;
            return Ok(());
        }
        Ok(SyncState::Batch(at)) if at > snapshot.batch() => {
            report.add(snapshot.paths().log(), log::ends_early(snapshot.batch(), at));
            return Ok(());
        }
        Ok(SyncState::Batch(at)) => {
            if at != snapshot.batch() {
                let what = format!("sled is at batch {at}, but the log is at batch {}", snapshot.batch());
                report.add(&folder, what);
            }
        }
        Err(e) => return report.add_error(e),
    }
    let by_seq: std::collections::HashMap<Seq, IdKey> = live.values().map(|k| (k.seq, k.content)).collect();
    let mut count = 0;
    for item in records.iter() {
        match item {
            Ok((seq, json)) => {
                count += 1;
                match by_seq.get(&seq) {
                    None => report
                        .add(&folder, format!("sled contains record {seq}, which the log does not contain")),
                    Some(content) if *content != IdKey::of_bytes(&json) => {
                        report.add(&folder, format!("record {seq} in sled differs from the log"));
                    }
                    Some(_) => {}
                }
            }
            Err(e) => {
                report.add_error(e)?;
                break;
            }
        }
    }
    if count != by_seq.len() as u64 {
        report.add(&folder, format!("sled contains {count} records, but the log contains {}", by_seq.len()));
    }
    report.records = RecordsChecked::Compared(count);
    Ok(())
}
