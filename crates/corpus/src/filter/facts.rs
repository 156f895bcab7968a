//! What filters ask of, as short texts that an index can keep beside its documents: `role`, a divider, `tuser`.
//!
//! So a filter is answered without reading records: it looks up which of the different facts fit, and then which
//! documents have them. Texts of turns are not among them, and very long values only as a remark that they are there:
//! where an answer hangs on those, the record must be asked.

use super::{Field, Filter, Found, parse};
use crate::{Dialogue, Time, Turn};
use turnwise_core::error::Result;

/// A longer one is not kept.
pub const MAX_FACT_BYTES: usize = 1024;

/// Between the name and the value.
const DIVIDER: char = '\u{1}';
/// In front of what a dialogue has from its turns.
const OF_TURNS: char = '*';

/// The facts of a dialogue or a turn.
#[derive(Debug, Default)]
pub struct Facts(Vec<String>);

impl Facts {
    /// What a dialogue says itself, and what it has from its turns.
    pub fn of_dialogue(dialogue: &Dialogue) -> Vec<String> {
        let mut facts = Facts::default();
        for field in fields(dialogue.metadata.keys()) {
            // The id has a column of its own, as it tells the documents apart.
            if field != Field::Id {
                field.own(dialogue, &mut |found| facts.add(name(&field), found));
            }
            if kept_of_turns(&field) {
                let name = format!("{OF_TURNS}{}", name(&field));
                field.of_turns(dialogue, &mut |found| facts.add(name.clone(), found));
            }
        }
        facts.different()
    }

    /// What a turn says itself.
    pub fn of_turn(dialogue: &Dialogue, turn: &Turn) -> Vec<String> {
        let mut facts = Facts::default();
        for field in fields(turn.metadata.keys()).filter(|field| *field != Field::Text) {
            field.of_turn(dialogue, turn, &mut |found| facts.add(name(&field), found));
        }
        facts.different()
    }

    fn add(&mut self, name: String, found: Found<'_>) {
        let value = match found {
            Found::Text(text) if text.len() > MAX_FACT_BYTES => "l".to_owned(),
            Found::Text(text) => format!("t{text}"),
            Found::Number(n) => format!("n{n}"),
            Found::Time(time) => format!("i{time}"),
        };
        self.0.push(name + &value);
    }

    fn different(mut self) -> Vec<String> {
        self.0.sort_unstable();
        self.0.dedup();
        self.0
    }
}

/// All fields, with those of some metadata.
pub(super) fn fields<'a>(keys: impl Iterator<Item = &'a String> + 'a) -> impl Iterator<Item = Field> + 'a {
    use Field::{
        Domain, Id, Intent, Language, Length, Meta, Role, Source, Speaker, Text, Time, Title, Turn, Turns,
    };
    [Id, Source, Title, Language, Domain, Intent, Role, Speaker, Text, Time, Turns, Turn, Length]
        .into_iter()
        .chain(keys.map(|key| Meta(key.clone())))
}

/// Whether what the turns of a dialogue say is kept with the dialogue: there is too much of some.
pub(super) fn kept_of_turns(field: &Field) -> bool {
    !matches!(field, Field::Text | Field::Turn)
}

/// What the facts of a field begin with. A divider within a key is doubled, and no value begins with one.
fn name(field: &Field) -> String {
    match field {
        Field::Meta(key) => {
            format!("meta.{}{DIVIDER}", key.replace(DIVIDER, &format!("{DIVIDER}{DIVIDER}")))
        }
        field => format!("{}{DIVIDER}", field.name()),
    }
}

/// What the facts of a field begin with, in order to find its values among them.
pub struct FactNames([String; 2]);

impl FactNames {
    /// Those of a field as filters name it.
    pub fn of(field: &str) -> Result<Self> {
        let name = name(&parse::field(field)?);
        Ok(FactNames([format!("{OF_TURNS}{name}"), name]))
    }

    /// The value of a fact, if it is one of the field, and short enough to be there.
    pub fn value<'f>(&self, fact: &'f str) -> Option<&'f str> {
        let value = self.0.iter().find_map(|name| fact.strip_prefix(name.as_str()))?;
        value.strip_prefix(['t', 'n', 'i'])
    }
}

impl Filter {
    /// How many conditions it has; they are named by their numbers.
    pub fn tests(&self) -> usize {
        self.tests.len()
    }

