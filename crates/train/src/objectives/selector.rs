//! Selectors: a network reads a context and a response together, and decides whether the response is the next turn.
//!
//! A positive pair is a context with its true response; a negative pair is the same context with a turn of another
//! dialogue. The state of the first token (`[CLS]`) is reduced to one number, and the loss is the binary cross-entropy
//! of its logistic function.
//!
//! The context turns are tokens, or one sentence vector each. Sentence vectors come from the same network, and the
//! gradient flows through them. The pairs of one context share its sentence vectors.

use super::{
    HardNegatives, Loss, Objective, ObjectiveBuilder, Prepared, TurnLocation, Utterances,
    check_several_dialogues,
    definition::{Definition, Output, Role, StepTraining},
    losses, other_dialogue, turns_of,
};
use crate::{
    data::TrainingSet,
    model::{Packed, Parameter},
    ops::pool,
    run::evaluations::Selection,
};
use candle_core::{Device, Result as Candle, Tensor};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_encoder::{
    Part, Sequence,
    selector::{Head, HeadActivation, HeadKind, Layout, Pair, SelectorSettings, Utterance},
};

pub static SELECTOR: Definition = Definition {
    name: "selector",
    about: "responses: a model that reads a context and a response together, and scores the response",
    benchmark: "response responses.jsonl",
    output: Output::Selector,
    role: Role::Main,
    min_turns: 2,
    select: Selection::LabelFree,
    steps: Some(StepTraining {
        several_turns: true,
        end_of_utterance: true,
        all_positions: true,
        steps: 1_000,
        batch: 16,
        learning_rate: 5e-5,
        max_tokens: 512,
        freezes_half: false,
        ..StepTraining::new(|given| {
            let settings = given.selector();
            let (negatives, hard) = (given.negatives(1), given.hard_negatives(0));
            ObjectiveBuilder::new(move |setup| {
                let embeddings = &setup.model.start().embeddings;
                let layout = Layout::new(settings, setup.tokenizer, embeddings)?;
                let (model, pooler) = (setup.model, setup.folder.pooler()?);
                let heads = start_heads(model.width(), &settings, pooler, model.device(), setup.seed)?;
                let activation = HeadActivation::of(setup.folder.config().architecture);
                let hard = match hard {
                    0 => None,
                    count => Some((count, setup.sources.hard_negatives(MINED_TOKENS)?)),
                };
                Ok(Selector { layout, negatives, hard, heads, activation })
            })
        })
    }),
    ..Definition::DEFAULT
};

/// Initial scale of the cosine in the head `matching`.
const SCALE: f32 = 10.0;
/// Maximum number of tokens of an utterance when hard negatives are mined.
const MINED_TOKENS: usize = 64;
/// Maximum number of draws for a negative. A drawn turn can be the same text as the true response.
const DRAWS: usize = 8;

/// The objective `selector`.
pub struct Selector {
    /// Builds the input sequences.
    pub layout: Layout,
    /// Number of negative responses per context.
    pub negatives: usize,
    /// Number of hard negatives among the negatives, and the mined hard negatives. Random negatives replace missing
    /// hard negatives.
    pub hard: Option<(usize, HardNegatives)>,
    /// Parameters of the layers that compute the score.
    pub heads: Vec<Parameter>,
    /// Activation function between the layers that compute the score.
    pub activation: HeadActivation,
}

/// Returns the initial parameters of the head. The square layer of the head `pooler` starts with the pooling layer of the
/// base model if it has one.
pub(super) fn start_heads(
    width: usize,
    settings: &SelectorSettings,
    pooler: Option<[Vec<f32>; 2]>,
    device: &Device,
    seed: u64,
) -> Result<Vec<Parameter>> {
    let mut heads = Vec::new();
    if settings.head == HeadKind::Pooler {
        heads.extend(losses::pooler("selector.hidden", width, pooler, seed, 0, device)?);
    }
    heads.extend(losses::layer("selector.score", [1, width], seed, 1, device)?);
    if settings.head == HeadKind::Matching {
        heads.push(Parameter::new("selector.scale", vec![SCALE], &[1], false, device)?);
    }
    Ok(heads)
}

