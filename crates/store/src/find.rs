//! Finding a record by what a person types.

use crate::Snapshot;
use turnwise_core::{
    error::{Error, Result},
    ids::{DialogueId, TurnNo, UtteranceId},
};
use turnwise_corpus::Dialogue;

impl Snapshot {
    /// A dialogue by its id, or by the id of one of its utterances. An id may itself end in `#` and a number.
    pub fn find(&self, id: &str) -> Result<(Dialogue, Option<TurnNo>)> {
        find_by(id, |dialogue| self.get(dialogue))?.ok_or_else(|| Error::Input {
            message: format!("{} holds no dialogue `{id}`", self.root().display()),
            hint: Some("`turnwise search` finds ids, `turnwise corpus export` lists all".to_owned()),
        })
    }
}

/// The same wherever dialogues are got from; `None` if there is no such dialogue.
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
    Err(Error::input(format!("{} has no turn {}; its last is {last}", utterance.dialogue, utterance.turn)))
}
