//! Interface for search engines that evaluate filters without reading records. An index uses facts, which are encoded
//! field values. An engine with its own query language translates the syntax tree of the filter.
//!
//! A fact is a short term that an index stores with a document. It consists of the field name, a divider, a type letter
//! and the value. For example, the fact for `role=user` is `role`, the divider and `tuser`. To evaluate a filter, an
//! index finds the facts that match, and then the documents that have these facts.
//!
//! The texts of turns are not stored as facts. For a very long value, the fact contains only a marker. If the result of
//! a filter depends on a text or a marker, the engine must read the record.

use std::ops::Range;

use super::{Field, Filter, NAMED_FIELDS, Node, Value, parse};
use crate::{Dialogue, Time, Turn};
use turnwise_core::error::Result;

/// Maximum length in bytes of a text in a fact (encoded field value). A longer text is replaced with a marker.
pub const MAX_FACT_BYTES: usize = 1024;

/// Divider between the field name and the value in a fact (encoded field value).
const DIVIDER: char = '\u{1}';
/// First character of a fact (encoded field value) that a dialogue takes from one of its turns. Other facts do not
/// start with this character.
const OF_TURNS: char = '*';

/// The facts of a dialogue or a turn: strings that encode the values of its filterable fields.
#[derive(Debug, Default)]
pub struct Facts(Vec<String>);

impl Facts {
    /// Returns the distinct facts of a dialogue, sorted. The id of the dialogue and the texts, numbers and metadata of
    /// its turns are omitted.
    pub fn of_dialogue(dialogue: &Dialogue) -> Vec<String> {
        let mut facts = Facts::default();
        for field in fields(dialogue.metadata.keys()) {
            // The id has its own column in the index.
            if field != Field::Id {
                field.visit_dialogue(dialogue, &mut |found| facts.add(name(&field), found));
            }
            if indexes_turn_values(&field) {
                let name = format!("{OF_TURNS}{}", name(&field));
                field.visit_turns(dialogue, &mut |found| facts.add(name.clone(), found));
            }
        }
        facts.distinct()
    }

    /// Returns the distinct facts of a turn, sorted. The text of the turn and the facts of its dialogue are omitted.
    pub fn of_turn(dialogue: &Dialogue, turn: &Turn) -> Vec<String> {
        let mut facts = Facts::default();
        for field in fields(turn.metadata.keys()).filter(|field| *field != Field::Text) {
            field.visit_turn(dialogue, turn, &mut |found| facts.add(name(&field), found));
        }
        facts.distinct()
    }

    fn add(&mut self, name: String, found: TypedValue<'_>) {
        let value = match found {
            TypedValue::Text(text) if text.len() > MAX_FACT_BYTES => "l".to_owned(),
            TypedValue::Text(text) => format!("t{text}"),
            TypedValue::Number(n) => format!("n{n}"),
            TypedValue::Time(time) => format!("i{time}"),
        };
        self.0.push(name + &value);
    }

    fn distinct(mut self) -> Vec<String> {
        self.0.sort_unstable();
        self.0.dedup();
        self.0
    }
}

/// Returns all fields: the fields with fixed names, then one metadata field for each of `keys`.
fn fields<'a>(keys: impl Iterator<Item = &'a String> + 'a) -> impl Iterator<Item = Field> + 'a {
    let named = NAMED_FIELDS.iter().map(|(_, field)| field.clone());
    named.chain(keys.map(|key| Field::Meta(key.clone())))
}

/// Returns whether the facts (encoded field values) of a dialogue include the values of `field` in its turns. Texts
/// and turn numbers are excluded, because they would produce too many facts.
fn indexes_turn_values(field: &Field) -> bool {
    !matches!(field, Field::Text | Field::Turn)
}

/// Returns the common prefix of the facts (encoded values) of a field. A divider within a metadata key is doubled, so
/// that it differs from the divider after the key.
fn name(field: &Field) -> String {
    match field {
        Field::Meta(key) => {
            format!("meta.{}{DIVIDER}", key.replace(DIVIDER, &format!("{DIVIDER}{DIVIDER}")))
        }
        field => format!("{}{DIVIDER}", field.name()),
    }
}

/// The two prefixes of facts (encoded field values) of a field. The first prefix is for values that a dialogue takes
/// from its turns. The second prefix is for all other values.
pub struct FactNames([String; 2]);

