//! Dialogues on a plane: those that are like each other lie beside each other.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Stop, kmeans::Items, kmeans::drawn};
use turnwise_core::error::Result;
use turnwise_corpus::Dialogue;
use turnwise_encoder::Vectors;
use turnwise_measures::plane::plane;

/// So many letters of what a dialogue begins with.
const LETTERS: usize = 120;

/// A dialogue on the plane.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Point {
    /// Its id.
    pub id: String,
    /// Its cluster, counted from 0 in the order of the clusters.
    pub cluster: usize,
    /// To the right and up, from −1 to 1.
    pub at: [f32; 2],
    /// Its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The beginning of the first thing that a user says.
    pub text: String,
}

impl Point {
    pub(super) fn of(dialogue: &Dialogue, cluster: usize, at: [f32; 2]) -> Self {
        let text = dialogue.opening().map(|turn| turn.text.as_str()).unwrap_or_default();
        let end = text.char_indices().nth(LETTERS);
        Point {
            id: dialogue.id.to_string(),
            cluster,
            at,
            title: dialogue.title.clone(),
            text: end.map_or_else(|| text.to_owned(), |(end, _)| format!("{}…", &text[..end])),
        }
    }
}

/// The places of so many of the items.
pub(super) fn places(
    items: Items<'_>,
    most: usize,
    seed: u64,
    stop: Stop<'_>,
) -> Result<HashMap<u32, [f32; 2]>> {
    let drawn = drawn(items.len(), most, seed);
    let mut vectors = Vectors::new(items.dim);
    drawn.iter().for_each(|n| vectors.push(&items.unit(*n)));
    let mut stopped = Ok(());
    let places = plane(&vectors, seed, |_, _| {
        stopped = stop.check();
        stopped.is_ok()
    });
    stopped?;
    Ok(drawn.into_iter().map(|n| n as u32).zip(places.into_iter().flatten()).collect())
}
