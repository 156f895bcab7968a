//! Finds the columns of a table for each field, by name or by a column map.

use crate::{
    formats::{ColumnMap, support::COLUMN_FIELDS, tables},
    rows::{Dialect, Rows},
};
use turnwise_core::error::{Error, Result, nearest};

/// Columns of the fields, as indexes counted from 0.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Columns {
    pub(super) dialect: Dialect,
    /// The cells of the first row, if it is a header.
    pub(super) header: Option<Vec<String>>,
    /// Number of columns in the first row.
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
    /// Names and columns of the turn metadata.
    pub(super) metadata: Vec<(String, usize)>,
}

/// Common column names for each field, in lower case and without punctuation. The most likely name is first.
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
    /// Finds the columns of a file from its beginning, by the map or by the column names.
    pub(super) fn find(name: &str, beginning: &str, map: Option<&ColumnMap>) -> Result<Columns> {
        let tables = readings(beginning);
        let Some((_, widest)) = tables.iter().max_by_key(|(_, row)| row.len()) else {
            return Err(Error::data(format!(
                "{name}: the first row cannot be read; the file is empty or not a table"
            )));
        };
        let shown = widest.iter().map(|cell| format!("`{cell}`")).collect::<Vec<_>>().join(", ");
        let Some(map) = map else {
            return Columns::recognized(beginning).ok_or_else(|| Error::Input {
                message: format!("{name}: cannot find the text column; the columns are {shown}"),
                hint: Some(format!("map the columns to fields, for example: --map {}", example(widest))),
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
                        format!(
                            "give a column by name or by number (from 1), for example: --map {}",
                            example(widest)
                        )
                    }
                }),
            }
        })
    }

    /// Finds the columns by their names. Returns `None` if there is no text column.
    pub(super) fn recognized(beginning: &str) -> Option<Columns> {
        let found = readings(beginning).into_iter().filter_map(|(dialect, row)| Columns::named(dialect, row));
        found.reduce(|best, next| if next.known() > best.known() { next } else { best })
    }

    /// Number of fields that have a column.
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

    /// Formats a column for messages.
    pub(super) fn describe(&self, at: usize) -> String {
        match self.header.as_ref().and_then(|header| header.get(at)) {
            Some(name) => format!("column {}, `{name}`", at + 1),
            None => format!("column {}", at + 1),
        }
    }

    fn named(dialect: Dialect, row: Vec<String>) -> Option<Columns> {
        let plain: Vec<String> = row.iter().map(|cell| plain(cell)).collect();
        let lookup =
            |field: &str| known(field).iter().find_map(|name| plain.iter().position(|cell| cell == name));
        let mut columns = Columns { text: lookup("text")?, ..Columns::from_lookup(dialect, lookup) };
        // All other columns become metadata.
        let used: Vec<usize> = COLUMN_FIELDS.iter().filter_map(|field| lookup(field)).collect();
        let others =
            row.iter().enumerate().filter(|(at, name)| !used.contains(at) && !name.trim().is_empty());
        columns.metadata = others.map(|(at, name)| (name.trim().to_owned(), at)).collect();
        columns.width = row.len();
        columns.header = Some(row);
        Some(columns)
    }

    fn mapped(map: &ColumnMap, dialect: Dialect, row: &[String]) -> Option<Columns> {
        missing_in(map, row).is_none().then_some(())?;
        let lookup = |field: &str| column_index(map.column(field)?, row);
        let mut columns = Columns { text: lookup("text")?, ..Columns::from_lookup(dialect, lookup) };
        columns.metadata =
            map.metadata().filter_map(|(name, c)| Some((name.to_owned(), column_index(c, row)?))).collect();
        columns.width = row.len();
        // A map with column names needs a header. With numbers only, the first row is a header if it contains known
        // names.
        let by_name = |column: &str| column.parse::<usize>().is_err();
        let is_name = |field: &str| {
            let cell = lookup(field).and_then(|at| row.get(at));
            cell.is_some_and(|cell| known(field).contains(&plain(cell).as_str()))
        };
        let header = fields(map).any(|(_, column)| by_name(column)) || COLUMN_FIELDS.into_iter().any(is_name);
        columns.header = header.then(|| row.to_vec());
        Some(columns)
    }

    fn from_lookup(dialect: Dialect, lookup: impl Fn(&str) -> Option<usize>) -> Columns {
        Columns {
            dialect,
            id: lookup("id"),
            turn: lookup("turn"),
            speaker: lookup("speaker"),
            role: lookup("role"),
            time: lookup("time"),
            intent: lookup("intent"),
            acts: lookup("acts"),
            domain: lookup("domain"),
            title: lookup("title"),
            ..Columns::default()
        }
    }
}

/// Reads the first row in every dialect, and sorts the results by likelihood.
///
/// A dialect that gives all rows the same number of columns comes first, then the one with the most columns.
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

/// Returns whether the first rows all have `width` columns.
fn is_regular(beginning: &str, dialect: Dialect, width: usize) -> bool {
    // The last line may be truncated.
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

/// Returns whether quotes are ordinary characters in a TSV file: some cell starts with a quote but does not end with
/// one.
///
/// Most programs do not quote the cells of TSV files, but spreadsheets do.
fn literal_quotes(beginning: &str) -> bool {
    let complete = beginning.rfind('\n').and_then(|end| beginning.get(..end)).unwrap_or(beginning);
    let mut cells = complete.lines().flat_map(|line| line.split('\t'));
    cells.any(|cell| cell.starts_with('"') && (cell.len() == 1 || !cell.ends_with('"')))
}

/// Returns the index of a column given as a number from 1 or by name.
///
/// Numbers take precedence, because in a table without a header a numeric cell is not a name.
fn column_index(column: &str, row: &[String]) -> Option<usize> {
    let counted = column.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    counted.filter(|at| *at < row.len()).or_else(|| row.iter().position(|cell| cell.trim() == column))
}

fn fields(map: &ColumnMap) -> impl Iterator<Item = (String, &str)> {
    let known = COLUMN_FIELDS.iter().filter_map(|field| Some(((*field).to_owned(), map.column(field)?)));
    known.chain(map.metadata().map(|(name, column)| (format!("meta.{name}"), column)))
}

fn missing_in(map: &ColumnMap, row: &[String]) -> Option<(String, String)> {
    fields(map)
        .find(|(_, column)| column_index(column, row).is_none())
        .map(|(field, column)| (field, column.to_owned()))
}

fn missing(map: &ColumnMap, row: &[String]) -> (String, String) {
    missing_in(map, row).unwrap_or_default()
}

/// Returns an example map for the columns of the file.
fn example(row: &[String]) -> String {
    match row {
        [id, .., text] => format!("id={id},text={text}"),
        _ => "id=1,text=2".to_owned(),
    }
}
