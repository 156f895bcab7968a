//! CSV and TSV tables with one turn per row. Columns are found by their names or by a column map (`--map`).

use std::{collections::BTreeMap, str::FromStr};

use crate::{THREAD, formats::prelude::*};
use turnwise_core::error::closest_name;

pub(super) static FORMAT: Format = Format {
    name: "csv",
    about: "CSV or TSV with one turn per row, consecutive rows for a dialogue; columns by name or with --map",
    sniff,
    read,
};

fn sniff(probe: &Probe<'_>) -> Fit {
    let Some(columns) = Columns::recognized(probe.text) else {
        return Fit::No;
    };
    let named = probe.has_extension(".csv") || probe.has_extension(".tsv");
    if named || columns.known() > 1 { Fit::Maybe } else { Fit::No }
}

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
    let columns = Columns::find(&input.name, input.probe().text, options.columns.as_ref())?;
    let dialect = columns.dialect;
    let turns = Turns { columns, stem: input.stem() };
    Ok(tables::from_turn_rows(input, options, dialect, turns))
}

struct Turns {
    columns: Columns,
    stem: String,
}

impl TurnRows for Turns {
    const NUMBER_KEY: &'static str = "turn";

    fn id(&self, row: &Row<'_>, row_number: u64) -> Result<String, RecordError> {
        let Some(at) = self.columns.of(Field::Id) else {
            return Ok(support::generated_id(&self.stem, row_number)?.as_str().to_owned());
        };
        match tables::text(row, at)?.trim() {
            "" => Err(format!("the row has no id ({})", self.columns.describe(at)).into()),
            id => Ok(id.to_owned()),
        }
    }

    fn add(&self, dialogue: &mut Dialogue, row: &Row<'_>) -> Result<Option<u32>, RecordError> {
        let columns = &self.columns;
        let width = row.width();
        if width <= columns.text {
            let text = columns.describe(columns.text);
            return Err(format!("the row has {width} columns, but the text is in {text}").into());
        }
        if row.cells().skip(columns.width).any(|cell| !cell.is_empty()) {
            return Err(format!(
                "the row has {width} columns, but the first row has {}; a text that contains the delimiter must be quoted",
                columns.width
            )
            .into());
        }
        let cell = |field| match columns.of(field) {
            Some(at) => tables::text(row, at).map(str::trim),
            None => Ok(""),
        };
        let (speaker, role) = (cell(Field::Speaker)?, cell(Field::Role)?);
        let known_role = match (role, speaker) {
            ("", "") => None,
            ("", speaker) => tables::known_role(speaker),
            (role, _) => Some(tables::known_role(role).unwrap_or_else(|| role.into())),
        };
        let speaker = if speaker.is_empty() { role } else { speaker };
        let turn = dialogue.push(speaker, known_role, cell(Field::Text)?);
        turn.intent = Some(cell(Field::Intent)?).filter(|intent| !intent.is_empty()).map(str::to_owned);
        turn.acts = split(cell(Field::Acts)?, &['|', ';', ',']);
        let time = cell(Field::Time)?;
        turn.time = read_time(time);
        if turn.time.is_none() {
            // A date such as 3/4/2026 is ambiguous, so only its text is stored.
            turn.note("time", time);
        }
        for (name, at) in &columns.metadata {
            turn.note(name, tables::text(row, *at)?.trim());
        }
        let number = match cell(Field::Turn)? {
            "" => None,
            number => {
                let parsed = number.parse::<u32>();
                Some(parsed.map_err(|_| format!("the turn number `{number}` is not a whole number"))?)
            }
        };
        for domain in split(cell(Field::Domain)?, &['|', ';']) {
            push_unique(&mut dialogue.domains, &domain);
        }
        if dialogue.title.is_none() {
            dialogue.title = Some(cell(Field::Title)?).filter(|title| !title.is_empty()).map(str::to_owned);
        }
        if dialogue.thread().is_none() {
            dialogue.note(THREAD, cell(Field::Thread)?);
        }
        dialogue.source.clone_from(&self.stem);
        Ok(number)
    }

