//! Finding a record by what a person types.

use crate::{
    corpus::Dialogue,
    error::{Error, Result},
    ids::{DialogueId, TurnNo, UtteranceId},
    store::Snapshot,
};

impl Snapshot {
    /// A dialogue by its id, or by the id of one of its utterances. An id may itself end in `#` and a number.
    pub fn find(&self, id: &str) -> Result<(Dialogue, Option<TurnNo>)> {
        if let Some(dialogue) = self.get(&DialogueId::new(id)?)? {
            return Ok((dialogue, None));
        }
        if let Ok(utterance) = id.parse::<UtteranceId>()
            && let Some(dialogue) = self.get(&utterance.dialogue)?
        {
            if dialogue.turns.iter().any(|t| t.number == utterance.turn) {
                return Ok((dialogue, Some(utterance.turn)));
            }
            let last = dialogue.turns.last().map_or(0, |t| t.number.0);
            return Err(Error::input(format!(
                "{} has no turn {}; its last is {last}",
                utterance.dialogue, utterance.turn
            )));
        }
        Err(Error::Input {
            message: format!("{} holds no dialogue `{id}`", self.root().display()),
            hint: Some("`turnwise search` finds ids, `turnwise corpus export` lists all".to_owned()),
        })
    }
}
