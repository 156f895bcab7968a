//! Slack exports: a folder with `users.json`, `channels.json` (`groups.json`, `dms.json`, `mpims.json`) and a folder a
//! channel, with one file a day.
//!
//! - A thread is one dialogue, whichever days its replies lie on; the other messages of a channel are one dialogue a
//!   day. The id is the channel's id and the moment of the message that began the thread (as in a permanent link), or
//!   the day: neither changes when a later export has more days. A message that is only answered after the first export
//!   moves from its day's dialogue to its thread's.
//! - Names are looked up in `users.json`; mentions and links are written as people see them.
//! - Joins, leaves and traces of edits are left out and counted in the metadata of the day's dialogue (`left_out`). New
//!   topics, pins and the like are turns of the role `system`; a day with nothing else gives no dialogue. Bots have the
//!   role `agent`.
//! - Memory: one day of a channel with the threads that began on it, and for one channel at a time the moment of every
//!   thread (some 20 bytes each). A channel's files are read once to learn on which days its threads go on, then day by
//!   day, each with the later days on which its threads have replies.
//!
//! One day's file alone can be read too; its threads are then those of the day.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fs,
    io::BufRead,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    corpus::{
        Dialogue, Role, Turn,
        formats::{
            Dialogues, Fit, Format, Problem, ReadOptions,
            slack_message::{Raw, Ts, is_left_out, place, turn},
            slack_names::{Channel, LISTS, Names, USERS, open, root_of},
            support::{self, Fail},
        },
        input::{Input, Probe},
        json_elements::Elements,
    },
    error::{IoContext, Result},
    ids::DialogueId,
};

pub(super) struct Slack;

impl Format for Slack {
    fn name(&self) -> &'static str {
        "slack"
    }

    fn about(&self) -> &'static str {
        "a Slack export: the unpacked folder, a channel's folder in it, or one day's file"
    }

    fn sniff(&self, probe: &Probe<'_>) -> Fit {
        let name = probe.file_name();
        let is_list = LISTS.iter().any(|(list, _)| *list == name)
            || USERS.contains(&name.as_str())
            || name == "integration_logs.json";
        let Some((_, Value::Object(first))) = probe.first_element(1) else {
            return if is_list && probe.text.trim() == "[]" { Fit::Companion } else { Fit::No };
        };
        let has = |key: &str| first.contains_key(key);
        let is_message = probe.text.trim_start().starts_with('[')
            && place(&first).is_some()
            && (first.get("type").is_some_and(|t| t == "message") || has("user") && has("text"));
        if is_message {
            Fit::Yes
        } else if is_list
            && (has("id") && (has("members") || has("profile") || has("team_id")) || has("service_type"))
        {
            Fit::Companion
        } else {
            Fit::No
        }
    }

    fn read(&self, input: Input, options: &ReadOptions) -> Result<Dialogues> {
        let (name, day, limit) = (input.name.clone(), input.stem(), options.max_record);
        let folder = input.path.as_deref().and_then(Path::parent).map(Path::to_owned).unwrap_or_default();
        let mut problems = Vec::new();
        let names = Names::read(&root_of(&folder), limit, &mut problems);
        let channel = names.channel(&input.folder_name().unwrap_or_else(|| "slack".to_owned()));
        let mut stream = Some(input.into_stream());
        let mut out: VecDeque<_> = problems.into_iter().map(Err).collect();
        Ok(Box::new(std::iter::from_fn(move || {
            if let Some(stream) = stream.take() {
                let mut problems = Vec::new();
                let mut messages = Day::default();
                each(stream, &name, limit, &mut problems, |raw, at| {
                    messages.take(&raw, at, &names, &|_| true)
                });
                out.extend(problems.into_iter().map(Err));
                out.extend(messages.dialogues(&channel, &day, &name));
            }
            out.pop_front()
        })))
    }

    fn claims_folder(&self, folder: &Path) -> bool {
        let lists = LISTS.iter().map(|(list, _)| *list).chain(USERS);
        if lists.into_iter().any(|list| folder.join(list).is_file()) {
            return subfolders(folder)
                .is_ok_and(|all| all.iter().any(|f| days(f).is_ok_and(|d| !d.is_empty())));
        }
        // A channel's folder alone; the first days may be empty.
        let days = days(folder).unwrap_or_default();
        let fits =
            |path: &PathBuf| Input::open(path).is_ok_and(|input| self.sniff(&input.probe()) == Fit::Yes);
        days.iter().take(5).any(|(_, path)| fits(path))
    }

    fn read_folder(&self, folder: &Path, options: &ReadOptions) -> Result<Dialogues> {
        let (root, channels) = match days(folder)? {
            days if days.is_empty() => (folder.to_owned(), subfolders(folder)?),
            _ => (root_of(folder), vec![folder.to_owned()]),
        };
        let mut problems = Vec::new();
        let names = Arc::new(Names::read(&root, options.max_record, &mut problems));
        let limit = options.max_record;
        let mut out: VecDeque<_> = problems.into_iter().map(Err).collect();
        let mut channels = VecDeque::from(channels);
        let mut current: Option<ChannelDays> = None;
        Ok(Box::new(std::iter::from_fn(move || {
            loop {
                if let Some(item) = out.pop_front() {
                    return Some(item);
                }
                match &mut current {
                    Some(channel) if channel.next < channel.days.len() => out.extend(channel.read_next()),
                    _ => {
                        let folder = channels.pop_front()?;
                        match ChannelDays::new(&folder, Arc::clone(&names), limit) {
                            Ok(channel) => current = Some(channel),
                            Err(e) => {
                                let path = folder.display().to_string();
                                out.push_back(Err(Fail::from(e).at(&path, 1)));
                            }
                        }
                    }
                }
            }
        })))
    }
}

