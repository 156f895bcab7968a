//! Inputs to embed: plain texts or corpora. The format of an input is detected from its content, unless the user names
//! a format.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
};

use turnwise_core::error::{Error, IoContext, Reject, Result};
use turnwise_corpus::{
    Dialogue,
    formats::{self, Fit, Format, Problem, ReadOptions},
    input::Input,
    texts::{Text, TextFormat},
    walk::{self, Source},
};
use turnwise_index::vectors::Kind;

use crate::progress::Progress;

/// Number of items in each batch that the reading thread sends.
const BATCH: usize = 256;
/// Capacity of the channel from the reading thread, in batches.
const BATCHES_AHEAD: usize = 8;

/// A text or dialogue to embed, or a record that could not be read.
pub(crate) enum Item {
    Text(Text),
    Dialogue(Box<Dialogue>),
    Problem(Problem),
}

/// Receiving end of the channel from the reading thread.
pub(crate) type Items = mpsc::Receiver<Vec<Item>>;

/// Input files of [`embed`](super::embed()), in order.
pub struct EmbedInputs {
    parts: Vec<Part>,
    pub(super) unit: Kind,
    from: Option<String>,
    /// Number of inputs by format name.
    pub(crate) read_as: BTreeMap<&'static str, u64>,
    /// Total size of the inputs in bytes, if known.
    pub(crate) bytes: Option<u64>,
    pub(crate) options: ReadOptions,
}

enum Part {
    Texts { name: String, source: TextSource, format: TextFormat },
    Corpus(Box<Source>),
}

enum TextSource {
    File(PathBuf),
    Opened(Box<Input>),
}

impl EmbedInputs {
    /// Finds the inputs and detects their formats. `unit` selects utterances or dialogues. `from` names the format of
    /// all inputs. If `from` is `None`, the format of each input is detected.
    ///
    /// # Errors
    ///
    /// [`Error::Data`] if a file is empty; [`Error::Input`] if `unit` is dialogues, but an input contains plain texts.
    pub fn plan(
        paths: &[PathBuf],
        unit: Kind,
        from: Option<&str>,
        options: ReadOptions,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let mut inputs = EmbedInputs {
            parts: Vec::new(),
            unit,
            from: from.map(str::to_owned),
            read_as: BTreeMap::new(),
            bytes: None,
            options,
        };
        for path in paths {
            inputs.add(path, progress)?;
        }
        let bytes = |part: &Part| match part {
            Part::Texts { source: TextSource::File(path), .. } => fs::metadata(path).ok().map(|m| m.len()),
            Part::Texts { .. } => None,
            Part::Corpus(source) => source.bytes(),
        };
        inputs.bytes = inputs.parts.iter().map(bytes).sum::<Option<u64>>().filter(|n| *n > 0);
        Ok(inputs)
    }

    fn add(&mut self, path: &Path, progress: &dyn Progress) -> Result<()> {
        let from = self.from.as_deref();
        let named = from.and_then(TextFormat::by_name);
        let is_folder = path != Path::new("-") && fs::metadata(path).at("open", path)?.is_dir();
        if named.is_none() && (from.is_some() || self.options.columns.is_some() || is_folder) {
            return self.add_corpus(path, progress);
        }
        if is_folder {
            return Err(Error::input(format!(
                "{} is a folder, but --from {} reads files",
                path.display(),
                from.unwrap_or("")
            ))
            .with_hint("list the files in it"));
        }
        let input = Input::open(path)?;
        if input.is_blank() {
            return Err(Error::data(format!("{} is empty", input.name)));
        }
        let format = match (named, formats::sniff(&input.probe())) {
            (Some(format), _) => format,
            (None, Some((format, fit))) if fit > Fit::No => {
                if fit == Fit::Maybe {
                    progress.say(format!(
                        "reading {} as {}; use --from lines to read every line as a text",
                        input.name, format.name
                    ));
                }
                return match path == Path::new("-") && fit != Fit::Companion {
                    true => self.add_source(Source::opened(input, format)),
                    false => self.add_corpus(path, progress),
                };
            }
            (None, _) => TextFormat::sniff(&input.name, &input.probe())?,
        };
        if self.unit == Kind::Dialogues {
            return Err(Error::input(format!(
                "{} contains texts, but --of dialogues needs dialogues",
                input.name
            ))
            .with_hint("remove --of, or name a corpus format with --from"));
        }
        *self.read_as.entry(format.name()).or_default() += 1;
        let name = input.name.clone();
        let source = match path == Path::new("-") {
            true => TextSource::Opened(Box::new(input)),
            false => TextSource::File(path.to_owned()),
        };
        self.parts.push(Part::Texts { name, source, format });
        Ok(())
    }

