//! Self-dialogue Corpus: CSV files from Mechanical Turk. Each row is a dialogue that one worker invented.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use jiff::{civil::DateTime, tz};

use crate::formats::prelude::*;

pub(super) static FORMAT: Format = Format {
    name: "self-dialogue",
    about: "Self-dialogue Corpus: Mechanical Turk batches (CSV with Answer.sentence1 …), one folder per topic",
    sniff,
    read,
};

/// Name of the file with the ids of excluded workers. The authors of the corpus exclude the dialogues of these workers.
const BLOCKED: &str = "blocked_workers.txt";

fn sniff(probe: &Probe<'_>) -> Fit {
    if probe.file_name() == BLOCKED {
        return Fit::Companion;
    }
    match tables::first_row(probe.text, Dialect::CSV).map(|header| Columns::find(&header)) {
        Some(Ok(_)) => Fit::Yes,
        _ => Fit::No,
    }
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    let name = &input.name;
    let Some(header) = tables::first_row(input.probe().text, Dialect::CSV) else {
        return Err(Error::data(format!("{name}: the header cannot be read")));
    };
    let columns = Columns::find(&header).map_err(|missing| {
        Error::data(format!("{name} has no column {missing}; it is not a Self-dialogue batch"))
    })?;
    let blocked = match input.path.as_deref().and_then(blocked_list) {
        Some(path) => support::read_companion(&path)?.split_whitespace().map(str::to_owned).collect(),
        None => HashSet::new(),
    };
    let topic = input.folder_name();
    Ok(tables::from_rows(input, options, Dialect::CSV, move |row| {
        columns.dialogue(row, &blocked, topic.as_deref())
    }))
}

/// Returns the path of the list of excluded workers, in the folder of `file` or in one of the next two parent folders.
fn blocked_list(file: &Path) -> Option<PathBuf> {
    let file = fs::canonicalize(file).ok()?;
    file.ancestors().skip(1).take(3).map(|folder| folder.join(BLOCKED)).find(|path| path.is_file())
}

/// Columns of a table, as indexes counted from 0. If several columns have the same name, the first one is used.
struct Columns {
    width: usize,
    id: usize,
    worker: usize,
    task: Option<usize>,
    status: Option<usize>,
    started: Option<usize>,
    reject: Option<usize>,
    /// Columns of the sentences, in the order of the dialogue.
    sentences: Vec<usize>,
}

impl Columns {
    /// Finds the columns in a header. The error is the name of a missing column.
    fn find(header: &[String]) -> Result<Columns, &'static str> {
        let index_of = |name: &str| header.iter().position(|cell| cell.trim() == name);
        let sentences: Vec<usize> = (1..).map_while(|n| index_of(&format!("Answer.sentence{n}"))).collect();
        if sentences.is_empty() {
            return Err("Answer.sentence1");
        }
        Ok(Columns {
            width: header.len(),
            id: index_of("AssignmentId").ok_or("AssignmentId")?,
            worker: index_of("WorkerId").ok_or("WorkerId")?,
            task: index_of("Title"),
            status: index_of("AssignmentStatus"),
            started: index_of("AcceptTime"),
            reject: index_of("Reject"),
            sentences,
        })
    }

    fn dialogue(
        &self,
        row: &Row<'_>,
        blocked: &HashSet<String>,
        topic: Option<&str>,
    ) -> Result<Dialogue, RecordError> {
        let id = tables::text(row, self.id)?.trim();
        self.dialogue_with_id(id, row, blocked, topic)
            .map_err(|e| e.with_id(Some(id).filter(|id| !id.is_empty())))
    }

    fn dialogue_with_id(
        &self,
        id: &str,
        row: &Row<'_>,
        blocked: &HashSet<String>,
        topic: Option<&str>,
    ) -> Result<Dialogue, RecordError> {
        let (width, expected) = (row.width(), self.width);
        if width != expected {
            return Err(format!("the row has {width} columns, but the header has {expected}").into());
        }
        let cell = |at| tables::text(row, at).map(str::trim);
        let optional_cell = |at: Option<usize>| at.map_or(Ok(""), cell);
        let mut dialogue = support::dialogue(DialogueId::new(id)?, "self-dialogue", Some("en"));
        dialogue.domains.extend(topic.map(str::to_owned));
        let worker = cell(self.worker)?;
        dialogue.note("worker", worker);
        dialogue.note("blocked_worker", blocked.contains(worker).then_some(true));
        dialogue.note("task", optional_cell(self.task)?);
        dialogue.note("status", optional_cell(self.status)?);
        dialogue.note("reject", optional_cell(self.reject)?);
        let started = optional_cell(self.started)?;
        dialogue.time = read_time(started);
        if dialogue.time.is_none() {
            dialogue.note("time", started);
        }
        for (number, at) in (1u32..).zip(&self.sentences) {
            let text = cell(*at)?;
            // A missing answer is empty or `{}`.
            if text.is_empty() || text == "{}" {
                continue;
            }
            let (speaker, role) = if number % 2 == 1 { ("p1", Role::User) } else { ("p2", Role::Agent) };
            dialogue.push(speaker, role, text).number = TurnNo(number);
        }
        Ok(dialogue)
    }
}

