//! The data model: dialogues and turns. In the canonical format, each line is a [`Dialogue`] as JSON.

use std::{
    borrow::Cow,
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Role, Time};
use turnwise_core::ids::{DialogueId, IdKey, TurnNo, UtteranceId};

/// Custom data of a dialogue or a turn: JSON values by name. Filters can test scalars and lists.
pub type Metadata = BTreeMap<String, serde_json::Value>;

/// A conversation between speakers, with at least one turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dialogue {
    /// Identifier of the dialogue, unique within an index.
    pub id: DialogueId,
    /// Name of the corpus or system that the dialogue comes from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Title or subject line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Language as a BCP 47 tag (`en`, `zh`, `pt-BR`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Time at which the dialogue started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Domains, services or topics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
    /// Intents of the dialogue as a whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intents: Vec<String>,
    /// Custom metadata of the dialogue: JSON values by name. Filters can test them as `meta.NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
    /// Turns in the order in which they were spoken.
    pub turns: Vec<Turn>,
}

/// One utterance of one speaker.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// Number of the turn, counted from 1. The default is the number of the previous turn plus 1.
    #[serde(default, skip_serializing_if = "is_unnumbered")]
    pub number: TurnNo,
    /// Name, nick or account of the speaker.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub speaker: String,
    /// Role of the speaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Text of the turn.
    pub text: String,
    /// Time of the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Intent of the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// Dialog acts, in the notation of the corpus.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acts: Vec<String>,
    /// Custom metadata of the turn: JSON values by name. Filters can test them as `meta.NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
}

/// A turn without its metadata, for reading many dialogues fast. Texts are borrowed from the record where possible.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SpokenTurn<'a> {
    /// Number of the turn.
    pub number: TurnNo,
    /// Name of the speaker; may be empty.
    #[serde(default, borrow)]
    pub speaker: Cow<'a, str>,
    /// Text of the turn.
    #[serde(borrow)]
    pub text: Cow<'a, str>,
    /// Time of the turn, or else of its dialogue.
    #[serde(default)]
    pub time: Option<Time>,
}

impl<'a> SpokenTurn<'a> {
    /// Returns a turn of a dialogue without its metadata.
    pub fn of(dialogue: &Dialogue, turn: &'a Turn) -> Self {
        SpokenTurn {
            number: turn.number,
            speaker: Cow::Borrowed(&turn.speaker),
            text: Cow::Borrowed(&turn.text),
            time: turn.time.or(dialogue.time),
        }
    }
}

/// Title and turns of a dialogue, for reading many dialogues fast. Texts are borrowed from the record where possible.
#[derive(Debug, Clone, PartialEq)]
pub struct SpokenDialogue<'a> {
    /// Title of the dialogue.
    pub title: Option<Cow<'a, str>>,
    /// The turns, in order.
    pub turns: Vec<SpokenTurn<'a>>,
}

impl<'a> SpokenDialogue<'a> {
    /// Returns the title and the turns of a dialogue.
    pub fn of(dialogue: &'a Dialogue) -> Self {
        let spoken = |turn: &'a Turn| SpokenTurn::of(dialogue, turn);
        SpokenDialogue {
            title: dialogue.title.as_deref().map(Cow::Borrowed),
            turns: dialogue.turns.iter().map(spoken).collect(),
        }
    }

    /// Reads the title and the turns from the canonical JSON of a dialogue.
    pub fn parse(json: &'a [u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Spoken<'a> {
            #[serde(default, borrow)]
            title: Option<Cow<'a, str>>,
            #[serde(default)]
            time: Option<Time>,
            #[serde(borrow)]
            turns: Vec<SpokenTurn<'a>>,
        }
        // Verifying the UTF-8 of the whole record at once is faster than verifying each text.
        let Spoken { title, time, mut turns } = match std::str::from_utf8(json) {
            Ok(json) => serde_json::from_str(json)?,
            Err(_) => serde_json::from_slice(json)?,
        };
        turns.iter_mut().for_each(|turn| turn.time = turn.time.or(time));
        Ok(SpokenDialogue { title, turns })
    }
}

fn is_unnumbered(number: &TurnNo) -> bool {
    number.0 == 0
}

