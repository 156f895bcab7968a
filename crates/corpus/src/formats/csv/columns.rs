//! Finding out what the columns of a table mean.

use crate::{
    formats::{ColumnMap, support::COLUMN_FIELDS, tables},
    rows::{Dialect, Rows},
};
use turnwise_core::error::{Error, Result, nearest};

/// Which column holds what, as places counted from 0.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Columns {
    pub(super) dialect: Dialect,
    /// The first row's cells, if it is a header.
    pub(super) header: Option<Vec<String>>,
    /// How many columns the first row has.
    pub(super) width: usize,
    pub(super) id: Option<usize>,
    pub(super) turn: Option<usize>,
    pub(super) speaker: Option<usize>,
    pub(super) role: Option<usize>,
    pub(super) text: usize,
    pub(super) time: Option<usize>,
    pub(super) intent: Option<usize>,
    pub(super) acts: Option<usize>,
    pub(super) domain: Option<usize>,
    pub(super) title: Option<usize>,
    /// Names and places of what becomes metadata of the turn.
    pub(super) metadata: Vec<(String, usize)>,
}

/// Names that columns have in many tables, in lower case and without marks; the likelier first.
const KNOWN: [(&str, &[&str]); 10] = [
    (
        "id",
        &[
            "dialogueid",
            "dialogid",
            "conversationid",
            "convid",
            "sessionid",
            "threadid",
            "chatid",
            "callid",
            "ticketid",
            "caseid",
            "conversation",
            "dialogue",
            "dialog",
            "session",
            "thread",
            "id",
        ],
    ),
    ("turn", &["turn", "turnid", "turnno", "turnnumber", "turnindex", "messageno", "messagenumber"]),
    ("speaker", &["speaker", "author", "from", "sender", "speakername", "username", "name", "nick"]),
    ("role", &["role", "speakerrole", "authorrole", "senderrole"]),
    ("text", &["text", "message", "utterance", "content", "messagetext", "body"]),
    ("time", &["time", "timestamp", "datetime", "date", "createdat", "sentat"]),
    ("intent", &["intent"]),
    ("acts", &["acts", "dialogueacts", "dialogacts", "dialogueact", "dialogact"]),
    ("domain", &["domain", "domains", "topic"]),
    ("title", &["title", "subject"]),
];

fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn known(field: &str) -> &'static [&'static str] {
    KNOWN.iter().find(|(name, _)| *name == field).map_or(&[], |(_, names)| names)
}

impl Columns {
    /// The columns of a file that begins so: by the map, or else by their names.
    pub(super) fn find(name: &str, beginning: &str, map: Option<&ColumnMap>) -> Result<Columns> {
        let tables = readings(beginning);
        let Some((_, widest)) = tables.iter().max_by_key(|(_, row)| row.len()) else {
            return Err(Error::data(format!(
                "{name}: the first row cannot be read; the file is empty or not a table"
            )));
        };
        let shown = widest.iter().map(|cell| format!("`{cell}`")).collect::<Vec<_>>().join(", ");
        let Some(map) = map else {
            return Columns::recognised(beginning).ok_or_else(|| Error::Input {
                message: format!("{name}: no column is known to hold the text; the columns are {shown}"),
                hint: Some(format!("say which columns mean what, for example --map {}", example(widest))),
            });
        };
        let found = tables.iter().find_map(|(dialect, row)| Columns::mapped(map, *dialect, row));
        found.ok_or_else(|| {
            let (field, column) = missing(map, widest);
            let near = nearest(&column, widest.iter().map(String::as_str));
            Error::Input {
                message: format!(
                    "{name} has no column `{column}` (`{field}` in --map); the columns are {shown}"
                ),
                hint: Some(match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => {
                        format!("name a column or count it from 1, for example --map {}", example(widest))
                    }
                }),
            }
        })
    }

    /// The columns by their names alone, if there is one for the text.
    pub(super) fn recognised(beginning: &str) -> Option<Columns> {
        let found = readings(beginning).into_iter().filter_map(|(dialect, row)| Columns::named(dialect, row));
        found.reduce(|best, next| if next.known() > best.known() { next } else { best })
    }

    /// How many of the fields have a column.
    pub(super) fn known(&self) -> usize {
        let optional = [
            self.id,
            self.turn,
            self.speaker,
            self.role,
            self.time,
            self.intent,
            self.acts,
            self.domain,
            self.title,
        ];
        1 + optional.iter().flatten().count()
    }

    /// A column, for people.
    pub(super) fn describe(&self, at: usize) -> String {
        match self.header.as_ref().and_then(|header| header.get(at)) {
            Some(name) => format!("column {}, `{name}`", at + 1),
            None => format!("column {}", at + 1),
        }
    }

    fn named(dialect: Dialect, row: Vec<String>) -> Option<Columns> {
        let plain: Vec<String> = row.iter().map(|cell| plain(cell)).collect();
        let place =
            |field: &str| known(field).iter().find_map(|name| plain.iter().position(|cell| cell == name));
        let mut columns = Columns { text: place("text")?, ..Columns::placed(dialect, place) };
        // What has no place of its own is kept under its name.
        let used: Vec<usize> = COLUMN_FIELDS.iter().filter_map(|field| place(field)).collect();
        let others =
            row.iter().enumerate().filter(|(at, name)| !used.contains(at) && !name.trim().is_empty());
        columns.metadata = others.map(|(at, name)| (name.trim().to_owned(), at)).collect();
        columns.width = row.len();
        columns.header = Some(row);
        Some(columns)
    }

    fn mapped(map: &ColumnMap, dialect: Dialect, row: &[String]) -> Option<Columns> {
        missing_in(map, row).is_none().then_some(())?;
        let place = |field: &str| place(map.column(field)?, row);
        let mut columns = Columns { text: place("text")?, ..Columns::placed(dialect, place) };
        columns.metadata =
            map.metadata().filter_map(|(name, c)| Some((name.to_owned(), self::place(c, row)?))).collect();
        columns.width = row.len();
        // Named columns come from a header. Numbers need none; there, a first row of known names is one.
        let by_name = |column: &str| column.parse::<usize>().is_err();
        let is_name = |field: &str| {
            let cell = place(field).and_then(|at| row.get(at));
            cell.is_some_and(|cell| known(field).contains(&plain(cell).as_str()))
        };
        let header = fields(map).any(|(_, column)| by_name(column)) || COLUMN_FIELDS.into_iter().any(is_name);
        columns.header = header.then(|| row.to_vec());
        Some(columns)
    }

    fn placed(dialect: Dialect, place: impl Fn(&str) -> Option<usize>) -> Columns {
        Columns {
            dialect,
            id: place("id"),
            turn: place("turn"),
            speaker: place("speaker"),
            role: place("role"),
            time: place("time"),
            intent: place("intent"),
            acts: place("acts"),
            domain: place("domain"),
            title: place("title"),
            ..Columns::default()
        }
    }
}

