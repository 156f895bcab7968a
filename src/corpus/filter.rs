//! A typed filter over dialogues: `domain=banking and (turns>=6 or meta.channel=phone) and not speaker="Ann B"`.
//!
//! Operators: `=`, `!=`, `<`, `<=`, `>`, `>=`, and `~` for "contains, whatever the case". A field with several values
//! (domains, speakers, …) matches if one of them does; `!=` is the opposite of `=`.

use std::{borrow::Cow, cmp::Ordering, str::FromStr};

use crate::{
    corpus::{Dialogue, Role, Time},
    error::{Error, Result},
};

/// The fields a filter can name, beside `meta.KEY`.
pub const FIELDS: [&str; 12] = [
    "id", "source", "title", "language", "domain", "intent", "role", "speaker", "text", "time", "turns",
    "meta.KEY",
];

/// A filter that was read and checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter(Node);

#[derive(Debug, Clone, PartialEq)]
enum Node {
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Test { field: Field, op: Op, value: Value },
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

impl Filter {
    /// Whether a dialogue fits.
    pub fn matches(&self, dialogue: &Dialogue) -> bool {
        self.0.matches(dialogue)
    }
}

impl Node {
    fn matches(&self, d: &Dialogue) -> bool {
        match self {
            Node::And(nodes) => nodes.iter().all(|n| n.matches(d)),
            Node::Or(nodes) => nodes.iter().any(|n| n.matches(d)),
            Node::Not(node) => !node.matches(d),
            Node::Test { field, op: Op::NotEqual, value } => !test(d, field, Op::Equal, value),
            Node::Test { field, op, value } => test(d, field, *op, value),
        }
    }
}

fn test(d: &Dialogue, field: &Field, op: Op, value: &Value) -> bool {
    let any = |texts: &mut dyn Iterator<Item = &str>| {
        for text in texts {
            if compare_text(text, op, value) {
                return true;
            }
        }
        false
    };
    match field {
        Field::Id => compare_text(d.id.as_str(), op, value),
        Field::Source => compare_text(&d.source, op, value),
        Field::Title => any(&mut d.title.as_deref().into_iter()),
        Field::Language => any(&mut d.language.as_deref().into_iter()),
        Field::Domain => any(&mut d.domains.iter().map(String::as_str)),
        Field::Intent => {
            let of_turns = d.turns.iter().filter_map(|t| t.intent.as_deref());
            any(&mut d.intents.iter().map(String::as_str).chain(of_turns))
        }
        Field::Role => any(&mut d.turns.iter().filter_map(|t| t.role.as_ref()).map(Role::as_str)),
        Field::Speaker => any(&mut d.turns.iter().map(|t| t.speaker.as_str())),
        Field::Text => any(&mut d.turns.iter().map(|t| t.text.as_str())),
        Field::Turns => match value {
            Value::Number(n) => holds((d.turns.len() as f64).partial_cmp(n), op),
            _ => false,
        },
        Field::Time => match (d.time.or_else(|| d.turns.iter().find_map(|t| t.time)), value) {
            (Some(time), Value::Time(wanted)) => holds(Some(time.cmp(wanted)), op),
            _ => false,
        },
        Field::Meta(key) => d.metadata.get(key).is_some_and(|found| compare_json(found, op, value)),
    }
}

fn compare_json(found: &serde_json::Value, op: Op, value: &Value) -> bool {
    match (found, value) {
        (serde_json::Value::Array(items), _) => items.iter().any(|item| compare_json(item, op, value)),
        (serde_json::Value::Number(n), Value::Number(wanted)) => {
            holds(n.as_f64().and_then(|n| n.partial_cmp(wanted)), op)
        }
        (serde_json::Value::String(text), _) => compare_text(text, op, value),
        (serde_json::Value::Bool(b), _) => compare_text(if *b { "true" } else { "false" }, op, value),
        _ => false,
    }
}

fn compare_text(text: &str, op: Op, value: &Value) -> bool {
    let wanted: Cow<'_, str> = match value {
        Value::Text(wanted) => wanted.as_str().into(),
        Value::Number(n) => n.to_string().into(),
        Value::Time(time) => time.to_string().into(),
    };
    match op {
        Op::Contains => text.to_lowercase().contains(&wanted.to_lowercase()),
        _ => holds(Some(text.cmp(wanted.as_ref())), op),
    }
}

