//! Selectors: a network reads a context and a response together, and decides whether the response is the next turn.
//!
//! A positive pair is a context with its true response, a turn of another speaker than the turn before it. A negative pair
//! is the same context with a random such turn of another dialogue. If it were any turn, the network could tell from the
//! response alone whether it is a reply. The state of the first token (`[CLS]`) is reduced to one number, and the loss
//! is the binary cross-entropy of its logistic function.
//!
//! The context turns are tokens, or one sentence vector each. Sentence vectors come from the same network, and the
//! gradient flows through them. The pairs of one context share its sentence vectors. They can also be frozen: a copy of the
//! base model computes them, and they are cached.
//!
//! A selector can be trained further: its network, its head and its frozen network for sentence vectors are the start.
//!
//! With the head `matching`, the network also encodes each turn, each response, and the whole context separately, as an
//! encoder does. The similarities of their vectors are part of the score, and an in-batch loss as in the objective
//! `responses` is added.

use super::{
    FrozenSentences, HardNegatives, Loss, Objective, ObjectiveBuilder, Prepared, TurnLocation,
    check_several_dialogues,
    compared::{Compared, TextKind, WithTokens},
    definition::{Definition, Output, Role, StepTraining},
    losses, other_dialogue,
    pairs::PairBatch,
    turns_of,
};
use crate::{
    data::{TrainingSet, TurnTokens},
    model::{Packed, Parameter, cache::CACHE_BYTES},
    run::evaluations::Selection,
};
use std::ops::Range;

use candle_core::{Device, Result as Candle, Tensor};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_encoder::selector::{
    Head, HeadActivation, HeadKind, HeadPooling, History, Layout, Scales, SelectorSettings,
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
        steps: 100,
        batch: 32,
        learning_rate: 1.5e-4,
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
                if let Some(start) = setup.selector {
                    set_heads(&heads, &start.head)?;
                }
                let activation = HeadActivation::of(setup.folder.config().architecture);
                let hard = match hard {
                    0 => None,
                    count => {
                        Some((count, setup.sources.hard_negatives(all_replies(setup.data)?, MINED_TOKENS)?))
                    }
                };
                let frozen = match settings.sentences.filter(|sentences| sentences.frozen) {
                    Some(sentences) => {
                        let known = setup.selector.and_then(|start| start.sentence_network.as_ref());
                        let network = known.unwrap_or(setup.model.start());
                        Some(FrozenSentences::new(network, sentences, CACHE_BYTES)?)
                    }
                    None => None,
                };
                Ok(Selector { layout, negatives, hard, heads, activation, frozen })
            })
        })
    }),
    ..Definition::DEFAULT
};

/// Maximum numbers of turns before and after a response that the head `matching` compares with each other. With sentence
/// vectors, all turns of the context are compared.
const TURNS_BEFORE: usize = 32;
const TURNS_AFTER: usize = 4;
/// Initial scales of the similarities in the head `matching`.
const SCALES: Scales = Scales { turns: 10.0, context: 10.0, tokens: 10.0 };
/// Factors of the learning rate for the scoring layer of the head `matching`, whose weights are 0 at first, and for its
/// bias and its scales, which are large.
const LAYER_RATE: f64 = 10.0;
const SCALES_RATE: f64 = 100.0;
/// Similarity at which a response is initially as probable as not. Trained encoders give most random pairs a lower one.
const EVEN_SIMILARITY: f32 = 0.4;
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
    /// Computes the sentence vectors if they are frozen.
    pub frozen: Option<FrozenSentences>,
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
        // At first, only the similarities count.
        if let [.., weight, bias] = &mut heads[..] {
            weight.set(vec![0.0; width])?;
            weight.rate = LAYER_RATE;
            bias.set(vec![-SCALES.values().iter().sum::<f32>() * EVEN_SIMILARITY])?;
            bias.rate = SCALES_RATE;
        }
        let scales = Parameter::new("selector.scales", SCALES.values().to_vec(), &[3], false, device)?;
        heads.push(scales.with_rate(SCALES_RATE));
    }
    Ok(heads)
}

/// Sets the parameters to those of a head of the same kind.
fn set_heads(heads: &[Parameter], head: &Head) -> Result<()> {
    let hidden = head.hidden.iter().flat_map(|(weight, bias, _)| [weight.clone(), bias.clone()]);
    let score = [head.weight.clone(), vec![head.bias]];
    let values = hidden.chain(score).chain(head.scales.map(|scales| scales.values().to_vec()));
    heads.iter().zip(values).try_for_each(|(parameter, values)| parameter.set(values))
}

