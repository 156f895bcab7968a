//! Names of users and channels in a Slack export, read from its lists of users, channels and direct conversations.

use std::{
    collections::BTreeMap,
    io::BufRead,
    path::{Path, PathBuf},
};

use serde::{Deserialize, de::DeserializeOwned};

use crate::formats::prelude::*;

/// File names of the lists of channels, each with the kind of its channels.
pub(super) const LISTS: [(&str, &str); 4] = [
    ("channels.json", "channel"),
    ("groups.json", "private"),
    ("dms.json", "direct"),
    ("mpims.json", "group"),
];
/// Possible file names of the list of users. The second name is used in Enterprise Grid exports.
pub(super) const USERS: [&str; 2] = ["users.json", "org_users.json"];

#[derive(Deserialize)]
struct User {
    id: String,
    name: Option<String>,
    real_name: Option<String>,
    #[serde(default)]
    profile: Profile,
    #[serde(default)]
    is_bot: bool,
}

#[derive(Deserialize, Default)]
pub(super) struct Profile {
    display_name: Option<String>,
    real_name: Option<String>,
    name: Option<String>,
}

impl Profile {
    /// Returns the first name that is not blank, in this order: display name, real name, name.
    pub(super) fn shown(self) -> Option<String> {
        first([self.display_name, self.real_name, self.name])
    }
}

/// Returns the first name in the array that is not blank.
fn first<const N: usize>(names: [Option<String>; N]) -> Option<String> {
    names.into_iter().flatten().find(|name| !name.trim().is_empty())
}

#[derive(Deserialize)]
struct Listed {
    id: String,
    name: Option<String>,
    #[serde(default)]
    members: Vec<String>,
}

/// A public channel, a private channel, or a direct conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Channel {
    /// The Slack id of the channel, or its folder name if no list contains the channel.
    pub(super) id: String,
    pub(super) folder: String,
    pub(super) title: String,
    pub(super) kind: &'static str,
}

#[derive(Default)]
pub(super) struct Names {
    /// For each user id, the name of the user and whether the user is a bot.
    users: BTreeMap<String, (String, bool)>,
    /// Channels by folder name.
    channels: BTreeMap<String, Channel>,
    channel_names_by_id: BTreeMap<String, String>,
}

impl Names {
    /// Reads the lists of users and channels in the root folder of an export. Missing lists are ignored. Errors are
    /// added to `problems`.
    pub(super) fn read(root: &Path, limit: usize, problems: &mut Vec<Problem>) -> Self {
        let mut names = Names::default();
        for list in USERS.map(|list| root.join(list)).iter().filter(|list| list.is_file()) {
            read_entries(list, limit, problems, |user: User, _| {
                let shown = user.profile.shown().or(first([user.real_name, user.name]));
                names.users.extend(shown.map(|shown| (user.id, (shown, user.is_bot))));
                Ok(())
            });
        }
        for (list, kind) in LISTS.map(|(list, kind)| (root.join(list), kind)) {
            if list.is_file() {
                read_entries(&list, limit, problems, |listed: Listed, _| {
                    names.add(listed, kind);
                    Ok(())
                });
            }
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
        self.channel_names_by_id.insert(listed.id.clone(), folder.clone());
        self.channels.insert(folder.clone(), Channel { id: listed.id, folder, title, kind });
    }

    pub(super) fn user(&self, id: &str) -> Option<&str> {
        self.users.get(id).map(|(name, _)| name.as_str())
    }

    pub(super) fn is_bot(&self, id: &str) -> bool {
        id == "USLACKBOT" || self.users.get(id).is_some_and(|(_, bot)| *bot)
    }

    pub(super) fn channel_name(&self, id: &str) -> Option<&str> {
        self.channel_names_by_id.get(id).map(String::as_str)
    }

    /// Returns the channel of a folder. A folder that is not in the lists counts as a public channel.
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

/// Calls `take` on each member of the JSON array in a file, with the line of the member. Errors are added to
/// `problems`.
pub(super) fn read_entries<T: DeserializeOwned>(
    path: &Path,
    limit: usize,
    problems: &mut Vec<Problem>,
    take: impl FnMut(T, u64) -> Result<(), RecordError>,
) {
    let name = path.display().to_string();
    match Input::open(path) {
        Ok(input) => for_each_entry(input.into_stream(), &name, limit, problems, take),
        Err(e) => problems.push(support::file_problem(&name, None, e.to_string())),
    }
}

/// Calls `take` on each member of a JSON array, with the line of the member. Errors are added to `problems`.
pub(super) fn for_each_entry<T: DeserializeOwned>(
    stream: impl BufRead,
    name: &str,
    limit: usize,
    problems: &mut Vec<Problem>,
    mut take: impl FnMut(T, u64) -> Result<(), RecordError>,
) {
    for element in Elements::at_depth(stream, 1, limit) {
        let result = element.map_err(|e| support::element_problem(name, e)).and_then(|element| {
            let entry = serde_json::from_slice(&element.json).map_err(RecordError::from);
            entry.and_then(|entry| take(entry, element.line)).map_err(|e| e.at(name, element.line))
        });
        problems.extend(result.err());
    }
}

/// Returns the root folder of an export, which contains the lists of users and channels. `channel` is the folder of a
/// channel.
pub(super) fn root_of(channel: &Path) -> PathBuf {
    match channel.parent() {
        // A bare folder name is relative to the current folder.
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => channel.to_owned(),
    }
}
