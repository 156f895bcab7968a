//! A typed filter as an expression of Milvus. No text gets into it but by [`names::quoted`].
//!
//! Rows have what is asked for in three forms: every value with its field in a list (`facts`), for what is the same; the least
//! and the greatest of each field (`bounds`), for what is more or less; and all texts of a field in one (`folds`), for what
//! stands in it.

use super::names;
use turnwise_core::error::{Error, Result};
use turnwise_corpus::filter::{
    Filter,
    tree::{Comparison, Condition, Known, Tree},
};
use turnwise_index::vectors::Kind;

/// The expression that a row must fit.
pub(super) fn of(filter: &Filter, kind: Kind) -> Result<String> {
    node(&filter.tree(), kind)
}

fn node(tree: &Tree<'_>, kind: Kind) -> Result<String> {
    let all = |nodes: &[Tree<'_>], between: &str| {
        let parts: Vec<String> = nodes.iter().map(|tree| node(tree, kind)).collect::<Result<_>>()?;
        Ok(format!("({})", parts.join(between)))
    };
    match tree {
        Tree::And(nodes) => all(nodes, " and "),
        Tree::Or(nodes) => all(nodes, " or "),
        Tree::Not(inner) => Ok(format!("(not {})", node(inner, kind)?)),
        Tree::Condition(condition) => self::condition(condition, kind),
    }
}

fn condition(condition: &Condition<'_>, kind: Kind) -> Result<String> {
    let Condition { field, comparison, wanted } = condition;
    match (field.as_str(), comparison) {
        ("text", Comparison::Contains) if kind == Kind::Utterances => contains("said", wanted),
        ("text", _) => Err(not_there(match kind {
            Kind::Utterances => "comparing whole texts of turns",
            Kind::Dialogues => "a filter over the texts of whole dialogues",
        })),
        ("turn", _) if kind == Kind::Dialogues => {
            Err(not_there("a filter over the numbers of turns in whole dialogues"))
        }
        (_, Comparison::Contains) => {
            let column = format!("folds[{}]", names::quoted(&names::key(field)));
            Ok(format!("(exists {column} and {})", contains(&column, wanted)?))
        }
        (_, Comparison::Equal) => same(field, wanted),
        (_, comparison) => Ok(ordered(field, *comparison, wanted)),
    }
}

/// What may stand in the place of a value, as texts: a number that is wanted fits a text, too, if it is written so.
fn written(wanted: &Known<'_>) -> String {
    match wanted {
        Known::Text(text) => (*text).to_owned(),
        Known::Number(number) => number.to_string(),
        Known::Time(time) => time.to_string(),
    }
}

fn contains(column: &str, wanted: &Known<'_>) -> Result<String> {
    let folded = names::folded(&written(wanted));
    if folded.contains(super::rows::BETWEEN) {
        return Err(not_there("a filter with control characters"));
    }
    Ok(format!("{column} like {}", names::quoted(&format!("%{folded}%"))))
}

fn same(field: &str, wanted: &Known<'_>) -> Result<String> {
    // The corpus is where rows lie: those of others need not be looked at.
    if let ("source", Known::Text(corpus)) = (field, wanted) {
        return Ok(format!("corpus == {}", names::quoted(corpus)));
    }
    let mut facts = vec![names::fact(field, 't', &written(wanted))];
    match wanted {
        Known::Text(_) => {}
        Known::Number(number) => facts.push(names::fact(field, 'n', &number.to_string())),
        Known::Time(time) => facts.push(names::fact(field, 'i', &time.to_string())),
    }
    if facts.iter().any(|fact| fact.len() > names::LONGEST_FACT) {
        return Err(not_there(&format!("comparing with a value of more than {} bytes", names::LONGEST_FACT)));
    }
    let facts: Vec<String> = facts.iter().map(|fact| names::quoted(fact)).collect();
    Ok(format!("array_contains_any(facts, [{}])", facts.join(", ")))
}

/// Some value is less exactly if the least one is, and greater if the greatest one is.
fn ordered(field: &str, comparison: Comparison, wanted: &Known<'_>) -> String {
    let (sign, end) = match comparison {
        Comparison::Less => ("<", "least"),
        Comparison::LessEqual => ("<=", "least"),
        Comparison::Greater => (">", "most"),
        _ => (">=", "most"),
    };
    let field = names::quoted(&names::key(field));
    let part = |kind: char, value: String| {
        let column = format!("bounds[{field}][{}]", names::quoted(&format!("{kind}_{end}")));
        format!("(exists {column} and {column} {sign} {value})")
    };
    let text = part('t', names::quoted(&written(wanted)));
    match wanted {
        Known::Text(_) => text,
        Known::Number(number) => format!("({} or {text})", part('n', names::number(*number))),
        Known::Time(time) => format!("({} or {text})", part('i', time.0.as_microsecond().to_string())),
    }
}

fn not_there(what: &str) -> Error {
    Error::Unsupported {
        message: format!("{what} is not possible in Milvus"),
        hint: Some("`text~WORD` filters utterances; an index on this machine can do all filters".to_owned()),
    }
}