    fn has_header(&self) -> bool {
        self.columns.header.is_some()
    }
}

/// Splits a cell with several values at any of the separators. Separators within parentheses are ignored.
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

/// Parses an RFC 3339 time, a date with an optional time, or a Unix timestamp in seconds or milliseconds.
fn read_time(text: &str) -> Option<Time> {
    match text.parse::<f64>() {
        Ok(seconds) if (1e8..1e11).contains(&seconds) => Time::from_unix(seconds),
        Ok(milliseconds) if (1e11..1e14).contains(&milliseconds) => Time::from_unix(milliseconds / 1000.0),
        Ok(_) => None,
        Err(_) => Time::parse(text),
    }
}

/// Field that can have a column in a table. The discriminant of each variant is its index in [`FIELDS`].
#[derive(Clone, Copy)]
enum Field {
    Id,
    Turn,
    Speaker,
    Role,
    Text,
    Time,
    Intent,
    Acts,
    Domain,
    Title,
    Thread,
}

/// For each [`Field`], its name in `--map` and its common column names, separated by spaces. The most likely column
/// name comes first. Column names are in lower case and without punctuation.
const FIELDS: [(&str, &str); 11] = [
    (
        "id",
        "dialogueid dialogid conversationid convid sessionid threadid chatid callid ticketid caseid conversation \
         dialogue dialog session thread id",
    ),
    ("turn", "turn turnid turnno turnnumber turnindex messageno messagenumber"),
    ("speaker", "speaker author from sender speakername username name nick"),
    ("role", "role speakerrole authorrole senderrole"),
    ("text", "text message utterance content messagetext body"),
    ("time", "time timestamp datetime date createdat sentat"),
    ("intent", "intent"),
    ("acts", "acts dialogueacts dialogacts dialogueact dialogact"),
    ("domain", "domain domains topic"),
    ("title", "title subject"),
    ("thread", "thread"),
];

/// Mapping from fields to columns of a CSV or TSV file, for example `id=session,text=message`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnMap {
    fields: BTreeMap<String, String>,
}

const MAP_EXAMPLE: &str = "for example: --map id=session,speaker=from,text=message";

impl ColumnMap {
    /// Returns the column to which a field is mapped: a column name, or a column number counted from 1.
    pub fn column(&self, field: &str) -> Option<&str> {
        self.fields.get(field).map(String::as_str)
    }

    /// Returns the metadata keys for turns, each with the column that contains its values.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().filter_map(|(f, c)| Some((f.strip_prefix("meta.")?, c.as_str())))
    }

    /// Returns the first entry (field and column) whose column is missing in the table. `row` is the first row of the
    /// table.
    fn missing_in(&self, row: &[String]) -> Option<(&String, &String)> {
        self.fields.iter().find(|(_, column)| column_index(column, row).is_none())
    }
}

impl FromStr for ColumnMap {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut fields = BTreeMap::new();
        for pair in text.split(',').filter(|p| !p.trim().is_empty()) {
            let Some((field, column)) = pair.split_once('=') else {
                let message = format!("`{pair}` in --map is not FIELD=COLUMN");
                return Err(Error::input(message).with_hint(MAP_EXAMPLE));
            };
            let field = field.trim();
            let known = FIELDS.map(|(name, _)| name);
            if !known.contains(&field) && !field.starts_with("meta.") {
                return Err(Error::unknown_name("field in --map", field, known));
            }
            if fields.insert(field.to_owned(), column.trim().to_owned()).is_some() {
                return Err(Error::input(format!("`{field}` is mapped twice in --map")));
            }
        }
        if !fields.contains_key("text") {
            return Err(Error::input("--map has no column for `text`").with_hint(MAP_EXAMPLE));
        }
        Ok(ColumnMap { fields })
    }
}

