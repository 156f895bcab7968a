//! Finds the files to read in files and folders, and detects their formats.

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
    /// Path of the file or the folder. `-` is standard input.
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
    /// Creates a source from an input that is already open.
    pub fn opened(input: Input, format: &'static Format) -> Self {
        Source { name: input.name.clone(), format, location: Location::Opened(Box::new(input)) }
    }

    /// Reads the dialogues of the source.
    pub fn read(self, options: &ReadOptions) -> Result<Dialogues> {
        match self.location {
            Location::Opened(input) => self.format.read(*input, options),
            Location::File(path) => {
                self.format.read(Input::open_counted(&path, &options.bytes_read)?, options)
            }
            Location::Folder(path) => self.format.read_folder(&path, options),
        }
    }

    /// Returns a string with the absolute path, size and modification time of the source. If a later run returns the
    /// same string, the source has not changed. Returns `None` if the source cannot be read, or if it was created with
    /// [`Source::opened`].
    pub fn identity(&self) -> Option<String> {
        let path = match &self.location {
            Location::Opened(_) => return None,
            Location::File(path) | Location::Folder(path) => path,
        };
        let (bytes, changed) = extent(path)?;
        let path = fs::canonicalize(path).ok()?;
        Some(format!("{}|{bytes}|{}", path.display(), changed.as_nanos()))
    }

    /// Returns the size of the file on disk, in bytes. Returns `None` for a folder, for an unreadable file, and for a
    /// source created with [`Source::opened`].
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

/// Sources to read, and the other files in the given folders. Hidden files and folders are not included.
#[derive(Default)]
pub struct Plan {
    /// Sources in reading order: the order of the given paths, and alphabetical order within a folder.
    pub sources: Vec<Source>,
    /// Files that are part of a corpus in a known format but contain no dialogues.
    pub companions: Vec<PathBuf>,
    /// Files in folders that could not be opened or recognized. If a format was requested, this list also contains the
    /// files in other formats.
    pub unrecognized: Vec<PathBuf>,
}

/// Finds the sources in the given paths. `-` is standard input. Folders are searched recursively.
///
/// If `from` is `None`, the format of each file is detected. Otherwise, each given file is read in the format `from`.
/// In a folder, only the files that match `from` are read. Returns an error for a folder without any source.
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
            plan.sources.push(file_source(path, from)?);
        }
    }
    Ok(plan)
}

/// Returns the source for the path of a file. Detects the format if `from` is `None`.
fn file_source(path: &Path, from: Option<&'static Format>) -> Result<Source> {
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
                let format = format.name;
                let message =
                    format!("{name} belongs to a corpus in the format {format}, but contains no dialogues");
                return Err(Error::data(message).with_hint("pass the folder that contains it"));
            }
            None => {
                let names: Vec<_> = formats::all().iter().map(|f| f.name).collect();
                let hint = format!("set the format with --from ({}); for CSV, add --map", names.join(", "));
                let message = format!("{name} is not in a format that turnwise recognizes");
                return Err(Error::data(message).with_hint(hint));
            }
        },
    };
    Ok(match path == Path::new("-") {
        true => Source::opened(input, format),
        // The file is closed now and opened again for reading. If all files stayed open, there could be too many file
        // descriptors.
        false => Source { name, format, location: Location::File(path.to_owned()) },
    })
}

/// Adds the sources and the other files in a folder to the plan.
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
    for path in entries(folder)? {
        let hidden = path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with('.'));
        // Symbolic links are followed, because a corpus folder is often a link. For a loop of links, the operating
        // system returns an error.
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
                Some((format, Fit::Maybe | Fit::Yes)) => {
                    let name = path.display().to_string();
                    plan.sources.push(Source { name, format, location: Location::File(path) });
                }
                Some((_, Fit::Companion)) => plan.companions.push(path),
                _ => plan.unrecognized.push(path),
            }
        }
    }
    Ok(())
}

/// Returns the paths in a folder, sorted.
pub(crate) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).at("read", folder)? {
        paths.push(entry.at("read", folder)?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Returns the format of a file, and how well the file matches this format. The format is `from`, or the detected
/// format if `from` is `None`. Returns `None` if the file cannot be opened or no format is detected.
fn detect(path: &Path, from: Option<&'static Format>) -> Option<(&'static Format, Fit)> {
    let input = Input::open(path).ok()?;
    match from {
        Some(format) => Some((format, format.sniff(&input.probe()))),
        None => formats::sniff(&input.probe()),
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