fn holds(order: Option<Ordering>, op: Op) -> bool {
    let Some(order) = order else { return false };
    match op {
        Op::Equal => order.is_eq(),
        Op::NotEqual => order.is_ne(),
        Op::Less => order.is_lt(),
        Op::LessEqual => order.is_le(),
        Op::Greater => order.is_gt(),
        Op::GreaterEqual => order.is_ge(),
        Op::Contains => false,
    }
}

impl FromStr for Filter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0 };
        let node = parser.or()?;
        match parser.peek() {
            None => Ok(Filter(node)),
            Some(token) => Err(wrong(format!(
                "`{}` is not expected in the filter at character {}",
                token.text, token.at
            ))),
        }
    }
}

fn wrong(message: String) -> Error {
    let hint = "for example: domain=banking and (turns>=6 or meta.channel=phone) and not speaker=\"Ann B\"";
    Error::Input { message, hint: Some(hint.to_owned()) }
}

#[derive(Debug)]
struct Token {
    text: String,
    quoted: bool,
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
}

/// Parentheses and `not` deeper than this are a mistake; the recursion must end somewhere.
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
        let name = match self.take() {
            Some(token) => token.text.clone(),
            None => return Err(wrong("the filter ends where a field is expected".into())),
        };
        let field = field(&name)?;
        let op = match self.take().map(|t| t.text.as_str()) {
            Some("=") => Op::Equal,
            Some("!=") => Op::NotEqual,
            Some("<") => Op::Less,
            Some("<=") => Op::LessEqual,
            Some(">") => Op::Greater,
            Some(">=") => Op::GreaterEqual,
            Some("~") => Op::Contains,
            _ => return Err(wrong(format!("an operator (= != < <= > >= ~) is expected after `{name}`"))),
        };
        let Some(token) = self.take() else {
            return Err(wrong(format!("the filter ends where a value for `{name}` is expected")));
        };
        let quoted = token.quoted;
        let text = token.text.clone();
        let value = match &field {
            Field::Turns => Value::Number(
                text.parse()
                    .map_err(|_| wrong(format!("`turns` is compared with a number, not with `{text}`")))?,
            ),
            Field::Time => Value::Time(Time::parse(&text).ok_or_else(|| {
                wrong(format!("`{text}` is not a time; write it like 2026-03-02 or 2026-03-02T09:14:00Z"))
            })?),
            Field::Meta(_) if !quoted => {
                text.parse().ok().filter(|n: &f64| n.is_finite()).map_or(Value::Text(text), Value::Number)
            }
            _ => Value::Text(text),
        };
        if op == Op::Contains && matches!(field, Field::Turns | Field::Time) {
            return Err(wrong(format!("`~` looks into texts, and `{name}` is none")));
        }
        Ok(Node::Test { field, op, value })
    }
}

fn one_or(mut nodes: Vec<Node>, many: fn(Vec<Node>) -> Node) -> Node {
    match nodes.len() {
        1 => nodes.remove(0),
        _ => many(nodes),
    }
}

fn field(name: &str) -> Result<Field> {
    Ok(match name {
        "id" => Field::Id,
        "source" => Field::Source,
        "title" => Field::Title,
        "language" => Field::Language,
        "domain" => Field::Domain,
        "intent" => Field::Intent,
        "role" => Field::Role,
        "speaker" => Field::Speaker,
        "text" => Field::Text,
        "time" => Field::Time,
        "turns" => Field::Turns,
        _ => match name.strip_prefix("meta.").filter(|key| !key.is_empty()) {
            Some(key) => Field::Meta(key.to_owned()),
            None => return Err(Error::unknown_name("filter field", name, FIELDS)),
        },
    })
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
}
