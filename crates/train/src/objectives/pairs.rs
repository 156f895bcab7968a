//! Batches of pairs: a context and a response in one sequence, in the layout of a selector.

use std::ops::Range;

use super::{FrozenSentences, Loss, Prepared, Utterances, definition::Definition};
use crate::model::{Packed, Replaced};
use turnwise_core::error::Result;
use turnwise_encoder::{
    Sequence,
    selector::{History, Layout, Utterance},
};

/// A batch of pairs.
#[derive(Default)]
pub(super) struct PairBatch {
    /// One sequence per pair.
    pub(super) sequences: Vec<Sequence>,
    /// Texts that are encoded separately: turns that become sentence vectors, and turns and responses to compare.
    alone: Vec<Utterance>,
    /// Rows of tokens in `alone` whose states are needed, too.
    compared: Vec<u32>,
    /// Number of tokens in `alone`.
    alone_tokens: u32,
    /// Rows whose inputs are sentence vectors, with the indices of the turns in `alone`.
    places: Vec<(u32, u32)>,
    /// Number of tokens in `sequences`.
    tokens: u32,
}

impl PairBatch {
    /// Adds what is encoded of a context before its responses are read. Returns the indices of the vectors.
    pub(super) fn add_context(&mut self, layout: &Layout, context: &[&[u32]]) -> Range<usize> {
        let first = self.alone.len();
        if layout.settings().history == History::Sentences {
            layout.context(context).into_iter().for_each(|text| self.encode(text));
        }
        first..self.alone.len()
    }

    /// Adds a response to a context. `encoded` is the result of [`PairBatch::add_context`] for the context.
    pub(super) fn add_response(
        &mut self,
        layout: &Layout,
        context: &[&[u32]],
        encoded: &Range<usize>,
        response: &[u32],
    ) {
        let pair = match layout.settings().history {
            History::Tokens => layout.tokens(context, response),
            History::Sentences => layout.sentences(encoded.len(), response),
        };
        let place = |(token, turn): &(u32, u32)| (self.tokens + token, encoded.start as u32 + turn);
        self.places.extend(pair.vectors.iter().map(place));
        self.tokens += pair.sequence.len() as u32;
        self.sequences.push(pair.sequence);
    }

    /// Adds a text that is encoded separately, and the states of its compared tokens. Returns the indices of these tokens.
    pub(super) fn encode_tokens(&mut self, text: Utterance) -> Range<usize> {
        let first = self.compared.len();
        self.compared.extend(text.compared.iter().map(|row| self.alone_tokens + row));
        self.encode(text);
        first..self.compared.len()
    }

    /// Adds a text that is encoded separately.
    pub(super) fn encode(&mut self, text: Utterance) {
        self.alone_tokens += text.sequence.len() as u32;
        self.alone.push(text);
    }

    /// Returns the batch with its loss. `count` is the number of examples. If the sentence vectors are those of a frozen
    /// network, `frozen` computes them.
    pub(super) fn prepared(
        self,
        definition: &Definition,
        count: usize,
        loss: impl Loss + 'static,
        frozen: Option<&FrozenSentences>,
    ) -> Result<Prepared> {
        let PairBatch { sequences, alone, compared, places, .. } = self;
        let prepared = Prepared::new(definition, sequences, count, loss);
        if let Some(frozen) = frozen {
            let fixed = Some(Replaced { vectors: frozen.vectors(&alone)?, places });
            return Ok(Prepared { fixed, ..prepared });
        }
        if alone.is_empty() {
            return Ok(prepared);
        }
        let (mut texts, mut terms) = (Vec::with_capacity(alone.len()), [Vec::new(), Vec::new()]);
        for Utterance { sequence, terms: [of_first, of_last], .. } in alone {
            texts.push(sequence);
            terms[0].push(of_first);
            terms[1].push(of_last);
        }
        let utterances = Utterances { packed: Packed::new(texts), terms, tokens: compared, places };
        Ok(Prepared { utterances: Some(utterances), ..prepared })
    }
}
