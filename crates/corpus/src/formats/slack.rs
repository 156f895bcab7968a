//! Slack exports: `users.json`, `channels.json` (also `groups.json`, `dms.json`, `mpims.json`), and a folder for each
//! channel with one file per day.
//!
//! - A thread is one dialogue, even if its replies are on several days. The other messages of a channel are one
//!   dialogue per day.
//! - A dialogue id is the channel id followed by the time of the first message in the thread, or by the day. The
//!   ids are the same in later exports, with one exception. A message can get its first reply after an export. In that
//!   export, the message is in the dialogue of its day. In later exports, it is in the dialogue of its thread.
//! - User names are looked up in `users.json`. Mentions and links are converted to readable text.
//! - Joins, leaves and edit events are skipped. The metadata `left_out` of the day's dialogue counts them. New topics,
//!   pins and similar notices are turns with the role `system`. A day with only notices is skipped. Bots have the role
//!   `agent`.
//! - First, all files of a channel are read to find the days of each thread. Then the days are read in order. Each
//!   day is read together with the later replies to its threads. The reader keeps one day in memory, with the threads
//!   that started on that day, and about 20 bytes for each thread of the channel.
//!
//! The file of a single day can also be read alone. Its threads then contain only the messages of that day.

mod channel;
mod message;
mod names;

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;

use crate::{formats::prelude::*, walk::entries};
use channel::{ChannelDays, Day, days, each_message};
use message::timestamps;
use names::{LISTS, Names, USERS, for_each_entry, root_of};

pub(super) static FORMAT: Format = Format {
    name: "slack",
    about: "Slack export: the unpacked folder, the folder of a channel, or the file of a day",
    sniff,
    read,
};

pub(super) static FOLDER: Folder = Folder { claims: claims_folder, read: read_folder };

fn sniff(probe: &Probe<'_>) -> Fit {
    let name = probe.file_name();
    let is_list = LISTS.iter().any(|(list, _)| *list == name)
        || USERS.contains(&name.as_str())
        || name == "integration_logs.json";
    let Some((_, Value::Object(first))) = probe.first_element(1) else {
        return if is_list && probe.text.trim() == "[]" { Fit::Companion } else { Fit::No };
    };
    let has = |key: &str| first.contains_key(key);
    let is_message = probe.text.trim_start().starts_with('[')
        && timestamps(&first).is_some()
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

fn read(input: Input, options: &ReadOptions) -> Result<Dialogues> {
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
            let take = each_message(|raw, line| messages.take(&raw, line, &names, &|_| true));
            for_each_entry(stream, &name, limit, &mut problems, take);
            out.extend(problems.into_iter().map(Err));
            out.extend(messages.dialogues(&channel, &day, &name));
        }
        out.pop_front()
    })))
}

fn claims_folder(folder: &Path) -> bool {
    let lists = LISTS.iter().map(|(list, _)| *list).chain(USERS);
    if lists.into_iter().any(|list| folder.join(list).is_file()) {
        return subfolders(folder).is_ok_and(|all| all.iter().any(|f| days(f).is_ok_and(|d| !d.is_empty())));
    }
    // This can be the folder of a single channel. Its first days can be empty, so several days are checked.
    let days = days(folder).unwrap_or_default();
    let fits = |path: &PathBuf| Input::open(path).is_ok_and(|input| sniff(&input.probe()) == Fit::Yes);
    days.iter().take(5).any(|(_, path)| fits(path))
}

fn read_folder(folder: &Path, options: &ReadOptions) -> Result<Dialogues> {
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
                Some(channel) if !channel.is_read() => out.extend(channel.read_next()),
                _ => {
                    let folder = channels.pop_front()?;
                    match ChannelDays::new(&folder, Arc::clone(&names), limit) {
                        Ok(channel) => current = Some(channel),
                        Err(e) => {
                            let path = folder.display().to_string();
                            out.push_back(Err(RecordError::from(e).at(&path, 1)));
                        }
                    }
                }
            }
        }
    })))
}

fn subfolders(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(entries(folder)?.into_iter().filter(|path| path.is_dir()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::support::testing::{problems, read_text, sniffed};

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
    fn a_single_day_can_be_read() {
        let got = read_text(&FORMAT, "general/2026-03-02.json", DAY);
        let ids: Vec<_> = got.iter().map(|d| (d.id.as_str(), d.turns.len())).collect();
        assert_eq!(
            ids,
            [("general-1700000000.000100", 1), ("general-2026-03-02", 1), ("general-1772442841.000100", 2)]
        );
        assert_eq!(got[0].metadata["without_root"], true);
        assert_eq!(got[1].metadata["left_out"], 1);
        assert_eq!(
            problems(&FORMAT, "general/2026-03-02.json", DAY),
            [
                "general/2026-03-02.json:7: the message has no `ts` like \"1772442840.000200\"",
                "general/2026-03-02.json:8: the message is not a JSON object",
            ]
        );
    }

    #[test]
    fn slack_files_are_detected() {
        assert_eq!(sniffed("2026-03-02.json", DAY), Some("slack"));
        let fit = |name: &str, text: &str| {
            let stream = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
            sniff(&Input::from_stream(name.into(), Some(name.into()), stream).unwrap().probe())
        };
        assert_eq!(fit("users.json", r#"[{"id":"U1","name":"ana","profile":{}}]"#), Fit::Companion);
        assert_eq!(fit("dms.json", "[]"), Fit::Companion);
        assert_eq!(fit("other.json", r#"[{"id":"U1","name":"ana","profile":{}}]"#), Fit::No);
        assert_eq!(fit("users.json", r#"[{"user":"ana"}]"#), Fit::No);
        assert_eq!(fit("a.json", r#"{"ts":"1.0","type":"message"}"#), Fit::No);
    }
}
