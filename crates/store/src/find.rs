//! Lookup of a dialogue by the id of a dialogue or an utterance.

use crate::Snapshot;
use turnwise_core::{
    error::{Error, Result},
    ids::{DialogueId, TurnNo, UtteranceId},
};
use turnwise_corpus::Dialogue;

impl Snapshot {
    /// Finds a dialogue by its id, or by the id of one of its utterances (`dialogue#turn`). A dialogue id may
    /// itself end in `#` and a number, so `id` is first looked up as a dialogue id. Returns an error if nothing is
    /// found.
    pub fn find(&self, id: &str) -> Result<(Dialogue, Option<TurnNo>)> {
        find_by(id, |dialogue| self.get(dialogue))?.ok_or_else(|| Error::Input {
            message: format!("{} holds no dialogue `{id}`", self.root().display()),
            hint: Some(
                "`turnwise search` finds ids; `turnwise corpus export` lists all dialogues".to_owned(),
            ),
        })
    }
}

/// Same as [`Snapshot::find`] for any source of dialogues: `get` loads a dialogue. Returns `None` if there is no such
/// dialogue, and an error if the dialogue has no such turn.
pub fn find_by(
    id: &str,
    get: impl Fn(&DialogueId) -> Result<Option<Dialogue>>,
) -> Result<Option<(Dialogue, Option<TurnNo>)>> {
    if let Some(dialogue) = get(&DialogueId::new(id)?)? {
        return Ok(Some((dialogue, None)));
    }
    let Ok(utterance) = id.parse::<UtteranceId>() else { return Ok(None) };
    let Some(dialogue) = get(&utterance.dialogue)? else { return Ok(None) };
    if dialogue.turns.iter().any(|turn| turn.number == utterance.turn) {
        return Ok(Some((dialogue, Some(utterance.turn))));
    }
    let last = dialogue.turns.last().map_or(0, |turn| turn.number.0);
    Err(Error::input(format!(
        "{} has no turn {}; its last turn is {last}",
        utterance.dialogue, utterance.turn
    )))
}
