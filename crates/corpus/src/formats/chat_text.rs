//! Shared code of the readers for chats in plain text. Dialogues are built line by line, and their size is limited.

use std::collections::VecDeque;

use crate::formats::prelude::*;

/// Dialogues and errors that a [`LineReader`] has completed, each with the line where it starts.
pub(super) type Out = VecDeque<(u64, Result<Dialogue, RecordError>)>;

/// Builder that creates the dialogues of a file from its lines. Used by [`read`].
pub(super) trait LineReader: Send {
    /// Processes the next line of the file. Appends the completed dialogues and errors to `out`.
    fn line(&mut self, line: Line<'_>, out: &mut Out);

    /// Completes the current dialogue, if any. [`read`] calls this method at the end of the file, unless reading fails.
    fn end(&mut self, out: &mut Out);
}

/// Reads the dialogues of a file. If reading fails, the last dialogue is dropped, because it can be incomplete.
pub(super) fn read(input: Input, options: &ReadOptions, mut reader: impl LineReader + 'static) -> Dialogues {
    let path = input.name.clone();
    let mut lines = Lines::new(input.into_stream(), options.max_record);
    let mut out = Out::new();
    let mut ended = false;
    Box::new(std::iter::from_fn(move || {
        while out.is_empty() && !ended {
            match lines.next_line() {
                Some(Ok(line)) => reader.line(line, &mut out),
                Some(Err(e)) => {
                    ended = matches!(e, LineError::Broken { .. });
                    return Some(Err(support::line_problem(&path, e)));
                }
                None => {
                    ended = true;
                    reader.end(&mut out);
                }
            }
        }
        let (line, dialogue) = out.pop_front()?;
        support::finished(dialogue.map(Some), &path, line)
    }))
}

/// A dialogue that a [`LineReader`] is building.
pub(super) struct Draft {
    pub(super) dialogue: Dialogue,
    start_line: u64,
    bytes: u64,
    limit: usize,
}

/// Number of bytes that each turn adds to the size of a dialogue, in addition to its speaker name and text.
const TURN_BYTES: u64 = 64;

impl Draft {
    /// Creates a draft of a dialogue that starts at `line`. [`Draft::finish`] rejects a dialogue with more than `limit`
    /// bytes.
    pub(super) fn new(dialogue: Dialogue, line: u64, limit: usize) -> Self {
        Draft { dialogue, start_line: line, bytes: 0, limit }
    }

    /// Adds `bytes` to the size of the dialogue. Returns whether the dialogue is over the limit. If so, its turns are
    /// removed.
    fn is_over(&mut self, bytes: u64) -> bool {
        self.bytes += bytes;
        let over = self.bytes > self.limit as u64;
        if over {
            self.dialogue.turns = Vec::new();
        }
        over
    }

    /// Adds a turn. Returns `None` if the dialogue is over the limit.
    pub(super) fn turn(&mut self, speaker: &str, role: Role, text: &str) -> Option<&mut Turn> {
        if self.is_over(TURN_BYTES + (speaker.len() + text.len()) as u64) {
            return None;
        }
        Some(self.dialogue.push(speaker, role, text))
    }

    /// Appends a line to the text of the last turn.
    pub(super) fn append(&mut self, text: &str) {
        if self.is_over(1 + text.len() as u64) {
            return;
        }
        if let Some(turn) = self.dialogue.turns.last_mut() {
            if !turn.text.is_empty() {
                turn.text.push('\n');
            }
            turn.text.push_str(text);
        }
    }

    /// Returns the line where the dialogue starts, and the dialogue. If the dialogue is over the limit, returns an
    /// error instead of the dialogue.
    pub(super) fn finish(mut self) -> (u64, Result<Dialogue, RecordError>) {
        if self.bytes > self.limit as u64 {
            let reason = support::too_long(self.bytes, self.limit);
            let id = Some(self.dialogue.id.as_str());
            return (self.start_line, Err(RecordError::new(reason).with_id(id)));
        }
        for turn in &mut self.dialogue.turns {
            turn.text.truncate(turn.text.trim_end().len());
        }
        (self.start_line, Ok(self.dialogue))
    }
}