impl Turn {
    /// Returns the speaker name, else the name of the role, else an empty string.
    pub fn who(&self) -> &str {
        match self.speaker.as_str() {
            "" => self.role.as_ref().map_or("", Role::as_str),
            name => name,
        }
    }

    /// Sets a metadata value of the turn. Does nothing if the value is null, an empty text or an empty list.
    pub fn note(&mut self, key: &str, value: impl Into<serde_json::Value>) {
        note(&mut self.metadata, key, value.into());
    }

    /// Returns the name that all dialog acts of the turn share, for example `inform` for `inform(area=north)`. Returns
    /// `None` if the turn has no acts, if the acts have different names, or if the name is empty.
    pub fn single_act(&self) -> Option<&str> {
        let mut names = self.acts.iter().map(|act| act.split('(').next().unwrap_or_default().trim());
        let first = names.next().filter(|name| !name.is_empty())?;
        names.all(|name| name == first).then_some(first)
    }
}

/// Metadata key of the thread of a dialogue.
pub const THREAD: &str = "thread";

/// Converts a JSON value to the name of a thread. Returns `None` if it is not a number or a text with visible
/// characters.
pub(crate) fn thread_name(value: &serde_json::Value) -> Option<Cow<'_, str>> {
    match value {
        serde_json::Value::String(text) => Some(text.as_str().into()).filter(|_| !text.trim().is_empty()),
        serde_json::Value::Number(number) if number.is_f64() => Some(number.as_f64()?.to_string().into()),
        serde_json::Value::Number(number) => Some(number.to_string().into()),
        _ => None,
    }
}

fn note(metadata: &mut Metadata, key: &str, value: serde_json::Value) {
    let is_empty = match &value {
        serde_json::Value::Null => true,
        serde_json::Value::String(text) => text.is_empty(),
        serde_json::Value::Array(list) => list.is_empty(),
        _ => false,
    };
    if !is_empty {
        metadata.insert(key.to_owned(), value);
    }
}

/// Maximum number of turns in a dialogue. A dialogue with more turns is rejected.
pub const MAX_TURNS: usize = 1_000_000;

impl Dialogue {
    /// Creates a dialogue with an id and no turns.
    pub fn new(id: DialogueId) -> Self {
        Dialogue {
            id,
            source: String::new(),
            title: None,
            language: None,
            time: None,
            domains: Vec::new(),
            intents: Vec::new(),
            metadata: Metadata::new(),
            turns: Vec::new(),
        }
    }

    /// Appends a turn, and returns it for further changes. The turn has no number yet: [`Dialogue::check`] assigns it.
    pub fn push(
        &mut self,
        speaker: impl Into<String>,
        role: impl Into<Option<Role>>,
        text: impl Into<String>,
    ) -> &mut Turn {
        let (speaker, role, text) = (speaker.into(), role.into(), text.into());
        self.turns.push(Turn { speaker, role, text, ..Turn::default() });
        let last = self.turns.len() - 1;
        &mut self.turns[last]
    }

    /// Sets a metadata value of the dialogue. Does nothing if the value is null, an empty text or an empty list.
    pub fn note(&mut self, key: &str, value: impl Into<serde_json::Value>) {
        note(&mut self.metadata, key, value.into());
    }

