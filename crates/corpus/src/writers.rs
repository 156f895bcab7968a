//! Writers for export formats that other tools read, and for the list of rejected records.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufWriter, Seek, SeekFrom, Write},
    path::PathBuf,
};

use crate::{Dialogue, Role};
use turnwise_core::error::{IoContext, Reject, Result};

/// Format in which dialogues are exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum ExportFormat {
    /// The canonical format of turnwise, with all data.
    Jsonl,
    /// One turn per row, with labels and times in columns. Metadata is omitted.
    Csv,
    /// Chat-completion messages.
    Messages,
    /// `Speaker: text` lines, with an empty line between dialogues.
    Transcript,
}

/// Writer of dialogues in an export format.
pub struct Writer {
    target: ExportFormat,
    started: bool,
}

impl Writer {
    /// Creates a writer for one file.
    pub fn new(target: ExportFormat) -> Self {
        Writer { target, started: false }
    }

    /// Writes one dialogue.
    pub fn write(&mut self, out: &mut dyn Write, dialogue: &Dialogue) -> io::Result<()> {
        let first = !std::mem::replace(&mut self.started, true);
        match self.target {
            ExportFormat::Jsonl => {
                serde_json::to_writer(&mut *out, dialogue)?;
                writeln!(out)
            }
            ExportFormat::Messages => messages(out, dialogue),
            ExportFormat::Csv => {
                if first {
                    writeln!(out, "id,turn,speaker,role,text,time,intent,acts,domain,title")?;
                }
                rows(out, dialogue)
            }
            ExportFormat::Transcript => {
                if !first {
                    writeln!(out)?;
                }
                transcript(out, dialogue)
            }
        }
    }
}

fn messages(out: &mut dyn Write, dialogue: &Dialogue) -> io::Result<()> {
    let messages: Vec<_> = dialogue
        .turns
        .iter()
        .map(|turn| {
            let role = match &turn.role {
                Some(Role::Agent) => "assistant",
                Some(Role::System) => "system",
                Some(Role::Other(name)) => name,
                _ => "user",
            };
            let mut message = serde_json::json!({ "role": role, "content": turn.text });
            if !turn.speaker.is_empty() {
                message["name"] = turn.speaker.as_str().into();
            }
            message
        })
        .collect();
    serde_json::to_writer(&mut *out, &serde_json::json!({ "id": dialogue.id, "messages": messages }))?;
    writeln!(out)
}

/// Writes the turns of a dialogue as CSV rows. Several acts or domains are separated by `|`, as the CSV reader expects.
fn rows(out: &mut dyn Write, dialogue: &Dialogue) -> io::Result<()> {
    for turn in &dialogue.turns {
        let fields = [
            dialogue.id.as_str().to_owned(),
            turn.number.to_string(),
            turn.speaker.clone(),
            turn.role.as_ref().map_or(String::new(), |r| r.as_str().to_owned()),
            turn.text.clone(),
            turn.time.map_or(String::new(), |t| t.to_string()),
            turn.intent.clone().unwrap_or_default(),
            turn.acts.join("|"),
            dialogue.domains.join("|"),
            dialogue.title.clone().unwrap_or_default(),
        ];
        let row: Vec<String> = fields.into_iter().map(quoted).collect();
        writeln!(out, "{}", row.join(","))?;
    }
    Ok(())
}

/// Quotes a CSV field if necessary. Quotes within the field are doubled (RFC 4180).
fn quoted(field: String) -> String {
    if field.contains([',', '"', '\n', '\r']) || field.starts_with(' ') || field.ends_with(' ') {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field
    }
}

fn transcript(out: &mut dyn Write, dialogue: &Dialogue) -> io::Result<()> {
    for turn in &dialogue.turns {
        let role = turn.role.as_ref().map_or("unknown", Role::as_str);
        let speaker = if turn.speaker.is_empty() { role } else { turn.speaker.as_str() };
        // A turn must be on one line, because a second line could look like a new turn or end the dialogue.
        let lines = turn.text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty());
        let text = lines.collect::<Vec<_>>().join(" ");
        writeln!(out, "{}: {text}", speaker.replace(':', " "))?;
    }
    Ok(())
}

