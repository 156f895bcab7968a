//! Reads the days of a Slack channel and builds the dialogues of each day.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;

use super::{
    message::{Raw, Ts, is_left_out, timestamps, turn},
    names::{Channel, Names, read_entries},
};
use crate::{formats::prelude::*, walk::entries};

/// Returns the day files in the folder of a channel, sorted by day. Each file comes with its day, such as `2026-03-02`.
pub(super) fn days(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let day_of = |path: &PathBuf| {
        let day = path.file_name()?.to_str()?.strip_suffix(".json")?;
        (day.len() == 10 && day.parse::<jiff::civil::Date>().is_ok()).then(|| day.to_owned())
    };
    Ok(entries(folder)?.into_iter().filter_map(|path| Some((day_of(&path)?, path))).collect())
}

/// Returns a function that takes a JSON value and its line number. If the value is an object, that is, a message, it is
/// passed to `take` with the line number. Any other value is an error.
pub(super) fn each_message(
    mut take: impl FnMut(Raw, u64) -> Result<(), RecordError>,
) -> impl FnMut(Value, u64) -> Result<(), RecordError> {
    move |message, line| match message {
        Value::Object(raw) => take(raw, line),
        _ => Err("the message is not a JSON object".into()),
    }
}

/// Reader that reads a channel day by day.
pub(super) struct ChannelDays {
    channel: Channel,
    names: Arc<Names>,
    limit: usize,
    days: Vec<(String, PathBuf)>,
    /// Index in `days` of the next day to read.
    next: usize,
    /// For each thread, the index of the day on which the thread starts.
    start_days: HashMap<Ts, usize>,
    /// For each day, the later days with replies to the threads of that day.
    later: BTreeMap<usize, BTreeSet<usize>>,
}

impl ChannelDays {
    pub(super) fn new(folder: &Path, names: Arc<Names>, limit: usize) -> Result<Self> {
        let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let mut start_days = HashMap::new();
        let mut later: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        let days = days(folder)?;
        for (n, (_, path)) in days.iter().enumerate() {
            // Problems are ignored here, because `read_next` reports them.
            let take = each_message(|raw, _| {
                if let Some((_, Some(thread))) = timestamps(&raw).filter(|_| !is_left_out(&raw)) {
                    let first = *start_days.entry(thread).or_insert(n);
                    if first < n {
                        later.entry(first).or_default().insert(n);
                    }
                }
                Ok(())
            });
            read_entries(path, limit, &mut Vec::new(), take);
        }
        let channel = names.channel(&name);
        Ok(ChannelDays { channel, names, limit, days, next: 0, start_days, later })
    }

    pub(super) fn is_read(&self) -> bool {
        self.next >= self.days.len()
    }

    /// Returns the dialogues that start on the next day, and the problems in the file of that day.
    pub(super) fn read_next(&mut self) -> Vec<Result<Dialogue, Problem>> {
        let n = self.next;
        self.next += 1;
        let Some((day, path)) = self.days.get(n) else {
            return Vec::new();
        };
        let (mut problems, mut messages) = (Vec::new(), Day::default());
        let begins_here = |thread: Ts| self.start_days.get(&thread) == Some(&n);
        let take = each_message(|raw, line| messages.take(&raw, line, &self.names, &begins_here));
        read_entries(path, self.limit, &mut problems, take);
        for (_, path) in self.later.remove(&n).iter().flatten().filter_map(|&later| self.days.get(later)) {
            let take = each_message(|raw, line| match timestamps(&raw) {
                Some((_, Some(thread))) if begins_here(thread) => {
                    messages.take(&raw, line, &self.names, &|_| true)
                }
                _ => Ok(()),
            });
            // Problems are ignored here, because a later call reports them.
            read_entries(path, self.limit, &mut Vec::new(), take);
        }
        let dialogues = messages.dialogues(&self.channel, day, &path.display().to_string());
        problems.into_iter().map(Err).chain(dialogues).collect()
    }
}

/// Messages of a day and of the threads that start on that day. If an export contains a message twice, it is stored
/// only once.
#[derive(Default)]
pub(super) struct Day {
    messages: BTreeMap<Ts, Turn>,
    threads: BTreeMap<Ts, BTreeMap<Ts, Turn>>,
    /// The line of the first message of each thread. The key `None` stands for the messages without a thread.
    lines: BTreeMap<Option<Ts>, u64>,
    /// Number of skipped messages, such as joins and leaves.
    left_out: u64,
}

impl Day {
    /// Adds a message. If the message is in a thread, it is added only if `begins_here` returns `true` for the thread.
    pub(super) fn take(
        &mut self,
        raw: &Raw,
        line: u64,
        names: &Names,
        begins_here: &dyn Fn(Ts) -> bool,
    ) -> Result<(), RecordError> {
        let Some((ts, thread)) = timestamps(raw) else {
            return Err("the message has no `ts` like \"1772442840.000200\"".into());
        };
        if is_left_out(raw) {
            self.left_out += 1;
            return Ok(());
        }
        let turns = match thread {
            None => &mut self.messages,
            Some(thread) if begins_here(thread) => self.threads.entry(thread).or_default(),
            // The message was already read together with the day on which its thread starts.
            Some(_) => return Ok(()),
        };
        turns.insert(ts, turn(raw, ts, names));
        self.lines.entry(thread).or_insert(line);
        Ok(())
    }

    /// Builds the dialogues of the day, sorted by start time.
    pub(super) fn dialogues(
        self,
        channel: &Channel,
        day: &str,
        path: &str,
    ) -> Vec<Result<Dialogue, Problem>> {
        let has_messages = self.messages.values().any(|turn| turn.role != Some(Role::System));
        let start = self.messages.keys().next().copied();
        let unthreaded = start.filter(|_| has_messages).map(|ts| (ts, (None, self.messages)));
        let threads = self.threads.into_iter().map(|(root, turns)| (root, (Some(root), turns)));
        let mut all: Vec<_> = unthreaded.into_iter().chain(threads).collect();
        all.sort_by_key(|(start, _)| *start);
        let made = all.into_iter().map(|(_, (thread, turns))| {
            let has_root = thread.is_none_or(|root| turns.contains_key(&root));
            let made = dialogue(channel, day, thread, turns).and_then(|mut dialogue| {
                let left_out = Some(self.left_out).filter(|count| thread.is_none() && *count > 0);
                dialogue.note("left_out", left_out);
                dialogue.note("without_root", (!has_root).then_some(true));
                support::checked(dialogue)
            });
            made.map_err(|e| e.at(path, self.lines.get(&thread).copied().unwrap_or(1)))
        });
        made.collect()
    }
}

/// Creates the dialogue of a thread. If `thread` is `None`, creates the dialogue of a day's messages outside threads.
fn dialogue(
    channel: &Channel,
    day: &str,
    thread: Option<Ts>,
    turns: BTreeMap<Ts, Turn>,
) -> Result<Dialogue, RecordError> {
    let suffix = thread.map_or_else(|| day.to_owned(), |root| root.to_string());
    let mut dialogue = support::dialogue(DialogueId::new(format!("{}-{suffix}", channel.id))?, "slack", None);
    dialogue.title = Some(channel.title.clone());
    dialogue.time = thread.and_then(Ts::time).or(turns.values().next().and_then(|turn| turn.time));
    dialogue.turns = turns.into_values().collect();
    dialogue.note("channel", channel.folder.as_str());
    dialogue.note("kind", channel.kind);
    dialogue.note("thread", thread.is_some());
    Ok(dialogue)
}