    /// Returns the thread of the dialogue: the text or number in the metadata value `thread`. Dialogues with the same
    /// thread belong together, for example the conversations of one customer.
    pub fn thread(&self) -> Option<Cow<'_, str>> {
        thread_name(self.metadata.get(THREAD)?)
    }

    /// Sets the thread to the value of a metadata key of the dialogue, or else to the value that its turns have for this
    /// key. Returns false, and changes nothing, if there is no such value, if it is neither a text nor a number, or if
    /// turns have different values.
    pub fn set_thread_from(&mut self, key: &str) -> bool {
        let own = self.metadata.get(key).and_then(thread_name);
        let mut of_turns = self.turns.iter().filter_map(|turn| thread_name(turn.metadata.get(key)?));
        let found = match own {
            Some(own) => Some(own),
            None => of_turns.next().filter(|first| of_turns.all(|other| other == *first)),
        };
        let Some(name) = found.map(Cow::into_owned) else { return false };
        self.note(THREAD, name);
        true
    }

    /// Returns the metadata keys of the dialogue and of its turns, sorted, without duplicates.
    pub fn metadata_keys(&self) -> BTreeSet<&str> {
        let of_turns = self.turns.iter().flat_map(|turn| turn.metadata.keys());
        self.metadata.keys().chain(of_turns).map(String::as_str).collect()
    }

    /// Returns the time of the dialogue, else the time of the first turn that has one.
    pub fn started(&self) -> Option<Time> {
        self.time.or_else(|| self.turns.iter().find_map(|turn| turn.time))
    }

    /// Compares the position of two dialogues in a thread: by time, then by id. Dialogues without a time are last.
    pub fn compare_in_thread(&self, other: &Dialogue) -> Ordering {
        let key = |dialogue: &Dialogue| (dialogue.started().is_none(), dialogue.started());
        key(self).cmp(&key(other)).then_with(|| self.id.cmp(&other.id))
    }

    /// Assigns numbers to the turns without a number, and validates the dialogue.
    ///
    /// A valid dialogue has 1 to [`MAX_TURNS`] turns, ascending turn numbers, and at least one turn with text. The
    /// error is a message that describes the problem, without file and line.
    pub fn check(&mut self) -> Result<(), Cow<'static, str>> {
        if self.turns.is_empty() {
            return Err("the dialogue has no turns".into());
        }
        if self.turns.len() > MAX_TURNS {
            let turns = self.turns.len();
            return Err(format!("the dialogue has {turns} turns; the maximum is {MAX_TURNS}").into());
        }
        let mut last = 0u32;
        for turn in &mut self.turns {
            if turn.number.0 == 0 {
                turn.number = TurnNo(last.saturating_add(1));
            }
            let number = turn.number.0;
            if number <= last {
                let message = format!("turn number {number} follows {last}; turn numbers must be ascending");
                return Err(message.into());
            }
            last = number;
        }
        if self.turns.iter().all(|t| t.text.trim().is_empty()) {
            return Err("every turn's text is empty".into());
        }
        Ok(())
    }

    /// Returns the utterance id of a turn of this dialogue.
    pub fn utterance_id(&self, turn: TurnNo) -> UtteranceId {
        UtteranceId { dialogue: self.id.clone(), turn }
    }

    /// Returns the distinct speaker names, in order of first appearance. All turns without a speaker name count as one
    /// speaker with an empty name.
    pub fn speakers(&self) -> Vec<&str> {
        let mut seen = Vec::new();
        for turn in &self.turns {
            if !seen.contains(&turn.speaker.as_str()) {
                seen.push(turn.speaker.as_str());
            }
        }
        seen
    }

    /// Returns the first user turn with text. If there is no such turn, returns the first turn with text. The turn
    /// serves as a preview of the dialogue.
    pub fn opening(&self) -> Option<&Turn> {
        let with_text = || self.turns.iter().filter(|turn| !turn.text.trim().is_empty());
        with_text().find(|turn| turn.role == Some(Role::User)).or_else(|| with_text().next())
    }

    /// Returns a hash of the texts and roles of the turns. Dialogues that differ only in other data, such as ids, names
    /// or times, have equal hashes.
    pub fn text_key(&self) -> IdKey {
        let mut hasher = blake3::Hasher::new();
        for turn in &self.turns {
            let role = turn.role.as_ref().map_or("", Role::as_str);
            hasher.update(role.as_bytes()).update(&[0]);
            hasher.update(turn.text.as_bytes()).update(&[0xff]);
        }
        IdKey::from_hash(&hasher.finalize())
    }
}

