//! `turnwise encode --shard` encodes one part of a corpus; `--assemble` collects the vectors of all parts.

use super::{Before, Choice};
use crate::cli::{args::EncodeArgs, commands, encoders::Open, prelude::*, progress::TaskProgress};
use turnwise_index::vectors::Kind;
use turnwise_shards::{
    assemble::{self, Assembled},
    encode::{EncodedShard, ShardEncoder},
    inputs::{CorpusFiles, Inputs},
    open_folder,
    shard::{Shards, reusable_args},
};

/// Encodes the shards given by `--shard`.
pub(super) fn encode(
    shards: &Shards,
    folder: &str,
    args: &EncodeArgs,
    open: Open<'_>,
    context: &Context<'_>,
) -> Result<()> {
    let folder = open_folder(folder)?;
    let progress = TaskProgress::new(context.printer);
    // Check the inputs before loading the model, because loading is slow.
    let inputs = Inputs::find(files(args, context)?, || context.snapshot(), &progress)?;
    let before = inputs.vectors()?;
    let choice = Choice::of(args, before.as_ref().map(Before::of));
    drop(before);
    let encoder = open(&choice.model, &args.encoder.settings(choice.precision, choice.tokens.clone()))?;
    let work = ShardEncoder {
        folder: folder.as_ref(),
        inputs,
        encoder: encoder.as_ref(),
        recipe: choice.recipe(encoder.as_ref()),
        kinds: choice.kinds(),
        options: choice.options,
        format: args.shards.to.into(),
        batch: context.settings.encode_batch,
        command: reusable_args(std::env::args()),
        progress: &progress,
    };
    let done: Vec<ShardReport> = shards
        .iter()
        .map(|shard| Ok(ShardReport::of(work.encode(shard)?, folder.name())))
        .collect::<Result<_>>()?;
    context.printer.results(&done, |out| done.iter().try_for_each(|shard| shard.write(out)))
}

/// Adds the vectors of all shards to the index of `-i`. With `--engine`, writes dialogues and vectors to Milvus.
pub(super) fn assemble(folder: &str, args: &EncodeArgs, context: &Context<'_>) -> Result<()> {
    if context.settings.engine.is_some() {
        #[cfg(feature = "milvus")]
        return assemble_milvus(folder, args, context);
        #[cfg(not(feature = "milvus"))]
        match context.milvus_target()? {}
    }
    if let [first, ..] = args.inputs.as_slice() {
        let message = "is only read with --engine: an index already has its dialogues";
        return Err(Error::input(format!("{} {message}", first.display()))
            .with_hint("remove it; `turnwise ingest` adds dialogues to an index"));
    }
    let root = context.existing_index()?;
    let (folder, progress) = (open_folder(folder)?, TaskProgress::new(context.printer));
    let assembled =
        assemble::into_index(folder.as_ref(), &root, args.replace, context.command_line, &progress)?;
    context.printer.result(&assembled, |out| write_assembled(&assembled, out))?;
    if assembled.without > 0 {
        context.printer.hint(format!("`turnwise encode -i {}` creates the missing vectors", root.display()));
    }
    Ok(())
}

#[cfg(feature = "milvus")]
fn assemble_milvus(folder: &str, args: &EncodeArgs, context: &Context<'_>) -> Result<()> {
    use crate::cli::commands::{ingest, summary::Files};
    use turnwise_milvus::MilvusLocation;
    use turnwise_shards::assemble_milvus::MilvusAssembly;
    use turnwise_store::ingest::IngestOptions;

    let target = context.milvus_target()?;
    let (folder, files) = (open_folder(folder)?, files(args, context)?);
    let options = IngestOptions {
        max_errors: files.max_errors,
        batch: context.settings.batch,
        ..IngestOptions::default()
    };
    let assembly = MilvusAssembly {
        folder: folder.as_ref(),
        files,
        options,
        target: target.clone(),
        replace: args.replace,
        command_line: context.command_line,
    };
    let prepared = assembly.prepare(&TaskProgress::new(context.printer))?;
    let files = Files::of(&prepared.plan);
    let derive = |_: &std::path::Path| Ok(Ok(ingest::Derived::default()));
    let (writer, location) = (Box::new(prepared.writer), MilvusLocation::new(target));
    ingest::fill(writer, &location, (prepared.plan, files), &prepared.options, &derive, context)
}