impl FactNames {
    /// Returns the fact prefixes of a field. The argument is the name of the field in filters.
    pub fn of(field: &str) -> Result<Self> {
        let name = name(&parse::field(field)?);
        Ok(FactNames([format!("{OF_TURNS}{name}"), name]))
    }

    /// Returns the fact of a turn, or of the dialogue itself, with the text `value` in this field.
    pub fn text(&self, value: &str) -> String {
        format!("{}t{value}", self.0[1])
    }

    /// Returns the fact of a turn, or of the dialogue itself, with a time in this field.
    pub fn time(&self, time: &str) -> String {
        format!("{}i{time}", self.0[1])
    }

    /// Returns the range of the facts of turns, or of the dialogues themselves, in this field.
    pub fn range(&self) -> Range<String> {
        let name = &self.0[1];
        // The facts of the field start with its name and the divider, so they come before the next character.
        name.clone()..format!("{}\u{2}", name.trim_end_matches(DIVIDER))
    }

    /// Returns the fact of a turn, or of the dialogue itself, that marks a long text in this field.
    pub fn long(&self) -> String {
        format!("{}l", self.0[1])
    }

    /// Returns the value in a fact of a turn, or of the dialogue itself, in the form for [`Filter::fact_matches`].
    pub fn encoded<'f>(&self, fact: &'f str) -> Option<&'f str> {
        fact.strip_prefix(self.0[1].as_str())
    }

    /// Returns the value in `fact`. Returns `None` if the fact does not start with a prefix in `self`, or if the
    /// fact contains only the marker for a long text.
    pub fn value<'f>(&self, fact: &'f str) -> Option<&'f str> {
        let value = self.0.iter().find_map(|name| fact.strip_prefix(name.as_str()))?;
        value.strip_prefix(['t', 'n', 'i'])
    }
}

impl Filter {
    /// Returns the number of conditions in the filter. Other methods identify a condition by its index, counted from 0.
    pub fn tests(&self) -> usize {
        self.tests.len()
    }

    /// Returns whether the condition with index `test` tests the dialogue id.
    pub fn tests_id(&self, test: usize) -> bool {
        self.tests[test].field == Field::Id
    }

    /// Returns the prefixes of the facts (encoded values) that the condition with index `test` tests. `whole` means
    /// that the filter is evaluated on whole dialogues. The prefix for values from turns is then included.
    pub fn fact_names(&self, test: usize, whole: bool) -> Vec<String> {
        let name = name(&self.tests[test].field);
        if whole { vec![format!("{OF_TURNS}{name}"), name] } else { vec![name] }
    }

    /// Returns whether the condition with index `test` can be evaluated only on the stored dialogue, not on facts.
    /// `whole` means that the filter is evaluated on whole dialogues.
    pub fn needs_record(&self, test: usize, whole: bool) -> bool {
        let field = &self.tests[test].field;
        *field == Field::Text || whole && !indexes_turn_values(field)
    }

    /// Returns whether the value in a fact satisfies the condition with index `test`. `value` is the fact without its
    /// prefix. Returns `None` for the marker of a long text. For `field!=x`, tests `field=x`;
    /// [`Filter::decide`] negates the result.
    pub fn fact_matches(&self, test: usize, value: &str) -> Option<bool> {
        let mut chars = value.chars();
        let kind = chars.next();
        let value = chars.as_str();
        let found = match kind {
            Some('l') => return None,
            Some('t') => TypedValue::Text(value),
            Some('n') => TypedValue::Number(value.parse().ok()?),
            Some('i') => TypedValue::Time(Time::parse(value)?),
            // The fact belongs to a different metadata key that starts with the key of the condition.
            _ => return Some(false),
        };
        Some(self.tests[test].fits(found))
    }

    /// Returns whether a dialogue id satisfies the condition with index `test`. The condition of `id!=x` is `id=x`, and
    /// [`Filter::decide`] negates the result.
    pub fn id_matches(&self, test: usize, id: &str) -> bool {
        self.tests[test].fits(TypedValue::Text(id))
    }

    /// Evaluates the filter. Bit N of `fit` is 1 if a known value satisfies condition N. Bit N of `unknown` is 1 if an
    /// unknown value could satisfy condition N. Returns `None` if the result depends on unknown values.
    pub fn decide(&self, fit: u64, unknown: u64) -> Option<bool> {
        self.node.holds(&|n| {
            let bit = 1u64 << n;
            match (fit & bit != 0, unknown & bit != 0) {
                (true, _) => Some(true),
                (false, true) => None,
                (false, false) => Some(false),
            }
        })
    }
}

