//! `turnwise index`, and updates of the lexical index and the vector graphs for other commands.

pub(super) mod compact;
pub(super) mod info;

use crate::cli::{args::IndexBuildArgs, prelude::*, progress::StepProgress};
use turnwise_index::{
    dense::{self, BuildOptions, Builder, Progress},
    lexical::Lexical,
    vectors::Kind,
};
use turnwise_store::Snapshot;
use turnwise_text::AnalyzerChoice;

/// Result of `turnwise index build` and `turnwise index rebuild`, printed as text or JSON.
#[derive(Serialize)]
struct Built {
    #[serde(skip)]
    is_rebuild: bool,
    index: String,
    analyzer: String,
    /// The analyzer in words, for users.
    #[serde(skip)]
    analyzer_description: String,
    utterances_taken_in: u64,
    /// Graphs that were built or kept; `None` if the index has no vectors.
    #[serde(skip_serializing_if = "Option::is_none")]
    graphs: Option<dense::Built>,
}

pub(super) fn build(args: &IndexBuildArgs, context: &Context<'_>) -> Result<()> {
    let root = context.existing_index()?;
    let analyzer = args.analyzer.or(remove_damaged(&root, context)?);
    let snapshot = Snapshot::open(&root)?;
    // An update keeps an index from before titles were searched as it is, and only adds new dialogues.
    let indexed = match Lexical::open(&root) {
        Ok(lexical) if lexical.lacks_titles()? => {
            lexical_by(Lexical::rebuild, analyzer, &root, &snapshot, context)?
        }
        _ => lexical_by(Lexical::update, analyzer, &root, &snapshot, context)?,
    };
    let graphs = graphs_by(dense::build, &root, &snapshot, &options(args.graph), context)?;
    Built::report(false, indexed, graphs, &root, context)
}

/// Removes the lexical index if it is damaged. Returns the analyzer for the rebuild; `None` if nothing was removed.
fn remove_damaged(root: &Path, context: &Context<'_>) -> Result<Option<AnalyzerChoice>> {
    let opened = Lexical::open(root).and_then(|l| Ok((l.damaged_files()?.is_empty(), l.analyzer())));
    let analyzer = match opened {
        Ok((false, analyzer)) => analyzer.into(),
        Err(Error::Corrupt { .. }) => match Lexical::recover_analyzer(root) {
            Some(analyzer) => analyzer.into(),
            None => {
                context.printer.warn(
                    "the analyzer of the lexical index could not be read; it is detected by the language of the \
                     dialogues",
                );
                AnalyzerChoice::Detect
            }
        },
        // The lexical index is undamaged, missing, or from a different version.
        _ => return Ok(None),
    };
    context.printer.warn("the lexical index is damaged; it is rebuilt");
    Lexical::remove(root)?;
    Ok(Some(analyzer))
}

/// Updates the lexical index and the vector graphs after the records and vectors were repaired. Rebuilds a damaged
/// lexical index and damaged graphs.
pub(super) fn repair(root: &Path, context: &Context<'_>) -> Result<()> {
    let analyzer = remove_damaged(root, context)?;
    let snapshot = Snapshot::open(root)?;
    if analyzer.is_some() || context.settings.ingest_index {
        lexical_by(Lexical::update, analyzer, root, &snapshot, context)?;
    }
    let Some(builder) = dense::builder(root) else { return Ok(()) };
    if dense::verify(root).is_err() {
        context.printer.warn("the vector graphs are damaged; they are rebuilt");
    }
    let options = BuildOptions { builder, ..BuildOptions::default() };
    graphs_by(dense::build, root, &snapshot, &options, context)?;
    Ok(())
}

pub(super) fn rebuild(args: &IndexBuildArgs, context: &Context<'_>) -> Result<()> {
    let root = context.existing_index()?;
    let snapshot = Snapshot::open(&root)?;
    let indexed = lexical_by(Lexical::rebuild, args.analyzer, &root, &snapshot, context)?;
    let graphs = graphs_by(dense::rebuild, &root, &snapshot, &options(args.graph), context)?;
    Built::report(true, indexed, graphs, &root, context)
}