/// Writer of the rejects file: one JSON line for each rejected record or file.
pub struct Rejects {
    file: Option<(PathBuf, BufWriter<File>)>,
    /// Length of the file in bytes, including buffered lines. A resumed ingest continues writing at this position.
    pub bytes: u64,
}

impl Rejects {
    /// Opens the rejects file and truncates it to its first `keep` bytes, which an earlier run of the same ingest
    /// wrote. If `path` is `None`, [`Rejects::write`] does nothing.
    pub fn open(path: Option<PathBuf>, keep: u64) -> Result<Self> {
        let Some(path) = path else { return Ok(Rejects { file: None, bytes: 0 }) };
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(false).open(&path).at("create", &path)?;
        let keep = keep.min(file.metadata().at("read", &path)?.len());
        file.set_len(keep).at("write", &path)?;
        file.seek(SeekFrom::Start(keep)).at("write", &path)?;
        Ok(Rejects { file: Some((path, BufWriter::new(file))), bytes: keep })
    }

    /// Appends a line for a rejected record or file.
    pub fn write(&mut self, reject: &Reject) -> Result<()> {
        if let Some((path, file)) = &mut self.file {
            let mut line = serde_json::to_vec(reject).unwrap_or_default();
            line.push(b'\n');
            file.write_all(&line).at("write", path)?;
            self.bytes += line.len() as u64;
        }
        Ok(())
    }

    /// Writes the buffered lines to the file. Returns the length of the file in bytes.
    pub fn flush(&mut self) -> Result<u64> {
        if let Some((path, file)) = &mut self.file {
            file.flush().at("write", path)?;
        }
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{formats::ReadOptions, input::Input};

    fn written(target: ExportFormat) -> String {
        let d: Dialogue = serde_json::from_str(
            r#"{"id":"d","domains":["x"],"turns":[{"number":1,"speaker":"Ann","role":"user","text":"say \"hi\",\nplease"},
                {"number":2,"role":"agent","text":"hi","intent":"greet"}]}"#,
        )
        .unwrap();
        let mut out = Vec::new();
        let mut writer = Writer::new(target);
        writer.write(&mut out, &d).unwrap();
        writer.write(&mut out, &d).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn exported_csv_has_the_same_acts_and_domains_when_it_is_read_again() {
        let d: Dialogue = serde_json::from_str(
            r#"{"id":"d","domains":["x y","z"],"turns":[{"text":"hi","acts":["inform(area=north, price=low)","bye"]}]}"#,
        )
        .unwrap();
        let mut out = Vec::new();
        Writer::new(ExportFormat::Csv).write(&mut out, &d).unwrap();
        let csv = crate::formats::by_name("csv").unwrap();
        let input = Input::from_stream("d.csv".into(), None, Box::new(io::Cursor::new(out))).unwrap();
        let read = csv.read(input, &ReadOptions::default()).unwrap().next().unwrap().unwrap();
        assert_eq!((read.domains, &read.turns[0].acts), (d.domains, &d.turns[0].acts));
    }

    #[test]
    fn each_target_writes_its_format() {
        assert_eq!(
            written(ExportFormat::Transcript),
            "Ann: say \"hi\", please\nagent: hi\n\nAnn: say \"hi\", please\nagent: hi\n"
        );
        let csv = written(ExportFormat::Csv);
        assert!(csv.starts_with("id,turn,") && csv.matches("id,turn").count() == 1);
        assert!(csv.contains("d,1,Ann,user,\"say \"\"hi\"\",\nplease\",,,,x,\n"));
        let line = written(ExportFormat::Messages).lines().next().unwrap().to_owned();
        assert_eq!(
            line,
            r#"{"id":"d","messages":[{"content":"say \"hi\",\nplease","name":"Ann","role":"user"},{"content":"hi","role":"assistant"}]}"#
        );
        assert_eq!(written(ExportFormat::Jsonl).lines().count(), 2);
    }
}
