//! Manifest of a vector set: the recipe, the number of committed rows and the log position reached.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{
    sealed,
    vectors::{key::Kind, sets},
};
use turnwise_core::error::Result;
use turnwise_encoder::{
    DialogueMode, DialoguePooling, Encoder, Fingerprint, ahead::Options, transformer::Tokens,
};
use turnwise_store::{Position, Snapshot};

/// Version of the file format that this build writes and reads.
pub const FORMAT: u32 = 1;
pub(super) const NAME: &str = "manifest.json";

/// Recipe of the vectors of a set: encoder and options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recipe {
    /// The model to load the encoder from: a model name, or the path of a model folder.
    pub model: String,
    /// Display name of the encoder.
    pub name: String,
    /// Fingerprint that identifies the encoder.
    pub fingerprint: Fingerprint,
    /// Number of dimensions.
    pub dim: usize,
    /// Requested numeric precision; `auto` lets the encoder choose. Precision changes vectors only slightly. A
    /// set may therefore be continued with a different precision.
    pub precision: String,
    /// Prompt of the model that is added before every text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Token options that differ from the encoder's files. The fingerprint covers them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tokens: Tokens,
    /// Form in which a dialogue is passed to the encoder: as one sequence or as utterances.
    pub dialogue_mode: DialogueMode,
    /// Pooling of the tokens or utterances of a dialogue into one vector.
    pub pooling: DialoguePooling,
}

fn is_default(tokens: &Tokens) -> bool {
    *tokens == Tokens::default()
}

impl Recipe {
    /// Returns the recipe of an encoder with these options.
    pub fn of(
        encoder: &dyn Encoder,
        model: &str,
        precision: &str,
        tokens: &Tokens,
        options: &Options,
    ) -> Self {
        Recipe {
            model: model.to_owned(),
            name: encoder.name().to_owned(),
            fingerprint: encoder.fingerprint(),
            dim: encoder.dim(),
            precision: precision.to_owned(),
            prompt: options.texts.prompt.clone(),
            tokens: tokens.clone(),
            dialogue_mode: options.dialogues.mode,
            pooling: options.dialogues.pooling,
        }
    }

    /// Returns a description of the difference if vectors of the two recipes cannot be in the same set.
    /// Compares dialogue options only if `dialogues_too` is set.
    pub fn conflict(&self, other: &Recipe, dialogues_too: bool) -> Option<String> {
        let prompt = |r: &Recipe| r.prompt.clone().unwrap_or_else(|| "the default".to_owned());
        if self.fingerprint != other.fingerprint || self.dim != other.dim {
            let words = |r: &Recipe| match r.tokens.to_string() {
                tokens if tokens.is_empty() => format!("{} ({})", r.name, r.fingerprint),
                tokens => format!("{} with {tokens} ({})", r.name, r.fingerprint),
            };
            Some(format!("vectors of {}, not of {}", words(self), words(other)))
        } else if self.prompt != other.prompt {
            Some(format!("vectors with the prompt {}, not {}", prompt(self), prompt(other)))
        } else if dialogues_too && (self.dialogue_mode, self.pooling) != (other.dialogue_mode, other.pooling)
        {
            let words = |r: &Recipe| format!("{:?}, {:?}", r.dialogue_mode, r.pooling).to_lowercase();
            Some(format!("dialogue vectors with {}, not {}", words(self), words(other)))
        } else {
            None
        }
    }
}

/// Log position that the vectors of a kind have reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// Id of the log. Positions are valid in this log only.
    pub log: String,
    /// Position after the last change that was processed.
    pub at: Position,
}

impl Reached {
    /// Returns the position to continue from in a snapshot's log; the start if `this` belongs to a different log.
    pub fn place_in(this: Option<&Reached>, snapshot: &Snapshot) -> Position {
        match this {
            Some(reached) if reached.log == snapshot.log_id() && reached.at <= snapshot.end() => reached.at,
            _ => Position::START,
        }
    }
}

/// Committed rows of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Number of committed rows. Rows beyond it are left over from an unfinished write.
    pub rows: u64,
    /// Log position that the vectors have reached; `None` if this kind was never requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Reached>,
}

/// Content of a set's `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the file format.
    pub format: u32,
    /// Version of turnwise that wrote the file.
    pub turnwise: String,
    /// Recipe of the vectors.
    pub recipe: Recipe,
    /// Rows of the utterance vectors.
    pub utterances: Extent,
    /// Rows of the dialogue vectors.
    pub dialogues: Extent,
    /// True if the set was copied from the set in use. If such a copy is not in use, it was left by a crash, and a
    /// replacement must not continue it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub copy: bool,
}

impl Manifest {
    pub(super) fn new(recipe: Recipe) -> Self {
        Manifest {
            format: FORMAT,
            turnwise: env!("CARGO_PKG_VERSION").to_owned(),
            recipe,
            utterances: Extent::default(),
            dialogues: Extent::default(),
            copy: false,
        }
    }

    /// Number of committed rows of both kinds.
    pub(super) fn rows(&self) -> u64 {
        self.utterances.rows + self.dialogues.rows
    }

    /// Returns the committed rows of a kind.
    pub fn extent(&self, kind: Kind) -> &Extent {
        match kind {
            Kind::Utterances => &self.utterances,
            Kind::Dialogues => &self.dialogues,
        }
    }

    pub(super) fn extent_mut(&mut self, kind: Kind) -> &mut Extent {
        match kind {
            Kind::Utterances => &mut self.utterances,
            Kind::Dialogues => &mut self.dialogues,
        }
    }

    pub(super) fn read(set: &Path) -> Result<Self> {
        let manifest: Manifest = sets::read(&set.join(NAME))?;
        if manifest.recipe.dim == 0 {
            return Err(sets::damaged(set.join(NAME), "the number of dimensions is 0"));
        }
        Ok(manifest)
    }

    pub(super) fn write(&self, set: &Path) -> Result<()> {
        sealed::write(&set.join(NAME), self)
    }
}