fn files(args: &EncodeArgs, context: &Context<'_>) -> Result<CorpusFiles> {
    Ok(CorpusFiles {
        paths: args.inputs.clone(),
        format: commands::format(&args.read)?,
        options: commands::read_options(&args.read, context),
        max_errors: context.settings.max_errors,
    })
}

impl Choice {
    fn kinds(&self) -> Vec<Kind> {
        let wanted = |kind: &Kind| match kind {
            Kind::Utterances => self.utterances,
            Kind::Dialogues => self.dialogues,
        };
        Kind::ALL.into_iter().filter(wanted).collect()
    }
}

/// Result of encoding one shard, printed as text or JSON.
#[derive(Serialize)]
struct ShardReport {
    schema: &'static str,
    shard: String,
    place: String,
    file: String,
    bytes: u64,
    encoder: String,
    fingerprint: String,
    dim: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    utterances: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dialogues: Option<u64>,
    /// Whether an earlier run had already encoded the shard.
    known: bool,
    seconds: f64,
}

impl ShardReport {
    fn of(EncodedShard { manifest, seconds }: EncodedShard, folder: &str) -> Self {
        ShardReport {
            schema: "turnwise/encode-shard/1",
            shard: manifest.shard.to_string(),
            place: folder.to_owned(),
            file: manifest.data.file,
            bytes: manifest.data.bytes,
            encoder: manifest.recipe.name,
            fingerprint: manifest.recipe.fingerprint.to_string(),
            dim: manifest.recipe.dim,
            utterances: manifest.utterances,
            dialogues: manifest.dialogues,
            known: seconds.is_none(),
            seconds: seconds.unwrap_or_default(),
        }
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.known {
            return writeln!(out, "shard {BOLD}{}{BOLD:#} already exists", self.shard);
        }
        let vectors = [(self.utterances, "utterance vector"), (self.dialogues, "dialogue vector")];
        let vectors: Vec<String> =
            vectors.into_iter().filter_map(|(n, one)| Some(counted(n?, one))).collect();
        let ShardReport { shard, file, place, seconds, .. } = self;
        let (vectors, size) = (vectors.join(" and "), bytes(self.bytes));
        writeln!(
            out,
            "shard {BOLD}{shard}{BOLD:#}: {vectors} in {file} of {place} {DIM}({size}, {seconds:.1} s){DIM:#}"
        )
    }
}

fn write_assembled(assembled: &Assembled, out: &mut dyn Write) -> io::Result<()> {
    let Assembled { index, place, seconds, encoder, .. } = assembled;
    let (shards, rate) = (counted(assembled.shards as u64, "shard"), rate(assembled.rows, *seconds));
    writeln!(
        out,
        "{BOLD}{shards}{BOLD:#} of {place} assembled in {seconds:.1} s {DIM}({rate} rows/s){DIM:#}"
    )?;
    let known = assembled.rows - assembled.new;
    for (n, what) in [
        (assembled.new, "vectors added"),
        (known, "already known: the same text is in a different shard or in the index"),
        (assembled.without, "utterances and dialogues of the index are in no shard"),
    ] {
        if n > 0 {
            writeln!(out, "  {:>12}  {what}", grouped(n))?;
        }
    }
    let utterances = counted(assembled.utterance_vectors, "utterance vector");
    let dialogues = counted(assembled.dialogue_vectors, "dialogue vector");
    writeln!(out, "{BOLD}{index}{BOLD:#} now has {utterances} and {dialogues} by {encoder}")
}
