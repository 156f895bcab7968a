//! Typed filters: `domain=banking and (turns>=6 or meta.channel=phone) and not speaker="Ann B"`.
//!
//! The operators are `=`, `!=`, `<`, `<=`, `>`, `>=`, and `~` for "contains" (ignoring case). A field with several
//! values, such as `domain`, matches if one of its values matches. `!=` is the negation of `=`.
//!
//! A filter is evaluated on a dialogue or on a single turn. On a turn, `role`, `speaker`, `text`, `time`, `length`,
//! `turn` and `intent` mean the values of the turn. A turn without a time has the time of its dialogue. The intents and
//! the metadata of a dialogue also apply to each of its turns.

mod needed;
mod parse;
mod pushdown;

use std::{borrow::Cow, cmp::Ordering};

pub use needed::Needed;
pub use pushdown::{Comparison, Condition, FactNames, Facts, MAX_FACT_BYTES, Tree, TypedValue, visit_values};

use crate::{Dialogue, Role, Time, Turn};
use turnwise_core::error::{Error, Result};

/// Names of the fields that can be used in filters. `corpus` is an alias of `source`, and `thread` of `meta.thread`.
pub const FIELDS: [&str; 16] = [
    "id", "corpus", "source", "thread", "title", "language", "domain", "intent", "role", "speaker", "text",
    "time", "turns", "turn", "length", "meta.KEY",
];

/// Parsed filter.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    text: String,
    node: Node,
    /// Conditions of the filter. A [`Node::Test`] contains an index into this list.
    tests: Vec<Test>,
}

/// Node of the syntax tree of a filter. `field!=value` is stored as the negation of `field=value`.
#[derive(Debug, Clone, PartialEq)]
enum Node {
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Test(usize),
}

/// Condition of a filter. It is met if at least one value of the field satisfies the comparison.
#[derive(Debug, Clone, PartialEq)]
struct Test {
    field: Field,
    comparison: Comparison,
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

/// All fields except metadata fields, with their names in filters.
static NAMED_FIELDS: [(&str, Field); 13] = [
    ("id", Field::Id),
    ("source", Field::Source),
    ("title", Field::Title),
    ("language", Field::Language),
    ("domain", Field::Domain),
    ("intent", Field::Intent),
    ("role", Field::Role),
    ("speaker", Field::Speaker),
    ("text", Field::Text),
    ("time", Field::Time),
    ("turns", Field::Turns),
    ("turn", Field::Turn),
    ("length", Field::Length),
];

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Text(String),
    Number(f64),
    Time(Time),
}

/// Returns a text as a quoted value of a filter.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

impl Filter {
    /// Returns whether a dialogue matches.
    pub fn matches(&self, dialogue: &Dialogue) -> bool {
        self.node.holds(&|n| Some(self.tests[n].is_met(dialogue, None))) == Some(true)
    }

    /// Returns whether a turn of a dialogue matches.
    pub fn matches_turn(&self, dialogue: &Dialogue, turn: &Turn) -> bool {
        self.node.holds(&|n| Some(self.tests[n].is_met(dialogue, Some(turn)))) == Some(true)
    }

    /// Returns the text from which the filter was parsed.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns a filter that matches if both filters match. Returns an error if the new filter has too many conditions
    /// or is nested too deeply.
    pub fn and(&self, other: &Filter) -> Result<Filter> {
        format!("({}) and ({})", self.text, other.text).parse()
    }

    /// Returns the filter for the dialogues of a thread. Returns an error if the name of the thread is empty.
    pub fn of_thread(thread: &str) -> Result<Filter> {
        if thread.trim().is_empty() {
            return Err(Error::input("the name of the thread is empty")
                .with_hint("give the value of the metadata field `thread` of its dialogues"));
        }
        format!("thread={}", quoted(thread)).parse()
    }

    /// Returns the filter for all dialogues except one.
    pub fn not_of_dialogue(id: &str) -> Result<Filter> {
        format!("id!={}", quoted(id)).parse()
    }

    /// Returns the name of the first field of the filter that is not in `fields`. For any metadata field, the name is
    /// the literal string `meta.KEY`, not the actual key.
    pub fn first_field_not_in(&self, fields: &[&str]) -> Option<&'static str> {
        self.tests.iter().map(|test| test.field.name()).find(|name| !fields.contains(name))
    }
}