/// Columns of a table by field. A column is an index counted from 0.
#[derive(Debug, PartialEq)]
struct Columns {
    dialect: Dialect,
    /// The cells of the first row, if the first row is a header.
    header: Option<Vec<String>>,
    /// Number of columns in the first row.
    width: usize,
    text: usize,
    /// The column of each [`Field`], or `None` if the table has no such column.
    fields: [Option<usize>; FIELDS.len()],
    /// Keys of the turn metadata, each with its column.
    metadata: Vec<(String, usize)>,
}

/// Removes punctuation from a column name and converts it to lower case.
fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

impl Columns {
    /// Finds the columns of a file by the map, or by the column names if there is no map. Only the beginning of the
    /// file is needed.
    fn find(name: &str, beginning: &str, map: Option<&ColumnMap>) -> Result<Columns> {
        let tables = readings(beginning);
        let Some((_, widest)) = tables.iter().max_by_key(|(_, row)| row.len()) else {
            let message = format!("{name}: the first row cannot be read; the file is empty or not a table");
            return Err(Error::data(message));
        };
        let shown = widest.iter().map(|cell| format!("`{cell}`")).collect::<Vec<_>>().join(", ");
        let Some(map) = map else {
            return Columns::recognized(beginning).ok_or_else(|| {
                Error::input(format!("{name}: cannot find the text column; the columns are {shown}"))
                    .with_hint(format!("map the columns to fields, for example: --map {}", example(widest)))
            });
        };
        let found = tables.iter().find_map(|(dialect, row)| Columns::mapped(map, *dialect, row));
        found.ok_or_else(|| {
            let (field, column) = map.missing_in(widest).map_or(("", ""), |(f, c)| (f.as_str(), c.as_str()));
            let message =
                format!("{name} has no column `{column}` (`{field}` in --map); the columns are {shown}");
            Error::input(message).with_hint(match closest_name(column, widest.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!(
                    "give a column by name or by number (from 1), for example: --map {}",
                    example(widest)
                ),
            })
        })
    }

    /// Finds the columns by their names. Returns `None` if there is no text column.
    fn recognized(beginning: &str) -> Option<Columns> {
        let found = readings(beginning).into_iter().filter_map(|(dialect, row)| Columns::named(dialect, row));
        found.reduce(|best, next| if next.known() > best.known() { next } else { best })
    }

    /// Creates the columns. `lookup` returns the column of a field. The arguments of `lookup` are the name of the field
    /// and its common column names. Returns `None` if there is no text column.
    fn new(dialect: Dialect, width: usize, lookup: impl Fn(&str, &str) -> Option<usize>) -> Option<Columns> {
        let fields = FIELDS.map(|(field, names)| lookup(field, names));
        let text = fields[Field::Text as usize]?;
        Some(Columns { dialect, header: None, width, text, fields, metadata: Vec::new() })
    }

    fn of(&self, field: Field) -> Option<usize> {
        self.fields[field as usize]
    }

    /// Returns the number of fields that have a column in the table.
    fn known(&self) -> usize {
        self.fields.iter().flatten().count()
    }

    fn describe(&self, at: usize) -> String {
        match self.header.as_ref().and_then(|header| header.get(at)) {
            Some(name) => format!("column {}, `{name}`", at + 1),
            None => format!("column {}", at + 1),
        }
    }

    /// Finds the columns by the names in a header. All other columns become metadata.
    fn named(dialect: Dialect, header: Vec<String>) -> Option<Columns> {
        let cells: Vec<String> = header.iter().map(|cell| plain(cell)).collect();
        let mut columns = Columns::new(dialect, header.len(), |_, names| {
            names.split(' ').find_map(|name| cells.iter().position(|cell| cell == name))
        })?;
        // In a table without another column of ids, the column `thread` contains the ids of the dialogues.
        if columns.of(Field::Thread) == columns.of(Field::Id) {
            columns.fields[Field::Thread as usize] = None;
        }
        for (at, name) in header.iter().enumerate() {
            if !columns.fields.contains(&Some(at)) && !name.trim().is_empty() {
                columns.metadata.push((name.trim().to_owned(), at));
            }
        }
        columns.header = Some(header);
        Some(columns)
    }

