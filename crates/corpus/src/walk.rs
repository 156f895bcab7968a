//! From the paths a user names to the list of files to read, each with its format.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use crate::{
    formats::{self, Dialogues, Fit, Format, ReadOptions},
    input::Input,
};
use turnwise_core::error::{Error, IoContext, Result};

/// One thing to read: a file, a folder that is one corpus, or standard input.
pub struct Source {
    /// As the user named it, or as it was found.
    pub name: String,
    /// What reads it.
    pub format: &'static dyn Format,
    place: Place,
}

enum Place {
    Opened(Box<Input>),
    File(PathBuf),
    Folder(PathBuf),
}

impl Source {
    /// A source that is open already: bytes in memory, or a stream of the caller's.
    pub fn opened(input: Input, format: &'static dyn Format) -> Self {
        Source { name: input.name.clone(), format, place: Place::Opened(Box::new(input)) }
    }

    /// Opens it and gives its dialogues.
    pub fn read(self, options: &ReadOptions) -> Result<Dialogues> {
        match self.place {
            Place::Opened(input) => self.format.read(*input, options),
            Place::File(path) => self.format.read(Input::open_counted(&path, &options.bytes_read)?, options),
            Place::Folder(path) => self.format.read_folder(&path, options),
        }
    }

    /// Tells it from others and from an earlier state of itself: path, length, time of change. Standard input has none.
    pub fn identity(&self) -> Option<String> {
        let path = match &self.place {
            Place::Opened(_) => return None,
            Place::File(path) | Place::Folder(path) => path,
        };
        let (bytes, changed) = extent(path)?;
        let path = fs::canonicalize(path).ok()?;
        Some(format!("{}|{bytes}|{}", path.display(), changed.as_nanos()))
    }

    /// The bytes on disk, if that is known, for progress.
    pub fn bytes(&self) -> Option<u64> {
        match &self.place {
            Place::File(path) => fs::metadata(path).ok().map(|m| m.len()),
            _ => None,
        }
    }
}

/// The bytes of a file, or of everything in a folder, and the last time that any of it changed.
fn extent(path: &Path) -> Option<(u64, Duration)> {
    let metadata = fs::metadata(path).ok()?;
    let changed = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    if !metadata.is_dir() {
        return Some((metadata.len(), changed));
    }
    let mut all = (0, changed);
    for entry in fs::read_dir(path).ok()? {
        let (bytes, changed) = extent(&entry.ok()?.path())?;
        all = (all.0 + bytes, all.1.max(changed));
    }
    Some(all)
}

/// What is to be read, and what was found beside it. Nothing is passed over without being counted here.
#[derive(Default)]
pub struct Plan {
    /// In reading order: as named, and sorted by name within a folder.
    pub sources: Vec<Source>,
    /// Files that belong to a format but hold no dialogues.
    pub companions: Vec<PathBuf>,
    /// Files in walked folders that no format knows.
    pub unrecognised: Vec<PathBuf>,
}

/// Looks at every path (`-` is standard input; folders are walked) and finds its format. With `from`, that format is
/// used for every named file, and folders are searched for files that can be read so.
pub fn plan(paths: &[PathBuf], from: Option<&'static dyn Format>) -> Result<Plan> {
    let mut plan = Plan::default();
    for path in paths {
        if path != Path::new("-") && fs::metadata(path).at("open", path)?.is_dir() {
            let before = plan.sources.len();
            walk(path, from, &mut plan)?;
            if plan.sources.len() == before {
                return Err(nothing_in(path, &plan));
            }
        } else {
            plan.sources.push(named(path, from)?);
        }
    }
    Ok(plan)
}

