//! From points to a frozen file.

mod codes;
mod hnsw;
mod native;
mod neighbourhood;
mod reach;

use std::{
    io::{BufWriter, Cursor},
    path::Path,
};

use crate::{
    Error, Frozen, Originals, Points, Progress, Result,
    distances::Dispatch,
    file::{self, Parts},
    graph::Graph,
    nibbles::Nibbles,
};
pub(crate) use codes::Codes;

/// A search keeps a mark beside a node's number.
const MAX_NODES: usize = 1 << 31;

/// What builds the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Builder {
    /// The crate hnsw_rs, on our codes.
    #[cfg_attr(feature = "clap", value(name = "hnsw_rs"))]
    HnswRs,
    /// Ours: the same graph at any number of threads.
    Native,
}

impl Builder {
    /// All.
    pub const ALL: [Builder; 2] = [Builder::HnswRs, Builder::Native];

    /// Its name in files and options.
    pub fn name(self) -> &'static str {
        match self {
            Builder::HnswRs => "hnsw_rs",
            Builder::Native => "native",
        }
    }
}

/// How a graph is built.
#[derive(Debug, Clone, Copy)]
pub struct BuildOptions {
    /// What builds it.
    pub builder: Builder,
    /// Neighbours of a node on each level; twice as many on the lowest.
    pub m: usize,
    /// How many candidates are looked at for each new node.
    pub ef: usize,
    /// How the vectors are kept for exact scores.
    pub originals: Originals,
}

impl Default for BuildOptions {
    fn default() -> Self {
        BuildOptions { builder: Builder::Native, m: 16, ef: 128, originals: Originals::F32 }
    }
}

/// Builds a graph over points and writes it, frozen, to a file that does not exist yet. `watch` is asked and told now and then.
/// The file is flushed; vector_source it its final name is the caller's.
pub fn freeze(points: &Points<'_>, options: &BuildOptions, path: &Path, watch: &dyn Progress) -> Result<()> {
    let io = |action| move |source| Error::Io { action, path: path.to_owned(), source };
    let made = build(points, options, watch)?;
    let out = std::fs::OpenOptions::new().write(true).create_new(true).open(path).map_err(io("create"))?;
    let mut out = BufWriter::with_capacity(1 << 20, out);
    file::write(&Parts { points, options, made: &made }, &mut out).map_err(io("write"))?;
    let out = out.into_inner().map_err(|e| io("write")(e.into_error()))?;
    out.sync_all().map_err(io("flush"))
}

impl Points<'_> {
    /// A frozen graph in memory.
    pub fn frozen(&self, options: &BuildOptions) -> Result<Frozen> {
        let made = build(self, options, &|| false)?;
        let mut bytes = Cursor::new(Vec::new());
        file::write(&Parts { points: self, options, made: &made }, &mut bytes)
            .map_err(|e| Error::input(e.to_string()))?;
        Frozen::from_bytes(bytes.get_ref())
    }
}

/// What a builder leaves.
pub(crate) struct Made {
    /// The point of each row of codes.
    pub(crate) order: Vec<u32>,
    pub(crate) codes: Codes,
    /// Instead of codes, if they are fine enough.
    pub(crate) nibbles: Option<Nibbles>,
    /// Over the rows of codes.
    pub(crate) graph: Graph,
}

fn build(points: &Points<'_>, options: &BuildOptions, watch: &dyn Progress) -> Result<Made> {
    check(options)?;
    if points.len() > MAX_NODES {
        return Err(Error::input(format!("{} vectors; at most {MAX_NODES} are possible", points.len())));
    }
    let order = match options.builder {
        Builder::HnswRs => (0..points.len() as u32).collect(),
        Builder::Native => native::order(points.len(), options.m),
    };
    let codes = Codes::new(points, &order, Dispatch::best());
    let nibbles = Nibbles::fine_enough(points, &order);
    let mut graph = match options.builder {
        Builder::HnswRs => hnsw::build(&codes, &neighbourhood::order(&codes), options, watch)?,
        Builder::Native => native::build(&codes, nibbles.as_ref(), &order, options, watch)?,
    };
    reach::repair(&mut graph, &codes);
    Ok(Made { order, codes, nibbles, graph })
}

/// SplitMix64: a number that looks like chance, and is the same every time.
fn mixed(number: u64) -> u64 {
    let x = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn check(options: &BuildOptions) -> Result<()> {
    // hnsw_rs ends the process beyond 256, and the lists of 128 are longer than any use.
    if !(4..=128).contains(&options.m) {
        return Err(Error::input(format!("{} neighbours a node; 4 to 128 are possible", options.m)));
    }
    if !(8..=4096).contains(&options.ef) {
        return Err(Error::input(format!("{} candidates a new node; 8 to 4096 are possible", options.ef)));
    }
    Ok(())
}