impl std::fmt::Display for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Node {
    /// Evaluates the node. `known` returns the result of the condition with the given index, or `None` if the result is
    /// unknown. Returns `None` if the result of the node depends on unknown results.
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
        let mut visit = |value: TypedValue<'_>| any |= self.fits(value);
        match turn {
            None => {
                self.field.visit_dialogue(dialogue, &mut visit);
                self.field.visit_turns(dialogue, &mut visit);
            }
            Some(turn) => {
                self.field.visit_turn(dialogue, turn, &mut visit);
                self.field.visit_dialogue(dialogue, &mut visit);
            }
        }
        any
    }

    /// Returns whether `value`, a value of the field, satisfies the comparison.
    fn fits(&self, value: TypedValue<'_>) -> bool {
        match (value, &self.value) {
            (TypedValue::Number(n), Value::Number(wanted)) => self.comparison.holds(n.partial_cmp(wanted)),
            (TypedValue::Time(time), Value::Time(wanted)) => self.comparison.holds(Some(time.cmp(wanted))),
            (TypedValue::Text(text), value) => self.comparison.holds_for_text(text, value),
            _ => false,
        }
    }
}

impl Comparison {
    fn holds_for_text(self, text: &str, value: &Value) -> bool {
        let wanted: Cow<'_, str> = match value {
            Value::Text(wanted) => wanted.as_str().into(),
            Value::Number(n) => n.to_string().into(),
            Value::Time(time) => time.to_string().into(),
        };
        match self {
            Comparison::Contains => text.to_lowercase().contains(&wanted.to_lowercase()),
            _ => self.holds(Some(text.cmp(wanted.as_ref()))),
        }
    }

    fn holds(self, order: Option<Ordering>) -> bool {
        let Some(order) = order else { return false };
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::Less => order.is_lt(),
            Comparison::LessEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterEqual => order.is_ge(),
            Comparison::Contains => false,
        }
    }
}

type Visit<'a, 'b> = &'a mut dyn FnMut(TypedValue<'b>);

impl Field {
    fn name(&self) -> &'static str {
        NAMED_FIELDS.iter().find(|(_, field)| field == self).map_or("meta.KEY", |(name, _)| *name)
    }

    /// Visits the values of this field that belong to the dialogue itself. They also apply to each turn of the
    /// dialogue.
    fn visit_dialogue<'a>(&self, d: &'a Dialogue, visit: Visit<'_, 'a>) {
        let mut texts =
            |texts: &mut dyn Iterator<Item = &'a str>| texts.for_each(|text| visit(TypedValue::Text(text)));
        match self {
            Field::Id => texts(&mut [d.id.as_str()].into_iter()),
            Field::Source => texts(&mut [d.source.as_str()].into_iter()),
            Field::Title => texts(&mut d.title.as_deref().into_iter()),
            Field::Language => texts(&mut d.language.as_deref().into_iter()),
            Field::Domain => texts(&mut d.domains.iter().map(String::as_str)),
            Field::Intent => texts(&mut d.intents.iter().map(String::as_str)),
            Field::Turns => visit(TypedValue::Number(d.turns.len() as f64)),
            Field::Meta(key) => d.metadata.get(key).into_iter().for_each(|value| visit_json(value, visit)),
            Field::Role | Field::Speaker | Field::Text | Field::Time | Field::Turn | Field::Length => {}
        }
    }

    /// Visits the values of this field that a dialogue takes from its turns. The time is the time of the dialogue, or
    /// else the time of the first turn with a time. The length is the total length of the turns in characters.
    fn visit_turns<'a>(&self, d: &'a Dialogue, visit: Visit<'_, 'a>) {
        match self {
            Field::Time => {
                let time = d.time.or_else(|| d.turns.iter().find_map(|turn| turn.time));
                time.into_iter().for_each(|time| visit(TypedValue::Time(time)));
            }
            Field::Length => {
                let length: usize = d.turns.iter().map(|turn| turn.text.chars().count()).sum();
                visit(TypedValue::Number(length as f64));
            }
            // Metadata of a turn does not apply to the dialogue.
            Field::Meta(_) => {}
            _ => d.turns.iter().for_each(|turn| self.visit_turn(d, turn, visit)),
        }
    }

    /// Visits the values of this field that belong to a turn. A turn without a time has the time of its dialogue.
    fn visit_turn<'a>(&self, d: &'a Dialogue, turn: &'a Turn, visit: Visit<'_, 'a>) {
        match self {
            Field::Role => turn.role.iter().for_each(|role: &'a Role| visit(TypedValue::Text(role.as_str()))),
            Field::Speaker => visit(TypedValue::Text(&turn.speaker)),
            Field::Text => visit(TypedValue::Text(&turn.text)),
            Field::Intent => turn.intent.iter().for_each(|intent| visit(TypedValue::Text(intent))),
            Field::Time => turn.time.or(d.time).into_iter().for_each(|time| visit(TypedValue::Time(time))),
            Field::Turn => visit(TypedValue::Number(f64::from(turn.number.0))),
            Field::Length => visit(TypedValue::Number(turn.text.chars().count() as f64)),
            Field::Meta(key) => turn.metadata.get(key).into_iter().for_each(|value| visit_json(value, visit)),
            Field::Id | Field::Source | Field::Title | Field::Language | Field::Domain | Field::Turns => {}
        }
    }
}