/// Returns the indices of the turns by another speaker than the turn before them.
fn replies(turns: &[TurnTokens]) -> Vec<usize> {
    let answers = (1..).zip(turns.windows(2)).filter(|(_, pair)| pair[0].speaker != pair[1].speaker);
    answers.map(|(turn, _)| turn).collect()
}

/// Returns the locations of all replies. Data without speakers has no replies, only next turns.
fn all_replies(data: &TrainingSet) -> Result<Vec<TurnLocation>> {
    let mut all = Vec::new();
    for dialogue in 0..data.len() as u32 {
        let turns = replies(&data.dialogue(dialogue)?).into_iter();
        all.extend(turns.map(|turn| TurnLocation { dialogue, turn: turn as u32 }));
    }
    if all.is_empty() {
        all = turns_of(data, 2).into_iter().filter(|location| location.turn > 0).collect();
    }
    Ok(all)
}

/// Returns the head with the current values of its parameters.
fn head_of(heads: &[Parameter], kind: HeadKind, activation: HeadActivation) -> Result<Head> {
    let (heads, scales) = match kind {
        HeadKind::Matching => heads.split_at(heads.len().saturating_sub(1)),
        _ => (heads, &[][..]),
    };
    let scales = scales.first().map(|scales| scales.numbers()).transpose()?;
    let (hidden, score) = heads.split_at(heads.len().saturating_sub(2));
    let [weight, bias] = score else {
        return Err(Error::Internal("the head has no scoring layer".to_owned()));
    };
    let hidden = match hidden {
        [weight, bias] => Some((weight.numbers()?, bias.numbers()?, activation)),
        _ => None,
    };
    let bias = bias.numbers()?.first().copied().unwrap_or_default();
    let scales = scales.and_then(|scales| Scales::of(&scales));
    Ok(Head { hidden, norm: None, weight: weight.numbers()?, bias, scales, pooling: HeadPooling::First })
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
            let replies = replies(&elsewhere);
            let turn = match replies.is_empty() {
                true => random.below(elsewhere.len()),
                false => replies[random.below(replies.len())],
            };
            drawn.clone_from(&elsewhere[turn].ids);
            if drawn != truth {
                break;
            }
        }
        Ok(drawn)
    }

    /// Adds the turns around the response at a location, the whole context, and the negatives, to the texts that are
    /// encoded separately. Every reply among these turns is compared with the turns before it. Returns the rows of the
    /// vectors of the context's turns.
    fn compare(
        &self,
        pairs: &mut PairBatch,
        compared: &mut Compared,
        location: TurnLocation,
        dialogue: &[TurnTokens],
        responses: &[Vec<u32>],
    ) -> Range<usize> {
        let turn = location.turn as usize;
        let most_before = match self.layout.settings().history {
            History::Sentences => self.layout.max_turns(),
            History::Tokens => TURNS_BEFORE,
        };
        let start = turn.saturating_sub(most_before);
        let end = dialogue.len().min(turn + 1 + TURNS_AFTER);
        let mut scored = Vec::new();
        let mut add_scored = |kind, ids: &[u32], pairs: &mut PairBatch, compared: &mut Compared| {
            let tokens = pairs.encode_tokens(self.layout.utterance(ids));
            let text = compared.add_text(kind, ids);
            scored.push(WithTokens { text, tokens });
            text
        };
        let mut first = None;
        for number in start..end {
            let (kind, ids) = (TextKind::Turn(location.dialogue), &dialogue[number].ids);
            let text = match number == turn {
                true => add_scored(kind, ids, pairs, compared),
                false => {
                    pairs.encode(self.layout.utterance(ids));
                    compared.add_text(kind, ids)
                }
            };
            let first = *first.get_or_insert(text);
            let is_reply = number > start && dialogue[number - 1].speaker != dialogue[number].speaker;
            if is_reply && number != turn {
                compared.add_query(first..text, text);
            }
        }
        let first = first.unwrap_or_default();
        let truth = first + turn - start;
        for negative in &responses[1..] {
            add_scored(TextKind::Drawn, negative, pairs, compared);
        }
        let turns: Vec<&[u32]> = dialogue[..turn].iter().map(|turn| turn.ids.as_slice()).collect();
        let tokens = pairs.encode_tokens(self.layout.whole_context(&turns));
        let context = WithTokens { text: compared.add_text(TextKind::Context, &[]), tokens };
        let query = compared.add_query(first..truth, truth);
        compared.add_scored(query, context, scored);
        first..truth
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

    fn in_batch(&self) -> bool {
        self.layout.settings().head == HeadKind::Matching
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<TurnLocation>> {
        all_replies(data)
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(TurnLocation, Random)]) -> Result<Prepared> {
        check_several_dialogues(data)?;
        let (mut pairs, mut labels) = (PairBatch::default(), Vec::new());
        let mut compared = Compared::default();
        let kind = self.layout.settings().head;
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
            labels.extend(responses.iter().map(|response| f32::from(u8::from(response == truth))));
            let encoded = match kind {
                HeadKind::Matching => {
                    self.compare(&mut pairs, &mut compared, *location, &dialogue, &responses)
                }
                HeadKind::Pooler | HeadKind::Cls => pairs.add_context(&self.layout, &context),
            };
            for response in &responses {
                pairs.add_response(&self.layout, &context, &encoded, response);
            }
        }
        let heads = losses::tensors(&self.heads);
        let loss =
            Pairs { count: examples.len(), labels, heads, kind, activation: self.activation, compared };
        pairs.prepared(&SELECTOR, examples.len(), loss, self.frozen.as_ref())
    }
}