fn named(path: &Path, from: Option<&'static dyn Format>) -> Result<Source> {
    let input = Input::open(path)?;
    let name = input.name.clone();
    if input.is_blank() && from.is_none() {
        return Err(Error::data(format!("{name} is empty")));
    }
    let format = match from {
        Some(format) => format,
        None => match formats::sniff(&input.probe()) {
            Some((format, Fit::Maybe | Fit::Yes)) => format,
            Some((format, _)) => {
                return Err(Error::Data {
                    message: format!(
                        "{name} belongs to a corpus of the format {} but holds no dialogues",
                        format.name()
                    ),
                    hint: Some("give the folder it lies in".to_owned()),
                });
            }
            None => {
                return Err(Error::Data {
                    message: format!("{name} is in no format that turnwise recognises"),
                    hint: Some(format!(
                        "name it with --from ({}); for CSV add --map",
                        formats::all().iter().map(|f| f.name()).collect::<Vec<_>>().join(", ")
                    )),
                });
            }
        },
    };
    // A file is opened again when its turn comes, so that a long list does not hold as many descriptors.
    let place =
        if path == Path::new("-") { Place::Opened(Box::new(input)) } else { Place::File(path.to_owned()) };
    Ok(Source { name, format, place })
}

fn walk(folder: &Path, from: Option<&'static dyn Format>, plan: &mut Plan) -> Result<()> {
    let claims = |f: &&&'static dyn Format| f.claims_folder(folder);
    let claimed = match from {
        Some(format) => Some(format).filter(|f| claims(&f)),
        None => formats::all().iter().find(claims).copied(),
    };
    if let Some(format) = claimed {
        let name = folder.display().to_string();
        plan.sources.push(Source { name, format, place: Place::Folder(folder.to_owned()) });
        return Ok(());
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).at("read", folder)? {
        entries.push(entry.at("read", folder)?.path());
    }
    entries.sort();
    for path in entries {
        let hidden = path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with('.'));
        // Follows links: a corpus folder is often a link. A loop of links ends in the system's own error.
        let Ok(metadata) = fs::metadata(&path) else {
            plan.unrecognised.push(path);
            continue;
        };
        if hidden {
            continue;
        } else if metadata.is_dir() {
            walk(&path, from, plan)?;
        } else {
            match found(&path, from) {
                (Some(format), Fit::Maybe | Fit::Yes) => {
                    let name = path.display().to_string();
                    plan.sources.push(Source { name, format, place: Place::File(path) });
                }
                (Some(_), Fit::Companion) => plan.companions.push(path),
                _ => plan.unrecognised.push(path),
            }
        }
    }
    Ok(())
}

/// The format of a file found in a folder. What cannot be opened or is an archive counts as unrecognised.
fn found(path: &Path, from: Option<&'static dyn Format>) -> (Option<&'static dyn Format>, Fit) {
    let Ok(input) = Input::open(path) else { return (None, Fit::No) };
    match from {
        Some(format) => (Some(format), format.sniff(&input.probe())),
        None => formats::sniff(&input.probe()).map_or((None, Fit::No), |(format, fit)| (Some(format), fit)),
    }
}

fn nothing_in(folder: &Path, plan: &Plan) -> Error {
    let message = format!("{} holds no file with dialogues", folder.display());
    let hint = match plan.unrecognised.len() {
        0 => "the folder is empty".to_owned(),
        n => {
            let files = if n == 1 { "1 file is".to_owned() } else { format!("{n} files are") };
            let first = plan.unrecognised[0].display();
            format!(
                "{files} in no format that turnwise recognises, the first: {first}; name the format with --from"
            )
        }
    };
    Error::Data { message, hint: Some(hint) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_walked_in_order_and_nothing_is_passed_over_silently() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let record = r#"{"id":"a","turns":[{"text":"x"}]}"#;
        write("b/two.jsonl", record);
        write("a.jsonl", record);
        write("photo.bin", "\u{1}\u{2}");
        write(".hidden", record);
        let plan = plan(&[dir.path().to_owned()], None).unwrap();
        let names: Vec<_> =
            plan.sources.iter().map(|s| s.name.rsplit('/').next().unwrap().to_owned()).collect();
        assert_eq!(names, ["a.jsonl", "two.jsonl"]);
        assert_eq!(plan.unrecognised.len(), 1);
    }

    #[test]
    fn an_empty_file_and_an_unknown_one_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, "").unwrap();
        assert!(plan(std::slice::from_ref(&path), None).err().unwrap().to_string().ends_with("is empty"));
        fs::write(&path, "\u{1}\u{2}\u{3}").unwrap();
        let e = plan(&[path], None).err().unwrap();
        assert!(e.hint().unwrap().contains("--from"));
    }
}
