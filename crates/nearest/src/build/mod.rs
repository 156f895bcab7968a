//! Building a graph and writing it to a file.

use std::{
    fs::File,
    io::{BufWriter, Cursor},
    path::Path,
};

use turnwise_core::error::IoContext;

use crate::{
    Error, GraphFile, Points, Result, VectorFormat,
    distances::Dispatch,
    file::{self, Content},
    graph::Graph,
    nibbles::Nibbles,
};

pub(crate) use crate::codes::Codes;

mod hnsw;
mod native;

/// Maximum number of nodes. Node numbers have only 31 bits, because a search uses the top bit to mark expanded
/// candidates.
const MAX_NODES: usize = 1 << 31;

/// Implementation that builds the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Builder {
    /// The crate hnsw_rs, which compares 8-bit codes of the vectors.
    #[cfg_attr(feature = "clap", value(name = "hnsw_rs"))]
    HnswRs,
    /// Our own builder. Its graph does not depend on the number of threads.
    Native,
}

impl Builder {
    /// All builders.
    pub const ALL: [Builder; 2] = [Builder::HnswRs, Builder::Native];

    /// Returns the builder's name in index manifests and command-line options.
    pub fn name(self) -> &'static str {
        match self {
            Builder::HnswRs => "hnsw_rs",
            Builder::Native => "native",
        }
    }
}

/// Options for building a graph.
#[derive(Debug, Clone, Copy)]
pub struct BuildOptions {
    /// Builder of the graph.
    pub builder: Builder,
    /// Maximum number of neighbors of a node on each level above 0, from 4 to 128. On level 0, the maximum is twice
    /// this number.
    pub m: usize,
    /// Number of candidates in the beam search that finds the neighbors of a new node, from 8 to 4096.
    pub ef: usize,
    /// Number format of the original vectors in the file.
    pub format: VectorFormat,
}

impl Default for BuildOptions {
    fn default() -> Self {
        BuildOptions { builder: Builder::Native, m: 16, ef: 128, format: VectorFormat::F32 }
    }
}

/// Builds a graph over points, writes it to a new file, and syncs the file to disk. Reports the progress of the build
/// to `progress`.
///
/// Returns an error if the file already exists or cannot be written, if an option is out of range, or if there are more
/// than 2³¹ points. If `progress` cancels the build, the result is [`Error::Interrupted`].
pub fn write_graph(
    points: &Points<'_>,
    options: &BuildOptions,
    path: &Path,
    progress: &dyn Progress,
) -> Result<()> {
    let made = build(points, options, progress)?;
    let mut out = BufWriter::with_capacity(1 << 20, File::create_new(path).at("create", path)?);
    file::write(&Content { points, options, made: &made }, &mut out).at("write", path)?;
    let out = out.into_inner().map_err(|e| e.into_error()).at("write", path)?;
    out.sync_all().at("flush", path)
}

impl Points<'_> {
    /// Builds a graph file in memory. Returns an error if an option is out of range or there are more than 2³¹ points.
    pub fn build(&self, options: &BuildOptions) -> Result<GraphFile> {
        let made = build(self, options, &|| false)?;
        let mut bytes = Cursor::new(Vec::new());
        file::write(&Content { points: self, options, made: &made }, &mut bytes)
            .map_err(|e| Error::input(e.to_string()))?;
        GraphFile::from_bytes(bytes.get_ref())
    }
}

/// Graph and quantized vectors that a builder has made.
pub(crate) struct BuildOutput {
    /// Point number of each row of codes.
    pub(crate) order: Vec<u32>,
    pub(crate) codes: Codes,
    /// 4-bit codes, which replace the 8-bit codes in the file; `None` if the metric is L2, or if 4-bit codes are not
    /// accurate enough.
    pub(crate) nibbles: Option<Nibbles>,
    pub(crate) graph: Graph,
}

fn build(points: &Points<'_>, options: &BuildOptions, progress: &dyn Progress) -> Result<BuildOutput> {
    check(options)?;
    if points.len() > MAX_NODES {
        let n = points.len();
        return Err(Error::input(format!(
            "{n} vectors are too many for a graph; the maximum is {MAX_NODES}"
        )));
    }
    let order = match options.builder {
        Builder::HnswRs => (0..points.len() as u32).collect(),
        Builder::Native => native::order(points.len(), options.m),
    };
    let codes = Codes::new(points, &order, Dispatch::best());
    let nibbles = Nibbles::if_accurate(points, &order);
    let mut graph = match options.builder {
        Builder::HnswRs => hnsw::build(&codes, &hnsw::locality_order(&codes), options, progress)?,
        Builder::Native => native::build(&codes, nibbles.as_ref(), &order, options, progress)?,
    };
    crate::graph::repair(&mut graph, &codes);
    Ok(BuildOutput { order, codes, nibbles, graph })
}

/// Returns the pseudo-random number of SplitMix64 for the state `number`.
fn mixed(number: u64) -> u64 {
    let x = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn check(options: &BuildOptions) -> Result<()> {
    // hnsw_rs aborts the process for more than 256 neighbors. More than 128 neighbors have no benefit.
    if !(4..=128).contains(&options.m) {
        return Err(Error::input(format!("{} neighbors per node are out of range; use 4 to 128", options.m)));
    }
    if !(8..=4096).contains(&options.ef) {
        let ef = options.ef;
        return Err(Error::input(format!("{ef} candidates per new node are out of range; use 8 to 4096")));
    }
    Ok(())
}

/// Step of an operation, as shown in progress reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Inserting points into the graph. Progress is counted in points.
    Linking,
    /// Measuring recall. Progress is counted in queries.
    Measuring,
}

/// Receives progress reports of an operation and can cancel the operation. A closure `Fn() -> bool` implements this
/// trait: it is called as `stop`, and progress reports are discarded.
pub trait Progress: Sync {
    /// Returns whether to cancel the operation. Called often, possibly from several threads.
    fn stop(&self) -> bool;

    /// Reports that `_done` of `_of` items of a step are finished.
    fn done(&self, _step: Step, _done: usize, _of: usize) {}
}

impl<F: Fn() -> bool + Sync> Progress for F {
    fn stop(&self) -> bool {
        self()
    }
}

/// Returns the error for an operation that [`Progress::stop`] canceled.
pub fn interrupted() -> Error {
    Error::Interrupted { hint: None }
        .with_hint("nothing was changed; run `turnwise index build` to start again")
}