/// The first row as every dialect reads it, the likelier dialect first: the one by which all rows have the same
/// number of columns, and then the one with most of them.
fn readings(beginning: &str) -> Vec<(Dialect, Vec<String>)> {
    let dialects = [(b'\t', literal_quotes(beginning)), (b',', false), (b';', false)];
    let dialects = dialects.map(|(delimiter, literal)| Dialect { delimiter, quotes: !literal });
    let read = |dialect| Some((dialect, tables::first_row(beginning, dialect)?));
    let mut readings: Vec<_> = dialects.into_iter().filter_map(read).collect();
    let likely = |(dialect, row): &(Dialect, Vec<String>)| {
        let regular = row.len() > 1 && is_regular(beginning, *dialect, row.len());
        std::cmp::Reverse((regular, row.len()))
    };
    readings.sort_by_cached_key(likely);
    readings
}

/// Whether the first rows have so many columns each.
fn is_regular(beginning: &str, dialect: Dialect, width: usize) -> bool {
    // The last line may be cut off.
    let complete = beginning.rfind('\n').and_then(|end| beginning.get(..end)).unwrap_or(beginning);
    let mut rows = Rows::new(complete.as_bytes(), dialect, complete.len().max(1));
    for _ in 0..20 {
        match rows.next_row() {
            Some(Ok(row)) if row.width() != width => return false,
            Some(Ok(_)) => {}
            _ => break,
        }
    }
    true
}

/// Whether a table with tabs writes quotes as they are: some cell begins with one and does not end with one. Most
/// programs that write tabs do not quote; spreadsheets do.
fn literal_quotes(beginning: &str) -> bool {
    let complete = beginning.rfind('\n').and_then(|end| beginning.get(..end)).unwrap_or(beginning);
    let mut cells = complete.lines().flat_map(|line| line.split('\t'));
    cells.any(|cell| cell.starts_with('"') && (cell.len() == 1 || !cell.ends_with('"')))
}

/// The place of a column that is given as a number from 1 or by name. A number is a place first: in a table without
/// a header, cells that hold numbers are no names.
fn place(column: &str, row: &[String]) -> Option<usize> {
    let counted = column.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    counted.filter(|at| *at < row.len()).or_else(|| row.iter().position(|cell| cell.trim() == column))
}

fn fields(map: &ColumnMap) -> impl Iterator<Item = (String, &str)> {
    let known = COLUMN_FIELDS.iter().filter_map(|field| Some(((*field).to_owned(), map.column(field)?)));
    known.chain(map.metadata().map(|(name, column)| (format!("meta.{name}"), column)))
}

fn missing_in(map: &ColumnMap, row: &[String]) -> Option<(String, String)> {
    fields(map)
        .find(|(_, column)| place(column, row).is_none())
        .map(|(field, column)| (field, column.to_owned()))
}

fn missing(map: &ColumnMap, row: &[String]) -> (String, String) {
    missing_in(map, row).unwrap_or_default()
}

/// A map that fits the file's own columns.
fn example(row: &[String]) -> String {
    match row {
        [id, .., text] => format!("id={id},text={text}"),
        _ => "id=1,text=2".to_owned(),
    }
}