/// Returns the head with the current values of its parameters.
fn head_of(heads: &[Parameter], kind: HeadKind, activation: HeadActivation) -> Result<Head> {
    let (heads, scale) = match kind {
        HeadKind::Matching => heads.split_at(heads.len().saturating_sub(1)),
        _ => (heads, &[][..]),
    };
    let scale = scale.first().map(|scale| scale.numbers()).transpose()?;
    let (hidden, score) = heads.split_at(heads.len().saturating_sub(2));
    let [weight, bias] = score else {
        return Err(Error::Internal("the head has no scoring layer".to_owned()));
    };
    let hidden = match hidden {
        [weight, bias] => Some((weight.numbers()?, bias.numbers()?, activation)),
        _ => None,
    };
    let bias = bias.numbers()?.first().copied().unwrap_or_default();
    Ok(Head {
        hidden,
        weight: weight.numbers()?,
        bias,
        scale: scale.and_then(|scale| scale.first().copied()),
    })
}

impl Selector {
    /// Draws a negative response for the turn at a location.
    fn negative(
        &self,
        data: &TrainingSet,
        location: TurnLocation,
        truth: &[u32],
        is_hard: bool,
        random: &mut Random,
    ) -> Result<Vec<u32>> {
        if let Some((_, hard)) = self.hard.as_ref().filter(|_| is_hard)
            && let Some(drawn) = hard.draw(truth, location.dialogue, random)
        {
            return data.token_ids(drawn);
        }
        let mut drawn = Vec::new();
        for _ in 0..DRAWS {
            let elsewhere = data.dialogue(other_dialogue(data, location.dialogue, random))?;
            drawn.clone_from(&elsewhere[random.below(elsewhere.len())].ids);
            if drawn != truth {
                break;
            }
        }
        Ok(drawn)
    }
}

impl Objective for Selector {
    fn definition(&self) -> &'static Definition {
        &SELECTOR
    }

    fn heads(&self) -> &[Parameter] {
        &self.heads
    }

    fn selector(&self) -> Result<Option<(SelectorSettings, Head)>> {
        let settings = *self.layout.settings();
        Ok(Some((settings, head_of(&self.heads, settings.head, self.activation)?)))
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<TurnLocation>> {
        Ok(turns_of(data, 2).into_iter().filter(|location| location.turn > 0).collect())
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(TurnLocation, Random)]) -> Result<Prepared> {
        check_several_dialogues(data)?;
        let mut batch = Batch::default();
        let hard = self.hard.as_ref().map_or(0, |(count, _)| *count);
        for (location, random) in &mut *examples {
            let dialogue = data.dialogue(location.dialogue)?;
            let turn = location.turn as usize;
            let context: Vec<&[u32]> = dialogue[..turn].iter().map(|turn| turn.ids.as_slice()).collect();
            let truth = dialogue[turn].ids.as_slice();
            let mut responses = vec![truth.to_vec()];
            for n in 0..self.negatives {
                responses.push(self.negative(data, *location, truth, n < hard, random)?);
            }
            // A short negative such as "Yes." can be identical to the true response, which is then not negative.
            let labels = responses.iter().map(|response| f32::from(u8::from(response == truth))).collect();
            batch.add(&self.layout, &context, &responses, labels);
        }
        let Batch { sequences, labels, encoded, terms, places, states } = batch;
        let kind = self.layout.settings().head;
        let heads = losses::tensors(&self.heads);
        let loss = Pairs { labels, states, heads, kind, activation: self.activation };
        let prepared = Prepared::new(&SELECTOR, sequences, examples.len(), loss);
        let utterances =
            (!encoded.is_empty()).then(|| Utterances { packed: Packed::new(encoded), terms, places });
        Ok(Prepared { utterances, ..prepared })
    }
}

