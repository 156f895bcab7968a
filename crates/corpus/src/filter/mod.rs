//! A typed filter: `domain=banking and (turns>=6 or meta.channel=phone) and not speaker="Ann B"`.
//!
//! Operators: `=`, `!=`, `<`, `<=`, `>`, `>=`, and `~` for "contains, whatever the case". A field with several values
//! (domains, speakers, …) matches if one of them does; `!=` is the opposite of `=`.
//!
//! It is asked of a dialogue as a whole, or of one turn. Of a turn, `role`, `speaker`, `text`, `time`, `length`, `turn`
//! and `intent` mean its own; where a turn has no time it is its dialogue's, and intents and metadata of the dialogue
//! count as the turn's too.

mod facts;
mod parse;
pub mod tree;

use std::{borrow::Cow, cmp::Ordering};

pub use facts::{FactNames, Facts, MAX_FACT_BYTES};

use crate::{Dialogue, Role, Time, Turn};
use turnwise_core::error::Result;

/// The fields a filter can name, beside `meta.KEY`. `corpus` is another name for `source`.
pub const FIELDS: [&str; 15] = [
    "id", "corpus", "source", "title", "language", "domain", "intent", "role", "speaker", "text", "time",
    "turns", "turn", "length", "meta.KEY",
];

/// A filter that was read and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    /// As it was written.
    text: String,
    node: Node,
    /// The conditions that the nodes name by their number.
    tests: Vec<Test>,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Test(usize),
}

/// One condition: a field, an operator, a value.
#[derive(Debug, Clone, PartialEq)]
struct Test {
    field: Field,
    op: Op,
    value: Value,
}

#[derive(Debug, Clone, PartialEq)]
enum Field {
    Id,
    Source,
    Title,
    Language,
    Domain,
    Intent,
    Role,
    Speaker,
    Text,
    Time,
    Turns,
    Turn,
    Length,
    Meta(String),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Op {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Contains,
}

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Text(String),
    Number(f64),
    Time(Time),
}

/// What a field of a dialogue or a turn holds.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Found<'a> {
    Text(&'a str),
    Number(f64),
    Time(Time),
}

impl Filter {
    /// Whether a dialogue fits.
    pub fn matches(&self, dialogue: &Dialogue) -> bool {
        self.node.holds(&|n| Some(self.tests[n].is_met(dialogue, None))) == Some(true)
    }

    /// Whether a turn of a dialogue fits.
    pub fn matches_turn(&self, dialogue: &Dialogue, turn: &Turn) -> bool {
        self.node.holds(&|n| Some(self.tests[n].is_met(dialogue, Some(turn)))) == Some(true)
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What fits both.
    pub fn and(&self, other: &Filter) -> Result<Filter> {
        format!("({}) and ({})", self.text, other.text).parse()
    }

    /// The first field it names that is none of these; any of the metadata is `meta.KEY`.
    pub fn field_beside(&self, fields: &[&str]) -> Option<&'static str> {
        self.tests.iter().map(|test| test.field.name()).find(|name| !fields.contains(name))
    }
}

impl std::fmt::Display for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Node {
    /// What follows from the conditions; `None` where it hangs on one of which nothing is known.
    fn holds(&self, known: &dyn Fn(usize) -> Option<bool>) -> Option<bool> {
        let all = |nodes: &[Node], decides: bool| {
            let mut answer = Some(!decides);
            for node in nodes {
                match node.holds(known) {
                    Some(is) if is == decides => return Some(decides),
                    Some(_) => {}
                    None => answer = None,
                }
            }
            answer
        };
        match self {
            Node::And(nodes) => all(nodes, false),
            Node::Or(nodes) => all(nodes, true),
            Node::Not(node) => node.holds(known).map(|holds| !holds),
            Node::Test(n) => known(*n),
        }
    }
}

impl Test {
    fn is_met(&self, dialogue: &Dialogue, turn: Option<&Turn>) -> bool {
        let mut any = false;
        let mut see = |found: Found<'_>| any |= self.fits(found);
        match turn {
            None => {
                self.field.own(dialogue, &mut see);
                self.field.of_turns(dialogue, &mut see);
            }
            Some(turn) => {
                self.field.of_turn(dialogue, turn, &mut see);
                self.field.own(dialogue, &mut see);
            }
        }
        self.op.asks_for_none() != any
    }

