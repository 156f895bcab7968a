//! The dialogue model: what every reader produces and everything else consumes.
//!
//! The same types, as JSON, are the canonical format: one [`Dialogue`] a line.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use turnwise_core::ids::{DialogueId, IdKey, TurnNo, UtteranceId};

/// Free key/value data of a dialogue or a turn. Any JSON value; filters reach scalars and lists of scalars.
pub type Metadata = BTreeMap<String, serde_json::Value>;

/// A conversation between two or more speakers, or a single utterance of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dialogue {
    /// The dialogue's name, unique in an index and stable for ever.
    pub id: DialogueId,
    /// The corpus or system it came from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// A title or subject line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The language as a BCP 47 tag (`en`, `zh`, `pt-BR`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// What it is about: domains, services or topics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
    /// What the speakers want in it as a whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intents: Vec<String>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
    /// The utterances, in order.
    pub turns: Vec<Turn>,
}

/// One utterance of one speaker.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// The turn's number, counted from 1. Left out, it is the turn's place in the list.
    #[serde(default, skip_serializing_if = "is_unnumbered")]
    pub number: TurnNo,
    /// Who speaks: a name, a nick, an account.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub speaker: String,
    /// In which role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// What is said.
    pub text: String,
    /// When it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// What the speaker wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// Dialog acts, as the corpus writes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acts: Vec<String>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: Metadata,
}

fn is_unnumbered(number: &TurnNo) -> bool {
    number.0 == 0
}

impl Turn {
    /// Who speaks: by name, else by role.
    pub fn who(&self) -> &str {
        match self.speaker.as_str() {
            "" => self.role.as_ref().map_or("", Role::as_str),
            name => name,
        }
    }

    /// What it does, where it does one thing alone: the name of its acts, without what they are about.
    pub fn does(&self) -> Option<&str> {
        let mut names = self.acts.iter().map(|act| act.split('(').next().unwrap_or_default().trim());
        let first = names.next().filter(|name| !name.is_empty())?;
        names.all(|name| name == first).then_some(first)
    }
}

/// Most dialogues a record may hold in turns; beyond it something is wrong with the file.
pub const MAX_TURNS: usize = 1_000_000;

impl Dialogue {
    /// A dialogue with an id and nothing else.
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

    /// Adds a turn and lets the caller go on with it.
    pub fn push(&mut self, speaker: impl Into<String>, role: Role, text: impl Into<String>) -> &mut Turn {
        self.turns.push(Turn {
            number: TurnNo(0),
            speaker: speaker.into(),
            role: Some(role),
            text: text.into(),
            ..Turn::default()
        });
        let last = self.turns.len() - 1;
        &mut self.turns[last]
    }

    /// Numbers the turns that have no number and checks what the model promises: at least one turn, numbers that
    /// grow, a text in at least one turn. The error is the reason alone; the caller knows the place.
    pub fn check(&mut self) -> Result<(), Cow<'static, str>> {
        if self.turns.is_empty() {
            return Err("the dialogue has no turns".into());
        }
        if self.turns.len() > MAX_TURNS {
            return Err(format!("the dialogue has {} turns, more than {MAX_TURNS}", self.turns.len()).into());
        }
        let mut last = 0;
        for turn in &mut self.turns {
            if turn.number.0 == 0 {
                turn.number = TurnNo(last + 1);
            }
            if turn.number.0 <= last {
                return Err(format!("turn number {} follows {last}; numbers must grow", turn.number).into());
            }
            last = turn.number.0;
        }
        if self.turns.iter().all(|t| t.text.trim().is_empty()) {
            return Err("every turn's text is empty".into());
        }
        Ok(())
    }

    /// The name of one of its utterances.
    pub fn utterance_id(&self, turn: TurnNo) -> UtteranceId {
        UtteranceId { dialogue: self.id.clone(), turn }
    }

    /// The speakers, in the order in which they first speak.
    pub fn speakers(&self) -> Vec<&str> {
        let mut seen = Vec::new();
        for turn in &self.turns {
            if !seen.contains(&turn.speaker.as_str()) {
                seen.push(turn.speaker.as_str());
            }
        }
        seen
    }

    /// The first turn in which a user says something, or else anybody: what a dialogue begins with, for people.
    pub fn opening(&self) -> Option<&Turn> {
        let said = || self.turns.iter().filter(|turn| !turn.text.trim().is_empty());
        said().find(|turn| turn.role == Some(Role::User)).or_else(|| said().next())
    }

    /// A key of what is said and by which role, whatever the ids, names and labels: equal for exact duplicates.
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

