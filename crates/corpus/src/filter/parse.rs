//! Filter parser.

use std::{borrow::Cow, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{Comparison, FIELDS, Field, Filter, NAMED_FIELDS, Node, Test, Value};
use crate::Time;
use turnwise_core::error::{Error, Result};

/// Maximum number of conditions in a filter. [`Filter::decide`] uses one bit of a `u64` for each condition.
const MAX_TESTS: usize = 64;

impl FromStr for Filter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0, tests: Vec::new() };
        let node = parser.or()?;
        match parser.peek() {
            None if parser.tests.len() > MAX_TESTS => {
                let count = parser.tests.len();
                Err(wrong(format!("the filter has {count} conditions; the maximum is {MAX_TESTS}")))
            }
            None => Ok(Filter { text: text.trim().to_owned(), node, tests: parser.tests }),
            Some(token) => {
                Err(wrong(format!("unexpected `{}` in the filter at character {}", token.text, token.at)))
            }
        }
    }
}

impl Serialize for Filter {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|e: Error| serde::de::Error::custom(e.message_and_hint()))
    }
}

impl JsonSchema for Filter {
    fn schema_name() -> Cow<'static, str> {
        "Filter".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Conditions on fields, joined by and, or, not: domain=banking and (turns>=6 or meta.channel=phone)"
        })
    }
}

fn wrong(message: String) -> Error {
    let hint = "for example: domain=banking and (turns>=6 or meta.channel=phone) and not speaker=\"Ann B\"";
    Error::input(message).with_hint(hint)
}

#[derive(Debug, Clone)]
struct Token {
    text: String,
    quoted: bool,
    /// Position of the token's first character in the text of the filter, counted from 1.
    at: usize,
}

impl Token {
    fn is(&self, word: &str) -> bool {
        !self.quoted && self.text.eq_ignore_ascii_case(word)
    }
}

