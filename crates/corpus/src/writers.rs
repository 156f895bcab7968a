//! Writing dialogues in the formats that other tools read.

use std::io::{self, Write};

use crate::{Dialogue, Role};

/// A format to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// turnwise's own, complete.
    Jsonl,
    /// One turn a row; labels and times in columns, metadata left out.
    Csv,
    /// Chat-completion messages.
    Messages,
    /// `Speaker: text`, an empty line between dialogues.
    Transcript,
}

/// Writes dialogues one after the other.
pub struct Writer {
    target: Target,
    began: bool,
}

impl Writer {
    /// Begins a file of a format.
    pub fn new(target: Target) -> Self {
        Writer { target, began: false }
    }

    /// Writes a dialogue.
    pub fn write(&mut self, out: &mut dyn Write, dialogue: &Dialogue) -> io::Result<()> {
        let first = !std::mem::replace(&mut self.began, true);
        match self.target {
            Target::Jsonl => {
                serde_json::to_writer(&mut *out, dialogue)?;
                writeln!(out)
            }
            Target::Messages => messages(out, dialogue),
            Target::Csv => {
                if first {
                    writeln!(out, "id,turn,speaker,role,text,time,intent,acts,domain,title")?;
                }
                rows(out, dialogue)
            }
            Target::Transcript => {
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
            turn.acts.join(" "),
            dialogue.domains.join(" "),
            dialogue.title.clone().unwrap_or_default(),
        ];
        let row: Vec<String> = fields.into_iter().map(quoted).collect();
        writeln!(out, "{}", row.join(","))?;
    }
    Ok(())
}

/// RFC 4180: quoted where needed, quotes doubled.
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
        // A line break within a turn would begin another one for whoever reads this.
        let text = turn
            .text
            .split(['\n', '\r'])
            .map(str::trim)
            .filter(|l| !l.is_empty())
            .collect::<Vec<_>>()
            .join(" ");
        writeln!(out, "{}: {text}", speaker.replace(':', " "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(target: Target) -> String {
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
    fn each_target_writes_what_its_readers_expect() {
        assert_eq!(
            written(Target::Transcript),
            "Ann: say \"hi\", please\nagent: hi\n\nAnn: say \"hi\", please\nagent: hi\n"
        );
        let csv = written(Target::Csv);
        assert!(csv.starts_with("id,turn,") && csv.matches("id,turn").count() == 1);
        assert!(csv.contains("d,1,Ann,user,\"say \"\"hi\"\",\nplease\",,,,x,\n"));
        let line = written(Target::Messages).lines().next().unwrap().to_owned();
        assert_eq!(
            line,
            r#"{"id":"d","messages":[{"content":"say \"hi\",\nplease","name":"Ann","role":"user"},{"content":"hi","role":"assistant"}]}"#
        );
        assert_eq!(written(Target::Jsonl).lines().count(), 2);
    }
}
