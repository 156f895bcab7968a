//! Names of users and channels in a Slack export, from `users.json` and the lists of channels and direct messages.

use std::{
    collections::BTreeMap,
    io::BufRead,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::formats::prelude::*;

/// Channel lists, with the kind of their channels.
pub(super) const LISTS: [(&str, &str); 4] = [
    ("channels.json", "channel"),
    ("groups.json", "private"),
    ("dms.json", "direct"),
    ("mpims.json", "group"),
];
/// File names of user lists. An Enterprise Grid export uses the second name.
pub(super) const USERS: [&str; 2] = ["users.json", "org_users.json"];

#[derive(Deserialize)]
struct User {
    id: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    real_name: Option<String>,
    #[serde(default)]
    profile: Profile,
    #[serde(default)]
    is_bot: bool,
}

#[derive(Deserialize, Default)]
pub(super) struct Profile {
    #[serde(default)]
    display_name: Option<String>,
    #[serde(default)]
    real_name: Option<String>,
    #[serde(default)]
    name: Option<String>,
}

impl Profile {
    /// Returns the first name that is not blank: display name, real name, name.
    pub(super) fn shown(self) -> Option<String> {
        first([self.display_name, self.real_name, self.name])
    }
}

fn first<const N: usize>(names: [Option<String>; N]) -> Option<String> {
    names.into_iter().flatten().find(|name| !name.trim().is_empty())
}

#[derive(Deserialize)]
struct Listed {
    id: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    members: Vec<String>,
}

/// A public channel, a private channel, or a direct conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Channel {
    /// The Slack id, which does not change on renaming. If the export does not contain it, the folder name.
    pub(super) id: String,
    pub(super) folder: String,
    pub(super) title: String,
    pub(super) kind: &'static str,
}

/// Names of users and channels.
#[derive(Default)]
pub(super) struct Names {
    users: BTreeMap<String, (String, bool)>,
    /// Channels by folder name.
    channels: BTreeMap<String, Channel>,
    channel_names: BTreeMap<String, String>,
}

impl Names {
    /// Reads the lists. If a list is missing or damaged, ids are used instead of names. Damage is reported.
    pub(super) fn read(root: &Path, limit: usize, problems: &mut Vec<Problem>) -> Self {
        let mut names = Names::default();
        for list in USERS {
            for_each_entry(&root.join(list), limit, problems, |user: User| {
                let shown = user.profile.shown().or(first([user.real_name, user.name]));
                if let Some(shown) = shown {
                    names.users.insert(user.id, (shown, user.is_bot));
                }
            });
        }
        for (list, kind) in LISTS {
            for_each_entry(&root.join(list), limit, problems, |listed: Listed| names.add(listed, kind));
        }
        names
    }

    fn add(&mut self, listed: Listed, kind: &'static str) {
        let folder = listed.name.clone().unwrap_or_else(|| listed.id.clone());
        let title = match kind {
            "direct" | "group" if !listed.members.is_empty() => {
                let members: Vec<&str> =
                    listed.members.iter().map(|id| self.user(id).unwrap_or(id)).collect();
                members.join(", ")
            }
            _ => format!("#{folder}"),
        };
        self.channel_names.insert(listed.id.clone(), folder.clone());
        self.channels.insert(folder.clone(), Channel { id: listed.id, folder, title, kind });
    }

    pub(super) fn user(&self, id: &str) -> Option<&str> {
        self.users.get(id).map(|(name, _)| name.as_str())
    }

    pub(super) fn is_bot(&self, id: &str) -> bool {
        id == "USLACKBOT" || self.users.get(id).is_some_and(|(_, bot)| *bot)
    }

    pub(super) fn channel_name(&self, id: &str) -> Option<&str> {
        self.channel_names.get(id).map(String::as_str)
    }

    /// Returns the channel of a folder.
    pub(super) fn channel(&self, folder: &str) -> Channel {
        self.channels.get(folder).cloned().unwrap_or_else(|| Channel {
            id: folder.to_owned(),
            folder: folder.to_owned(),
            title: format!("#{folder}"),
            kind: "channel",
        })
    }

    #[cfg(test)]
    pub(super) fn for_tests(users: &[(&str, &str)], channels: &[(&str, &str)]) -> Self {
        let mut names = Names::default();
        for (id, name) in users {
            names.users.insert((*id).to_owned(), ((*name).to_owned(), false));
        }
        for (id, name) in channels {
            let listed = Listed { id: (*id).to_owned(), name: Some((*name).to_owned()), members: Vec::new() };
            names.add(listed, "channel");
        }
        names
    }
}

/// Calls `take` on each entry of a list.
fn for_each_entry<T: for<'de> Deserialize<'de>>(
    path: &Path,
    limit: usize,
    problems: &mut Vec<Problem>,
    mut take: impl FnMut(T),
) {
    if !path.is_file() {
        return;
    }
    let Some(stream) = open(path, problems) else {
        return;
    };
    let name = path.display().to_string();
    for element in Elements::at_depth(stream, 1, limit) {
        match element {
            Ok(element) => match serde_json::from_slice(&element.json) {
                Ok(entry) => take(entry),
                Err(e) => problems.push(support::RecordError::from(e).at(&name, element.line)),
            },
            Err(e) => problems.push(support::element_problem(&name, e)),
        }
    }
}

/// Opens a file of the export.
pub(super) fn open(path: &Path, problems: &mut Vec<Problem>) -> Option<Box<dyn BufRead + Send>> {
    match Input::open(path) {
        Ok(input) => Some(input.into_stream()),
        Err(e) => {
            let reject =
                Reject { path: path.display().to_string(), line: None, id: None, reason: e.to_string() };
            problems.push(Problem::File(reject));
            None
        }
    }
}

/// Returns the root folder of the export, which contains the lists, for the folder of a channel.
pub(super) fn root_of(channel: &Path) -> PathBuf {
    match channel.parent() {
        // A bare folder name is relative to the current folder.
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => channel.to_owned(),
    }
}
