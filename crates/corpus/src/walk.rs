//! Finds the files to read for the paths given by the user, and detects their formats.

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

/// An input to read: a file, a folder that is one corpus, or standard input.
pub struct Source {
    /// Name as given by the user, or the path found in a folder.
    pub name: String,
    /// Format in which the source is read.
    pub format: &'static Format,
    location: Location,
}

enum Location {
    Opened(Box<Input>),
    File(PathBuf),
    Folder(PathBuf),
}

impl Source {
    /// Creates a source from an open input, for example bytes in memory.
    pub fn opened(input: Input, format: &'static Format) -> Self {
        Source { name: input.name.clone(), format, location: Location::Opened(Box::new(input)) }
    }

    /// Opens the source and returns its dialogues.
    pub fn read(self, options: &ReadOptions) -> Result<Dialogues> {
        match self.location {
            Location::Opened(input) => self.format.read(*input, options),
            Location::File(path) => {
                self.format.read(Input::open_counted(&path, &options.bytes_read)?, options)
            }
            Location::Folder(path) => self.format.read_folder(&path, options),
        }
    }

    /// Returns a fingerprint of the source: path, size and modification time. Streams have none.
    ///
    /// It detects whether a file has changed since an earlier run.
    pub fn identity(&self) -> Option<String> {
        let path = match &self.location {
            Location::Opened(_) => return None,
            Location::File(path) | Location::Folder(path) => path,
        };
        let (bytes, changed) = extent(path)?;
        let path = fs::canonicalize(path).ok()?;
        Some(format!("{}|{bytes}|{}", path.display(), changed.as_nanos()))
    }

    /// Returns the size on disk in bytes, for progress reports. `None` for folders and streams.
    pub fn bytes(&self) -> Option<u64> {
        match &self.location {
            Location::File(path) => fs::metadata(path).ok().map(|m| m.len()),
            _ => None,
        }
    }
}

/// Returns the total size and the latest modification time of a file, or of a folder with its contents.
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

/// The sources to read, and the other files that were found. Hidden files and folders are ignored.
#[derive(Default)]
pub struct Plan {
    /// Sources in reading order: paths in the given order, files of a folder sorted by name.
    pub sources: Vec<Source>,
    /// Files that belong to a corpus format but contain no dialogues.
    pub companions: Vec<PathBuf>,
    /// Files in folders that no format recognizes.
    pub unrecognized: Vec<PathBuf>,
}

/// Finds the sources for the given paths. `-` is standard input; folders are searched recursively.
///
/// Formats are detected. With `from`, every given file is read in that format, and only matching files of folders are
/// read. An error is returned for a folder without dialogues.
pub fn plan(paths: &[PathBuf], from: Option<&'static Format>) -> Result<Plan> {
    let mut plan = Plan::default();
    for path in paths {
        if path != Path::new("-") && fs::metadata(path).at("open", path)?.is_dir() {
            let before = plan.sources.len();
            walk(path, from, &mut plan)?;
            if plan.sources.len() == before {
                return Err(no_sources(path, &plan));
            }
        } else {
            plan.sources.push(named(path, from)?);
        }
    }
    Ok(plan)
}

fn named(path: &Path, from: Option<&'static Format>) -> Result<Source> {
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
                return Err(Error::data(format!(
                    "{name} belongs to a corpus in the format {}, but contains no dialogues",
                    format.name
                ))
                .with_hint("pass the folder that contains it"));
            }
            None => {
                let names: Vec<_> = formats::all().iter().map(|f| f.name).collect();
                let hint = format!("set the format with --from ({}); for CSV, add --map", names.join(", "));
                let message = format!("{name} is not in a format that turnwise recognizes");
                return Err(Error::data(message).with_hint(hint));
            }
        },
    };
    // Files are opened again for reading. A long list would otherwise keep too many file descriptors open.
    let location = if path == Path::new("-") {
        Location::Opened(Box::new(input))
    } else {
        Location::File(path.to_owned())
    };
    Ok(Source { name, format, location })
}

fn walk(folder: &Path, from: Option<&'static Format>, plan: &mut Plan) -> Result<()> {
    let claims = |f: &&&'static Format| f.claims_folder(folder);
    let claimed = match from {
        Some(format) => Some(format).filter(|f| claims(&f)),
        None => formats::all().iter().find(claims).copied(),
    };
    if let Some(format) = claimed {
        let name = folder.display().to_string();
        plan.sources.push(Source { name, format, location: Location::Folder(folder.to_owned()) });
        return Ok(());
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).at("read", folder)? {
        entries.push(entry.at("read", folder)?.path());
    }
    entries.sort();
    for path in entries {
        let hidden = path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with('.'));
        // Symbolic links are followed, because a corpus folder is often a link. The system reports link loops.
        let Ok(metadata) = fs::metadata(&path) else {
            plan.unrecognized.push(path);
            continue;
        };
        if hidden {
            continue;
        } else if metadata.is_dir() {
            walk(&path, from, plan)?;
        } else {
            match detect(&path, from) {
                (Some(format), Fit::Maybe | Fit::Yes) => {
                    let name = path.display().to_string();
                    plan.sources.push(Source { name, format, location: Location::File(path) });
                }
                (Some(_), Fit::Companion) => plan.companions.push(path),
                _ => plan.unrecognized.push(path),
            }
        }
    }
    Ok(())
}

/// Detects the format of a file in a folder. Archives and unreadable files are unrecognized.
fn detect(path: &Path, from: Option<&'static Format>) -> (Option<&'static Format>, Fit) {
    let Ok(input) = Input::open(path) else { return (None, Fit::No) };
    match from {
        Some(format) => (Some(format), format.sniff(&input.probe())),
        None => formats::sniff(&input.probe()).map_or((None, Fit::No), |(format, fit)| (Some(format), fit)),
    }
}

fn no_sources(folder: &Path, plan: &Plan) -> Error {
    let message = format!("{} contains no file with dialogues", folder.display());
    let hint = match plan.unrecognized.len() {
        0 => "the folder is empty".to_owned(),
        n => {
            let files = if n == 1 { "1 file is".to_owned() } else { format!("{n} files are") };
            let first = plan.unrecognized[0].display();
            format!(
                "{files} not in a format that turnwise recognizes, such as {first}; set the format with --from"
            )
        }
    };
    Error::data(message).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_searched_in_order_and_unrecognized_files_are_listed() {
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
        assert_eq!(plan.unrecognized.len(), 1);
    }

    #[test]
    fn empty_and_unrecognized_files_have_different_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, "").unwrap();
        assert!(plan(std::slice::from_ref(&path), None).err().unwrap().to_string().ends_with("is empty"));
        fs::write(&path, "\u{1}\u{2}\u{3}").unwrap();
        let e = plan(&[path], None).err().unwrap();
        assert!(e.hint().unwrap().contains("--from"));
    }
}
