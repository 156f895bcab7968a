//! Checking every checksum and every count of an index, without changing anything.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::{
    directory::KeyMap,
    frame::{Frame, Kind, Totals},
    lock::WriterLock,
    log::{self, Position},
    records::{Reached, Records},
    snapshot::Snapshot,
};
use turnwise_core::{
    error::{Error, Result},
    ids::{IdKey, Seq},
};
use turnwise_corpus::Dialogue;

/// What was found.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// The state that was checked.
    pub batch: u64,
    /// Segments of the log.
    pub segments: usize,
    /// Frames whose checksum was computed.
    pub frames: u64,
    /// Bytes that were read of the log.
    pub bytes: u64,
    /// Dialogues that are there.
    pub dialogues: u64,
    /// Their turns.
    pub turns: u64,
    /// Tables of the directory.
    pub tables: usize,
    /// How far sled was compared with the log.
    pub records: RecordsChecked,
    /// Everything that is wrong. Empty means sound.
    pub damage: Vec<Damage>,
}

/// How far sled was checked.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordsChecked {
    /// Not compared, because the log itself is damaged.
    #[default]
    NotReached,
    /// So many records were compared with the log.
    Compared(u64),
    /// Another process has sled open, as this text says; the log was checked all the same.
    InUse(String),
    /// A writer was killed: sled is a few batches behind the log, and the next writer brings it up to date.
    Behind {
        /// The batch sled is at.
        at: u64,
        /// The batch the log is at.
        of: u64,
    },
    /// A writer was killed while it made sled anew from the log; the next writer does it.
    BeingMade,
}

/// One thing that is wrong.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// What is wrong in it, and where.
    pub what: String,
}

/// How many findings are listed; more would not help anybody.
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

/// Checks an index. `progress` is told the bytes of the log that were read.
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
        Err(e) => {
            report.add_error(e)?;
            return Ok(report);
        }
    };
    report.batch = snapshot.batch();
    let live = check_log(&snapshot, &mut report, progress)?;
    let log_is_sound = report.damage.is_empty();
    check_tables(&snapshot, &mut report)?;
    // Against a damaged log everything would look wrong: its damage comes first.
    if !log_is_sound {
        return Ok(report);
    }
    check_directory(&snapshot, &live, &mut report);
    match lock {
        Ok(_held) => check_records(&snapshot, &live, &mut report)?,
        Err(holder) => report.records = RecordsChecked::InUse(holder),
    }
    Ok(report)
}

/// What the log says of a dialogue.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Known {
    seq: Seq,
    at: Position,
    content: IdKey,
    turns: u32,
}

/// Reads every frame up to the last commit, and replays what it says.
fn check_log(
    snapshot: &Snapshot,
    report: &mut Report,
    progress: &mut dyn FnMut(u64),
) -> Result<KeyMap<Known>> {
    let end = snapshot.state.at;
    let mut live = KeyMap::<Known>::default();
    let mut seq = Seq(0);
    let mut batch = 0;
    let mut totals = Totals::default();
    for number in 1..=end.segment {
        let segment = match snapshot.segment(number) {
            Ok(segment) => segment,
            Err(Error::Io { source, path, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                report.add(path, "this segment of the log is missing");
                continue;
            }
            Err(e) => {
                report.add_error(e)?;
                continue;
            }
        };
        report.segments += 1;
        let stop = if number == end.segment { end.offset } else { segment.end() };
        let mut at = log::SEGMENT_HEADER_BYTES;
        while at < stop {
            let frame = match segment.frame_at(at) {
                Ok(frame) => frame,
                Err(e) => {
                    report.add_error(e)?;
                    // Go on behind the damage, to list all of it.
                    match segment.next_frame(at + 1) {
                        Some(next) => at = next,
                        None => break,
                    }
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
                            wrong(report, "the totals of the commit do not add up");
                        }
                        batch = commit.batch;
                    }
                },
                Kind::Put | Kind::Delete => {
                    if frame.seq <= seq {
                        wrong(report, &format!("sequence number {} follows {seq}", frame.seq));
                    }
                    seq = frame.seq;
                    let known = Known {
                        seq,
                        at: Position { segment: number, offset: at },
                        content: IdKey::default(),
                        turns: 0,
                    };
                    match replay(&frame, known, &mut live, &mut totals) {
                        Ok(()) => {}
                        Err(what) => wrong(report, &what),
                    }
                }
            }
            at += frame.bytes();
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
            format!("it counts {} dialogues, the log {}", known.dialogues, totals.dialogues),
        );
    }
    Ok(live)
}

