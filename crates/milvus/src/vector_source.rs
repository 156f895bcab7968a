//! Sources of vectors for new rows: an encoder, or vectors that already exist.

use std::{collections::HashMap, sync::Arc};

use turnwise_core::error::{Error, Result};
use turnwise_corpus::{Dialogue, Turn};
use turnwise_encoder::{Encoder, Fingerprint, Vectors, ahead::Options};
use turnwise_index::vectors::{Kind, Recipe, VectorReader, dialogue_key, utterance_key};

/// Item that needs a vector: a turn or a whole dialogue.
#[derive(Clone, Copy)]
pub enum VectorInput<'a> {
    /// One turn, with its dialogue.
    Turn(&'a Dialogue, &'a Turn),
    /// A whole dialogue.
    Whole(&'a Dialogue),
}

impl<'a> VectorInput<'a> {
    /// Returns the dialogue of the item.
    pub fn dialogue(self) -> &'a Dialogue {
        match self {
            VectorInput::Turn(dialogue, _) | VectorInput::Whole(dialogue) => dialogue,
        }
    }
}

/// Source of vectors for new rows.
pub trait VectorSource {
    /// Returns the fingerprint of the encoder of the vectors.
    fn fingerprint(&self) -> Fingerprint;

    /// Returns the name of the encoder of the vectors.
    fn name(&self) -> &str;

    /// Returns one vector for each turn or dialogue in `inputs`, in the same order. Returns an error if an input cannot
    /// be encoded or has no vector.
    fn vectors(&self, inputs: &[VectorInput<'_>]) -> Result<Vec<Vec<f32>>>;
}

/// Vector source that encodes turns and dialogues.
pub struct Encoding {
    encoder: Arc<dyn Encoder>,
    options: Options,
}

impl Encoding {
    /// Creates a vector source from an encoder and the encoding options in a recipe.
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

    /// Encodes the turns and the dialogues. If several turns have the same text, encodes this text only once.
    fn vectors(&self, inputs: &[VectorInput<'_>]) -> Result<Vec<Vec<f32>>> {
        let mut texts: Vec<&str> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut dialogues: Vec<&Dialogue> = Vec::new();
        for input in inputs {
            match input {
                VectorInput::Turn(_, turn) => {
                    places.entry(&turn.text).or_insert_with(|| {
                        texts.push(&turn.text);
                        texts.len() - 1
                    });
                }
                VectorInput::Whole(dialogue) => dialogues.push(dialogue),
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
        let row = |input: &VectorInput<'_>| match input {
            VectorInput::Turn(_, turn) => encoded.row(places[turn.text.as_str()]).to_vec(),
            VectorInput::Whole(_) => whole.row(next.next().unwrap_or_default()).to_vec(),
        };
        Ok(inputs.iter().map(row).collect())
    }
}

/// Vector source that looks up existing vectors.
impl VectorSource for VectorReader {
    fn fingerprint(&self) -> Fingerprint {
        self.recipe().fingerprint
    }

    fn name(&self) -> &str {
        &self.recipe().name
    }

    fn vectors(&self, inputs: &[VectorInput<'_>]) -> Result<Vec<Vec<f32>>> {
        let row = |input: &VectorInput<'_>| {
            let (kind, key) = match input {
                VectorInput::Turn(_, turn) => (Kind::Utterances, utterance_key(&turn.text)),
                VectorInput::Whole(dialogue) => (Kind::Dialogues, dialogue_key(dialogue)),
            };
            match self.get(kind, &key)? {
                Some(vector) => Ok(vector.to_vec()),
                None => Err(without_vector(*input)),
            }
        };
        inputs.iter().map(row).collect()
    }
}

fn without_vector(input: VectorInput<'_>) -> Error {
    let id = &input.dialogue().id;
    let what = match input {
        VectorInput::Turn(_, turn) => format!("{id}#{}", turn.number),
        VectorInput::Whole(_) => id.to_string(),
    };
    Error::data(format!("{what} has no vector in the existing vector set"))
        .with_hint("`turnwise encode`, with the same input, adds the missing vectors")
}

/// Returns an error if a vector contains NaN or infinity. Milvus accepts such vectors, but then returns wrong results.
pub(super) fn check(vectors: &[Vec<f32>], inputs: &[VectorInput<'_>]) -> Result<()> {
    let broken = vectors.iter().zip(inputs).find(|(vector, _)| !vector.iter().all(|v| v.is_finite()));
    let Some((_, input)) = broken else { return Ok(()) };
    Err(Error::data(format!("{}: a vector contains NaN or infinity", input.dialogue().id))
        .with_hint("use a different precision or a different model"))
}
