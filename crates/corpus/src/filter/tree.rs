//! Filter structure and field values, for search engines that evaluate filters in their own query language.

use super::{
    Field, FieldValue, Filter, Node, Op, Test, Value,
    facts::{fields, indexes_turn_values},
};
use crate::{Dialogue, Time, Turn};

/// Syntax tree of a filter.
#[derive(Debug)]
pub enum Tree<'a> {
    /// All children hold.
    And(Vec<Tree<'a>>),
    /// At least one child holds.
    Or(Vec<Tree<'a>>),
    /// The child does not hold.
    Not(Box<Tree<'a>>),
    /// A condition.
    Condition(Condition<'a>),
}

/// Condition: at least one value of the field satisfies the comparison. `!=` is represented by [`Tree::Not`] and `=`.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition<'a> {
    /// The field, such as `role` or `meta.channel`.
    pub field: String,
    /// The comparison operator.
    pub comparison: Comparison,
    /// The value to compare with.
    pub wanted: Known<'a>,
}

/// Comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// Equal.
    Equal,
    /// Less.
    Less,
    /// Less or equal.
    LessEqual,
    /// Greater.
    Greater,
    /// Greater or equal.
    GreaterEqual,
    /// The text contains the value, ignoring case.
    Contains,
}

/// Typed value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Known<'a> {
    /// A text. If a field has a text and the condition a number or a time, they are compared as text.
    Text(&'a str),
    /// A number.
    Number(f64),
    /// A point in time.
    Time(Time),
}

impl Filter {
    /// Returns the syntax tree.
    pub fn tree(&self) -> Tree<'_> {
        self.tree_of(&self.node)
    }

    fn tree_of(&self, node: &Node) -> Tree<'_> {
        let all = |nodes: &[Node]| nodes.iter().map(|node| self.tree_of(node)).collect();
        match node {
            Node::And(nodes) => Tree::And(all(nodes)),
            Node::Or(nodes) => Tree::Or(all(nodes)),
            Node::Not(node) => Tree::Not(Box::new(self.tree_of(node))),
            Node::Test(n) => self.tests[*n].tree(),
        }
    }
}

impl Test {
    fn tree(&self) -> Tree<'_> {
        let comparison = match self.op {
            Op::Equal | Op::NotEqual => Comparison::Equal,
            Op::Less => Comparison::Less,
            Op::LessEqual => Comparison::LessEqual,
            Op::Greater => Comparison::Greater,
            Op::GreaterEqual => Comparison::GreaterEqual,
            Op::Contains => Comparison::Contains,
        };
        let wanted = match &self.value {
            Value::Text(text) => Known::Text(text),
            Value::Number(number) => Known::Number(*number),
            Value::Time(time) => Known::Time(*time),
        };
        let condition = Tree::Condition(Condition { field: name(&self.field), comparison, wanted });
        match self.op.is_negated() {
            true => Tree::Not(Box::new(condition)),
            false => condition,
        }
    }
}

fn name(field: &Field) -> String {
    match field {
        Field::Meta(key) => format!("meta.{key}"),
        field => field.name().to_owned(),
    }
}

/// Visits all field values that filters can match: those of a turn, or those of a dialogue if `turn` is `None`.
///
/// For a dialogue, the texts and turn numbers of its turns are left out.
pub fn values<'a>(dialogue: &'a Dialogue, turn: Option<&'a Turn>, visit: &mut dyn FnMut(&str, Known<'a>)) {
    let mut keys: Vec<&String> =
        dialogue.metadata.keys().chain(turn.into_iter().flat_map(|turn| turn.metadata.keys())).collect();
    keys.sort_unstable();
    keys.dedup();
    for field in fields(keys.into_iter()) {
        let name = name(&field);
        let mut visit_value = |found: FieldValue<'a>| {
            let known = match found {
                FieldValue::Text(text) => Known::Text(text),
                FieldValue::Number(number) => Known::Number(number),
                FieldValue::Time(time) => Known::Time(time),
            };
            visit(&name, known);
        };
        field.visit_dialogue(dialogue, &mut visit_value);
        match turn {
            Some(turn) => field.visit_turn(dialogue, turn, &mut visit_value),
            None if indexes_turn_values(&field) => field.visit_turns(dialogue, &mut visit_value),
            None => {}
        }
    }
}
