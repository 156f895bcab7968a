//! What a set of vectors is: who made it, how much of it counts, how far in the log it has come.

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

/// The version of the files' format that this build writes and reads.
pub const FORMAT: u32 = 1;
pub(super) const NAME: &str = "manifest.json";

/// What made the vectors of a set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recipe {
    /// How the encoder is opened again: a model's name, or the path of its folder.
    pub model: String,
    /// The encoder's name for people.
    pub name: String,
    /// What tells it from others.
    pub fingerprint: Fingerprint,
    /// The width of a vector.
    pub dim: usize,
    /// In which numbers it was asked to compute; `auto` left that to it. This changes vectors less than encoders do,
    /// so that a set may be gone on with in another precision.
    pub precision: String,
    /// The model's prompt that stands in front of every text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// What is asked of the encoder otherwise than its files say; its fingerprint covers it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tokens: Tokens,
    /// What a dialogue is to the encoder.
    pub dialogue_mode: DialogueMode,
    /// How its parts become one vector.
    pub pooling: DialoguePooling,
}

fn is_default(tokens: &Tokens) -> bool {
    *tokens == Tokens::default()
}

impl Recipe {
    /// What an encoder will make with these options.
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

    /// Whether vectors of both may stand beside each other; if not, what is different, for people.
    pub fn conflict(&self, other: &Recipe, dialogues_too: bool) -> Option<String> {
        let prompt = |r: &Recipe| r.prompt.clone().unwrap_or_else(|| "the default".to_owned());
        if self.fingerprint != other.fingerprint || self.dim != other.dim {
            let words = |r: &Recipe| match r.tokens.to_string() {
                asked if asked.is_empty() => format!("{} ({})", r.name, r.fingerprint),
                asked => format!("{} with {asked} ({})", r.name, r.fingerprint),
            };
            Some(format!("vectors of {}, not of {}", words(self), words(other)))
        } else if self.prompt != other.prompt {
            Some(format!("vectors made with the prompt {}, not with {}", prompt(self), prompt(other)))
        } else if dialogues_too && (self.dialogue_mode, self.pooling) != (other.dialogue_mode, other.pooling)
        {
            let words = |r: &Recipe| format!("{:?}, {:?}", r.dialogue_mode, r.pooling).to_lowercase();
            Some(format!("dialogue vectors made by {}, not by {}", words(self), words(other)))
        } else {
            None
        }
    }
}

/// How far in a log the vectors of a kind have come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// The log's name; places in another mean nothing.
    pub log: String,
    /// Behind the last change that was taken in.
    pub at: Position,
}

impl Reached {
    /// The place from which a snapshot's log must be read on: its start, if this is another log.
    pub fn place_in(this: Option<&Reached>, snapshot: &Snapshot) -> Position {
        match this {
            Some(reached) if reached.log == snapshot.log_id() && reached.at <= snapshot.end() => reached.at,
            _ => Position::START,
        }
    }
}

/// What counts of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Rows that count; what lies behind them is the rest of an unfinished write.
    pub rows: u64,
    /// How far they have come; `None` where this kind was never asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Reached>,
}

/// What the `manifest.json` of a set says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the files' format.
    pub format: u32,
    /// The turnwise that wrote it.
    pub turnwise: String,
    /// What made the vectors.
    pub recipe: Recipe,
    /// The utterances' vectors.
    pub utterances: Extent,
    /// The dialogues' vectors.
    pub dialogues: Extent,
    /// Whether it was made as a copy of the set that was in use then. As long as it is not in use itself, it is the rest
    /// of something that was killed, and no replacement to go on with.
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

    /// Rows that count, of both kinds.
    pub(super) fn rows(&self) -> u64 {
        self.utterances.rows + self.dialogues.rows
    }

    /// What counts of a kind.
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
            return Err(sets::damaged(set.join(NAME), "it says that vectors have no numbers"));
        }
        Ok(manifest)
    }

    pub(super) fn write(&self, set: &Path) -> Result<()> {
        sealed::write(&set.join(NAME), self)
    }
}
