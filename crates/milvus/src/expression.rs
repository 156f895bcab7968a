//! Translation of filters to Milvus filter expressions. The type `FilterColumns` (`rows.rs`) describes the columns that
//! the expressions use. All texts are escaped with [`names::quoted`].

use super::{
    generations::Manifest,
    names,
    schema::{FIRST_TIME, LAST_TIME},
};
use turnwise_core::error::{Error, Result};
use turnwise_corpus::filter::{Comparison, Condition, Filter, Tree, TypedValue};
use turnwise_index::vectors::Kind;

pub(super) fn of(filter: &Filter, kind: Kind, manifest: &Manifest) -> Result<String> {
    node(&filter.tree(), kind, manifest)
}

fn node(tree: &Tree<'_>, kind: Kind, manifest: &Manifest) -> Result<String> {
    let all = |nodes: &[Tree<'_>], between: &str| {
        let parts: Vec<String> =
            nodes.iter().map(|tree| node(tree, kind, manifest)).collect::<Result<_>>()?;
        Ok(format!("({})", parts.join(between)))
    };
    match tree {
        Tree::And(nodes) => all(nodes, " and "),
        Tree::Or(nodes) => all(nodes, " or "),
        Tree::Not(inner) => Ok(format!("(not {})", node(inner, kind, manifest)?)),
        Tree::Condition(condition) => self::condition(condition, kind, manifest),
    }
}

fn condition(condition: &Condition<'_>, kind: Kind, manifest: &Manifest) -> Result<String> {
    let Condition { field, comparison, wanted } = condition;
    match (field.as_str(), comparison) {
        ("text", Comparison::Contains) if kind == Kind::Utterances => contains("said", wanted),
        ("text", _) => Err(unsupported(match kind {
            Kind::Utterances => "comparing the whole text of a turn",
            Kind::Dialogues => "a filter on the text of whole dialogues",
        })),
        ("turn", _) if kind == Kind::Dialogues => {
            Err(unsupported("a filter on turn numbers of whole dialogues"))
        }
        (_, Comparison::Contains) => {
            let column = format!("folds[{}]", names::quoted(&names::key(field)));
            Ok(format!("(exists {column} and {})", contains(&column, wanted)?))
        }
        (_, Comparison::Equal) => same(field, wanted),
        (field, comparison) => Ok(match wanted {
            TypedValue::Time(time) if field == "time" && manifest.times => {
                ordered_time(*comparison, time.0.as_microsecond())
            }
            _ => ordered(field, *comparison, wanted),
        }),
    }
}

/// Returns a filter value as text. A number or a time in a filter also matches a text with the same spelling.
fn written(wanted: &TypedValue<'_>) -> String {
    match wanted {
        TypedValue::Text(text) => (*text).to_owned(),
        TypedValue::Number(number) => number.to_string(),
        TypedValue::Time(time) => time.to_string(),
    }
}

fn contains(column: &str, wanted: &TypedValue<'_>) -> Result<String> {
    let folded = names::folded(&written(wanted));
    if folded.contains(super::rows::BETWEEN) {
        return Err(unsupported("a filter with control characters"));
    }
    Ok(format!("{column} like {}", names::quoted(&format!("%{folded}%"))))
}

fn same(field: &str, wanted: &TypedValue<'_>) -> Result<String> {
    // The corpus is the partition key. This condition limits the search to one partition.
    if let ("source", TypedValue::Text(corpus)) = (field, wanted) {
        return Ok(format!("corpus == {}", names::quoted(corpus)));
    }
    let mut facts = vec![names::fact(field, 't', &written(wanted))];
    match wanted {
        TypedValue::Text(_) => {}
        TypedValue::Number(number) => facts.push(names::fact(field, 'n', &number.to_string())),
        TypedValue::Time(time) => facts.push(names::fact(field, 'i', &time.to_string())),
    }
    if facts.iter().any(|fact| fact.len() > names::LONGEST_FACT) {
        let most = names::LONGEST_FACT;
        return Err(unsupported(&format!("comparing with a value of more than {most} bytes")));
    }
    let facts: Vec<String> = facts.iter().map(|fact| names::quoted(fact)).collect();
    Ok(format!("array_contains_any(facts, [{}])", facts.join(", ")))
}

/// Returns the expression for one of the comparisons `<`, `<=`, `>` and `>=` with a time in microseconds.
fn ordered_time(comparison: Comparison, time: i64) -> String {
    let (sign, end) = sign_and_end(comparison);
    let column = if end == "least" { FIRST_TIME } else { LAST_TIME };
    format!("{column} {sign} {time}")
}

/// Returns the expression for one of the comparisons `<`, `<=`, `>` and `>=`. A field can have several values. At least
/// one value is less than `wanted` if the minimum is less, and at least one is greater if the maximum is greater.
fn ordered(field: &str, comparison: Comparison, wanted: &TypedValue<'_>) -> String {
    let (sign, end) = sign_and_end(comparison);
    let field = names::quoted(&names::key(field));
    let part = |kind: char, value: String| {
        let column = format!("bounds[{field}][{}]", names::quoted(&format!("{kind}_{end}")));
        format!("(exists {column} and {column} {sign} {value})")
    };
    let text = part('t', names::quoted(&written(wanted)));
    match wanted {
        TypedValue::Text(_) => text,
        TypedValue::Number(number) => format!("({} or {text})", part('n', names::number(*number))),
        TypedValue::Time(time) => format!("({} or {text})", part('i', time.0.as_microsecond().to_string())),
    }
}

/// Returns the operator for one of the comparisons `<`, `<=`, `>` and `>=`, and the end of the values that it compares.
fn sign_and_end(comparison: Comparison) -> (&'static str, &'static str) {
    match comparison {
        Comparison::Less => ("<", "least"),
        Comparison::LessEqual => ("<=", "least"),
        Comparison::Greater => (">", "most"),
        _ => (">=", "most"),
    }
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported {
        message: format!("{what} is not supported in Milvus"),
        hint: Some("`text~WORD` filters utterances; a local index supports all filters".to_owned()),
    }
}
