//! Updates, rebuilds and compacts the indexes.

use std::path::Path;

use tantivy::IndexWriter;

use super::{
    DIALOGUES, Lexical, UTTERANCES, folder,
    side::{NewDocument, Progress, Side},
    temporary_folders, unknown_analyzer,
};
use turnwise_core::{
    error::{Class, Error, Result},
    files,
    ids::Seq,
};
use turnwise_corpus::{Dialogue, filter::Facts};
use turnwise_store::{Change, Position, Snapshot};
use turnwise_text::Analyzer;

impl Lexical {
    /// Updates the index to a snapshot, or builds it if there is none. Returns the number of utterances added. Keeps
    /// the analyzer of the index. `stop` is called regularly; if it returns true, the index stays unchanged and an
    /// error is returned. `progress` receives the number of utterances added so far.
    pub fn update(
        root: &Path,
        snapshot: &Snapshot,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        Lexical::update_by(None, root, snapshot, stop, progress)
    }

    /// Like `update`, with a given analyzer. If it differs from the analyzer of the index, the index is
    /// rebuilt.
    pub fn update_by(
        analyzer: Option<Analyzer>,
        root: &Path,
        snapshot: &Snapshot,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        let analyzer = analyzer.map_or_else(|| current_analyzer(root), Ok)?;
        let target = target(analyzer, snapshot);
        let run = Run { snapshot, target: &target, stop };
        // A different analyzer, other fields, another log, or damage: the index must be rebuilt.
        let usable = Lexical::open(root).ok().and_then(|lexical| {
            let (utterances, dialogues) = (lexical.utterances.progress()?, lexical.dialogues.progress()?);
            let fits =
                |p: &Progress| p.analyzer == target.analyzer && p.log == target.log && p.at <= target.at;
            let both = fits(&utterances) && fits(&dialogues);
            both.then_some((lexical, utterances.at, dialogues.at))
        });
        match usable {
            Some((_, utterances, dialogues)) if utterances == target.at && dialogues == target.at => Ok(0),
            Some((lexical, utterances, dialogues)) => {
                run.catch_up(&lexical, [utterances, dialogues], progress)
            }
            None => run.make(root, analyzer, progress),
        }
    }

    /// Rebuilds the index, even if it is up to date. If no analyzer is given, keeps the analyzer of the index, or
    /// uses the default if it cannot be read.
    pub fn rebuild(
        analyzer: Option<Analyzer>,
        root: &Path,
        snapshot: &Snapshot,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        let analyzer = analyzer.map_or_else(|| current_analyzer(root), Ok)?;
        let target = target(analyzer, snapshot);
        Run { snapshot, target: &target, stop }.make(root, analyzer, progress)
    }
}

/// Returns the log position and analyzer that an index will have after the update.
fn target(analyzer: Analyzer, snapshot: &Snapshot) -> Progress {
    Progress {
        analyzer: analyzer.to_string(),
        log: snapshot.log_id().to_owned(),
        at: snapshot.end(),
        batch: snapshot.batch(),
    }
}

/// Returns the analyzer of the existing index, or the default if it cannot be read.
fn current_analyzer(root: &Path) -> Result<Analyzer> {
    let Ok(Some(name)) = Lexical::analyzer_name(root) else { return Ok(Analyzer::default()) };
    match name.parse::<Analyzer>() {
        // The user chose this analyzer with a version of turnwise that supports it. Do not replace it silently.
        Err(e) if e.class() == Class::Unavailable => Err(unknown_analyzer(root, &name, &e)),
        parsed => Ok(parsed.unwrap_or_default()),
    }
}

/// Updates an open index to a snapshot of its log. Returns the number of utterances added.
pub(super) fn catch_up(lexical: &Lexical, snapshot: &Snapshot) -> Result<u64> {
    let from = |side: &Side| side.progress().map_or(Position::START, |progress| progress.at);
    let target = target(lexical.analyzer, snapshot);
    let run = Run { snapshot, target: &target, stop: &|| false };
    run.catch_up(lexical, [from(&lexical.utterances), from(&lexical.dialogues)], &mut |_| {})
}

struct Run<'a> {
    snapshot: &'a Snapshot,
    target: &'a Progress,
    stop: &'a dyn Fn() -> bool,
}

