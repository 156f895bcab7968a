//! Bringing the indexes up to a snapshot.

use std::path::Path;

use tantivy::IndexWriter;

use super::{
    DIALOGUES, Lexical, UTTERANCES, beside, folder,
    side::{New, Progress, Side},
    unknown_analyzer,
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
    /// Brings the index up to a snapshot, building it if there is none, and gives how many utterances were taken in.
    /// It keeps its analyzer. `stop` is asked now and then; stopping leaves the index as it was.
    pub fn update(
        root: &Path,
        snapshot: &Snapshot,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        Lexical::update_by(None, root, snapshot, stop, progress)
    }

    /// The same with another analyzer than it may have had; terms of another analysis mean that it is made anew.
    pub fn update_by(
        analyzer: Option<Analyzer>,
        root: &Path,
        snapshot: &Snapshot,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        let analyzer = analyzer.map_or_else(|| remembered(root), Ok)?;
        let target = target(analyzer, snapshot);
        let run = Run { snapshot, target: &target, stop };
        // Another analysis, other fields, another log, damage: all mean the same, that it is made anew.
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
                run.take_in(&lexical, [utterances, dialogues], progress)
            }
            None => run.make(root, analyzer, progress),
        }
    }

    /// Makes it anew, whatever there is. It keeps its analyzer, as long as that can be told, unless another is named.
    pub fn rebuild(
        analyzer: Option<Analyzer>,
        root: &Path,
        snapshot: &Snapshot,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        let analyzer = analyzer.map_or_else(|| remembered(root), Ok)?;
        let target = target(analyzer, snapshot);
        Run { snapshot, target: &target, stop }.make(root, analyzer, progress)
    }
}

/// How far an index will have come, and by what.
fn target(analyzer: Analyzer, snapshot: &Snapshot) -> Progress {
    Progress {
        analyzer: analyzer.to_string(),
        log: snapshot.log_id().to_owned(),
        at: snapshot.end(),
        batch: snapshot.batch(),
    }
}

/// The analyzer of the index that is there; what cannot be told any more becomes the default.
fn remembered(root: &Path) -> Result<Analyzer> {
    let Ok(Some(name)) = Lexical::analyzer_name(root) else { return Ok(Analyzer::default()) };
    match name.parse::<Analyzer>() {
        // Whoever built this index wanted its analyzer: it is not for a build without it to take it away.
        Err(e) if e.class() == Class::Unavailable => Err(unknown_analyzer(root, &name, &e)),
        parsed => Ok(parsed.unwrap_or_default()),
    }
}

/// Brings a lexical index up to a snapshot of its log, and gives how many utterances were taken in.
pub(super) fn take_in(lexical: &Lexical, snapshot: &Snapshot) -> Result<u64> {
    let from = |side: &Side| side.progress().map_or(Position::START, |progress| progress.at);
    let target = target(lexical.analyzer, snapshot);
    let run = Run { snapshot, target: &target, stop: &|| false };
    run.take_in(lexical, [from(&lexical.utterances), from(&lexical.dialogues)], &mut |_| {})
}

struct Run<'a> {
    snapshot: &'a Snapshot,
    target: &'a Progress,
    stop: &'a dyn Fn() -> bool,
}

impl Run<'_> {
    /// Makes it beside the old one, which serves until the new one is whole.
    fn make(&self, root: &Path, analyzer: Analyzer, progress: &mut dyn FnMut(u64)) -> Result<u64> {
        let [new, aside] = beside(root);
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
        let taken = self.take_in(&lexical, [Position::START; 2], progress);
        drop(lexical);
        if taken.is_err() {
            // A half is of no use; the error that matters is the first one.
            let _ = files::remove_folder(&new);
            return taken;
        }
        files::replace_folder(&new, &old, &aside)?;
        taken
    }

    /// Takes in what came since; the two may have come differently far.
    fn take_in(&self, lexical: &Lexical, from: [Position; 2], progress: &mut dyn FnMut(u64)) -> Result<u64> {
        let sides = [&lexical.utterances, &lexical.dialogues];
        let [utterances, dialogues] = sides;
        let writers = [utterances.writer()?, dialogues.writer()?];
        let is_new = from == [Position::START; 2];
        let mut taken = 0;
        let start = from[0].min(from[1]);
        let mut changes = self.snapshot.changes(start);
        while let Some(change) = changes.next_change() {
            let change = Changed::of(change?);
            // What ends behind the place where an index stands is new to it.
            let at = changes.position();
            for n in (0..2).filter(|n| at > from[*n]) {
                if !is_new {
                    sides[n].forget(&writers[n], change.id());
                }
            }
            if let Changed::Live(dialogue) = &change {
                let seq = self.snapshot.seq_of(dialogue.id.key());
                let seq = seq.ok_or_else(|| Error::Internal(format!("{} has no number", dialogue.id)))?;
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
                    hint: Some("`turnwise index build` makes the lexical index".to_owned()),
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

/// A change, with only what an index needs of it.
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
        let new = New {
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

/// A dialogue is what is said in it, as for the encoders: titles and domains are what a search is measured against.
fn add_whole(side: &Side, writer: &IndexWriter, seq: Seq, dialogue: &Dialogue) -> Result<()> {
    let texts: Vec<&str> = dialogue.turns.iter().map(|turn| turn.text.as_str()).collect();
    let new = New {
        dialogue: dialogue.id.as_str(),
        turn: 0,
        seq,
        last: dialogue.turns.last().map_or(0, |turn| turn.number.0),
        text: &texts.join("\n"),
        facts: &Facts::of_dialogue(dialogue),
    };
    side.add(writer, &new)
}
