//! Two-dimensional map of dialogues. Similar dialogues are close to each other.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Stop, kmeans::Items, kmeans::sample_indices};
use turnwise_core::error::Result;
use turnwise_corpus::Dialogue;
use turnwise_encoder::Vectors;
use turnwise_measures::plane::plane;

/// Maximum number of characters of the opening text.
const MAX_CHARS: usize = 120;

/// A dialogue on the map.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Point {
    /// Id of the dialogue.
    pub id: String,
    /// Index of its cluster, starting at 0.
    pub cluster: usize,
    /// Coordinates `[x, y]`, each from −1 to 1.
    pub at: [f32; 2],
    /// Title of the dialogue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Start of the first user turn.
    pub text: String,
}

impl Point {
    pub(super) fn of(dialogue: &Dialogue, cluster: usize, at: [f32; 2]) -> Self {
        let text = dialogue.opening().map(|turn| turn.text.as_str()).unwrap_or_default();
        let end = text.char_indices().nth(MAX_CHARS);
        Point {
            id: dialogue.id.to_string(),
            cluster,
            at,
            title: dialogue.title.clone(),
            text: end.map_or_else(|| text.to_owned(), |(end, _)| format!("{}…", &text[..end])),
        }
    }
}

/// Computes the map coordinates of a random sample of at most `limit` items.
pub(super) fn places(
    items: Items<'_>,
    limit: usize,
    seed: u64,
    stop: Stop<'_>,
) -> Result<HashMap<u32, [f32; 2]>> {
    let drawn = sample_indices(items.len(), limit, seed);
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