impl Run<'_> {
    /// Builds a new index next to the old one, which stays usable until the new one is complete.
    fn make(&self, root: &Path, analyzer: Analyzer, progress: &mut dyn FnMut(u64)) -> Result<u64> {
        let [new, aside] = temporary_folders(root);
        let old = folder(root);
        for folder in [&new, &old] {
            Side::refuse_if_written(&folder.join(UTTERANCES))?;
        }
        files::remove_folder(&new)?;
        let lexical = Lexical {
            analyzer,
            utterances: Side::create(&new.join(UTTERANCES), analyzer)?,
            dialogues: Side::create(&new.join(DIALOGUES), analyzer)?,
            tail: 0,
        };
        let taken = self.catch_up(&lexical, [Position::START; 2], progress);
        drop(lexical);
        if taken.is_err() {
            // An incomplete index is useless. Report the first error only.
            let _ = files::remove_folder(&new);
            return taken;
        }
        files::replace_folder(&new, &old, &aside)?;
        taken
    }

    /// Adds newer changes. The two indexes may be at different positions.
    fn catch_up(&self, lexical: &Lexical, from: [Position; 2], progress: &mut dyn FnMut(u64)) -> Result<u64> {
        let sides = [&lexical.utterances, &lexical.dialogues];
        let [utterances, dialogues] = sides;
        let writers = [utterances.writer()?, dialogues.writer()?];
        let is_new = from == [Position::START; 2];
        let mut taken = 0;
        let start = from[0].min(from[1]);
        let mut changes = self.snapshot.changes(start);
        while let Some(change) = changes.next_change() {
            let change = Changed::of(change?);
            // A change is new to an index if it ends after the position of the index.
            let at = changes.position();
            for n in (0..2).filter(|n| at > from[*n]) {
                if !is_new {
                    sides[n].delete_dialogue(&writers[n], change.id());
                }
            }
            if let Changed::Live(dialogue) = &change {
                let seq = self.snapshot.seq_of(dialogue.id.key());
                let seq =
                    seq.ok_or_else(|| Error::Internal(format!("{} has no sequence number", dialogue.id)))?;
                if at > from[0] {
                    taken += dialogue.turns.len() as u64;
                    add_turns(utterances, &writers[0], seq, dialogue)?;
                }
                if at > from[1] {
                    add_whole(dialogues, &writers[1], seq, dialogue)?;
                }
            }
            if (self.stop)() {
                return Err(Error::Interrupted {
                    hint: Some("`turnwise index build` creates the lexical index".to_owned()),
                });
            }
            progress(taken);
        }
        for (side, writer) in sides.into_iter().zip(writers) {
            side.commit(writer, self.target)?;
        }
        Ok(taken)
    }
}

/// A change of the log, reduced to the data that an index needs.
enum Changed {
    Live(Box<Dialogue>),
    Gone(String),
}

impl Changed {
    fn of(change: Change<'_>) -> Self {
        match change {
            Change::Put { dialogue, live: true } => Changed::Live(dialogue),
            Change::Put { dialogue, live: false } => Changed::Gone(dialogue.id.as_str().to_owned()),
            Change::Deleted(id) => Changed::Gone(id.to_owned()),
        }
    }

    fn id(&self) -> &str {
        match self {
            Changed::Live(dialogue) => dialogue.id.as_str(),
            Changed::Gone(id) => id,
        }
    }
}

fn add_turns(side: &Side, writer: &IndexWriter, seq: Seq, dialogue: &Dialogue) -> Result<()> {
    dialogue.turns.iter().try_for_each(|turn| {
        let new = NewDocument {
            dialogue: dialogue.id.as_str(),
            turn: turn.number.0,
            seq,
            last: 0,
            text: &turn.text,
            facts: &Facts::of_turn(dialogue, turn),
        };
        side.add(writer, &new)
    })
}

/// Adds a whole dialogue. Only the turns are indexed: titles and domains serve as ground truth in evaluations.
fn add_whole(side: &Side, writer: &IndexWriter, seq: Seq, dialogue: &Dialogue) -> Result<()> {
    let texts: Vec<&str> = dialogue.turns.iter().map(|turn| turn.text.as_str()).collect();
    let new = NewDocument {
        dialogue: dialogue.id.as_str(),
        turn: 0,
        seq,
        last: dialogue.turns.last().map_or(0, |turn| turn.number.0),
        text: &texts.join("\n"),
        facts: &Facts::of_dialogue(dialogue),
    };
    side.add(writer, &new)
}

impl Lexical {
    /// Rebuilds the index if it may contain terms of deleted dialogues. Returns true if the index was rebuilt. An
    /// index that belongs to the log of the snapshot is kept. The snapshot's log must be freshly compacted: it must
    /// not contain deletions.
    pub fn compact(
        root: &Path,
        snapshot: &Snapshot,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<bool> {
        let exists = folder(root).is_dir();
        for rest in temporary_folders(root).iter().filter(|rest| rest.is_dir()) {
            Side::refuse_if_written(&rest.join(UTTERANCES))?;
            files::remove_folder(rest)?;
        }
        if !exists || Lexical::open(root).is_ok_and(|lexical| lexical.is_of(snapshot)) {
            return Ok(false);
        }
        Lexical::rebuild(None, root, snapshot, stop, progress).map(|_| true)
    }

    /// Returns true if the index belongs to the log of a snapshot, up to date or not.
    pub fn is_of(&self, snapshot: &Snapshot) -> bool {
        let of = |side: &Side| side.progress().is_some_and(|p| p.log == snapshot.log_id());
        of(&self.utterances) && of(&self.dialogues)
    }
}