fn tokens(text: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().enumerate().peekable();
    while let Some((at, c)) = chars.next() {
        let mut token = Token { text: c.to_string(), quoted: false, at: at + 1 };
        match c {
            c if c.is_whitespace() => continue,
            '(' | ')' | '=' | '~' => {}
            '!' | '<' | '>' => {
                if let Some((_, '=')) = chars.peek() {
                    token.text.push('=');
                    chars.next();
                }
            }
            '"' | '\'' => {
                token.text.clear();
                token.quoted = true;
                loop {
                    match chars.next() {
                        None => {
                            return Err(wrong(format!("the quote at character {} is not closed", at + 1)));
                        }
                        Some((_, end)) if end == c => break,
                        Some((_, '\\')) => token.text.extend(chars.next().map(|(_, c)| c)),
                        Some((_, other)) => token.text.push(other),
                    }
                }
            }
            _ => {
                while let Some((_, c)) =
                    chars.next_if(|(_, c)| !c.is_whitespace() && !"()=!<>~\"'".contains(*c))
                {
                    token.text.push(c);
                }
            }
        }
        tokens.push(token);
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    depth: usize,
    tests: Vec<Test>,
}

/// Maximum nesting depth of parentheses and `not`. It also limits the recursion of the parser.
const MAX_DEPTH: usize = 64;

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn take(&mut self) -> Option<&Token> {
        self.next += 1;
        self.tokens.get(self.next - 1)
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.peek().is_some_and(|t| t.is(word));
        self.next += usize::from(found);
        found
    }

    fn or(&mut self) -> Result<Node> {
        let mut nodes = vec![self.and()?];
        while self.take_word("or") {
            nodes.push(self.and()?);
        }
        Ok(one_or(nodes, Node::Or))
    }

    fn and(&mut self) -> Result<Node> {
        let mut nodes = vec![self.not()?];
        while self.take_word("and") {
            nodes.push(self.not()?);
        }
        Ok(one_or(nodes, Node::And))
    }

    fn not(&mut self) -> Result<Node> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(wrong(format!("the filter is nested deeper than {MAX_DEPTH} levels")));
        }
        let node = if self.take_word("not") {
            Node::Not(Box::new(self.not()?))
        } else if self.take_word("(") {
            let inner = self.or()?;
            if !self.take_word(")") {
                return Err(wrong("a `)` is missing in the filter".into()));
            }
            inner
        } else {
            self.test()?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn test(&mut self) -> Result<Node> {
        let Some(Token { text: name, .. }) = self.take().cloned() else {
            return Err(wrong("the filter is empty or incomplete: a field is missing".into()));
        };
        let field = field(&name)?;
        let operator = self.take().cloned().map(|token| token.text).unwrap_or_default();
        let comparison = match operator.as_str() {
            "=" | "!=" => Comparison::Equal,
            "<" => Comparison::Less,
            "<=" => Comparison::LessEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterEqual,
            "~" => Comparison::Contains,
            _ => return Err(wrong(format!("`{name}` must be followed by an operator (= != < <= > >= ~)"))),
        };
        let Some(Token { text, quoted, .. }) = self.take().cloned() else {
            return Err(wrong(format!("the value is missing after `{name}` at the end of the filter")));
        };
        let number = text.parse().ok().filter(|n: &f64| n.is_finite());
        // A thread is a name, even if it consists of digits: `thread=007` does not match 7. But the metadata can also
        // contain the number.
        if name == "thread" && comparison == Comparison::Equal {
            let exact =
                |n: &f64| n.to_string() == text || text.parse().is_ok_and(|n: i64| n.to_string() == text);
            let number = number.filter(exact).map(Value::Number);
            let values = std::iter::once(Value::Text(text)).chain(number);
            let tests = values.map(|value| self.condition(field.clone(), comparison, value)).collect();
            let test = one_or(tests, Node::Or);
            return Ok(if operator == "!=" { Node::Not(Box::new(test)) } else { test });
        }
        let value = match &field {
            Field::Turns | Field::Turn | Field::Length => Value::Number(
                number.ok_or_else(|| wrong(format!("`{name}` needs a number, but `{text}` is not one")))?,
            ),
            Field::Time => Value::Time(Time::parse(&text).ok_or_else(|| {
                wrong(format!("`{text}` is not a time; write it like 2026-03-02 or 2026-03-02T09:14:00Z"))
            })?),
            Field::Meta(_) if !quoted => number.map_or(Value::Text(text), Value::Number),
            _ => Value::Text(text),
        };
        if comparison == Comparison::Contains
            && !matches!((&field, &value), (Field::Meta(_), _) | (_, Value::Text(_)))
        {
            return Err(wrong(format!("`~` works on text fields only, but `{name}` is not one")));
        }
        let test = self.condition(field, comparison, value);
        Ok(if operator == "!=" { Node::Not(Box::new(test)) } else { test })
    }

    fn condition(&mut self, field: Field, comparison: Comparison, value: Value) -> Node {
        self.tests.push(Test { field, comparison, value });
        Node::Test(self.tests.len() - 1)
    }
}

fn one_or(mut nodes: Vec<Node>, many: fn(Vec<Node>) -> Node) -> Node {
    match nodes.len() {
        1 => nodes.remove(0),
        _ => many(nodes),
    }
}

pub(super) fn field(name: &str) -> Result<Field> {
    let canonical = if name == "corpus" { "source" } else { name };
    if let Some((_, field)) = NAMED_FIELDS.iter().find(|(known, _)| *known == canonical) {
        return Ok(field.clone());
    }
    if name == "thread" {
        return Ok(Field::Meta(name.to_owned()));
    }
    match name.strip_prefix("meta.").filter(|key| !key.is_empty()) {
        Some(key) => Ok(Field::Meta(key.to_owned())),
        None => Err(Error::unknown_name("filter field", name, FIELDS)),
    }
}