    /// Whether one value fits. For `!=`, whether it is what must not be there.
    fn fits(&self, found: Found<'_>) -> bool {
        let op = if self.op.asks_for_none() { Op::Equal } else { self.op };
        match (found, &self.value) {
            (Found::Number(n), Value::Number(wanted)) => op.holds(n.partial_cmp(wanted)),
            (Found::Time(time), Value::Time(wanted)) => op.holds(Some(time.cmp(wanted))),
            (Found::Text(text), value) => op.holds_for_text(text, value),
            _ => false,
        }
    }
}

impl Op {
    fn asks_for_none(self) -> bool {
        self == Op::NotEqual
    }

    fn holds_for_text(self, text: &str, value: &Value) -> bool {
        let wanted: Cow<'_, str> = match value {
            Value::Text(wanted) => wanted.as_str().into(),
            Value::Number(n) => n.to_string().into(),
            Value::Time(time) => time.to_string().into(),
        };
        match self {
            Op::Contains => text.to_lowercase().contains(&wanted.to_lowercase()),
            _ => self.holds(Some(text.cmp(wanted.as_ref()))),
        }
    }

    fn holds(self, order: Option<Ordering>) -> bool {
        let Some(order) = order else { return false };
        match self {
            Op::Equal => order.is_eq(),
            Op::NotEqual => order.is_ne(),
            Op::Less => order.is_lt(),
            Op::LessEqual => order.is_le(),
            Op::Greater => order.is_gt(),
            Op::GreaterEqual => order.is_ge(),
            Op::Contains => false,
        }
    }
}

type See<'a, 'b> = &'a mut dyn FnMut(Found<'b>);

impl Field {
    fn name(&self) -> &'static str {
        match self {
            Field::Id => "id",
            Field::Source => "source",
            Field::Title => "title",
            Field::Language => "language",
            Field::Domain => "domain",
            Field::Intent => "intent",
            Field::Role => "role",
            Field::Speaker => "speaker",
            Field::Text => "text",
            Field::Time => "time",
            Field::Turns => "turns",
            Field::Turn => "turn",
            Field::Length => "length",
            Field::Meta(_) => "meta.KEY",
        }
    }

    /// What a dialogue says itself; it counts for each of its turns too.
    fn own<'a>(&self, d: &'a Dialogue, see: See<'_, 'a>) {
        let mut texts =
            |texts: &mut dyn Iterator<Item = &'a str>| texts.for_each(|text| see(Found::Text(text)));
        match self {
            Field::Id => texts(&mut [d.id.as_str()].into_iter()),
            Field::Source => texts(&mut [d.source.as_str()].into_iter()),
            Field::Title => texts(&mut d.title.as_deref().into_iter()),
            Field::Language => texts(&mut d.language.as_deref().into_iter()),
            Field::Domain => texts(&mut d.domains.iter().map(String::as_str)),
            Field::Intent => texts(&mut d.intents.iter().map(String::as_str)),
            Field::Turns => see(Found::Number(d.turns.len() as f64)),
            Field::Meta(key) => d.metadata.get(key).into_iter().for_each(|value| in_json(value, see)),
            Field::Role | Field::Speaker | Field::Text | Field::Time | Field::Turn | Field::Length => {}
        }
    }

    /// What the turns of a dialogue say, for the dialogue as a whole.
    fn of_turns<'a>(&self, d: &'a Dialogue, see: See<'_, 'a>) {
        match self {
            Field::Time => {
                d.time
                    .or_else(|| d.turns.iter().find_map(|t| t.time))
                    .into_iter()
                    .for_each(|t| see(Found::Time(t)));
            }
            Field::Length => {
                see(Found::Number(d.turns.iter().map(|t| t.text.chars().count()).sum::<usize>() as f64))
            }
            // Metadata of a turn is about that turn alone.
            Field::Meta(_) => {}
            _ => d.turns.iter().for_each(|turn| self.of_turn(d, turn, see)),
        }
    }

    /// What one turn says.
    fn of_turn<'a>(&self, d: &'a Dialogue, turn: &'a Turn, see: See<'_, 'a>) {
        match self {
            Field::Role => turn.role.iter().for_each(|role: &'a Role| see(Found::Text(role.as_str()))),
            Field::Speaker => see(Found::Text(&turn.speaker)),
            Field::Text => see(Found::Text(&turn.text)),
            Field::Intent => turn.intent.iter().for_each(|intent| see(Found::Text(intent))),
            Field::Time => turn.time.or(d.time).into_iter().for_each(|time| see(Found::Time(time))),
            Field::Turn => see(Found::Number(f64::from(turn.number.0))),
            Field::Length => see(Found::Number(turn.text.chars().count() as f64)),
            Field::Meta(key) => turn.metadata.get(key).into_iter().for_each(|value| in_json(value, see)),
            Field::Id | Field::Source | Field::Title | Field::Language | Field::Domain | Field::Turns => {}
        }
    }
}

