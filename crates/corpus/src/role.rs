//! Roles of speakers.

use std::{borrow::Cow, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Role of a speaker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The party with a request: customer, user, seeker.
    User,
    /// The party that answers: agent, assistant, bot, wizard.
    Agent,
    /// The source of instructions and automatic notices. It is not a person.
    System,
    /// A person in a conversation without distinct roles.
    Participant,
    /// Any other role, by name.
    Other(Box<str>),
}

impl Role {
    /// Returns the name of the role in files and output.
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
    /// Converts a role name, ignoring case. An unknown name becomes [`Role::Other`] with the name in lower case.
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
            return Err(serde::de::Error::custom("a role must not be empty; omit it instead"));
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
            "description": "Role of a speaker.",
            "examples": ["user", "agent", "system", "participant"]
        })
    }
}