fn subfolders(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).at("read", folder)? {
        let path = entry.at("read", folder)?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The files of a channel's folder that hold a day, in order, with the day.
fn days(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).at("read", folder)? {
        let path = entry.at("read", folder)?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let day = name
            .strip_suffix(".json")
            .filter(|day| day.len() == 10 && day.parse::<jiff::civil::Date>().is_ok());
        if let Some(day) = day.map(str::to_owned) {
            found.push((day, path));
        }
    }
    found.sort();
    Ok(found)
}

/// The messages of one file, each with its line.
fn each(
    stream: Box<dyn BufRead + Send>,
    name: &str,
    limit: usize,
    problems: &mut Vec<Problem>,
    mut take: impl FnMut(Raw, u64) -> Result<(), Fail>,
) {
    for element in Elements::at_depth(stream, 1, limit) {
        let problem = match element {
            Err(e) => Err(support::element_problem(name, e)),
            Ok(element) => {
                let taken = match serde_json::from_slice::<Value>(&element.json) {
                    Ok(Value::Object(raw)) => take(raw, element.line),
                    Ok(_) => Err(Fail::new("the message is not a JSON object")),
                    Err(e) => Err(e.into()),
                };
                taken.map_err(|fail| fail.at(name, element.line))
            }
        };
        problems.extend(problem.err());
    }
}

/// A channel, read day by day.
struct ChannelDays {
    channel: Channel,
    names: Arc<Names>,
    limit: usize,
    days: Vec<(String, PathBuf)>,
    next: usize,
    /// The day on which the first message of a thread lies.
    begun: HashMap<Ts, usize>,
    /// The later days that hold replies to threads of a day.
    later: BTreeMap<usize, BTreeSet<usize>>,
}

