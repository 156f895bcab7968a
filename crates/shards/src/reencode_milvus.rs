//! Encodes the dialogues in Milvus again, with a different encoder.
//!
//! The new vectors are written to a new generation of the collection, together with a second copy of the dialogues.
//! Searches use the old generation until the new generation is complete. Then the name of the collection is switched to
//! the new generation in one step.

use std::{collections::HashSet, sync::Arc, time::Instant};

use turnwise_core::{
    error::{Error, Result},
    ids::{DialogueId, IdKey},
    numbers::counted,
};
use turnwise_encoder::Encoder;
use turnwise_index::vectors::Recipe;
use turnwise_milvus::{Encoding, Manifest, MilvusWriter, Target, VectorSource, Walk};
use turnwise_store::{Prepared, PutOutcome, Totals, ingest::DialogueSink};

use crate::progress::{Amount, Progress, Step, stop_if_asked};

/// Maximum number of passes over all dialogues. Dialogues that are added after the last pass are missing in the new
/// generation.
const MAX_PASSES: usize = 4;

/// Result of [`reencode`].
#[derive(Debug, Clone, PartialEq)]
pub struct Reencoded {
    /// Number of dialogues encoded in this run.
    pub encoded: u64,
    /// Number of the new generation. A generation is one copy of the collection.
    pub generation: u64,
    /// Numbers of dialogues and turns in the new generation.
    pub totals: Totals,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Encodes all dialogues of a collection into a new generation, and switches the collection to this generation.
///
/// `before` is the manifest of the current generation. After an interruption, a call with the same recipe continues
/// where the interrupted run stopped.
///
/// # Errors
///
/// [`Error::Unavailable`] if another process has switched the generation; [`Error::Interrupted`] if the user stops the
/// operation.
pub fn reencode(
    target: &Target,
    before: &Manifest,
    encoder: Arc<dyn Encoder>,
    recipe: &Recipe,
    progress: &dyn Progress,
) -> Result<Reencoded> {
    let source = Box::new(Encoding::new(encoder, recipe)) as Box<dyn VectorSource>;
    let analyzer = before.analyzer()?;
    let mut writer = MilvusWriter::new_generation(target, analyzer, Some(recipe.clone()), Some(source))?;
    let begun = Instant::now();
    let encoded = fill(&mut writer, target, before, progress)?;
    writer.flush()?;
    writer.finish()?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Reencoded { encoded, generation: writer.manifest().generation, totals: writer.totals()?, seconds })
}

/// Repeats passes over all dialogues until a pass finds no new dialogue, at most [`MAX_PASSES`] times. Returns the
/// number of dialogues encoded.
fn fill(
    writer: &mut MilvusWriter,
    target: &Target,
    before: &Manifest,
    progress: &dyn Progress,
) -> Result<u64> {
    let mut encoded = 0;
    for pass in 1..=MAX_PASSES {
        let (new, seen) = encode_new(writer, target, before, progress)?;
        encoded += new;
        if new == 0 || pass == MAX_PASSES {
            remove_others(writer, &seen)?;
        }
        if new == 0 {
            break;
        }
        if pass == MAX_PASSES {
            progress.warn(format!(
                "{} were added during the last pass; if more are added before the switch, ingest them again",
                counted(new, "dialogue")
            ));
        }
    }
    Ok(encoded)
}

/// Makes one pass over all dialogues and encodes those that the new generation does not contain. Returns the number of
/// dialogues encoded, and the keys of all dialogues.
fn encode_new(
    writer: &mut MilvusWriter,
    target: &Target,
    before: &Manifest,
    progress: &dyn Progress,
) -> Result<(u64, HashSet<IdKey>)> {
    let mut walk = Walk::over(target)?.without_vectors();
    if walk.manifest().generation != before.generation {
        return Err(Error::unavailable(format!(
            "{target} now points to a different generation: a different process is encoding it, too"
        ))
        .with_hint("check with `turnwise search` and try again if necessary"));
    }
    progress.begin(Step::Encoding, Some(walk.dialogues()), 0);
    let (mut new, mut seen) = (0, HashSet::new());
    while let Some((_, part)) = walk.next_part()? {
        stop_if_asked(progress, "the vectors made so far are kept; run the same command again to continue")?;
        let prepared: Vec<Prepared> =
            part.iter().map(|moved| Prepared::new(&moved.dialogue)).collect::<Result<_>>()?;
        let keys: Vec<IdKey> = prepared.iter().map(|prepared| prepared.id).collect();
        writer.prefetch(&keys)?;
        for prepared in &prepared {
            new += u64::from(writer.put(prepared)? != PutOutcome::Unchanged);
        }
        writer.commit(None)?;
        seen.extend(keys);
        progress.advance(Amount::units(seen.len() as u64));
    }
    progress.end();
    Ok((new, seen))
}

/// Removes from the new generation all dialogues whose keys are not in `seen`. These dialogues were deleted after an
/// earlier run or pass had copied them.
fn remove_others(writer: &mut MilvusWriter, seen: &HashSet<IdKey>) -> Result<()> {
    if writer.totals()?.dialogues == seen.len() as u64 {
        return Ok(());
    }
    let mut others: Vec<DialogueId> = Vec::new();
    let mut walk = writer.walk()?.without_vectors();
    while let Some((_, part)) = walk.next_part()? {
        let ids = part.into_iter().map(|moved| moved.dialogue.id);
        others.extend(ids.filter(|id| !seen.contains(&id.key())));
    }
    writer.delete(&others).map(drop)
}
