//! `turnwise bench ann`: measures the recall and the speed of vector graphs.

use super::table;
use crate::cli::{args::AnnArgs, prelude::*, progress::StepProgress};
use turnwise_encoder::Vectors;
use turnwise_eval::{
    ann::{Measured, Setting, Source, Sweep, draw_queries, measure, nonzero},
    rank::Precomputed,
};
use turnwise_index::{
    dense::{BuildOptions, Builder},
    vectors::VectorReader,
};
use turnwise_nearest::VectorFormat;

pub(super) fn run(args: &AnnArgs, context: &Context<'_>) -> Result<()> {
    let index = if args.vectors.is_some() { PathBuf::new() } else { context.existing_index()? };
    let measured = measured(args, &index, context)?;
    context.printer.result(&measured, |out| write(&measured, out))
}

/// Measures recall and speed with the vectors of the file given by `--vectors`, or else of the index. Saves the result.
pub(super) fn measured(args: &AnnArgs, index: &Path, context: &Context<'_>) -> Result<Measured> {
    let seed = context.settings.seed;
    let (all, data, hash) = vectors(args, index)?;
    let vectors = nonzero(&all);
    if vectors.len() < all.len() {
        let zeros = counted((all.len() - vectors.len()) as u64, "vector");
        context.printer.warn(format!("{zeros} with only zeros ignored, because they have no neighbors"));
    }
    drop(all);
    let (base, queries) = match &args.query_vectors {
        Some(path) => (vectors, nonzero(&Precomputed::open(path)?.into_unit().0)),
        // At most a tenth of the vectors are used as queries, so that most of them remain to be searched.
        None => draw_queries(&vectors, args.queries.min(vectors.len() / 10), seed),
    };
    let sweep = Sweep { k: args.k, efs: args.ef.clone(), graphs: graphs(args) };
    let progress = StepProgress::new(context.printer);
    let measured = measure(&base, &queries, &sweep, Source { data, hash, seed }, &args.results, &progress)?;
    drop(progress);
    measured.write(&args.results)?;
    Ok(measured)
}

/// Returns the settings of the graphs to measure: all combinations of a builder and a number of neighbors.
fn graphs(args: &AnnArgs) -> Vec<BuildOptions> {
    let format = if args.half { VectorFormat::F16 } else { VectorFormat::F32 };
    let with = |graph: &Builder| {
        let builder = *graph;
        args.m.iter().map(move |m| BuildOptions { builder, m: *m, ef: args.ef_construction, format })
    };
    args.graphs.iter().flat_map(with).collect()
}

/// Returns the vectors to search, a description of their source, and the hash that identifies them.
fn vectors(args: &AnnArgs, root: &Path) -> Result<(Vectors, String, String)> {
    if let Some(path) = &args.vectors {
        let (vectors, hash) = Precomputed::open(path)?.into_unit();
        return Ok((vectors, path.display().to_string(), hash));
    }
    let reader = VectorReader::open(root)?.ok_or_else(|| VectorReader::missing_error(root))?;
    let kind = args.of.kind();
    let of = kind.name();
    let mut hasher = blake3::Hasher::new();
    let flat = reader.flat(kind);
    for number in flat {
        hasher.update(&number.to_le_bytes());
    }
    let mut vectors =
        Vectors::from_flat(reader.dim(), flat.to_vec()).ok_or_else(|| VectorReader::missing_error(root))?;
    vectors.normalize();
    if vectors.len() < 20 {
        let (root, n) = (root.display(), vectors.len());
        return Err(Error::data(format!("{root} has {n} vectors of {of}, which is too few to measure with"))
            .with_hint("`turnwise encode` computes the vectors of an index"));
    }
    Ok((vectors, format!("{of} of {}", root.display()), hasher.finalize().to_hex()[..32].to_owned()))
}

fn write(measured: &Measured, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{BOLD}recall and speed{BOLD:#} {}", measured.data)?;
    writeln!(out, "{DIM}{}{DIM:#}\n", table::sizes(measured))?;
    for graph in &measured.graphs {
        writeln!(out, "{BOLD}{}{BOLD:#}", graph.name())?;
        writeln!(out, "{DIM}{}{DIM:#}", table::built(graph, measured.threads))?;
        writeln!(out, "{BOLD}{:>13} {:>7}  {}{BOLD:#}", "ef", "recall", table::row(table::NAMES))?;
        graph.settings.iter().try_for_each(|setting| row(out, &setting.ef.to_string(), setting))?;
        row(out, "exact search", &measured.exact)?;
        writeln!(out)?;
    }
    Ok(())
}

fn row(out: &mut dyn Write, name: &str, setting: &Setting) -> io::Result<()> {
    let cells = table::cells(setting.qps, setting.qps_all, &setting.latency);
    writeln!(out, "{name:>13} {:>7.4}  {}", setting.recall, table::row(cells))
}