impl ChannelDays {
    fn new(folder: &Path, names: Arc<Names>, limit: usize) -> Result<Self> {
        let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let mut begun = HashMap::new();
        let mut later: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        let days = days(folder)?;
        // What is wrong with the files is told when they are read for their messages.
        let mut ignored = Vec::new();
        for (n, (_, path)) in days.iter().enumerate() {
            let Some(stream) = open(path, &mut ignored) else {
                continue;
            };
            each(stream, "", limit, &mut ignored, |raw, _| {
                if let Some((_, Some(thread))) = place(&raw).filter(|_| !is_left_out(&raw)) {
                    let first = *begun.entry(thread).or_insert(n);
                    if first < n {
                        later.entry(first).or_default().insert(n);
                    }
                }
                Ok(())
            });
            ignored.clear();
        }
        let channel = names.channel(&name);
        Ok(ChannelDays { channel, names, limit, days, next: 0, begun, later })
    }

    fn read_next(&mut self) -> Vec<Result<Dialogue, Problem>> {
        let n = self.next;
        self.next += 1;
        let Some((day, path)) = self.days.get(n) else {
            return Vec::new();
        };
        let (mut problems, mut messages) = (Vec::new(), Day::default());
        let begins_here = |thread: Ts| self.begun.get(&thread) == Some(&n);
        if let Some(stream) = open(path, &mut problems) {
            let name = path.display().to_string();
            let take = |raw: Raw, at| messages.take(&raw, at, &self.names, &begins_here);
            each(stream, &name, self.limit, &mut problems, take);
        }
        // Told when the turn of those days comes.
        let mut ignored = Vec::new();
        for (_, path) in self.later.remove(&n).iter().flatten().filter_map(|&later| self.days.get(later)) {
            let Some(stream) = open(path, &mut ignored) else {
                continue;
            };
            each(stream, "", self.limit, &mut ignored, |raw, at| match place(&raw) {
                Some((_, Some(thread))) if begins_here(thread) => {
                    messages.take(&raw, at, &self.names, &|_| true)
                }
                _ => Ok(()),
            });
            ignored.clear();
        }
        let dialogues = messages.dialogues(&self.channel, day, &path.display().to_string());
        problems.into_iter().map(Err).chain(dialogues).collect()
    }
}

/// The messages of a day, and those of the threads that begin on it. What an export holds twice is held once.
#[derive(Default)]
struct Day {
    said: BTreeMap<Ts, Turn>,
    threads: BTreeMap<Ts, BTreeMap<Ts, Turn>>,
    /// The line on which a thread, or the day itself, begins.
    lines: BTreeMap<Option<Ts>, u64>,
    left_out: u64,
}

impl Day {
    fn take(
        &mut self,
        raw: &Raw,
        line: u64,
        names: &Names,
        begins_here: &dyn Fn(Ts) -> bool,
    ) -> Result<(), Fail> {
        let Some((ts, thread)) = place(raw) else {
            return Err(Fail::new("the message has no `ts` like \"1772442840.000200\""));
        };
        if is_left_out(raw) {
            self.left_out += 1;
            return Ok(());
        }
        let turns = match thread {
            None => &mut self.said,
            Some(thread) if begins_here(thread) => self.threads.entry(thread).or_default(),
            // It was read with the day on which the thread began.
            Some(_) => return Ok(()),
        };
        turns.insert(ts, turn(raw, ts, names));
        self.lines.entry(thread).or_insert(line);
        Ok(())
    }

    /// In the order in which they began.
    fn dialogues(self, channel: &Channel, day: &str, path: &str) -> Vec<Result<Dialogue, Problem>> {
        let talk = self.said.values().any(|turn| turn.role != Some(Role::System));
        let began = self.said.keys().next().copied();
        let said = began.filter(|_| talk).map(|ts| (ts, (None, self.said)));
        let threads = self.threads.into_iter().map(|(root, turns)| (root, (Some(root), turns)));
        let mut all: Vec<_> = said.into_iter().chain(threads).collect();
        all.sort_by_key(|(began, _)| *began);
        let made = all.into_iter().map(|(_, (thread, turns))| {
            let has_root = thread.is_none_or(|root| turns.contains_key(&root));
            let made = dialogue(channel, day, thread, turns).and_then(|mut dialogue| {
                if thread.is_none() && self.left_out > 0 {
                    dialogue.metadata.insert("left_out".to_owned(), self.left_out.into());
                }
                if !has_root {
                    dialogue.metadata.insert("without_root".to_owned(), true.into());
                }
                support::checked(dialogue)
            });
            made.map_err(|fail| fail.at(path, self.lines.get(&thread).copied().unwrap_or(1)))
        });
        made.collect()
    }
}

