//! Token vectors before pooling.

use std::ops::Range;

use rayon::prelude::*;

use super::{Prompt, Transformer, item::Item, run::in_packs};
use crate::{Sequence, TextOptions, TokenVectors, Vectors};
use turnwise_core::error::{Error, Result};

/// A text to encode to token vectors.
struct Wanted {
    item: Item,
    /// Positions of the tokens to return.
    rows: Range<usize>,
    /// Byte range of each token in the text.
    ranges: Vec<Range<usize>>,
    cut: usize,
}

impl Transformer {
    pub(super) fn tokens(&self, texts: &[&str], options: &TextOptions) -> Result<Vec<TokenVectors>> {
        let prompt = self.prompt(options.prompt.as_deref())?;
        let wanted: Vec<Wanted> = texts
            .par_iter()
            .enumerate()
            .map(|(n, text)| self.wanted(n, text, &prompt))
            .collect::<Result<_>>()?;
        let width = self.backend.hidden();
        let mut made: Vec<TokenVectors> = Vec::with_capacity(texts.len());
        let mut items = Vec::with_capacity(texts.len());
        let mut rows = Vec::with_capacity(texts.len());
        for text in wanted {
            let vectors = Vectors::new(width);
            made.push(TokenVectors { vectors, ranges: text.ranges, cut: text.cut });
            items.push(text.item);
            rows.push(text.rows);
        }
        let pieces = in_packs(self.backend.as_ref(), &self.budget, &items, &|pack, batch| {
            let mut vectors = Vec::with_capacity(pack.len());
            self.backend.mixed(batch, &self.layers, &mut |states| {
                let mut start = 0;
                for item in pack {
                    let of_this = &states[start * width..(start + item.sequence.len()) * width];
                    let rows = &rows[item.input];
                    vectors.push(of_this[rows.start * width..rows.end * width].to_vec());
                    start += item.sequence.len();
                }
            })?;
            Ok(vectors)
        })?;
        for (n, vectors) in pieces.into_iter().flat_map(|(pack, vectors)| pack.into_iter().zip(vectors)) {
            if vectors.iter().any(|v| !v.is_finite()) {
                return Err(Error::data(format!(
                    "the model computed values that are not finite for the tokens of input {}",
                    n + 1
                ))
                .with_hint("use --precision f32; if that fails too, the model's weights are damaged"));
            }
            made[n].vectors = Vectors::from_flat(width, vectors).unwrap_or_else(|| Vectors::new(width));
        }
        Ok(made)
    }

    fn wanted(&self, input: usize, text: &str, prompt: &Prompt) -> Result<Wanted> {
        let (tokens, mut ranges) = match prompt.text.is_empty() {
            true => self.tokenizer.encode_with_ranges(text)?,
            false => self.tokenizer.encode_with_ranges(&format!("{}{text}", prompt.text))?,
        };
        let rows = prompt.pooled_from.min(tokens.ids.len())..tokens.ids.len();
        ranges.drain(..rows.start);
        // Tokens of the prompt have an empty range.
        let shift = |at: usize| at.saturating_sub(prompt.text.len());
        ranges.iter_mut().for_each(|range| *range = shift(range.start)..shift(range.end));
        let item = Item { input, sequence: Sequence::new(tokens.ids), pools: Vec::new() };
        Ok(Wanted { item, rows, ranges, cut: tokens.cut })
    }
}
