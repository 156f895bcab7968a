//! Input sequences of a selector, from the tokens of the context turns and of a response.

use std::ops::Range;

use turnwise_core::error::{Error, Result};

use super::settings::{
    COMPARED_TOKENS, Divider, Frame, History, SelectorSettings, SentencePooling, SentenceSettings,
};
use crate::{Part, Sequence, folder::Tokenizer, network::Embeddings};

/// Name of the token that ends an utterance.
pub const EOU: &str = "[EOU]";

/// Builds the input sequences of a selector. Training and inference use the same layout.
#[derive(Debug, Clone)]
pub struct Layout {
    settings: SelectorSettings,
    tokens: LayoutTokens,
}

/// Special tokens and segments of a layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayoutTokens {
    /// Tokens at the start of a sequence (`[CLS]`).
    pub before: Vec<u32>,
    /// Tokens between the context and the response (`[SEP]`; `</s></s>` for RoBERTa).
    pub between: Vec<u32>,
    /// Tokens at the end of a sequence (`[SEP]`).
    pub after: Vec<u32>,
    /// Token at the end of an utterance.
    pub eou: Option<u32>,
    /// Number of segments that the network distinguishes.
    pub segments: usize,
}

/// A context and a response as the input of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// The sequence. The tokens in `vectors` are placeholders for sentence vectors.
    pub sequence: Sequence,
    /// Index of each placeholder in the sequence, and index of the turn whose vector replaces it.
    pub vectors: Vec<(u32, u32)>,
    /// Number of context tokens, or of context turns if they are vectors, that were cut off because the sequence was
    /// too long.
    pub cut_context: usize,
    /// Number of response tokens that were cut off.
    pub cut_response: usize,
}

/// A turn or a response that is encoded separately, and the terms of its vector.
#[derive(Debug, Clone, PartialEq)]
pub struct Utterance {
    /// The tokens, with special tokens.
    pub sequence: Sequence,
    /// Terms of the weighted sum that is the vector: rows of the states after the first layer, and rows of the
    /// states after the last layer.
    pub terms: [Vec<Part>; 2],
    /// Rows of the tokens that are compared: all but special tokens, or all tokens of a text that has only those.
    pub compared: Vec<u32>,
}

/// Segment of the context.
const CONTEXT: u32 = 0;
/// Segment of the response.
const RESPONSE: u32 = 1;
/// Segment of the sentence vectors, if they have one of their own.
const SENTENCES: u32 = 2;
/// Number of segments of a network whose sentence vectors have a segment of their own.
pub const SENTENCE_SEGMENTS: usize = SENTENCES as usize + 1;

impl Layout {
    /// Creates the layout for a tokenizer and a network. Fails if the settings need `[EOU]` and the tokenizer does not
    /// have it.
    pub fn new(settings: SelectorSettings, tokenizer: &Tokenizer, embeddings: &Embeddings) -> Result<Self> {
        let eou = tokenizer.id(EOU);
        if settings.uses_eou() && eou.is_none() {
            return Err(Error::data(format!("the tokenizer has no token {EOU}"))
                .with_hint("train the selector again, or use a divider and a frame without it"));
        }
        let tokens = LayoutTokens {
            before: tokenizer.before().to_vec(),
            between: tokenizer.between()?,
            after: tokenizer.after().to_vec(),
            eou,
            segments: embeddings.types.as_ref().map_or(0, |types| types.rows),
        };
        Ok(Layout::with_tokens(settings, tokens))
    }

    /// Creates the layout with the given special tokens.
    pub fn with_tokens(settings: SelectorSettings, tokens: LayoutTokens) -> Self {
        Layout { settings, tokens }
    }

    /// Gives all tokens the same segment.
    pub fn without_segments(mut self) -> Self {
        self.tokens.segments = 0;
        self
    }

    /// Returns the special tokens.
    pub fn special_tokens(&self) -> &LayoutTokens {
        &self.tokens
    }

    /// Returns the settings of the selector.
    pub fn settings(&self) -> &SelectorSettings {
        &self.settings
    }

    /// Returns the number of tokens that a sequence has without its context and its response.
    fn framing(&self) -> usize {
        self.tokens.before.len() + self.tokens.between.len() + self.tokens.after.len()
    }

    fn divider(&self) -> &[u32] {
        match self.settings.divider {
            Divider::Eou => self.tokens.eou.as_slice(),
            Divider::None => &[],
        }
    }

    /// Returns the number of response tokens that fit: at most half of the sequence.
    fn response_room(&self) -> usize {
        (self.settings.max_tokens.saturating_sub(self.framing()) / 2).max(1)
    }

