//! Updates, rebuilds and compacts the lexical index.

use std::path::Path;

use tantivy::IndexWriter;

use super::{
    Lexical, folder, progress,
    side::{NewDocument, Progress, Side},
    temporary_folders, unknown_analyzer,
};
use crate::vectors::Kind;
use turnwise_core::{
    error::{Class, Error, Result},
    files,
    ids::Seq,
};
use turnwise_corpus::{Dialogue, filter::Facts};
use turnwise_store::{Change, Position, Snapshot};
use turnwise_text::{Analyzer, AnalyzerChoice};

impl Lexical {
    /// Updates the lexical index to a snapshot, or builds a missing index. If `analyzer` selects an analyzer other than
    /// that of the index, the index is rebuilt. With `None`, the index keeps its analyzer; the analyzer of a new index is
    /// detected ([`detect_analyzer`]). Returns the number of utterances added.
    ///
    /// An analyzer that was detected from a few texts is detected again. If the result differs, the index is rebuilt.
    ///
    /// `progress` receives the number of utterances added so far. `stop` is called regularly; if it returns true, the
    /// index stays unchanged and an error is returned.
    pub fn update(
        analyzer: Option<AnalyzerChoice>,
        root: &Path,
        snapshot: &Snapshot,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        let selected = select(analyzer, root, snapshot)?;
        let target = target(selected, snapshot);
        let run = Run { snapshot, target: &target, stop };
        // The index must be rebuilt if it has a different analyzer, other fields or a different log, or if it is
        // damaged.
        let fits = |p: &Progress| p.analyzer == target.analyzer && p.log == target.log && p.at <= target.at;
        match Lexical::open(root).ok().filter(|lexical| lexical.both(fits)) {
            Some(lexical)
                if lexical.both(|p| (p.at, p.detected_from) == (target.at, target.detected_from)) =>
            {
                Ok(0)
            }
            Some(lexical) => run.catch_up(&lexical, progress),
            None => run.make(root, selected.analyzer, progress),
        }
    }

    /// Builds a new lexical index, even if the old one is up to date. The parameters are those of [`Lexical::update`].
    pub fn rebuild(
        analyzer: Option<AnalyzerChoice>,
        root: &Path,
        snapshot: &Snapshot,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        let selected = select(analyzer, root, snapshot)?;
        let target = target(selected, snapshot);
        Run { snapshot, target: &target, stop }.make(root, selected.analyzer, progress)
    }

    /// Rebuilds the lexical index if it cannot be opened or belongs to a different log than the snapshot. An index of a
    /// different log may contain terms of deleted dialogues. Returns true if the index was rebuilt.
    pub fn compact(
        root: &Path,
        snapshot: &Snapshot,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<bool> {
        let exists = folder(root).is_dir();
        for rest in temporary_folders(root).iter().filter(|rest| rest.is_dir()) {
            refuse_if_written(rest)?;
            files::remove_folder(rest)?;
        }
        if !exists || Lexical::open(root).is_ok_and(|lexical| lexical.is_of(snapshot)) {
            return Ok(false);
        }
        Lexical::rebuild(None, root, snapshot, stop, progress).map(|_| true)
    }
}

/// Detects the analyzer of a new lexical index by the language of the dialogues. Reads only the first dialogues.
pub fn detect_analyzer(snapshot: &Snapshot) -> Result<Analyzer> {
    Ok(detect(snapshot)?.analyzer)
}

/// An analyzer that was detected from fewer texts than this is detected again by the next update. Otherwise, the first
/// few texts of an index would determine its analyzer forever.
const FEW_TEXTS: usize = 50;

/// Analyzer for an update, and how it was selected; see [`Progress::detected_from`].
#[derive(Clone, Copy)]
struct SelectedAnalyzer {
    analyzer: Analyzer,
    detected_from: Option<usize>,
}

fn select(choice: Option<AnalyzerChoice>, root: &Path, snapshot: &Snapshot) -> Result<SelectedAnalyzer> {
    match choice {
        Some(AnalyzerChoice::Named(analyzer)) => Ok(SelectedAnalyzer { analyzer, detected_from: None }),
        Some(AnalyzerChoice::Detect) => detect(snapshot),
        None => match current(root)? {
            Some(current) if current.detected_from.is_none_or(|texts| texts >= FEW_TEXTS) => Ok(current),
            _ => detect(snapshot),
        },
    }
}

fn detect(snapshot: &Snapshot) -> Result<SelectedAnalyzer> {
    let (mut texts, mut failed) = (0, None);
    // A record that cannot be read ends the texts, and is reported afterwards.
    let dialogues = snapshot.dialogues().map_while(|dialogue| dialogue.map_err(|e| failed = Some(e)).ok());
    let turns = dialogues.flat_map(|dialogue| dialogue.turns).inspect(|_| texts += 1);
    let analyzer = Analyzer::detect(turns.map(|turn| turn.text));
    failed.map_or(Ok(SelectedAnalyzer { analyzer, detected_from: Some(texts) }), Err)
}

fn target(selected: SelectedAnalyzer, snapshot: &Snapshot) -> Progress {
    Progress {
        analyzer: selected.analyzer.to_string(),
        detected_from: selected.detected_from,
        log: snapshot.log_id().to_owned(),
        at: snapshot.end(),
        batch: snapshot.batch(),
    }
}

/// Returns the analyzer of the existing index; `None` if there is no index or its analyzer is unknown. A known analyzer
/// that this build does not include is an error.
fn current(root: &Path) -> Result<Option<SelectedAnalyzer>> {
    let Ok(Some(progress)) = progress(root) else { return Ok(None) };
    match progress.analyzer.parse::<Analyzer>() {
        Ok(analyzer) => Ok(Some(SelectedAnalyzer { analyzer, detected_from: progress.detected_from })),
        // The user chose this analyzer with a build of turnwise that includes it. Do not replace it silently.
        Err(e) if e.class() == Class::Unavailable => Err(unknown_analyzer(root, &progress.analyzer, &e)),
        Err(_) => Ok(None),
    }
}

/// Updates an open index to a snapshot of its log. Returns the number of utterances added.
pub(super) fn catch_up(lexical: &Lexical, snapshot: &Snapshot) -> Result<u64> {
    let target = target(SelectedAnalyzer { analyzer: lexical.analyzer, detected_from: None }, snapshot);
    Run { snapshot, target: &target, stop: &|| false }.catch_up(lexical, &mut |_| {})
}

struct Run<'a> {
    snapshot: &'a Snapshot,
    target: &'a Progress,
    stop: &'a dyn Fn() -> bool,
}

