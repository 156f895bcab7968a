//! CSV and TSV with one turn per row. Columns are detected by name or mapped with `--map`.

mod columns;

use crate::{
    Dialogue, Time, Turn,
    formats::{
        Dialogues, Fit, Format, ReadOptions,
        support::{self, RecordError},
        tables::{self, TurnRows},
    },
    input::{Input, Probe},
    rows::Row,
};
use columns::Columns;
use turnwise_core::error::Result;

pub(super) struct Csv;

impl Format for Csv {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn about(&self) -> &'static str {
        "CSV or TSV with one turn per row, consecutive rows for a dialogue; columns by name or with --map"
    }

    fn sniff(&self, probe: &Probe<'_>) -> Fit {
        let Some(columns) = Columns::recognized(probe.text) else {
            return Fit::No;
        };
        let named = probe.has_extension(".csv") || probe.has_extension(".tsv");
        if named || columns.known() > 1 { Fit::Maybe } else { Fit::No }
    }

    fn read(&self, input: Input, options: &ReadOptions) -> Result<Dialogues> {
        let columns = Columns::find(&input.name, input.probe().text, options.columns.as_ref())?;
        let dialect = columns.dialect;
        let turns = Turns { columns, stem: input.stem() };
        Ok(tables::from_turn_rows(input, options, dialect, turns))
    }
}

struct Turns {
    columns: Columns,
    stem: String,
}

impl TurnRows for Turns {
    fn id(&self, row: &Row<'_>, row_number: u64) -> Result<String, RecordError> {
        let Some(at) = self.columns.id else {
            return Ok(support::generated_id(&self.stem, row_number)?.as_str().to_owned());
        };
        let id = tables::text(row, at)?.trim();
        if id.is_empty() {
            return Err(RecordError::new(format!("the row has no id ({})", self.columns.describe(at))));
        }
        Ok(id.to_owned())
    }

    fn add(&self, dialogue: &mut Dialogue, row: &Row<'_>) -> Result<Option<u32>, RecordError> {
        let columns = &self.columns;
        if row.width() <= columns.text {
            return Err(RecordError::new(format!(
                "the row has {} columns, but the text is in {}",
                row.width(),
                columns.describe(columns.text)
            )));
        }
        if row.cells().skip(columns.width).any(|cell| !cell.is_empty()) {
            return Err(RecordError::new(format!(
                "the row has {} columns, but the first row has {}; a text that contains the delimiter must be quoted",
                row.width(),
                columns.width
            )));
        }
        let cell = |at: Option<usize>| match at {
            Some(at) => tables::text(row, at).map(str::trim),
            None => Ok(""),
        };
        let mut turn = Turn { text: cell(Some(columns.text))?.to_owned(), ..Turn::default() };
        let (speaker, role) = (cell(columns.speaker)?, cell(columns.role)?);
        turn.speaker = if speaker.is_empty() { role } else { speaker }.to_owned();
        turn.role = match (role, speaker) {
            ("", "") => None,
            ("", speaker) => tables::known_role(speaker),
            (role, _) => Some(tables::known_role(role).unwrap_or_else(|| role.into())),
        };
        turn.intent = Some(cell(columns.intent)?).filter(|intent| !intent.is_empty()).map(str::to_owned);
        turn.acts = split(cell(columns.acts)?, &['|', ';', ',']);
        let time = cell(columns.time)?;
        turn.time = read_time(time);
        if turn.time.is_none() && !time.is_empty() {
            // Dates such as 3/4/2026 are ambiguous. Keep the text instead of guessing.
            turn.metadata.insert("time".into(), time.into());
        }
        for (name, at) in &columns.metadata {
            let value = cell(Some(*at))?;
            if !value.is_empty() {
                turn.metadata.insert(name.clone(), value.into());
            }
        }
        let number = match cell(columns.turn)? {
            "" => None,
            number => match number.parse() {
                Ok(number) => Some(number),
                Err(_) => {
                    return Err(RecordError::new(format!(
                        "the turn number `{number}` is not a whole number"
                    )));
                }
            },
        };
        for domain in split(cell(columns.domain)?, &['|', ';']) {
            if !dialogue.domains.contains(&domain) {
                dialogue.domains.push(domain);
            }
        }
        if dialogue.title.is_none() {
            dialogue.title = Some(cell(columns.title)?).filter(|title| !title.is_empty()).map(str::to_owned);
        }
        dialogue.source.clone_from(&self.stem);
        dialogue.turns.push(turn);
        Ok(number)
    }

    fn number_key(&self) -> &'static str {
        "turn"
    }

    fn has_header(&self) -> bool {
        self.columns.header.is_some()
    }
}