/// Parses a time as Mechanical Turk writes it, such as `Tue May 09 18:33:15 PDT 2017`. Returns `None` for time zones
/// other than Pacific time and UTC.
fn read_time(text: &str) -> Option<Time> {
    let (hours, zone) = [(-7, " PDT "), (-8, " PST "), (0, " UTC "), (0, " GMT ")]
        .into_iter()
        .find(|(_, zone)| text.contains(zone))?;
    let local = DateTime::strptime("%a %b %d %H:%M:%S %Y", text.replace(zone, " ")).ok()?;
    tz::offset(hours).to_timestamp(local).ok().map(Time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::support::testing::{problems, read_text, sniffed};

    const BATCH: &str = "\
HITId,Title,AssignmentId,WorkerId,AssignmentStatus,AcceptTime,Answer.sentence1,Answer.sentence10,Answer.sentence2,Answer.sentence3,Title,Reject
h,Talk about tea,A1,W1,Submitted,Tue May 09 18:33:15 PDT 2017,\"Tea, or coffee?\",no,Tea.,{},x,
h,Talk about tea,A2,W2,Rejected,someday,Hm,,,{},x,Duplicate
h,,A3,W2,Submitted,,{},,,,x,
h,,A4,W2
";

    #[test]
    fn sentences_alternate_and_empty_ones_are_skipped() {
        assert_eq!(sniffed("tea/tea0.csv", BATCH), Some("self-dialogue"));
        let got = read_text(&FORMAT, "tea/tea0.csv", BATCH);
        assert_eq!(
            serde_json::to_string(&got[0]).unwrap(),
            r#"{"id":"A1","source":"self-dialogue","language":"en","time":"2017-05-10T01:33:15Z","domains":["tea"],"metadata":{"status":"Submitted","task":"Talk about tea","worker":"W1"},"turns":[{"number":1,"speaker":"p1","role":"user","text":"Tea, or coffee?"},{"number":2,"speaker":"p2","role":"agent","text":"Tea."}]}"#
        );
        assert_eq!(got[1].metadata["reject"], "Duplicate");
        assert_eq!(got[1].metadata["time"], "someday");
    }

    #[test]
    fn bad_rows_are_reported() {
        assert_eq!(
            problems(&FORMAT, "tea/tea0.csv", BATCH),
            [
                "tea/tea0.csv:4 (A3): the dialogue has no turns",
                "tea/tea0.csv:5 (A4): the row has 4 columns, but the header has 12",
            ]
        );
    }

    #[test]
    fn blocked_workers_are_marked() {
        let dir = tempfile::tempdir().unwrap();
        let batch = dir.path().join("corpus/tea/tea0.csv");
        fs::create_dir_all(batch.parent().unwrap()).unwrap();
        fs::write(&batch, BATCH).unwrap();
        fs::write(dir.path().join(BLOCKED), "W2\nW9\n").unwrap();
        let read = FORMAT.read(Input::open(&batch).unwrap(), &ReadOptions::default()).unwrap();
        let marks: Vec<_> =
            read.filter_map(Result::ok).map(|d| d.metadata.contains_key("blocked_worker")).collect();
        assert_eq!(marks, [false, true]);
        let list = Input::open(&dir.path().join(BLOCKED)).unwrap();
        assert_eq!(sniff(&list.probe()), Fit::Companion);
    }
}