/// Scalars, and lists of them.
fn in_json<'a>(value: &'a serde_json::Value, see: See<'_, 'a>) {
    match value {
        serde_json::Value::Array(items) => items.iter().for_each(|item| in_json(item, see)),
        serde_json::Value::Number(n) => n.as_f64().into_iter().for_each(|n| see(Found::Number(n))),
        serde_json::Value::String(text) => see(Found::Text(text)),
        serde_json::Value::Bool(true) => see(Found::Text("true")),
        serde_json::Value::Bool(false) => see(Found::Text("false")),
        serde_json::Value::Null | serde_json::Value::Object(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(filter: &str) -> bool {
        let dialogue: Dialogue = serde_json::from_str(
            r#"{"id":"d1","source":"s","time":"2026-03-02T09:00:00Z","domains":["banking","fraud"],
                "metadata":{"n":5,"ok":true,"tags":["x","y"],"code":"007"},
                "turns":[{"speaker":"Ann B","role":"user","text":"My CARD is gone"},
                         {"speaker":"bot","role":"agent","text":"ok","intent":"confirm"}]}"#,
        )
        .unwrap();
        filter.parse::<Filter>().unwrap().matches(&dialogue)
    }

    #[test]
    fn what_fits_fits() {
        for yes in [
            "domain=fraud",
            "domain!=hotels",
            "turns>=2 and turns<3",
            "speaker='Ann B' or id=zzz",
            "not (domain=hotels or role=system)",
            "text ~ card",
            "time>2026-03-01 and time<2026-03-03T00:00:00Z",
            "meta.n>4.5 and meta.ok=true and meta.tags=y",
            "meta.code=\"007\"",
            "intent=confirm AND role=user",
        ] {
            assert!(matches(yes), "{yes}");
        }
        for no in [
            "domain=hotels",
            "domain!=fraud",
            "meta.none=1",
            "title=x",
            "turns>2",
            "not text~gone",
            "time<2026",
        ] {
            assert!(!no.parse::<Filter>().is_ok_and(|_| matches(no)), "{no}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let message = |text: &str| text.parse::<Filter>().unwrap_err().to_string();
        let e = "domian=x".parse::<Filter>().unwrap_err();
        assert_eq!(e.hint().as_deref(), Some("did you mean `domain`?"));
        assert!(message("turns>many").contains("compared with a number"));
        assert!(message("domain").contains("operator"));
        assert!(message("domain=").contains("ends where a value"));
        assert!(message("(domain=x").contains("`)` is missing"));
        assert!(message("domain=x y").contains("`y` is not expected"));
        assert!(message("id='x").contains("not closed"));
        assert!(message(&"(".repeat(1000)).contains("nested deeper"));
        assert!(message("").contains("ends where a field"));
    }

    #[test]
    fn two_are_joined_whatever_stands_between_their_conditions() {
        let filter = |text: &str| text.parse::<Filter>().unwrap();
        let both = filter("domain=hotels or turns=2").and(&filter("id=zzz or domain=fraud")).unwrap();
        assert!(matches(both.as_str()));
        assert!(!matches(both.and(&filter("id=zzz")).unwrap().as_str()));
        assert_eq!(both.field_beside(&["domain", "turns"]), Some("id"));
        assert_eq!(filter("meta.x=1 and corpus=a").field_beside(&["meta.KEY", "source"]), None);
    }
}