/// Splits a cell with several values. Separators within parentheses are ignored.
fn split(cell: &str, separators: &[char]) -> Vec<String> {
    let mut depth = 0u32;
    let parts = cell.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && separators.contains(&c)
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Parses RFC 3339, a date with an optional time, or a Unix timestamp in seconds or milliseconds.
fn read_time(text: &str) -> Option<Time> {
    match text.parse::<f64>() {
        Ok(seconds) if (1e8..1e11).contains(&seconds) => Time::from_unix(seconds),
        Ok(milliseconds) if (1e11..1e14).contains(&milliseconds) => Time::from_unix(milliseconds / 1000.0),
        Ok(_) => None,
        Err(_) => Time::parse(text),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::{
        Role,
        formats::{
            Problem,
            support::testing::{problems, read_text, sniffed},
        },
    };
    use turnwise_core::error::Error;

    fn mapped(name: &str, text: &str, map: &str) -> Result<Vec<Result<Dialogue, String>>> {
        let stream = Box::new(Cursor::new(text.as_bytes().to_vec()));
        let input = Input::from_stream(name.to_owned(), Some(name.into()), stream)?;
        let columns = if map.is_empty() { None } else { Some(map.parse()?) };
        let options = ReadOptions { columns, ..ReadOptions::default() };
        let show = |problem| match problem {
            Problem::Record(r) | Problem::File(r) => r.to_string(),
        };
        Ok(Csv.read(input, &options)?.map(|item| item.map_err(show)).collect())
    }

    const CHAT: &str = "\
Session ID,Time,From,Message,Intent,Topic,rating
s1,2026-03-02 09:14,customer,\"Hello, where is my parcel?\",track,deliveries,5
s1,1772442900,Agent,On its way,,deliveries,
s2,3/4/2026,Ada,\"two
lines\",,returns|refunds,
";

    #[test]
    fn obvious_headers_need_no_map() {
        assert_eq!(sniffed("chat.csv", CHAT), Some("csv"));
        let got = read_text(&Csv, "chat.csv", CHAT);
        assert_eq!(
            serde_json::to_string(&got[0]).unwrap(),
            r#"{"id":"s1","source":"chat","time":"2026-03-02T09:14:00Z","domains":["deliveries"],"turns":[{"number":1,"speaker":"customer","role":"user","text":"Hello, where is my parcel?","time":"2026-03-02T09:14:00Z","intent":"track","metadata":{"rating":"5"}},{"number":2,"speaker":"Agent","role":"agent","text":"On its way","time":"2026-03-02T09:15:00Z"}]}"#
        );
        assert_eq!(got[1].domains, ["returns", "refunds"]);
        assert_eq!(got[1].turns[0].text, "two\nlines");
        assert_eq!(got[1].turns[0].role, None);
        assert_eq!(got[1].turns[0].metadata["time"], "3/4/2026");
    }

    #[test]
    fn tabs_and_semicolons_are_detected() {
        for text in ["id\trole\ttext\na\tbot\tx; y, z\n", "id;role;text\na;bot;\"x; y, z\"\n"] {
            assert_eq!(sniffed("chat.txt", text), Some("csv"));
            let got = read_text(&Csv, "chat.txt", text);
            assert_eq!(
                (got[0].turns[0].text.as_str(), &got[0].turns[0].role),
                ("x; y, z", &Some(Role::Agent))
            );
        }
        // In a TSV file, a quote at the start of a text is part of the text.
        let got = read_text(&Csv, "a.tsv", "id\ttext\na\t\"so\" he said\na\t\"no\nb\tz\n");
        assert_eq!(got[0].turns[0].text, "\"so\" he said");
        assert_eq!(got[0].turns[1].text, "\"no");
    }

    #[test]
    fn a_map_uses_column_names_or_numbers() {
        let text = "a;b;c;d\nd1;hi;greet(x,y), ask;7\n";
        let got = mapped("x.csv", text, "id=a,text=2,acts=c,meta.score=d").unwrap();
        let dialogue = got[0].as_ref().unwrap();
        assert_eq!(dialogue.turns[0].acts, ["greet(x,y)", "ask"]);
        assert_eq!(dialogue.turns[0].metadata["score"], "7");
        // With column numbers only, there is no header, unless the first row contains known names.
        assert_eq!(
            mapped("x.tsv", "d1\thi\nd1\tho\n", "id=1,text=2").unwrap()[0].as_ref().unwrap().turns.len(),
            2
        );
        assert_eq!(mapped("x.tsv", "id\ttext\nd1\tho\n", "id=1,text=2").unwrap().len(), 1);
    }

    #[test]
    fn numbers_are_positions_and_the_delimiter_is_detected() {
        for (text, map) in [
            ("2;one, two, three\n2;four\n", "id=1,text=2"),
            ("2\tone, two; three\n2\tfour\n", "id=1,text=2"),
            ("2,x,one\n2,x,four\n", "id=1,text=3"),
        ] {
            let got = mapped("x", text, map).unwrap();
            assert_eq!(got.len(), 1, "{text}");
            let dialogue = got[0].as_ref().unwrap();
            assert_eq!((dialogue.id.as_str(), dialogue.turns[1].text.as_str()), ("2", "four"));
        }
        assert!(mapped("x", "a,b\n", "text=3").is_err());
    }

    #[test]
    fn a_truncated_archive_reports_the_unfinished_dialogue() {
        use std::io::Write;
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
        let text: String = (0..9999).map(|n| format!("d{},text {n}\n", n / 9)).collect();
        gz.write_all(format!("id,text\n{text}").as_bytes()).unwrap();
        let mut bytes = gz.finish().unwrap();
        bytes.truncate(bytes.len() / 2);
        let input = Input::from_stream("t.csv.gz".into(), None, Box::new(Cursor::new(bytes))).unwrap();
        let mut got: Vec<_> = Csv.read(input, &ReadOptions::default()).unwrap().collect();
        let Some(Err(Problem::File(last))) = got.pop() else { panic!("no problem at the end") };
        assert_eq!(last.reason, "the compressed file ends early: it is truncated");
        assert_eq!(last.id, Some(format!("d{}", got.len())));
        assert!(got.len() > 400 && got.iter().all(|d| d.as_ref().is_ok_and(|d| d.turns.len() == 9)));
    }

    #[test]
    fn without_an_id_every_row_is_a_dialogue() {
        let got = mapped("faq.csv", "text,category\nHow?,a\n\nWhy?,b\n", "").unwrap();
        let ids: Vec<_> = got.iter().map(|d| d.as_ref().unwrap().id.as_str()).collect();
        assert_eq!(ids, ["faq-000001", "faq-000002"]);
    }

    #[test]
    fn unknown_columns_are_an_error_that_shows_the_header() {
        assert_eq!(sniffed("x.csv", "foo,bar\n1,2\n"), None);
        let e = mapped("x.csv", "foo,bar\n1,2\n", "").unwrap_err();
        assert!(matches!(e, Error::Input { .. }));
        assert_eq!(e.to_string(), "x.csv: cannot find the text column; the columns are `foo`, `bar`");
        assert_eq!(
            e.hint().as_deref(),
            Some("map the columns to fields, for example: --map id=foo,text=bar")
        );
        let e = mapped("x.csv", "foo,bar\n1,2\n", "id=foo,text=barr").unwrap_err();
        assert_eq!(
            e.to_string(),
            "x.csv has no column `barr` (`text` in --map); the columns are `foo`, `bar`"
        );
        assert_eq!(e.hint().as_deref(), Some("did you mean `bar`?"));
    }

    #[test]
    fn bad_rows_are_reported_and_the_rest_is_read() {
        let text = "id,turn,text\na,1,x\na,2,y,z\na,3,w\n,1,x\nb,one,x\nc,1\nd,1,x\ne,1,\nd,2,x\nf,1,ok\n";
        assert_eq!(
            problems(&Csv, "t.csv", text),
            [
                "t.csv:3 (a): the row has 4 columns, but the first row has 3; a text that contains the delimiter must be quoted",
                "t.csv:5: the row has no id (column 1, `id`)",
                "t.csv:6 (b): the turn number `one` is not a whole number",
                "t.csv:7 (c): the row has 2 columns, but the text is in column 3, `text`",
                "t.csv:9 (e): every turn's text is empty",
                "t.csv:10 (d): the id also occurs earlier, with rows of other dialogues in between; the rows of a dialogue must be consecutive: sort the file by its id column",
            ]
        );
        let ids: Vec<_> = read_text(&Csv, "t.csv", text).iter().map(|d| d.id.to_string()).collect();
        assert_eq!(ids, ["d", "f"]);
    }

    #[test]
    fn an_unclosed_quote_is_reported_with_its_line() {
        let text = "id,text\na,x\nb,\"y\nc,z\n";
        assert_eq!(
            problems(&Csv, "t.csv", text),
            [
                "t.csv:3 (a): a quote opened in this row is not closed, so the rest of the file cannot be split into rows; the file is truncated, or a quote within a text is not doubled"
            ]
        );
    }

    #[test]
    fn invalid_utf8_rejects_only_its_dialogue() {
        let bytes = b"id,text\na,x\na,\xff\nb,ok\n\xff,x\nb,more\nc,fine\n".to_vec();
        let input = Input::from_stream("t.csv".into(), None, Box::new(Cursor::new(bytes))).unwrap();
        let got: Vec<_> = Csv.read(input, &ReadOptions::default()).unwrap().collect();
        let shown: Vec<_> = got
            .into_iter()
            .map(|item| match item {
                Ok(dialogue) => dialogue.id.to_string(),
                Err(Problem::Record(r) | Problem::File(r)) => r.to_string(),
            })
            .collect();
        assert_eq!(
            shown,
            [
                "t.csv:3 (a): invalid UTF-8 at byte 1 of column 2",
                "t.csv:5: invalid UTF-8 at byte 1 of column 1",
                "t.csv:6 (b): the row of this dialogue on line 5 is invalid; the whole dialogue is skipped",
                "c",
            ]
        );
    }
}
