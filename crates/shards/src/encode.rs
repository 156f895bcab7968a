//! `turnwise encode --shard`: encodes one part of a corpus into its own file.

mod inputs;
mod stream;
mod summary;

use std::collections::BTreeMap;

use super::Choice;
use crate::cli::{
    Context,
    args::EncodeArgs,
    commands::encode::shard::{
        inputs::{Item, Items},
        stream::{Encoding, Limits},
        summary::Sharded,
    },
    embeddings::{self, Target},
    encoders::Open,
    progress::ProgressBar,
    shards::{self, Contents, Data, FORMAT, Place, Record, Shard, Shards, Temporary, write},
    signals,
};
use turnwise_core::error::{Error, Result};
use turnwise_encoder::{Encoder, ahead};
use turnwise_index::vectors::{Kind, Recipe};

pub(super) fn run(
    shards: &Shards,
    place: &str,
    args: &EncodeArgs,
    open: Open<'_>,
    context: &Context<'_>,
) -> Result<()> {
    let place = shards::open(place)?;
    // Check the inputs before loading the model, because loading is slow.
    let inputs = inputs::Inputs::find(args, context)?;
    let before = inputs.vectors()?;
    let choice = Choice::of(args, before.as_ref());
    drop(before);
    let encoder = open(&choice.model, &args.encoder.settings(choice.precision, choice.tokens.clone()))?;
    let work = Work {
        place: place.as_ref(),
        inputs,
        recipe: choice.recipe(encoder.as_ref()),
        choice,
        encoder: encoder.as_ref(),
        target: args.shards.to.into(),
        context,
    };
    let done: Vec<Sharded> = shards.iter().map(|shard| work.shard(shard)).collect::<Result<_>>()?;
    context.printer.results(&done, |out| done.iter().try_for_each(|shard| shard.write(out)))
}

/// Settings shared by all shards of a command.
struct Work<'a> {
    place: &'a dyn Place,
    inputs: inputs::Inputs<'a>,
    choice: Choice,
    recipe: Recipe,
    encoder: &'a dyn Encoder,
    target: Target,
    context: &'a Context<'a>,
}

impl Work<'_> {
    /// Encodes a shard, unless it already exists.
    fn shard(&self, shard: Shard) -> Result<Sharded> {
        let before = self.place.read(&shard.record_name())?;
        // An unreadable record is treated as missing.
        let before = before.and_then(|bytes| Record::read(&bytes, &shard.record_name()).ok());
        if let Some(record) = &before
            && self.is_done(record)?
        {
            return Ok(Sharded::known(record, self.place.name()));
        }
        let mut progress =
            ProgressBar::new(self.context.printer, "encoding", "dialogues", self.inputs.total());
        let made = self.make(shard, &mut progress)?;
        let seconds = progress.seconds();
        drop(progress);
        self.publish(made, before.as_ref(), seconds)
    }

    /// Whether the shard exists and matches the current inputs and options. Cheap checks come first.
    fn is_done(&self, record: &Record) -> Result<bool> {
        if !record.was_made_with(&self.choice.kinds(), &self.recipe, self.target) {
            return Ok(false);
        }
        let mut contents = Contents::default();
        let mut items = self.items(record.shard)?;
        while let Some(Item { dialogue, .. }) = items.next()? {
            for kind in self.choice.kinds() {
                for key in shards::keys(kind, &dialogue) {
                    contents.add(kind, key);
                }
            }
        }
        items.end()?;
        if contents.digest() != record.contents {
            return Ok(false);
        }
        // A missing or unreadable data file means that the shard is encoded again.
        Ok(shards::is_whole(self.place, record).unwrap_or(false))
    }

    fn items(&self, shard: Shard) -> Result<Items<'_>> {
        self.inputs.items(shard, self.context)
    }

    /// Encodes the shard into a temporary file.
    fn make(&self, shard: Shard, progress: &mut ProgressBar<'_>) -> Result<Made> {
        let file = self.place.temporary(&shard.stem())?;
        let sink = embeddings::create(&file.path, self.target, self.recipe.dim, &self.about(shard))?;
        let limits = Limits { inputs: self.context.settings.encode_batch, bytes: self.encoder.chunk_bytes() };
        let kinds = self.choice.kinds();
        let mut encoding = Encoding::new(self.items(shard)?, sink, &kinds, limits, progress);
        let ended = ahead::encode(self.encoder, &self.choice.options, &signals::stopped, &mut encoding)?;
        if !ended {
            let hint = format!("shard {shard} was not written; run the same command again");
            return Err(Error::Interrupted { hint: Some(hint) });
        }
        let contents = encoding.finish()?;
        let rows = |kind: Kind| kinds.contains(&kind).then(|| contents.count(kind));
        let (bytes, hash) = file.sum()?;
        let record = Record {
            format: FORMAT,
            turnwise: env!("CARGO_PKG_VERSION").to_owned(),
            shard,
            recipe: self.recipe.clone(),
            utterances: rows(Kind::Utterances),
            dialogues: rows(Kind::Dialogues),
            contents: contents.digest(),
            data: Data {
                file: format!("{}-{}.{}", shard.stem(), &hash[..16], self.target.name()),
                target: self.target,
                bytes,
                blake3: hash,
            },
            command: shards::reusable_args(std::env::args()),
        };
        Ok(Made { record, file })
    }

    /// Publishes the shard: first the data file, then its record. A replaced data file is removed last.
    fn publish(&self, made: Made, before: Option<&Record>, seconds: f64) -> Result<Sharded> {
        let Made { record, mut file } = made;
        let stem = record.shard.stem();
        self.place.keep(&mut file, &record.data.file)?;
        let bytes = record.to_bytes()?;
        write(self.place, &stem, &record.shard.record_name(), &bytes)?;
        if let Some(old) = before.filter(|old| old.data.file != record.data.file) {
            self.place.remove(&old.data.file)?;
        }
        self.place.remove_leftovers(&stem);
        Ok(Sharded::made(&record, self.place.name(), seconds))
    }

    /// Metadata stored in the data file for other programs.
    fn about(&self, shard: Shard) -> BTreeMap<String, String> {
        [
            ("turnwise", env!("CARGO_PKG_VERSION").to_owned()),
            ("model", self.recipe.model.clone()),
            ("fingerprint", self.recipe.fingerprint.to_string()),
            ("runs", self.encoder.describe()),
            ("dim", self.recipe.dim.to_string()),
            ("shard", shard.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

/// An encoded shard that is not published yet.
struct Made {
    record: Record,
    file: Temporary,
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