/// Returns the JSON Schema of a dialogue, that is, of one line of a file in the canonical format.
pub fn json_schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(Dialogue);
    schema.insert("title".into(), "turnwise dialogue".into());
    schema.insert("$id".into(), "turnwise/dialogue/1".into());
    // Readers also accept the thread as a field of the record. It is stored as metadata.
    if let Some(properties) = schema.get_mut("properties").and_then(serde_json::Value::as_object_mut) {
        let about = "Name of the thread: dialogues with the same thread belong together, such as the conversations of \
                     one customer. It is stored as the metadata value `thread`.";
        properties.insert(
            THREAD.to_owned(),
            serde_json::json!({"type": ["string", "number", "null"], "description": about}),
        );
    }
    schema.to_value()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialogue(texts: &[&str]) -> Dialogue {
        let mut d = Dialogue::new(DialogueId::new("d").unwrap());
        for text in texts {
            d.push("a", Role::User, *text);
        }
        d
    }

    #[test]
    fn the_thread_can_be_another_metadata_value() {
        let with = |own: Option<i64>, of_turns: [Option<&str>; 2]| {
            let mut d = dialogue(&["a", "b"]);
            d.note("thread", "before");
            d.note("key", own);
            d.turns.iter_mut().zip(of_turns).for_each(|(turn, value)| turn.note("key", value));
            let set = d.set_thread_from("key");
            (set, d.thread().unwrap().into_owned())
        };
        assert_eq!(with(Some(7), [Some("x"), None]), (true, "7".to_owned()));
        assert_eq!(with(None, [None, Some("x")]), (true, "x".to_owned()));
        assert_eq!(with(None, [Some("x"), Some("x")]), (true, "x".to_owned()));
        assert_eq!(with(None, [Some("x"), Some("y")]), (false, "before".to_owned()));
        assert_eq!(with(None, [None, None]), (false, "before".to_owned()));
    }

    #[test]
    fn turns_are_numbered_from_one_in_ascending_order() {
        let mut d = dialogue(&["a", "b", "c"]);
        d.turns[1].number = TurnNo(5);
        d.check().unwrap();
        assert_eq!(d.turns.iter().map(|t| t.number.0).collect::<Vec<_>>(), [1, 5, 6]);
        d.turns[2].number = TurnNo(5);
        assert!(d.check().unwrap_err().contains("must be ascending"));
    }

    #[test]
    fn a_dialogue_without_text_is_rejected() {
        assert!(dialogue(&[]).check().is_err());
        assert!(dialogue(&["", " "]).check().is_err());
        assert!(dialogue(&["", "x"]).check().is_ok());
    }

    #[test]
    fn the_opening_is_the_first_user_turn_with_text() {
        let mut d = Dialogue::new(DialogueId::new("d").unwrap());
        assert_eq!(d.opening(), None);
        d.push("", Role::System, " ");
        d.push("", Role::Agent, "welcome");
        assert_eq!(d.opening().unwrap().text, "welcome");
        d.push("", Role::User, "");
        d.push("", Role::User, "my card");
        assert_eq!(d.opening().unwrap().text, "my card");
    }

    #[test]
    fn the_text_key_ignores_names_and_labels_but_not_texts() {
        let mut a = dialogue(&["hello", "hi"]);
        let mut b = a.clone();
        b.id = DialogueId::new("other").unwrap();
        b.turns[0].speaker = "someone else".into();
        b.domains.push("x".into());
        assert_eq!(a.text_key(), b.text_key());
        a.turns[0].text.push('!');
        assert_ne!(a.text_key(), b.text_key());
        // The boundary between turns is part of the key.
        assert_ne!(dialogue(&["ab", "c"]).text_key(), dialogue(&["a", "bc"]).text_key());
    }

    #[test]
    fn times_are_read_with_and_without_offset() {
        let utc = Time::parse("2026-03-02T09:14:00Z").unwrap();
        assert_eq!(Time::parse("2026-03-02T10:14:00+01:00"), Some(utc));
        assert_eq!(Time::parse("2026-03-02T09:14"), Some(utc));
        assert_eq!(Time::parse("2026-03-02").unwrap().to_string(), "2026-03-02T00:00:00Z");
        assert_eq!(Time::parse("yesterday"), None);
        assert_eq!(Time::from_unix(f64::NAN), None);
    }

    #[test]
    fn unknown_fields_are_named() {
        let e = serde_json::from_str::<Dialogue>(r#"{"id":"d","turns":[{"txt":"x"}]}"#).unwrap_err();
        assert!(e.to_string().contains("unknown field `txt`"), "{e}");
    }

    #[test]
    fn the_schema_lists_the_required_fields() {
        let schema = super::json_schema();
        assert_eq!(schema["required"], serde_json::json!(["id", "turns"]));
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["properties"]["turns"]["type"], "array");
    }
}
