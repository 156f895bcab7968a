//! A filter taken apart, and the values that it is asked of: for engines that answer filters in a language of their own.

use super::{
    Field, Filter, Found, Node, Op, Test, Value,
    facts::{fields, kept_of_turns},
};
use crate::{Dialogue, Time, Turn};

/// A filter's structure.
#[derive(Debug)]
pub enum Tree<'a> {
    /// All hold.
    And(Vec<Tree<'a>>),
    /// One holds at least.
    Or(Vec<Tree<'a>>),
    /// It does not hold.
    Not(Box<Tree<'a>>),
    /// A condition.
    Condition(Condition<'a>),
}

/// Some value of a field compares so with what is wanted. Of `!=`, whose opposite it is, the tree has [`Tree::Not`].
#[derive(Debug, Clone, PartialEq)]
pub struct Condition<'a> {
    /// The field: `role`, `meta.channel`.
    pub field: String,
    /// How.
    pub comparison: Comparison,
    /// With what.
    pub wanted: Known<'a>,
}

/// How values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// The same.
    Equal,
    /// Less.
    Less,
    /// Less, or the same.
    LessEqual,
    /// Greater.
    Greater,
    /// Greater, or the same.
    GreaterEqual,
    /// Texts: wherever it stands in it, whatever the case.
    Contains,
}

/// A value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Known<'a> {
    /// A text. Numbers and times that are wanted are compared with texts as they are written.
    Text(&'a str),
    /// A number.
    Number(f64),
    /// A moment.
    Time(Time),
}

impl Filter {
    /// Its structure.
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
        match self.op.asks_for_none() {
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

/// Gives every value that a filter may be asked of: of a turn, or of a dialogue as a whole, which leaves out the texts and
/// the numbers of its turns.
pub fn values<'a>(dialogue: &'a Dialogue, turn: Option<&'a Turn>, see: &mut dyn FnMut(&str, Known<'a>)) {
    let mut keys: Vec<&String> =
        dialogue.metadata.keys().chain(turn.into_iter().flat_map(|turn| turn.metadata.keys())).collect();
    keys.sort_unstable();
    keys.dedup();
    for field in fields(keys.into_iter()) {
        let name = name(&field);
        let mut seen = |found: Found<'a>| {
            let known = match found {
                Found::Text(text) => Known::Text(text),
                Found::Number(number) => Known::Number(number),
                Found::Time(time) => Known::Time(time),
            };
            see(&name, known);
        };
        field.own(dialogue, &mut seen);
        match turn {
            Some(turn) => field.of_turn(dialogue, turn, &mut seen),
            None if kept_of_turns(&field) => field.of_turns(dialogue, &mut seen),
            None => {}
        }
    }
}
