//! Values without which nothing matches a filter. With an index of these values, a search engine finds the matches without
//! testing every item.

use super::{Comparison, Field, Filter, Node, Test, Value};
use crate::Time;

/// A value that an item needs to match a filter. Conditions are identified by their index, counted from 0.
#[derive(Debug, Clone, PartialEq)]
pub enum Needed<'a> {
    /// The id of the dialogue. It satisfies the condition `test`.
    Id {
        /// The condition.
        test: usize,
        /// The id.
        id: &'a str,
    },
    /// The speaker of the turn. The name satisfies the condition `test`.
    Speaker {
        /// The condition.
        test: usize,
        /// Name of the speaker.
        name: &'a str,
    },
    /// A time of the turn that satisfies all of the conditions `tests`.
    Time {
        /// The conditions.
        tests: Vec<usize>,
        /// The earliest time that can satisfy them.
        from: Option<Time>,
        /// The latest time that can satisfy them.
        to: Option<Time>,
    },
}

impl Needed<'_> {
    /// Returns a number that is lower if probably fewer items have the value.
    fn rank(&self) -> usize {
        match self {
            Needed::Id { .. } => 0,
            Needed::Speaker { .. } => 1,
            Needed::Time { .. } => 2,
        }
    }
}

impl Filter {
    /// Returns values such that each turn that matches the filter has at least one of them. Not all turns with such a value
    /// match. Returns `None` if the filter does not need any of these values. For whole dialogues, only ids are meaningful.
    pub fn needed(&self) -> Option<Vec<Needed<'_>>> {
        self.needed_by(&self.node)
    }

    fn needed_by(&self, node: &Node) -> Option<Vec<Needed<'_>>> {
        match node {
            Node::And(nodes) => {
                // A turn has one time, so it must satisfy all conditions on the time.
                let (times, others): (Vec<&Node>, Vec<&Node>) =
                    nodes.iter().partition(|node| self.time_test(node).is_some());
                let times: Vec<usize> = times.into_iter().filter_map(|node| self.time_test(node)).collect();
                let times = (!times.is_empty()).then(|| vec![self.needed_time(times)]);
                let others = others.into_iter().filter_map(|node| self.needed_by(node));
                others.chain(times).min_by_key(|needed| needed.iter().map(Needed::rank).max())
            }
            Node::Or(nodes) => {
                let all: Option<Vec<_>> = nodes.iter().map(|node| self.needed_by(node)).collect();
                all.map(|all| all.into_iter().flatten().collect())
            }
            Node::Not(_) => None,
            Node::Test(test) => match &self.tests[*test] {
                Test { field: Field::Id, comparison: Comparison::Equal, value: Value::Text(id) } => {
                    Some(vec![Needed::Id { test: *test, id }])
                }
                Test { field: Field::Speaker, comparison: Comparison::Equal, value: Value::Text(name) } => {
                    Some(vec![Needed::Speaker { test: *test, name }])
                }
                Test { field: Field::Time, .. } => Some(vec![self.needed_time(vec![*test])]),
                _ => None,
            },
        }
    }

    fn time_test(&self, node: &Node) -> Option<usize> {
        match node {
            Node::Test(test) if self.tests[*test].field == Field::Time => Some(*test),
            _ => None,
        }
    }

    fn needed_time(&self, tests: Vec<usize>) -> Needed<'_> {
        let bounds = |sides: [Comparison; 3]| {
            let bound = move |test: &usize| match &self.tests[*test] {
                Test { comparison, value: Value::Time(time), .. } if sides.contains(comparison) => {
                    Some(*time)
                }
                _ => None,
            };
            tests.iter().filter_map(bound).collect::<Vec<Time>>()
        };
        let from = bounds([Comparison::Equal, Comparison::Greater, Comparison::GreaterEqual]);
        let to = bounds([Comparison::Equal, Comparison::Less, Comparison::LessEqual]);
        Needed::Time { from: from.into_iter().max(), to: to.into_iter().min(), tests }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_values_are_those_without_which_nothing_matches() {
        let needed = |text: &str| {
            let filter: Filter = text.parse().unwrap();
            filter.needed().map(|all| {
                let name = |needed: &Needed<'_>| match needed {
                    Needed::Id { test, id } => format!("{test} {id}"),
                    Needed::Speaker { test, name } => format!("{test} by {name}"),
                    Needed::Time { tests, from, to } => {
                        let day = |time: &Option<Time>| {
                            time.map_or(String::new(), |t| t.to_string()[..10].to_owned())
                        };
                        format!("{tests:?} {}..{}", day(from), day(to))
                    }
                };
                all.iter().map(name).collect::<Vec<_>>().join(", ")
            })
        };
        for (text, expected) in [
            ("id=b or id='a'", Some("0 b, 1 a")),
            ("id=7", Some("0 7")),
            ("(id=a or id=b) and role=user and not id=a", Some("0 a, 1 b")),
            ("speaker=Ann and turns>3 or speaker='Bo B'", Some("0 by Ann, 2 by Bo B")),
            ("speaker=Ann and id=a", Some("1 a")),
            (
                "speaker=Ann or time>=2026-03-02 and time<2026-04-01 and time>2026-03-05",
                Some("0 by Ann, [1, 2, 3] 2026-03-05..2026-04-01"),
            ),
            (
                "role=user and (time=2026-03-02 or time>2027-01-01)",
                Some("[1] 2026-03-02..2026-03-02, [2] 2027-01-01.."),
            ),
            ("id=a or role=user", None),
            ("not id=a", None),
            ("id!=a", None),
            ("id>a", None),
            ("id~a", None),
            ("speaker!=Ann or speaker~Ann", None),
            ("role=user", None),
        ] {
            assert_eq!(needed(text).as_deref(), expected, "{text}");
        }
    }
}