    fn add_corpus(&mut self, path: &Path, progress: &dyn Progress) -> Result<()> {
        let from = match (self.from.as_deref(), &self.options.columns) {
            (None, Some(_)) => Some(formats::by_name("csv")?),
            (from, _) => from.map(by_name).transpose()?,
        };
        let plan = walk::plan(&[path.to_owned()], from)?;
        for path in &plan.unrecognized {
            progress.detail(format!("not recognized: {}", path.display()));
        }
        plan.sources.into_iter().try_for_each(|source| self.add_source(source))
    }

    fn add_source(&mut self, source: Source) -> Result<()> {
        *self.read_as.entry(source.format.name).or_default() += 1;
        self.parts.push(Part::Corpus(Box::new(source)));
        Ok(())
    }

    /// Returns an iterator over the names of the input files.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| match part {
            Part::Texts { name, .. } => name.as_str(),
            Part::Corpus(source) => &source.name,
        })
    }

    /// Starts a thread that reads the inputs. Dropping the receiver ends the thread, unless the thread is blocked on
    /// standard input. A blocked thread keeps running, because nothing can wake it.
    pub(crate) fn start(self) -> Result<Items> {
        let (sender, items) = mpsc::sync_channel(BATCHES_AHEAD);
        thread::Builder::new()
            .name("reader".into())
            .spawn(move || self.read(&sender))
            .map_err(|e| Error::Internal(format!("cannot start the reading thread: {e}")))?;
        Ok(items)
    }

    fn read(self, sender: &mpsc::SyncSender<Vec<Item>>) {
        let EmbedInputs { parts, unit, options, .. } = self;
        let several = parts.len() > 1;
        let mut group = Vec::with_capacity(BATCH);
        // Adds an item to the group, and sends the group if it is full. Returns false if the receiver no longer exists.
        let mut send = |item: Item| {
            group.push(item);
            group.len() < BATCH || sender.send(std::mem::take(&mut group)).is_ok()
        };
        for part in parts {
            let (name, items): (String, Result<Box<dyn Iterator<Item = Item>>>) = match part {
                Part::Texts { name, source, format } => {
                    let shown = name.replace(char::is_control, "?");
                    let prefix = if several { format!("{shown}:") } else { String::new() };
                    let input = match source {
                        TextSource::Opened(input) => Ok(*input),
                        TextSource::File(path) => Input::open_counted(&path, &options.bytes_read),
                    };
                    let texts = input.map(|input| format.read(input, prefix, &options));
                    let item = |text: Result<Text, Problem>| text.map_or_else(Item::Problem, Item::Text);
                    (name, texts.map(|texts| Box::new(texts.map(item)) as _))
                }
                Part::Corpus(source) => {
                    let items = move |dialogue| items_of(dialogue, unit);
                    let name = source.name.clone();
                    let dialogues = source.read(&options);
                    (name, dialogues.map(|dialogues| Box::new(dialogues.flat_map(items)) as _))
                }
            };
            let continues = match items {
                Ok(mut items) => items.all(&mut send),
                Err(e) => {
                    let reason = e.message_and_hint();
                    send(Item::Problem(Problem::File(Reject { path: name, line: None, id: None, reason })))
                }
            };
            if !continues {
                return;
            }
        }
        let _ = sender.send(group);
    }
}

/// Returns the items to embed from a dialogue: the dialogue itself, or the texts of its turns.
fn items_of(dialogue: Result<Dialogue, Problem>, unit: Kind) -> Vec<Item> {
    match (dialogue, unit) {
        (Err(problem), _) => vec![Item::Problem(problem)],
        (Ok(dialogue), Kind::Dialogues) => vec![Item::Dialogue(Box::new(dialogue))],
        (Ok(Dialogue { id, turns, .. }), Kind::Utterances) => turns
            .into_iter()
            .map(|turn| Item::Text(Text { id: format!("{id}#{}", turn.number), text: turn.text }))
            .collect(),
    }
}

/// Finds a corpus format by name. For an unknown name, the error suggests similar corpus and text formats.
fn by_name(name: &str) -> Result<&'static Format> {
    formats::by_name(name).map_err(|_| {
        let texts = TextFormat::ALL.map(TextFormat::name);
        Error::unknown_name("format", name, texts.into_iter().chain(formats::all().iter().map(|f| f.name)))
    })
}