/// The part a speaker plays.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Who wants something: customer, user, seeker.
    User,
    /// Who answers: agent, assistant, bot, wizard.
    Agent,
    /// Instructions and notices, spoken by nobody.
    System,
    /// One of many equals.
    Participant,
    /// Another role, by its own name.
    Other(Box<str>),
}

impl Role {
    /// The role's name in files and on the screen.
    pub fn as_str(&self) -> &str {
        match self {
            Role::User => "user",
            Role::Agent => "agent",
            Role::System => "system",
            Role::Participant => "participant",
            Role::Other(name) => name,
        }
    }
}

impl From<&str> for Role {
    /// Exactly the names that [`Role::as_str`] gives, in any case; all others stay as they are.
    fn from(name: &str) -> Self {
        let name = name.trim().to_lowercase();
        match name.as_str() {
            "user" => Role::User,
            "agent" => Role::Agent,
            "system" => Role::System,
            "participant" => Role::Participant,
            _ => Role::Other(name.into()),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Role {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Role {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<str>::deserialize(deserializer)?;
        if name.trim().is_empty() {
            return Err(serde::de::Error::custom("a role must not be empty; leave it out instead"));
        }
        Ok(Role::from(name.as_ref()))
    }
}

impl JsonSchema for Role {
    fn schema_name() -> Cow<'static, str> {
        "Role".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "minLength": 1,
            "description": "The part a speaker plays.",
            "examples": ["user", "agent", "system", "participant"]
        })
    }
}

/// A moment, written as RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Time(pub jiff::Timestamp);

impl Time {
    /// Reads RFC 3339 (`2026-03-02T09:14:00Z`, any offset), or a date with or without a time of day, which is then
    /// taken as UTC.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Ok(time) = text.parse::<jiff::Timestamp>() {
            return Some(Time(time));
        }
        text.parse::<jiff::civil::DateTime>().ok().and_then(Time::from_civil)
    }

    /// A time of day without a zone, taken as UTC.
    pub fn from_civil(time: jiff::civil::DateTime) -> Option<Self> {
        time.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| Time(zoned.timestamp()))
    }

    /// Seconds since 1970, as Slack and others write them.
    pub fn from_unix(seconds: f64) -> Option<Self> {
        if !seconds.is_finite() {
            return None;
        }
        jiff::Timestamp::from_microsecond((seconds * 1e6).round() as i64).ok().map(Time)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Time::parse(&text).ok_or_else(|| {
            serde::de::Error::custom(format!("`{text}` is not a time; write it like 2026-03-02T09:14:00Z"))
        })
    }
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A moment as RFC 3339; without an offset it is taken as UTC.",
            "examples": ["2026-03-02T09:14:00Z"]
        })
    }
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
    fn turns_are_numbered_from_one_and_must_grow() {
        let mut d = dialogue(&["a", "b", "c"]);
        d.turns[1].number = TurnNo(5);
        d.check().unwrap();
        assert_eq!(d.turns.iter().map(|t| t.number.0).collect::<Vec<_>>(), [1, 5, 6]);
        d.turns[2].number = TurnNo(5);
        assert!(d.check().unwrap_err().contains("numbers must grow"));
    }

    #[test]
    fn a_dialogue_without_words_is_refused() {
        assert!(dialogue(&[]).check().is_err());
        assert!(dialogue(&["", " "]).check().is_err());
        assert!(dialogue(&["", "x"]).check().is_ok());
    }

    #[test]
    fn a_dialogue_opens_with_its_user() {
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
    fn the_text_key_ignores_names_and_labels_but_not_words() {
        let mut a = dialogue(&["hello", "hi"]);
        let mut b = a.clone();
        b.id = DialogueId::new("other").unwrap();
        b.turns[0].speaker = "someone else".into();
        b.domains.push("x".into());
        assert_eq!(a.text_key(), b.text_key());
        a.turns[0].text.push('!');
        assert_ne!(a.text_key(), b.text_key());
        // The border between two turns is part of the key.
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
}