/// Sequences of a batch of contexts with their responses.
#[derive(Default)]
struct Batch {
    sequences: Vec<Sequence>,
    /// 1 for each sequence with the true response, else 0.
    labels: Vec<f32>,
    /// Context turns that become sentence vectors.
    encoded: Vec<Sequence>,
    terms: [Vec<Vec<Part>>; 2],
    /// Rows whose inputs are sentence vectors, with the indices of the turns in `encoded`.
    places: Vec<(u32, u32)>,
    /// Terms of the states that the head reads, for each sequence.
    states: Vec<Vec<Vec<Part>>>,
}

impl Batch {
    /// Adds a context with its responses.
    fn add(&mut self, layout: &Layout, context: &[&[u32]], responses: &[Vec<u32>], labels: Vec<f32>) {
        let Some(settings) = layout.settings().sentences else {
            for response in responses {
                let pair = layout.tokens(context, response);
                self.states.push(pair.terms(layout.settings().head));
                self.sequences.push(pair.sequence);
            }
            self.labels.extend(labels);
            return;
        };
        let pairs: Vec<Pair> =
            responses.iter().map(|response| layout.sentences(context.len(), response)).collect();
        // Long contexts lose their first turns. A pair with a shorter response can have more turns.
        let firsts = pairs.iter().filter_map(|pair| pair.vectors.first()).map(|(_, turn)| *turn);
        let first = firsts.min().unwrap_or_default();
        let before = self.encoded.len() as u32;
        for turn in &context[first as usize..] {
            let Utterance { sequence, terms: [of_first, of_last] } = layout.utterance(turn, &settings);
            self.encoded.push(sequence);
            self.terms[0].push(of_first);
            self.terms[1].push(of_last);
        }
        for pair in pairs {
            let start = self.sequences.iter().map(|s| s.len() as u32).sum::<u32>();
            let places = pair.vectors.iter().map(|(token, turn)| (start + token, before + turn - first));
            self.places.extend(places);
            self.states.push(pair.terms(layout.settings().head));
            self.sequences.push(pair.sequence);
        }
        self.labels.extend(labels);
    }
}

/// Loss of a batch of pairs: binary cross-entropy.
struct Pairs {
    labels: Vec<f32>,
    /// Terms of the states that the head reads, for each sequence.
    states: Vec<Vec<Vec<Part>>>,
    heads: Vec<Tensor>,
    kind: HeadKind,
    activation: HeadActivation,
}

impl Loss for Pairs {
    fn compute(&self, packed: &Packed, states: &Tensor) -> Candle<Tensor> {
        // The n-th sum of every sequence, such as the mean of its response.
        let sums =
            |n: usize| pool(states, packed.in_batch(self.states.iter().map(|terms| terms[n].as_slice())));
        let first = sums(0)?;
        let outputs = match self.kind {
            HeadKind::Cls => losses::apply(&self.heads, &first, None)?,
            HeadKind::Pooler => {
                let hidden = losses::apply(&self.heads, &first, None)?;
                let hidden = match self.activation {
                    HeadActivation::Tanh => hidden.tanh()?,
                    HeadActivation::Relu => hidden.relu()?,
                };
                losses::apply(&self.heads[2..], &hidden, None)?
            }
            HeadKind::Matching => {
                let cosines = losses::cosines(&sums(1)?, &sums(2)?)?.unsqueeze(1)?;
                let scale = self.heads[2].to_dtype(cosines.dtype())?;
                (losses::apply(&self.heads, &first, None)? + cosines.broadcast_mul(&scale)?)?
            }
        };
        losses::binary_cross_entropy(&outputs.squeeze(1)?, &self.labels)
    }

    fn shape(&self, _: usize) -> serde_json::Value {
        serde_json::json!({ "labels": self.labels })
    }
}