/// Loss of a batch of pairs: binary cross-entropy. With the head `matching`, the cross-entropy of the true response among
/// the candidates of its context and the in-batch loss are added.
struct Pairs {
    /// Number of contexts.
    count: usize,
    labels: Vec<f32>,
    heads: Vec<Tensor>,
    kind: HeadKind,
    activation: HeadActivation,
    compared: Compared,
}

impl Pairs {
    /// Returns the outputs of the head for the states of the first tokens, one row per pair.
    fn outputs(&self, packed: &Packed, states: &Tensor) -> Candle<Tensor> {
        let first = losses::first_states(packed, states, packed.sequences.len())?;
        let outputs = match self.kind {
            HeadKind::Cls | HeadKind::Matching => losses::apply(&self.heads, &first, None)?,
            HeadKind::Pooler => {
                let hidden = losses::apply(&self.heads, &first, None)?;
                let hidden = match self.activation {
                    HeadActivation::Tanh => hidden.tanh()?,
                    HeadActivation::Relu => hidden.relu()?,
                    HeadActivation::Gelu => hidden.gelu_erf()?,
                };
                losses::apply(&self.heads[2..], &hidden, None)?
            }
        };
        outputs.squeeze(1)
    }

    /// Computes the cross-entropy of the true response among the candidates of its context. A negative with the same text
    /// does not count.
    fn among_candidates(&self, outputs: &Tensor) -> Candle<Tensor> {
        let each = self.labels.len() / self.count.max(1);
        let same =
            |(n, label): (usize, &f32)| if n % each > 0 && *label > 0.0 { losses::MASKED } else { 0.0 };
        let mask: Vec<f32> = self.labels.iter().enumerate().map(same).collect();
        let mask = Tensor::from_vec(mask, outputs.shape(), outputs.device())?.to_dtype(outputs.dtype())?;
        let scores = (outputs + mask)?.reshape((self.count, each))?;
        losses::cross_entropy(&scores, &vec![0; self.count])
    }
}

impl Loss for Pairs {
    fn compute(&self, packed: &Packed, states: &Tensor) -> Candle<Tensor> {
        losses::binary_cross_entropy(&self.outputs(packed, states)?, &self.labels)
    }

    fn compute_with_vectors(&self, packed: &Packed, states: &Tensor, vectors: &Tensor) -> Candle<Tensor> {
        if self.kind != HeadKind::Matching {
            return self.compute(packed, states);
        }
        let similarities = self.compared.similarities(vectors, &self.heads[2])?;
        let outputs = (self.outputs(packed, states)? + self.compared.of_pairs(&similarities)?)?;
        let of_pairs = losses::binary_cross_entropy(&outputs, &self.labels)?;
        (of_pairs + self.among_candidates(&outputs)?)? + self.compared.in_batch_loss(&similarities)?
    }

    fn shape(&self, _: usize) -> serde_json::Value {
        serde_json::json!({ "labels": self.labels })
    }
}