    /// Whether a condition is about the dialogue's id.
    pub fn is_about_id(&self, test: usize) -> bool {
        self.tests[test].field == Field::Id
    }

    /// What the facts begin with that a condition is about: those that a dialogue has itself and, if `whole`, those
    /// from its turns. A turn's begin as the former.
    pub fn fact_names(&self, test: usize, whole: bool) -> Vec<String> {
        let name = name(&self.tests[test].field);
        match whole {
            true => vec![format!("{OF_TURNS}{name}"), name],
            false => vec![name],
        }
    }

    /// Whether facts alone cannot answer a condition.
    pub fn needs_record(&self, test: usize, whole: bool) -> bool {
        let field = &self.tests[test].field;
        *field == Field::Text || whole && !kept_of_turns(field)
    }

    /// Whether a fact's value fits a condition (of `!=`, whether it is what must not be there); `None` if only the record
    /// can tell.
    pub fn fact_fits(&self, test: usize, value: &str) -> Option<bool> {
        let mut chars = value.chars();
        let kind = chars.next();
        let value = chars.as_str();
        let found = match kind {
            Some('l') => return None,
            Some('t') => Found::Text(value),
            Some('n') => Found::Number(value.parse().ok()?),
            Some('i') => Found::Time(Time::parse(value)?),
            // The name was that of another key, of which this one is the beginning.
            _ => return Some(false),
        };
        Some(self.tests[test].fits(found))
    }

    /// The same for an id.
    pub fn id_fits(&self, test: usize, id: &str) -> bool {
        self.tests[test].fits(Found::Text(id))
    }

    /// What follows from the conditions of which `fit` are met by some value and `unknown` perhaps; `None` if that does
    /// not decide it.
    pub fn decide(&self, fit: u64, unknown: u64) -> Option<bool> {
        self.node.holds(&|n| {
            let bit = 1u64 << n;
            let any = match (fit & bit != 0, unknown & bit != 0) {
                (true, _) => Some(true),
                (false, true) => None,
                (false, false) => Some(false),
            };
            any.map(|any| self.tests[n].op.asks_for_none() != any)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// As an index does it: which conditions are met by some fact, and of which nothing is known.
    fn by_facts(filter: &Filter, dialogue: &Dialogue, turn: Option<&Turn>) -> Option<bool> {
        let of_dialogue = Facts::of_dialogue(dialogue);
        let of_turn = turn.map(|turn| Facts::of_turn(dialogue, turn)).unwrap_or_default();
        let (mut fit, mut unknown) = (0, 0);
        for test in 0..filter.tests() {
            if filter.needs_record(test, turn.is_none()) {
                unknown |= 1 << test;
            }
            if filter.is_about_id(test) {
                fit |= u64::from(filter.id_fits(test, dialogue.id.as_str())) << test;
            }
            for name in filter.fact_names(test, turn.is_none()) {
                for value in of_dialogue.iter().chain(&of_turn).filter_map(|fact| fact.strip_prefix(&name)) {
                    match filter.fact_fits(test, value) {
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
            "metadata": {"n": seed % 5, "k": [pick(4, &["p", "q"]), true], "k\u{1}t": "p",
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
        fn facts_never_say_another_thing_than_the_record(seed in 0u32..4096, text in filter()) {
            let (dialogue, filter) = (dialogue(seed), text.parse::<Filter>().unwrap());
            let whole = by_facts(&filter, &dialogue, None);
            prop_assert!(whole.is_none_or(|is| is == filter.matches(&dialogue)), "{text} of {dialogue:?}: {whole:?}");
            for turn in &dialogue.turns {
                let said = by_facts(&filter, &dialogue, Some(turn));
                let is = filter.matches_turn(&dialogue, turn);
                prop_assert!(said.is_none_or(|said| said == is), "{text} of {turn:?}: {said:?}");
                let hangs_on_more = ["text", "long"].iter().any(|field| text.contains(field));
                prop_assert!(hangs_on_more || said.is_some(), "{text} could be answered");
            }
        }
    }

    #[test]
    fn a_key_that_begins_another_is_not_taken_for_it() {
        let dialogue = dialogue(0);
        for (filter, turn) in [("meta.k=p", None), ("meta.k=tp", None), ("meta.k=zzz", None)] {
            let filter: Filter = filter.parse().unwrap();
            assert_eq!(by_facts(&filter, &dialogue, turn), Some(filter.matches(&dialogue)), "{filter}");
        }
    }
}
