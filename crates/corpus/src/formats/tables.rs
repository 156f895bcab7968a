//! Shared code of the readers for CSV and TSV tables. Depending on the format, a dialogue is one row, or all
//! consecutive rows with the same id.

use std::{
    collections::{HashSet, VecDeque},
    io::BufRead,
};

use crate::formats::prelude::*;

/// Returns the text of the cell at an index, counted from 0. A missing cell is empty.
pub(super) fn text<'a>(row: &Row<'a>, at: usize) -> Result<&'a str, RecordError> {
    let bytes = row.cell(at).unwrap_or_default();
    std::str::from_utf8(bytes)
        .map_err(|e| format!("invalid UTF-8 at byte {} of column {}", e.valid_up_to() + 1, at + 1).into())
}

/// Returns the cells of the first row. Returns `None` if there is no row, if a quote is not closed, or if a cell is not
/// UTF-8.
pub(super) fn first_row(beginning: &str, dialect: Dialect) -> Option<Vec<String>> {
    let mut rows = Rows::new(beginning.as_bytes(), dialect, beginning.len().max(1));
    let row = rows.next_row()?.ok()?;
    row.cells().map(|cell| String::from_utf8(cell.to_vec()).ok()).collect()
}

/// Maps a common role name to a role. `system` means the source of notices, not the agent. Returns `None` for other
/// names.
pub(super) fn known_role(word: &str) -> Option<Role> {
    match word.trim().to_lowercase().as_str() {
        "user" | "usr" | "customer" | "client" | "caller" | "seeker" | "visitor" | "guest" | "human" => {
            Some(Role::User)
        }
        "agent" | "assistant" | "bot" | "chatbot" | "sys" | "wizard" | "operator" | "support" | "advisor" => {
            Some(Role::Agent)
        }
        "system" | "developer" | "notice" => Some(Role::System),
        "participant" => Some(Role::Participant),
        _ => None,
    }
}

/// Sorts the turns by the numbers in the table. Does nothing if a turn has no number in the table.
///
/// If the numbers are unique, they become the turn numbers, plus 1 if the first number is 0. Otherwise, the number of
/// each turn becomes metadata with the key `metadata_key`.
fn number_turns(dialogue: &mut Dialogue, numbers: &[Option<u32>], metadata_key: &str) {
    let Some(numbers) = numbers.iter().copied().collect::<Option<Vec<u32>>>() else {
        return;
    };
    if numbers.len() != dialogue.turns.len() {
        return;
    }
    let mut order: Vec<(u32, _)> = numbers.into_iter().zip(std::mem::take(&mut dialogue.turns)).collect();
    order.sort_by_key(|(number, _)| *number);
    let unique = order.windows(2).all(|pair| matches!(pair, [a, b] if a.0 < b.0));
    let first = u32::from(order.first().is_some_and(|(number, _)| *number == 0));
    for (number, mut turn) in order {
        if unique {
            turn.number = TurnNo(number.saturating_add(first));
        } else {
            turn.note(metadata_key, number);
        }
        dialogue.turns.push(turn);
    }
}

fn row_problem(path: &str, e: RowError) -> Problem {
    match e {
        RowError::TooLong { line, bytes, limit } => {
            RecordError::new(support::too_long(bytes, limit)).at(path, line)
        }
        RowError::TooWide { line } => RecordError::new("the row has more than 65536 columns").at(path, line),
        RowError::Unclosed { line } => {
            let reason = "a quote opened in this row is not closed, so the rest of the file cannot be split into \
                          rows; the file is truncated, or a quote within a text is not doubled";
            support::file_problem(path, Some(line), reason)
        }
        RowError::Broken { line, source } => {
            support::file_problem(path, Some(line), support::broken_stream(&source))
        }
    }
}