    /// Builds a sequence of the tokens of the context turns and of the response: `[CLS] t₁ [EOU] t₂ [EOU] … [SEP]
    /// response [SEP]`. If the sequence is too long, the response keeps its first tokens, at most half of the sequence,
    /// and the context keeps its last tokens.
    pub fn tokens(&self, turns: &[&[u32]], response: &[u32]) -> Pair {
        let kept = &response[..response.len().min(self.response_room())];
        let room = self.settings.max_tokens.saturating_sub(self.framing() + kept.len());
        let divider = self.divider();
        // Take the last turns first, until the context is full.
        let (mut taken, mut total) = (Vec::new(), 0);
        for turn in turns.iter().rev() {
            let length = turn.len() + divider.len();
            if total < room {
                taken.push(*turn);
            }
            total += length;
        }
        let mut context: Vec<u32> =
            taken.iter().rev().flat_map(|turn| turn.iter().chain(divider)).copied().collect();
        context.drain(..context.len().saturating_sub(room));
        let cut_context = total - context.len();
        self.pair(context, Vec::new(), kept, (cut_context, response.len() - kept.len()))
    }

    /// Builds a sequence of a query and a text, for a cross-encoder of sentence-transformers: `[CLS] query [SEP] text
    /// [SEP]`. If the sequence is too long, the longer text is shortened first, as by the `tokenizers` library.
    pub fn query_and_text(&self, query: &[u32], text: &[u32]) -> Pair {
        let room = self.settings.max_tokens.saturating_sub(self.framing());
        let (query_length, text_length) = longest_first(query.len(), text.len(), room);
        let cut = (query.len() - query_length, text.len() - text_length);
        self.pair(query[..query_length].to_vec(), Vec::new(), &text[..text_length], cut)
    }

    /// Returns the maximum number of context turns that a sequence can hold as sentence vectors, beside a response of one
    /// token.
    pub fn max_turns(&self) -> usize {
        self.settings.max_tokens.saturating_sub(self.framing() + 1) / (1 + self.divider().len())
    }

    /// Builds a sequence with one placeholder per context turn, followed by the tokens of the response: `[CLS] s₁ [EOU]
    /// s₂ [EOU] … [SEP] response [SEP]`. If the sequence is too long, the response keeps its first tokens, at most half
    /// of the sequence, and the context keeps its last turns.
    pub fn sentences(&self, turns: usize, response: &[u32]) -> Pair {
        let kept = &response[..response.len().min(self.response_room())];
        let room = self.settings.max_tokens.saturating_sub(self.framing() + kept.len());
        let divider = self.divider();
        let count = turns.min(room / (1 + divider.len()));
        let placeholder =
            self.tokens.before.first().or(self.tokens.after.first()).copied().unwrap_or_default();
        let (mut context, mut vectors) = (Vec::new(), Vec::new());
        for turn in turns - count..turns {
            vectors.push(((self.tokens.before.len() + context.len()) as u32, turn as u32));
            context.push(placeholder);
            context.extend(divider);
        }
        self.pair(context, vectors, kept, (turns - count, response.len() - kept.len()))
    }

    /// Returns the number of inputs that the turns of a context take in a sequence.
    pub(super) fn context_inputs(&self, turns: &[&[u32]]) -> usize {
        let in_sequence = |turn: &&[u32]| match self.settings.history {
            History::Tokens => turn.len(),
            History::Sentences => 1,
        };
        let inputs: usize = turns.iter().map(|turn| in_sequence(turn) + self.divider().len()).sum();
        inputs.min(self.settings.max_tokens)
    }

    fn pair(
        &self,
        context: Vec<u32>,
        vectors: Vec<(u32, u32)>,
        response: &[u32],
        (cut_context, cut_response): (usize, usize),
    ) -> Pair {
        let start = self.tokens.before.len() + context.len() + self.tokens.between.len();
        let ids =
            [&self.tokens.before, &context, &self.tokens.between, response, &self.tokens.after].concat();
        let segments = (self.tokens.segments > RESPONSE as usize).then(|| {
            let mut segments = vec![CONTEXT; start];
            segments.resize(ids.len(), RESPONSE);
            if self.settings.sentences.is_some_and(|sentences| sentences.own_segment) {
                vectors.iter().for_each(|(token, _)| segments[*token as usize] = SENTENCES);
            }
            segments
        });
        let sequence = Sequence { types: segments, ..Sequence::new(ids) };
        Pair { sequence, vectors, cut_context, cut_response }
    }

    /// Returns the settings of the vectors of texts that are encoded separately.
    pub fn vector_settings(&self) -> SentenceSettings {
        let SelectorSettings { head, max_tokens, sentences, .. } = self.settings;
        sentences.unwrap_or_else(|| SentenceSettings::default_of(head, max_tokens))
    }