/// Visits a JSON scalar, or each scalar in a list at any depth. Null values and objects are ignored.
fn visit_json<'a>(value: &'a serde_json::Value, visit: Visit<'_, 'a>) {
    match value {
        serde_json::Value::Array(items) => items.iter().for_each(|item| visit_json(item, visit)),
        serde_json::Value::Number(n) => n.as_f64().into_iter().for_each(|n| visit(TypedValue::Number(n))),
        serde_json::Value::String(text) => visit(TypedValue::Text(text)),
        serde_json::Value::Bool(true) => visit(TypedValue::Text("true")),
        serde_json::Value::Bool(false) => visit(TypedValue::Text("false")),
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
    fn filters_match() {
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
    fn a_thread_is_metadata_and_may_be_a_text_or_a_number() {
        let dialogue = |thread: serde_json::Value| {
            let mut dialogue = Dialogue::new(turnwise_core::ids::DialogueId::new("d").unwrap());
            dialogue.note("thread", thread);
            dialogue
        };
        let odd = "Anna \"B\" \\ O'Neil\n(北京) and x=1";
        for (thread, name) in [
            (odd.into(), odd),
            (7.into(), "7"),
            ("7".into(), "7"),
            ("007".into(), "007"),
            ("1187654321234567891".into(), "1187654321234567891"),
            (2.5.into(), "2.5"),
            (5.0.into(), "5"),
            (1187654321234567891u64.into(), "1187654321234567891"),
        ] {
            let dialogue = dialogue(thread);
            assert_eq!(dialogue.thread().as_deref(), Some(name));
            assert!(Filter::of_thread(name).unwrap().matches(&dialogue), "{name}");
            assert!(!Filter::of_thread("8").unwrap().matches(&dialogue), "{name}");
        }
        let matches =
            |filter: &str, thread: &str| filter.parse::<Filter>().unwrap().matches(&dialogue(thread.into()));
        assert!(matches("thread=007", "007") && !matches("thread=007", "7") && matches("thread!=7", "007"));
        assert!(matches("thread=1187654321234567891", "1187654321234567891"));
        assert!(!matches("thread=1187654321234567891", "1187654321234567890"));
        assert!(matches("thread~ANN", "anna-bob") && matches("meta.thread=anna-bob", "anna-bob"));
        // Slack exports have a boolean value with this name. It does not name a thread.
        assert_eq!(dialogue(true.into()).thread(), None);
        assert_eq!(dialogue(" ".into()).thread(), None);
        assert!(Filter::of_thread(" ").is_err());
        assert_eq!("thread=a".parse::<Filter>().unwrap().first_field_not_in(&["meta.KEY"]), None);
    }

    #[test]
    fn errors_describe_the_problem() {
        let message = |text: &str| text.parse::<Filter>().unwrap_err().to_string();
        let e = "domian=x".parse::<Filter>().unwrap_err();
        assert_eq!(e.hint().as_deref(), Some("did you mean `domain`?"));
        assert!(message("turns>many").contains("needs a number"));
        assert!(message("domain").contains("operator"));
        assert!(message("domain=").contains("value is missing"));
        assert!(message("(domain=x").contains("`)` is missing"));
        assert!(message("domain=x y").contains("unexpected `y`"));
        assert!(message("id='x").contains("not closed"));
        assert!(message(&"(".repeat(1000)).contains("nested deeper"));
        assert!(message("").contains("is empty or incomplete"));
    }

    #[test]
    fn joined_filters_keep_operator_precedence() {
        let filter = |text: &str| text.parse::<Filter>().unwrap();
        let both = filter("domain=hotels or turns=2").and(&filter("id=zzz or domain=fraud")).unwrap();
        assert!(matches(both.as_str()));
        assert!(!matches(both.and(&filter("id=zzz")).unwrap().as_str()));
        assert_eq!(both.first_field_not_in(&["domain", "turns"]), Some("id"));
        assert_eq!(filter("meta.x=1 and corpus=a").first_field_not_in(&["meta.KEY", "source"]), None);
    }
}