/// Reads dialogues from a table with a header and one dialogue per row.
pub(super) fn from_rows<F>(input: Input, options: &ReadOptions, dialect: Dialect, mut parse: F) -> Dialogues
where
    F: FnMut(&Row<'_>) -> Result<Dialogue, RecordError> + Send + 'static,
{
    let path = input.name.clone();
    let mut rows = Rows::new(input.into_stream(), dialect, options.max_record);
    let mut header = true;
    let items = std::iter::from_fn(move || {
        Some(match rows.next_row()? {
            Err(e) => Some(Err(row_problem(&path, e))),
            Ok(row) if std::mem::take(&mut header) || row.is_blank() => None,
            Ok(row) => support::finished(parse(&row).map(Some), &path, row.line),
        })
    });
    Box::new(items.flatten())
}

/// Converter from the rows of a table to dialogues. Each row is a turn.
pub(super) trait TurnRows: Send + 'static {
    /// Metadata key for turn numbers that are not unique within a dialogue.
    const NUMBER_KEY: &'static str;

    /// Returns the dialogue id of a row. Consecutive rows with the same id are one dialogue. `row_number` is the number
    /// of the row, counted from 1 without the header and blank rows.
    fn id(&self, row: &Row<'_>, row_number: u64) -> Result<String, RecordError>;

    /// Adds the turn of a row to its dialogue. If it is the first row of the dialogue, `dialogue` has no turns yet.
    /// Returns the turn number in the row, if the table has turn numbers.
    fn add(&self, dialogue: &mut Dialogue, row: &Row<'_>) -> Result<Option<u32>, RecordError>;

    /// Returns whether the first row is a header. The default is `true`.
    fn has_header(&self) -> bool {
        true
    }
}

/// Reads dialogues from a table with one turn per row. If a row is invalid, its whole dialogue is rejected, and one
/// problem is reported.
///
/// The rows of a dialogue must be consecutive. If the id of a finished dialogue occurs again, the rows are rejected.
/// Only the first million ids are remembered. If any other id occurs again, its rows become a second dialogue.
pub(super) fn from_turn_rows(
    input: Input,
    options: &ReadOptions,
    dialect: Dialect,
    parse: impl TurnRows,
) -> Dialogues {
    Box::new(Groups {
        path: input.name.clone(),
        header: parse.has_header(),
        rows: Rows::new(input.into_stream(), dialect, options.max_record),
        limit: options.max_record,
        parse,
        row_number: 0,
        open: None,
        bad_line: None,
        seen: HashSet::new(),
        ready: VecDeque::new(),
        ended: false,
    })
}

const REMEMBERED_IDS: usize = 1_000_000;

struct Groups<R, P> {
    path: String,
    header: bool,
    rows: Rows<R>,
    limit: usize,
    parse: P,
    row_number: u64,
    open: Option<Open>,
    /// The line of the previous row, if that row is invalid and its dialogue is unknown.
    bad_line: Option<u64>,
    /// Hashes of the first [`REMEMBERED_IDS`] dialogue ids.
    seen: HashSet<u64>,
    ready: VecDeque<Result<Dialogue, Problem>>,
    ended: bool,
}

/// The dialogue to which the previous row belongs. The next row can belong to the same dialogue.
struct Open {
    id: String,
    line: u64,
    size: usize,
    numbers: Vec<Option<u32>>,
    /// The dialogue so far, or `None` after a problem of the dialogue was reported.
    dialogue: Option<Dialogue>,
}

impl<R: BufRead, P: TurnRows> Groups<R, P> {
    fn step(&mut self) {
        let row = match self.rows.next_row() {
            None => {
                self.ended = true;
                return self.close();
            }
            Some(Err(e)) => {
                let mut problem = row_problem(&self.path, e);
                match &mut problem {
                    Problem::File(reject) => {
                        self.ended = true;
                        // The open dialogue is dropped, because the lost part of the file may contain more of its rows.
                        reject.id = self.open.take().map(|open| open.id);
                    }
                    Problem::Record(reject) => self.bad_line = reject.line,
                }
                return self.ready.push_back(Err(problem));
            }
            Some(Ok(row)) => row,
        };
        if std::mem::take(&mut self.header) || row.is_blank() {
            return;
        }
        self.row_number += 1;
        let (line, size) = (row.line, row.size());
        let id = match self.parse.id(&row, self.row_number) {
            Ok(id) => id,
            Err(e) => {
                self.bad_line = Some(line);
                return self.ready.push_back(Err(e.at(&self.path, line)));
            }
        };
        let bad_line = self.bad_line.take();
        match &mut self.open {
            Some(open) if open.id == id => {
                let added = match (bad_line, open.dialogue.as_mut()) {
                    (_, None) => return,
                    (Some(bad_line), _) => Err(format!(
                        "the row of this dialogue on line {bad_line} is invalid; the whole dialogue is skipped"
                    ).into()),
                    (None, Some(_)) if open.size + size > self.limit => {
                        Err(support::too_long((open.size + size) as u64, self.limit).into())
                    }
                    (None, Some(dialogue)) => self.parse.add(dialogue, &row),
                };
                match added {
                    Ok(number) => {
                        open.numbers.push(number);
                        open.size += size;
                    }
                    Err(e) => {
                        open.dialogue = None;
                        self.ready.push_back(Err(e.with_id(Some(id)).at(&self.path, line)));
                    }
                }
            }
            _ => {
                let started = begin(&self.parse, &mut self.seen, &id, &row);
                self.close();
                let (dialogue, numbers) = match started {
                    Ok((dialogue, number)) => (Some(dialogue), vec![number]),
                    Err(e) => {
                        self.ready.push_back(Err(e.with_id(Some(&id)).at(&self.path, line)));
                        (None, Vec::new())
                    }
                };
                self.open = Some(Open { id, line, size, numbers, dialogue });
            }
        }
    }

    /// Finishes the open dialogue, if there is one.
    fn close(&mut self) {
        let Some(Open { line, numbers, dialogue: Some(mut dialogue), .. }) = self.open.take() else {
            return;
        };
        number_turns(&mut dialogue, &numbers, P::NUMBER_KEY);
        dialogue.time = dialogue.turns.first().and_then(|turn| turn.time);
        self.ready.extend(support::finished(Ok(Some(dialogue)), &self.path, line));
    }
}

/// Creates a dialogue with the turn of its first row. Returns the dialogue, and the turn number if the row has one.
fn begin(
    parse: &impl TurnRows,
    seen: &mut HashSet<u64>,
    id: &str,
    row: &Row<'_>,
) -> Result<(Dialogue, Option<u32>), RecordError> {
    let checked_id = DialogueId::new(id)?;
    let [a, b, c, d, e, f, g, h, ..] = checked_id.key().0;
    let hash = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    if seen.contains(&hash) {
        return Err("the id also occurs earlier, with rows of other dialogues in between; the rows of a dialogue must be \
             consecutive: sort the file by its id column".into());
    }
    if seen.len() < REMEMBERED_IDS {
        seen.insert(hash);
    }
    let mut dialogue = Dialogue::new(checked_id);
    let number = parse.add(&mut dialogue, row)?;
    Ok((dialogue, number))
}

impl<R: BufRead, P: TurnRows> Iterator for Groups<R, P> {
    type Item = Result<Dialogue, Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && !self.ended {
            self.step();
        }
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(numbers: &[u32]) -> Vec<(u32, String)> {
        let mut dialogue = Dialogue::new(DialogueId::new("d").unwrap());
        for number in numbers {
            dialogue.push("a", Role::User, format!("t{number}"));
        }
        number_turns(&mut dialogue, &numbers.iter().map(|n| Some(*n)).collect::<Vec<_>>(), "turn");
        dialogue.check().unwrap();
        dialogue.turns.into_iter().map(|t| (t.number.0, t.text)).collect()
    }

    #[test]
    fn turns_are_sorted_by_the_numbers_in_the_table() {
        let pairs =
            |pairs: &[(u32, &str)]| pairs.iter().map(|(n, t)| (*n, (*t).to_owned())).collect::<Vec<_>>();
        assert_eq!(numbered(&[3, 1, 7]), pairs(&[(1, "t1"), (3, "t3"), (7, "t7")]));
        assert_eq!(numbered(&[0, 2, 1]), pairs(&[(1, "t0"), (2, "t1"), (3, "t2")]));
        assert_eq!(numbered(&[1, 1, 2]), pairs(&[(1, "t1"), (2, "t1"), (3, "t2")]));
    }
}