impl Run<'_> {
    /// Builds a new index next to the old one, which stays usable until the new one is complete.
    fn make(&self, root: &Path, analyzer: Analyzer, progress: &mut dyn FnMut(u64)) -> Result<u64> {
        let [new, replaced] = temporary_folders(root);
        let old = folder(root);
        for folder in [&new, &old] {
            refuse_if_written(folder)?;
        }
        files::remove_folder(&new)?;
        let lexical =
            Lexical::of_sides(analyzer, |kind| Side::create(&new.join(kind.name()), kind, analyzer))?;
        let added = self.catch_up(&lexical, progress);
        drop(lexical);
        if added.is_err() {
            // An incomplete index is useless. Report the first error only.
            let _ = files::remove_folder(&new);
            return added;
        }
        files::replace_folder(&new, &old, &replaced)?;
        added
    }

    /// Adds to each Tantivy index the changes after its position. The positions of the two indexes may differ. Returns
    /// the number of utterances added.
    fn catch_up(&self, lexical: &Lexical, progress: &mut dyn FnMut(u64)) -> Result<u64> {
        let sides = &lexical.sides;
        let writers = [sides[0].writer()?, sides[1].writer()?];
        let from = sides.each_ref().map(|side| side.progress().map_or(Position::START, |p| p.at));
        let is_new = from == [Position::START; 2];
        let mut added = 0;
        let mut changes = self.snapshot.changes(from[0].min(from[1]));
        while let Some(change) = changes.next_change() {
            let (id, live) = match change? {
                Change::Put { dialogue, live } => (dialogue.id.to_string(), live.then_some(dialogue)),
                Change::Deleted(id) => (id.to_owned(), None),
            };
            // A change is new to an index if it ends after the position of the index.
            let at = changes.position();
            for n in (0..2).filter(|n| !is_new && at > from[*n]) {
                sides[n].delete_dialogue(&writers[n], &id);
            }
            if let Some(dialogue) = live {
                let seq = self.snapshot.seq_of(dialogue.id.key());
                let seq = seq.ok_or_else(|| Error::Internal(format!("{id} has no sequence number")))?;
                if at > from[0] {
                    added += dialogue.turns.len() as u64;
                    add_turns(&sides[0], &writers[0], seq, &dialogue)?;
                }
                if at > from[1] {
                    add_whole(&sides[1], &writers[1], seq, &dialogue)?;
                }
            }
            if (self.stop)() {
                let hint = Some("`turnwise index build` creates the lexical index".to_owned());
                return Err(Error::Interrupted { hint });
            }
            progress(added);
        }
        for (side, writer) in sides.iter().zip(writers) {
            side.commit(writer, self.target)?;
        }
        Ok(added)
    }
}

/// Returns an error if another process is writing to the lexical index in a folder.
fn refuse_if_written(folder: &Path) -> Result<()> {
    Side::refuse_if_written(&folder.join(Kind::Utterances.name()))
}

fn add_turns(side: &Side, writer: &IndexWriter, seq: Seq, dialogue: &Dialogue) -> Result<()> {
    dialogue.turns.iter().try_for_each(|turn| {
        let new = NewDocument {
            dialogue: dialogue.id.as_str(),
            turn: turn.number.0,
            seq,
            last: 0,
            text: &turn.text,
            title: None,
            facts: &Facts::of_turn(dialogue, turn),
        };
        side.add(writer, &new)
    })
}

fn add_whole(side: &Side, writer: &IndexWriter, seq: Seq, dialogue: &Dialogue) -> Result<()> {
    let texts: Vec<&str> = dialogue.turns.iter().map(|turn| turn.text.as_str()).collect();
    let new = NewDocument {
        dialogue: dialogue.id.as_str(),
        turn: 0,
        seq,
        last: dialogue.turns.last().map_or(0, |turn| turn.number.0),
        text: &texts.join("\n"),
        title: dialogue.title.as_deref(),
        facts: &Facts::of_dialogue(dialogue),
    };
    side.add(writer, &new)
}