    /// Returns the sequences of the context turns, which are encoded separately: at most the last [`Layout::max_turns`]
    /// turns.
    pub fn context(&self, turns: &[&[u32]]) -> Vec<Utterance> {
        let kept = &turns[turns.len().saturating_sub(self.max_turns())..];
        kept.iter().map(|turn| self.utterance(turn)).collect()
    }

    /// Builds the sequence of a text that is encoded separately: a turn, or a response. A text that is too long keeps
    /// its first tokens.
    pub fn utterance(&self, ids: &[u32]) -> Utterance {
        let (before, after) = self.frame();
        let room = self.vector_settings().max_tokens.saturating_sub(before.len() + after.len()).max(1);
        self.framed(&ids[..ids.len().min(room)])
    }

    /// Builds the sequence of a context that is encoded as one text. A context that is too long keeps its last tokens.
    pub fn whole_context(&self, turns: &[&[u32]]) -> Utterance {
        let (before, after) = self.frame();
        let room = self.settings.max_tokens.min(COMPARED_TOKENS);
        let room = room.saturating_sub(before.len() + after.len()).max(1);
        // Take the last turns first, until the text is full.
        let (mut taken, mut total) = (Vec::new(), 0);
        for turn in turns.iter().rev() {
            if total >= room {
                break;
            }
            total += turn.len() + after.len();
            taken.push(*turn);
        }
        taken.reverse();
        // The special tokens at the end of a turn separate it from the next one.
        let ids = taken.join(after);
        self.framed(&ids[ids.len().saturating_sub(room)..])
    }

    /// Returns the special tokens before and after a text that is encoded separately.
    fn frame(&self) -> (&[u32], &[u32]) {
        let eou = self.tokens.eou.as_slice();
        match self.vector_settings().frame {
            Frame::ClsSep => (&self.tokens.before, &self.tokens.after),
            Frame::ClsEou => (&self.tokens.before, eou),
            Frame::Eou => (&[], eou),
            Frame::None => (&[], &[]),
        }
    }

    /// Adds the special tokens to a text that is encoded separately.
    fn framed(&self, ids: &[u32]) -> Utterance {
        let settings = self.vector_settings();
        let (before, after) = self.frame();
        let ids = [before, ids, after].concat();
        let length = ids.len();
        let words = before.len()..length - after.len();
        // A context of several turns has special tokens between them.
        let is_word = |row: &usize| !after.contains(&ids[*row]);
        let mut compared: Vec<u32> = words.clone().filter(is_word).map(|row| row as u32).collect();
        if compared.is_empty() {
            // A text can consist of special tokens, such as the text "[SEP]".
            compared = words.clone().map(|row| row as u32).collect();
        }
        let terms = match settings.pooling {
            SentencePooling::Cls => {
                let weights = [settings.first_weight, 1.0 - settings.first_weight];
                weights.map(|weight| terms_of(&[(0..1, weight)]))
            }
            SentencePooling::Mean => {
                let share = 1.0 / length.max(1) as f32;
                let special = settings.special_first_weight.unwrap_or(settings.first_weight);
                let weights =
                    [(settings.first_weight, special), (1.0 - settings.first_weight, 1.0 - special)];
                weights.map(|(word, special)| match word == special {
                    true => terms_of(&[(0..length, share * word)]),
                    false => terms_of(&[
                        (0..words.start, share * special),
                        (words.clone(), share * word),
                        (words.end..length, share * special),
                    ]),
                })
            }
        };
        Utterance { sequence: Sequence::new(ids), terms, compared }
    }
}

/// Returns the terms with their weights, without empty terms and without terms of weight 0.
fn terms_of(terms: &[(Range<usize>, f32)]) -> Vec<Part> {
    let is_used = |(rows, weight): &&(Range<usize>, f32)| !rows.is_empty() && *weight != 0.0;
    terms.iter().filter(is_used).map(|(rows, weight)| Part { rows: rows.clone(), weight: *weight }).collect()
}

/// Returns the lengths of two texts after truncation to `room` tokens together. The longer text is shortened first.
pub(super) fn longest_first(first: usize, second: usize, room: usize) -> (usize, usize) {
    let shorter = first.min(second);
    let longer = if shorter > room { shorter } else { shorter.max(room - shorter) }.min(first.max(second));
    let (shorter, longer) = match shorter + longer > room {
        true => (room / 2, room / 2 + room % 2),
        false => (shorter, longer),
    };
    if first > second { (longer, shorter) } else { (shorter, longer) }
}
