//! Where the vectors of rows come from: an encoder that makes them, or a set that has them already.

use std::{collections::HashMap, sync::Arc};

use turnwise_core::error::{Error, Result};
use turnwise_corpus::{Dialogue, Turn};
use turnwise_encoder::{Encoder, Fingerprint, Vectors, ahead::Options};
use turnwise_index::vectors::{Kind, Recipe, VectorReader, dialogue_key, utterance_key};

/// What a row is of.
#[derive(Clone, Copy)]
pub enum Of<'a> {
    /// A turn of a dialogue.
    Turn(&'a Dialogue, &'a Turn),
    /// A dialogue as a whole.
    Whole(&'a Dialogue),
}

impl<'a> Of<'a> {
    /// The dialogue of it.
    pub fn dialogue(self) -> &'a Dialogue {
        match self {
            Of::Turn(dialogue, _) | Of::Whole(dialogue) => dialogue,
        }
    }
}

/// What gives rows their vectors.
pub trait VectorSource {
    /// What tells the encoder that made them from all others.
    fn fingerprint(&self) -> Fingerprint;

    /// That encoder's name.
    fn name(&self) -> &str;

    /// The vectors of rows, in their order.
    fn give(&self, of: &[Of<'_>]) -> Result<Vec<Vec<f32>>>;
}

/// An encoder, as a recipe has it.
pub struct Encoding {
    encoder: Arc<dyn Encoder>,
    options: Options,
}

impl Encoding {
    /// That makes vectors now.
    pub fn new(encoder: Arc<dyn Encoder>, recipe: &Recipe) -> Self {
        let mut options = Options::default();
        options.texts.prompt.clone_from(&recipe.prompt);
        options.dialogues.prompt.clone_from(&recipe.prompt);
        (options.dialogues.mode, options.dialogues.pooling) = (recipe.dialogue_mode, recipe.pooling);
        Encoding { encoder, options }
    }
}

impl VectorSource for Encoding {
    fn fingerprint(&self) -> Fingerprint {
        self.encoder.fingerprint()
    }

    fn name(&self) -> &str {
        self.encoder.name()
    }

    /// Texts that come again are encoded once.
    fn give(&self, of: &[Of<'_>]) -> Result<Vec<Vec<f32>>> {
        let mut texts: Vec<&str> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut dialogues: Vec<&Dialogue> = Vec::new();
        for of in of {
            match of {
                Of::Turn(_, turn) => {
                    places.entry(&turn.text).or_insert_with(|| {
                        texts.push(&turn.text);
                        texts.len() - 1
                    });
                }
                Of::Whole(dialogue) => dialogues.push(dialogue),
            }
        }
        let encoded = match texts.is_empty() {
            true => Vectors::new(self.encoder.dim()),
            false => self.encoder.encode(&texts, &self.options.texts)?.vectors,
        };
        let whole = match dialogues.is_empty() {
            true => Vectors::new(self.encoder.dim()),
            false => self.encoder.encode_dialogues(&dialogues, &self.options.dialogues)?.vectors,
        };
        let mut next = 0..;
        let row = |of: &Of<'_>| match of {
            Of::Turn(_, turn) => encoded.row(places[turn.text.as_str()]).to_vec(),
            Of::Whole(_) => whole.row(next.next().unwrap_or_default()).to_vec(),
        };
        Ok(of.iter().map(row).collect())
    }
}

/// Vectors that were made before.
impl VectorSource for VectorReader {
    fn fingerprint(&self) -> Fingerprint {
        self.recipe().fingerprint
    }

    fn name(&self) -> &str {
        &self.recipe().name
    }

    fn give(&self, of: &[Of<'_>]) -> Result<Vec<Vec<f32>>> {
        let row = |of: &Of<'_>| {
            let (kind, key) = match of {
                Of::Turn(_, turn) => (Kind::Utterances, utterance_key(&turn.text)),
                Of::Whole(dialogue) => (Kind::Dialogues, dialogue_key(dialogue)),
            };
            match self.get(kind, &key)? {
                Some(vector) => Ok(vector.to_vec()),
                None => Err(without(*of)),
            }
        };
        of.iter().map(row).collect()
    }
}

fn without(of: Of<'_>) -> Error {
    let id = &of.dialogue().id;
    let what = match of {
        Of::Turn(_, turn) => format!("{id}#{}", turn.number),
        Of::Whole(_) => id.to_string(),
    };
    Error::Data {
        message: format!("{what} has no vector among those that were made before"),
        hint: Some("`turnwise encode`, with the same input, makes what is missing".to_owned()),
    }
}

/// Milvus takes any numbers, and what it then finds is anything.
pub(super) fn check(vectors: &[Vec<f32>], of: &[Of<'_>]) -> Result<()> {
    let broken = vectors.iter().zip(of).find(|(vector, _)| !vector.iter().all(|v| v.is_finite()));
    match broken {
        None => Ok(()),
        Some((_, of)) => Err(Error::Data {
            message: format!("{}: a vector has a number that is none (NaN or infinity)", of.dialogue().id),
            hint: Some("take the model in another precision, or another model".to_owned()),
        }),
    }
}
