//! Microsoft Dialogue Challenge: one TSV file per domain (`movie_all.tsv`) with one turn per row. The columns after the
//! text are dialog acts.

use crate::formats::prelude::*;

pub(super) static FORMAT: Format = Format {
    name: "mdc",
    about: "Microsoft Dialogue Challenge (movie, restaurant, taxi): TSV with session.ID, Message.From, Message.Text",
    sniff,
    read,
};

const COLUMNS: [&str; 5] = ["session.ID", "Message.ID", "Message.Timestamp", "Message.From", "Message.Text"];

fn sniff(probe: &Probe<'_>) -> Fit {
    match tables::first_row(probe.text, Dialect::TSV) {
        Some(header) if header.iter().map(|cell| cell.trim()).take(5).eq(COLUMNS) => Fit::Yes,
        _ => Fit::No,
    }
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    // The file name `movie_all` contains the domain `movie`.
    let stem = input.stem();
    let domain = stem.split('_').next().unwrap_or(&stem).to_owned();
    Ok(tables::from_turn_rows(input, options, Dialect::TSV, Messages { domain }))
}

struct Messages {
    domain: String,
}

impl TurnRows for Messages {
    const NUMBER_KEY: &'static str = "message_id";

    /// Returns the domain and the session number as the id. The session number alone is not unique, because it starts
    /// at 1 in every file.
    fn id(&self, row: &Row<'_>, _: u64) -> Result<String, RecordError> {
        match tables::text(row, 0)?.trim() {
            "" => Err("the row has no session.ID".into()),
            session => Ok(format!("{}-{session}", self.domain)),
        }
    }

    fn add(&self, dialogue: &mut Dialogue, row: &Row<'_>) -> Result<Option<u32>, RecordError> {
        let (width, columns) = (row.width(), COLUMNS.len());
        if width < columns {
            return Err(format!("the row has {width} columns, fewer than {columns}").into());
        }
        let cell = |at| tables::text(row, at).map(str::trim);
        let from = cell(3)?;
        let role = Some(from).filter(|from| !from.is_empty());
        let role = role.map(|from| tables::known_role(from).unwrap_or_else(|| Role::from(from)));
        if dialogue.turns.is_empty() {
            dialogue.source = "mdc".into();
            dialogue.language = Some("en".into());
            dialogue.domains = vec![self.domain.clone()];
        }
        let turn = dialogue.push(from, role, cell(4)?);
        let time = cell(2)?;
        turn.time = read_time(time);
        if turn.time.is_none() {
            turn.note("time", time);
        }
        for at in columns..width {
            turn.acts.extend(Some(cell(at)?).filter(|act| !act.is_empty()).map(str::to_owned));
        }
        let number = cell(1)?;
        Ok(Some(number.parse().map_err(|_| format!("the Message.ID `{number}` is not a number"))?))
    }
}

/// Parses an RFC 3339 time. Some rows have `:` instead of `.` before the fraction of a second.
fn read_time(text: &str) -> Option<Time> {
    Time::parse(text).or_else(|| {
        let (seconds, fraction) = text.rsplit_once(':')?;
        Time::parse(&format!("{seconds}.{fraction}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::support::testing::{problems, read_text, sniffed};

    const HEADER: &str =
        "session.ID\tMessage.ID\tMessage.Timestamp\tMessage.From\tMessage.Text\tDialog-Acts\t\t\n";

    #[test]
    fn sessions_are_sorted_by_message_and_ids_include_the_domain() {
        let text = format!(
            "{HEADER}7\t2\t2020-01-01T10:00:05:250Z\tagent\t\"Fine, which?\"\trequest(name)\tgreeting()\t\n\
             7\t1\t2020-01-01T10:00:00.000Z\tuser\tA film please\tinform(kind=film; day=x) \t\t\n\t\t\t\t\t\t\t\n\
             8\t4\tlater\tuser\tone\n8\t4\t2020-01-01T10:00:00.000Z\tagent\ttwo\n"
        );
        assert_eq!(sniffed("movie_all.tsv", &text), Some("mdc"));
        let got = read_text(&FORMAT, "movie_all.tsv", &text);
        assert_eq!(
            serde_json::to_string(&got[0]).unwrap(),
            r#"{"id":"movie-7","source":"mdc","language":"en","time":"2020-01-01T10:00:00Z","domains":["movie"],"turns":[{"number":1,"speaker":"user","role":"user","text":"A film please","time":"2020-01-01T10:00:00Z","acts":["inform(kind=film; day=x)"]},{"number":2,"speaker":"agent","role":"agent","text":"Fine, which?","time":"2020-01-01T10:00:05.25Z","acts":["request(name)","greeting()"]}]}"#
        );
        let numbers: Vec<_> = got[1].turns.iter().map(|t| (t.number.0, &t.metadata["message_id"])).collect();
        assert_eq!(numbers, [(1, &4.into()), (2, &4.into())]);
        assert_eq!(got[1].turns[0].metadata["time"], "later");
    }

    #[test]
    fn bad_rows_are_reported() {
        let text = format!("{HEADER}1\tx\t\tuser\thi\n2\t1\tuser\n\t1\t\tuser\thi\n");
        assert_eq!(
            problems(&FORMAT, "taxi_all.tsv", &text),
            [
                "taxi_all.tsv:2 (taxi-1): the Message.ID `x` is not a number",
                "taxi_all.tsv:3 (taxi-2): the row has 3 columns, fewer than 5",
                "taxi_all.tsv:4: the row has no session.ID",
            ]
        );
    }
}