    /// Finds the columns by a map. Returns `None` if a column of the map is missing in the first row of the table.
    fn mapped(map: &ColumnMap, dialect: Dialect, row: &[String]) -> Option<Columns> {
        map.missing_in(row).is_none().then_some(())?;
        let mut columns = Columns::new(dialect, row.len(), |field, _| column_index(map.column(field)?, row))?;
        columns.metadata =
            map.metadata().filter_map(|(name, c)| Some((name.to_owned(), column_index(c, row)?))).collect();
        // A map with column names needs a header. If the map has only numbers, the first row is a header if it contains
        // common column names.
        let has_known_names = FIELDS.iter().zip(columns.fields).any(|((_, names), at)| {
            let cell = at.and_then(|at| row.get(at)).map(|cell| plain(cell));
            cell.is_some_and(|cell| names.split(' ').any(|name| name == cell))
        });
        let is_header = has_known_names || map.fields.values().any(|column| column.parse::<usize>().is_err());
        columns.header = is_header.then(|| row.to_vec());
        Some(columns)
    }
}

/// Reads the first row with each possible delimiter. Returns all results, the most likely result first.
///
/// A delimiter that splits each of the first 20 rows into the same number of columns (at least 2) is the most likely.
/// On a tie, a delimiter that splits the first row into more columns is more likely.
fn readings(beginning: &str) -> Vec<(Dialect, Vec<String>)> {
    // The last line may be cut off.
    let complete = beginning.rsplit_once('\n').map_or(beginning, |(complete, _)| complete);
    let dialects = [(b'\t', literal_quotes(complete)), (b',', false), (b';', false)];
    let dialects = dialects.map(|(delimiter, literal)| Dialect { delimiter, quotes: !literal });
    let read = |dialect| Some((dialect, tables::first_row(beginning, dialect)?));
    let mut readings: Vec<_> = dialects.into_iter().filter_map(read).collect();
    readings.sort_by_cached_key(|(dialect, row)| {
        let regular = row.len() > 1 && is_regular(complete, *dialect, row.len());
        std::cmp::Reverse((regular, row.len()))
    });
    readings
}

/// Returns whether the first 20 rows all have `width` columns.
fn is_regular(text: &str, dialect: Dialect, width: usize) -> bool {
    let mut rows = Rows::new(text.as_bytes(), dialect, text.len().max(1));
    for _ in 0..20 {
        match rows.next_row() {
            Some(Ok(row)) if row.width() != width => return false,
            Some(Ok(_)) => {}
            _ => break,
        }
    }
    true
}

/// Returns whether quotes are ordinary characters in a TSV file. This is assumed if a cell starts with a quote but does
/// not end with a quote. Most programs do not quote the cells of TSV files, but spreadsheets do.
fn literal_quotes(text: &str) -> bool {
    let mut cells = text.lines().flat_map(|line| line.split('\t'));
    cells.any(|cell| cell.starts_with('"') && (cell.len() == 1 || !cell.ends_with('"')))
}

/// Returns the index of a column. `column` is a column number, counted from 1, or a name in `row`. A number that is
/// 0 or greater than the number of columns is treated as a name. Returns `None` if there is no such column.
fn column_index(column: &str, row: &[String]) -> Option<usize> {
    let counted = column.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    counted.filter(|at| *at < row.len()).or_else(|| row.iter().position(|cell| cell.trim() == column))
}