fn dialogue(
    channel: &Channel,
    day: &str,
    thread: Option<Ts>,
    turns: BTreeMap<Ts, Turn>,
) -> Result<Dialogue, Fail> {
    let place = thread.map_or_else(|| day.to_owned(), |root| root.to_string());
    let mut dialogue = Dialogue::new(DialogueId::new(format!("{}-{place}", channel.id))?);
    dialogue.source = "slack".to_owned();
    dialogue.title = Some(channel.title.clone());
    dialogue.time = thread.and_then(Ts::time).or(turns.values().next().and_then(|turn| turn.time));
    dialogue.turns = turns.into_values().collect();
    for (key, value) in [("channel", channel.folder.as_str()), ("kind", channel.kind)] {
        dialogue.metadata.insert(key.to_owned(), value.into());
    }
    dialogue.metadata.insert("thread".to_owned(), thread.is_some().into());
    Ok(dialogue)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::formats::support::testing::{problems, read_text, sniffed};

    const DAY: &str = r#"[
{"type":"message","ts":"1772442840.000100","user":"U1","text":"morning"},
{"type":"message","ts":"1772442841.000100","user":"U1","text":"who has the key?","thread_ts":"1772442841.000100","reply_count":1},
{"type":"message","ts":"1772442850.000100","user":"U2","text":"me","thread_ts":"1772442841.000100"},
{"type":"message","subtype":"channel_join","ts":"1772442851.000100","user":"U3","text":"<@U3> has joined"},
{"type":"message","ts":"1772442852.000100","user":"U2","text":"so am I","thread_ts":"1700000000.000100"},
{"type":"message","user":"U2","text":"when?"},
7
]"#;

    #[test]
    fn one_day_alone_is_read() {
        let got = read_text(&Slack, "general/2026-03-02.json", DAY);
        let ids: Vec<_> = got.iter().map(|d| (d.id.as_str(), d.turns.len())).collect();
        assert_eq!(
            ids,
            [("general-1700000000.000100", 1), ("general-2026-03-02", 1), ("general-1772442841.000100", 2)]
        );
        assert_eq!(got[0].metadata["without_root"], true);
        assert_eq!(got[1].metadata["left_out"], 1);
        assert_eq!(
            problems(&Slack, "general/2026-03-02.json", DAY),
            [
                "general/2026-03-02.json:7: the message has no `ts` like \"1772442840.000200\"",
                "general/2026-03-02.json:8: the message is not a JSON object",
            ]
        );
    }

    #[test]
    fn its_files_are_told() {
        assert_eq!(sniffed("2026-03-02.json", DAY), Some("slack"));
        let fit = |name: &str, text: &str| {
            let stream = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
            Slack.sniff(&Input::from_stream(name.into(), Some(name.into()), stream).unwrap().probe())
        };
        assert_eq!(fit("users.json", r#"[{"id":"U1","name":"ana","profile":{}}]"#), Fit::Companion);
        assert_eq!(fit("dms.json", "[]"), Fit::Companion);
        assert_eq!(fit("other.json", r#"[{"id":"U1","name":"ana","profile":{}}]"#), Fit::No);
        assert_eq!(fit("users.json", r#"[{"user":"ana"}]"#), Fit::No);
        assert_eq!(fit("a.json", r#"{"ts":"1.0","type":"message"}"#), Fit::No);
    }
}