impl Built {
    fn report(
        is_rebuild: bool,
        indexed: u64,
        graphs: Option<dense::Built>,
        root: &Path,
        context: &Context<'_>,
    ) -> Result<()> {
        let analyzer = Lexical::open(root)?.analyzer().to_string();
        let described = Lexical::analyzer_description(root)?;
        let built = Built {
            is_rebuild,
            index: root.display().to_string(),
            analyzer_description: described.unwrap_or_else(|| analyzer.clone()),
            analyzer,
            utterances_taken_in: indexed,
            graphs,
        };
        context.printer.result(&built, |out| built.write(out))
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let graphs = self.graphs.as_ref().filter(|graphs| graphs.new);
        if !self.is_rebuild && self.utterances_taken_in == 0 && graphs.is_none() {
            return writeln!(out, "{} is up to date", self.index);
        }
        if self.is_rebuild || self.utterances_taken_in > 0 {
            let (indexed, analyzer) = (grouped(self.utterances_taken_in), &self.analyzer_description);
            writeln!(out, "{}: {indexed} utterances indexed{DIM}, analyzer {analyzer}{DIM:#}", self.index)?;
        }
        match graphs {
            Some(graphs) => write_graphs(&self.index, graphs, out),
            None => Ok(()),
        }
    }
}

fn options(builder: Builder) -> BuildOptions {
    BuildOptions { builder, ..BuildOptions::default() }
}

/// Prints the size and the recall of the graphs.
pub(super) fn write_graphs(
    index: &str,
    dense::Built { manifest, .. }: &dense::Built,
    out: &mut dyn Write,
) -> io::Result<()> {
    for kind in Kind::ALL {
        let part = manifest.part(kind);
        let mut more = String::new();
        if part.recall_queries > 0 {
            more.push_str(&format!(", recall@10 {:.1}%", 100.0 * part.recall));
        }
        for (n, what) in [(part.without, "without a vector yet"), (part.unknown, "unknown to the encoder")] {
            if n > 0 {
                more.push_str(&format!(", {} {what}", grouped(n)));
            }
        }
        let name = kind.name();
        let (there, nodes) = (grouped(part.there), counted(part.nodes, "distinct vector"));
        writeln!(out, "{index}: {there} {name} in a graph of {nodes}{DIM}{more}{DIM:#}")?;
    }
    Ok(())
}

/// Builds or updates the vector graphs with the default builder. Returns `None` if the index has no vectors.
pub(super) fn graphs(
    root: &Path,
    snapshot: &Snapshot,
    context: &Context<'_>,
) -> Result<Option<dense::Built>> {
    graphs_by(dense::build, root, snapshot, &BuildOptions::default(), context)
}

/// Function that builds graphs: `dense::build` or `dense::rebuild`.
type MakeGraphs = fn(&Path, &Snapshot, &BuildOptions, &str, &dyn Progress) -> Result<Option<dense::Built>>;

fn graphs_by(
    make: MakeGraphs,
    root: &Path,
    snapshot: &Snapshot,
    options: &BuildOptions,
    context: &Context<'_>,
) -> Result<Option<dense::Built>> {
    make(root, snapshot, options, context.command_line, &StepProgress::new(context.printer))
}

/// Updates the lexical index to the dialogues of a snapshot. Returns the number of utterances added to the index.
pub(super) fn update(root: &Path, snapshot: &Snapshot, context: &Context<'_>) -> Result<u64> {
    lexical_by(Lexical::update, None, root, snapshot, context)
}

/// Function that builds the lexical index: `Lexical::update` or `Lexical::rebuild`.
type MakeLexical =
    fn(Option<AnalyzerChoice>, &Path, &Snapshot, &dyn Fn() -> bool, &mut dyn FnMut(u64)) -> Result<u64>;

fn lexical_by(
    make: MakeLexical,
    analyzer: Option<AnalyzerChoice>,
    root: &Path,
    snapshot: &Snapshot,
    context: &Context<'_>,
) -> Result<u64> {
    let mut progress = progress(snapshot, context);
    let mut show = |done| progress.set(done, done);
    make(analyzer, root, snapshot, &signals::stopped, &mut show)
}

fn progress<'a>(snapshot: &Snapshot, context: &Context<'a>) -> ProgressBar<'a> {
    ProgressBar::new(context.printer, "indexing", "utterances", Some(snapshot.totals().turns))
}