/// Syntax tree of a filter.
#[derive(Debug)]
pub enum Tree<'a> {
    /// All children are true.
    And(Vec<Tree<'a>>),
    /// At least one child is true.
    Or(Vec<Tree<'a>>),
    /// The child is false.
    Not(Box<Tree<'a>>),
    /// A condition.
    Condition(Condition<'a>),
}

/// Condition of a filter: at least one value of the field satisfies the comparison. `field!=value` is a [`Tree::Not`]
/// with the condition `field=value`.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition<'a> {
    /// Name of the field, such as `role` or `meta.channel`.
    pub field: String,
    /// The comparison operator.
    pub comparison: Comparison,
    /// The value with which the field is compared.
    pub wanted: TypedValue<'a>,
}

/// Comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// The operator `=`.
    Equal,
    /// The operator `<`.
    Less,
    /// The operator `<=`.
    LessEqual,
    /// The operator `>`.
    Greater,
    /// The operator `>=`.
    GreaterEqual,
    /// The operator `~`: the text of the field contains the value, ignoring case.
    Contains,
}

/// Text, number or time. It is either a value of a field, or the value with which a condition compares the field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TypedValue<'a> {
    /// A text. If the field has a text and the condition has a number or a time, both are compared as texts.
    Text(&'a str),
    /// A number.
    Number(f64),
    /// A point in time.
    Time(Time),
}

impl Filter {
    /// Returns the syntax tree of the filter.
    pub fn tree(&self) -> Tree<'_> {
        self.tree_of(&self.node)
    }

    fn tree_of(&self, node: &Node) -> Tree<'_> {
        let all = |nodes: &[Node]| nodes.iter().map(|node| self.tree_of(node)).collect();
        match node {
            Node::And(nodes) => Tree::And(all(nodes)),
            Node::Or(nodes) => Tree::Or(all(nodes)),
            Node::Not(node) => Tree::Not(Box::new(self.tree_of(node))),
            Node::Test(n) => {
                let test = &self.tests[*n];
                let wanted = match &test.value {
                    Value::Text(text) => TypedValue::Text(text),
                    Value::Number(number) => TypedValue::Number(*number),
                    Value::Time(time) => TypedValue::Time(*time),
                };
                let (field, comparison) = (full_name(&test.field), test.comparison);
                Tree::Condition(Condition { field, comparison, wanted })
            }
        }
    }
}

fn full_name(field: &Field) -> String {
    match field {
        Field::Meta(key) => format!("meta.{key}"),
        field => field.name().to_owned(),
    }
}