/// Returns an example of a column map for the columns of the file, for error messages.
fn example(row: &[String]) -> String {
    match row {
        [id, .., text] => format!("id={id},text={text}"),
        _ => "id=1,text=2".to_owned(),
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
        Ok(FORMAT.read(input, &options)?.map(|item| item.map_err(show)).collect())
    }

    #[test]
    fn a_column_can_be_the_thread_of_the_dialogue() {
        let text = "session,Thread,text\n1,maria,hello\n1,,bye\n2,,x\n3,0042,y\n";
        let got = read_text(&FORMAT, "a.csv", text);
        let threads: Vec<_> = got.iter().map(|d| d.thread().unwrap_or_default().into_owned()).collect();
        assert_eq!(threads, ["maria", "", "0042"]);
        assert!(got.iter().all(|d| d.turns.iter().all(|turn| turn.metadata.is_empty())));
        // The only column of ids contains the ids of the dialogues.
        let got = read_text(&FORMAT, "a.csv", "thread,text\nmaria,hello\nmaria,bye\n");
        assert_eq!((got.len(), got[0].id.as_str(), got[0].thread()), (1, "maria", None));
        let map = "id=id,thread=customer,text=text";
        let got = mapped("a.csv", "id,customer,text\n1,maria,hello\n", map).unwrap();
        assert_eq!(got[0].as_ref().unwrap().thread().as_deref(), Some("maria"));
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
        let got = read_text(&FORMAT, "chat.csv", CHAT);
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
            let got = read_text(&FORMAT, "chat.txt", text);
            assert_eq!(
                (got[0].turns[0].text.as_str(), &got[0].turns[0].role),
                ("x; y, z", &Some(Role::Agent))
            );
        }
        // In a TSV file, a quote at the start of a text is part of the text.
        let got = read_text(&FORMAT, "a.tsv", "id\ttext\na\t\"so\" he said\na\t\"no\nb\tz\n");
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
        // If the map has only numbers, there is no header, unless the first row contains common column names.
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
        let mut got: Vec<_> = FORMAT.read(input, &ReadOptions::default()).unwrap().collect();
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
            problems(&FORMAT, "t.csv", text),
            [
                "t.csv:3 (a): the row has 4 columns, but the first row has 3; a text that contains the delimiter must be quoted",
                "t.csv:5: the row has no id (column 1, `id`)",
                "t.csv:6 (b): the turn number `one` is not a whole number",
                "t.csv:7 (c): the row has 2 columns, but the text is in column 3, `text`",
                "t.csv:9 (e): every turn's text is empty",
                "t.csv:10 (d): the id also occurs earlier, with rows of other dialogues in between; the rows of a dialogue must be consecutive: sort the file by its id column",
            ]
        );
        let ids: Vec<_> = read_text(&FORMAT, "t.csv", text).iter().map(|d| d.id.to_string()).collect();
        assert_eq!(ids, ["d", "f"]);
    }

    #[test]
    fn an_unclosed_quote_is_reported_with_its_line() {
        let text = "id,text\na,x\nb,\"y\nc,z\n";
        assert_eq!(
            problems(&FORMAT, "t.csv", text),
            [
                "t.csv:3 (a): a quote opened in this row is not closed, so the rest of the file cannot be split into rows; the file is truncated, or a quote within a text is not doubled"
            ]
        );
    }

    #[test]
    fn invalid_utf8_rejects_only_its_dialogue() {
        let bytes = b"id,text\na,x\na,\xff\nb,ok\n\xff,x\nb,more\nc,fine\n".to_vec();
        let input = Input::from_stream("t.csv".into(), None, Box::new(Cursor::new(bytes))).unwrap();
        let got: Vec<_> = FORMAT.read(input, &ReadOptions::default()).unwrap().collect();
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

    #[test]
    fn a_column_map_is_checked() {
        let map: ColumnMap = "id=session, text=message,meta.lang=3".parse().unwrap();
        assert_eq!(map.column("id"), Some("session"));
        assert_eq!(map.metadata().collect::<Vec<_>>(), [("lang", "3")]);
        assert_eq!("txt=a".parse::<ColumnMap>().unwrap_err().hint().as_deref(), Some("did you mean `text`?"));
        assert!("id=a".parse::<ColumnMap>().is_err());
        assert!("text=a,text=b".parse::<ColumnMap>().is_err());
    }
}