fn replay(
    frame: &Frame<'_>,
    known: Known,
    live: &mut KeyMap<Known>,
    totals: &mut Totals,
) -> Result<(), String> {
    let gone = if frame.kind == Kind::Put {
        let dialogue: Dialogue =
            serde_json::from_slice(frame.json()).map_err(|e| format!("the record is unreadable: {e}"))?;
        if dialogue.id.key() != frame.id_key() || IdKey::of_bytes(frame.json()) != frame.content_key() {
            return Err("the record does not fit the keys in front of it".into());
        }
        if dialogue.turns.len() != frame.turns() as usize {
            return Err("the record does not have as many turns as it says".into());
        }
        totals.dialogues += 1;
        totals.turns += u64::from(frame.turns());
        live.insert(frame.id_key(), Known { content: frame.content_key(), turns: frame.turns(), ..known })
    } else {
        live.remove(&frame.id_key())
    };
    if let Some(gone) = gone {
        totals.dialogues -= 1;
        totals.turns -= u64::from(gone.turns);
    }
    Ok(())
}

fn check_tables(snapshot: &Snapshot, report: &mut Report) -> Result<()> {
    for table in snapshot.directory.tables() {
        report.tables += 1;
        if let Err(e) = table.verify() {
            report.add_error(e)?;
        }
    }
    Ok(())
}

fn check_directory(snapshot: &Snapshot, live: &KeyMap<Known>, report: &mut Report) {
    let folder = snapshot.places().tables();
    let mut count = 0;
    for entry in snapshot.directory.live() {
        count += 1;
        let fits = live.get(&entry.id).is_some_and(|k| {
            (k.seq, k.at, k.content, k.turns) == (entry.seq, entry.at, entry.content, entry.turns)
        });
        if !fits {
            report.add(&folder, format!("the entry of record {} does not fit the log", entry.seq));
        }
    }
    if count != live.len() {
        report.add(&folder, format!("the directory knows {count} dialogues, the log {}", live.len()));
    }
}

fn check_records(snapshot: &Snapshot, live: &KeyMap<Known>, report: &mut Report) -> Result<()> {
    let folder = snapshot.places().records();
    let records = match Records::open(&folder) {
        Ok(records) => records,
        Err(e) => return report.add_error(e),
    };
    match records.reached() {
        // A writer that was killed leaves sled a little behind; the next one brings it up to date.
        Ok(Reached::Batch(at)) if at < snapshot.batch() && at >= snapshot.manifest.checkpoint.batch => {
            report.records = RecordsChecked::Behind { at, of: snapshot.batch() };
            return Ok(());
        }
        Ok(Reached::BeingMade) => {
            report.records = RecordsChecked::BeingMade;
            return Ok(());
        }
        Ok(Reached::Batch(at)) if at != snapshot.batch() => {
            report.add(&folder, format!("sled is at batch {at}, the log at {}", snapshot.batch()));
        }
        Ok(_) => {}
        Err(e) => return report.add_error(e),
    }
    let by_seq: std::collections::HashMap<Seq, IdKey> = live.values().map(|k| (k.seq, k.content)).collect();
    let mut count = 0;
    for item in records.iter() {
        match item {
            Ok((seq, json)) => {
                count += 1;
                match by_seq.get(&seq) {
                    None => report.add(&folder, format!("sled holds record {seq}, which is not there")),
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
        report.add(&folder, format!("sled holds {count} records, the log {}", by_seq.len()));
    }
    report.records = RecordsChecked::Compared(count);
    Ok(())
}