/// Calls `visit` with the name and value of each field that filters can test. The values are those of a turn and its
/// dialogue, or those of the whole dialogue if `turn` is `None`. For a whole dialogue, the texts, numbers and metadata
/// of its turns are omitted.
pub fn visit_values<'a>(
    dialogue: &'a Dialogue,
    turn: Option<&'a Turn>,
    visit: &mut dyn FnMut(&str, TypedValue<'a>),
) {
    let mut keys: Vec<&String> =
        dialogue.metadata.keys().chain(turn.into_iter().flat_map(|turn| turn.metadata.keys())).collect();
    keys.sort_unstable();
    keys.dedup();
    for field in fields(keys.into_iter()) {
        let name = full_name(&field);
        let mut visit_value = |found: TypedValue<'a>| visit(&name, found);
        field.visit_dialogue(dialogue, &mut visit_value);
        match turn {
            Some(turn) => field.visit_turn(dialogue, turn, &mut visit_value),
            None if indexes_turn_values(&field) => field.visit_turns(dialogue, &mut visit_value),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Evaluates a filter on facts (encoded field values), as an index does. Returns `None` if the facts are not
    /// sufficient to decide.
    fn by_facts(filter: &Filter, dialogue: &Dialogue, turn: Option<&Turn>) -> Option<bool> {
        let of_dialogue = Facts::of_dialogue(dialogue);
        let of_turn = turn.map(|turn| Facts::of_turn(dialogue, turn)).unwrap_or_default();
        let (mut fit, mut unknown) = (0, 0);
        for test in 0..filter.tests() {
            if filter.needs_record(test, turn.is_none()) {
                unknown |= 1 << test;
            }
            if filter.tests_id(test) {
                fit |= u64::from(filter.id_matches(test, dialogue.id.as_str())) << test;
            }
            for name in filter.fact_names(test, turn.is_none()) {
                for value in of_dialogue.iter().chain(&of_turn).filter_map(|fact| fact.strip_prefix(&name)) {
                    match filter.fact_matches(test, value) {
                        Some(fits) => fit |= u64::from(fits) << test,
                        None => unknown |= 1 << test,
                    }
                }
            }
        }
        filter.decide(fit, unknown)
    }

    fn dialogue(seed: u32) -> Dialogue {
        let pick = |n: u32, of: &[&'static str]| of[((seed >> (n * 2)) as usize + seed as usize) % of.len()];
        let mut dialogue: Dialogue = serde_json::from_value(json!({
            "id": pick(0, &["a", "b"]), "source": pick(1, &["", "s"]), "domains": [pick(2, &["x", "y"]), "z"],
            "intents": [pick(3, &["ask", "tell"])],
            "metadata": {"n": seed % 5, "thread": seed % 3, "k": [pick(4, &["p", "q"]), true], "k\u{1}t": "p",
                         "long": "x".repeat(MAX_FACT_BYTES + 1)},
            "turns": [
                {"role": pick(5, &["user", "agent"]), "speaker": pick(6, &["Ann", "Bo"]), "text": pick(7, &["hi", "card"])},
                {"role": "agent", "text": "ok", "intent": pick(8, &["ask", "end"]), "time": "2026-03-02T09:00:00Z",
                 "metadata": {"n": seed % 3}},
            ],
        }))
        .unwrap();
        dialogue.check().unwrap();
        dialogue
    }

    fn test() -> impl Strategy<Value = String> {
        let tests = [
            "id=a",
            "id>a",
            "corpus=s",
            "source!=s",
            "domain=x",
            "domain!=x",
            "intent=ask",
            "role=user",
            "role!=user",
            "speaker~an",
            "text~card",
            "text!=ok",
            "time>2026-01-01",
            "time<2026-01-01",
            "turns=2",
            "turn=1",
            "turn>1",
            "length<3",
            "length>=5",
            "meta.n=2",
            "meta.n>1",
            "meta.k=p",
            "thread=1",
            "thread!=\"2\"",
            "meta.k=true",
            "meta.none=1",
            "meta.long~y",
            "title=x",
            "meta.long~x",
        ];
        proptest::sample::select(tests.to_vec()).prop_map(str::to_owned)
    }

    fn filter() -> impl Strategy<Value = String> {
        test().prop_recursive(3, 12, 3, |inner| {
            let some = proptest::collection::vec(inner.clone(), 1..4);
            prop_oneof![
                inner.prop_map(|f| format!("not ({f})")),
                some.clone().prop_map(|f| format!("({})", f.join(" and "))),
                some.prop_map(|f| format!("({})", f.join(" or "))),
            ]
        })
    }

    proptest! {
        #[test]
        fn facts_and_records_give_the_same_result(seed in 0u32..4096, text in filter()) {
            let (dialogue, filter) = (dialogue(seed), text.parse::<Filter>().unwrap());
            let whole = by_facts(&filter, &dialogue, None);
            prop_assert!(whole.is_none_or(|is| is == filter.matches(&dialogue)), "{text} of {dialogue:?}: {whole:?}");
            for turn in &dialogue.turns {
                let by_facts = by_facts(&filter, &dialogue, Some(turn));
                let is = filter.matches_turn(&dialogue, turn);
                prop_assert!(by_facts.is_none_or(|by_facts| by_facts == is), "{text} of {turn:?}: {by_facts:?}");
                let needs_record = ["text", "long"].iter().any(|field| text.contains(field));
                prop_assert!(needs_record || by_facts.is_some(), "{text} needs no record");
            }
        }
    }

    #[test]
    fn a_key_that_is_a_prefix_of_another_does_not_match_it() {
        let dialogue = dialogue(0);
        for (filter, turn) in [("meta.k=p", None), ("meta.k=tp", None), ("meta.k=zzz", None)] {
            let filter: Filter = filter.parse().unwrap();
            assert_eq!(by_facts(&filter, &dialogue, turn), Some(filter.matches(&dialogue)), "{filter}");
        }
    }
}
