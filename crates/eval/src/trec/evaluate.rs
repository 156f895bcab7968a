//! Evaluation of a TREC run against relevance judgments.

use std::{collections::BTreeMap, fmt};

use super::{Measure, Qrels, Run};
use turnwise_measures::ranking::{RELEVANT, Ranking};

/// Evaluation options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Minimum grade of a relevant document.
    pub level: i32,
    /// Whether to include judged queries that are missing from the run. They are evaluated as empty rankings.
    pub complete: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { level: RELEVANT, complete: false }
    }
}

/// Result of an evaluation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Evaluation {
    /// Tag of the run.
    pub tag: String,
    /// The measures that were evaluated.
    pub measures: Vec<Measure>,
    /// Values of the measures for each query, in the order of `measures`.
    pub queries: BTreeMap<String, Vec<f64>>,
    /// Ids of queries in the run that have no judgments. They are not evaluated.
    pub unjudged: Vec<String>,
    /// Ids of judged queries that are missing from the run.
    pub missing: Vec<String>,
}

/// Evaluates a run by relevance judgments. Skips queries without judgments.
pub fn evaluate(qrels: &Qrels, run: &Run, measures: &[Measure], options: Options) -> Evaluation {
    let mut evaluation =
        Evaluation { tag: run.tag.clone(), measures: measures.to_vec(), ..Evaluation::default() };
    let nothing = Vec::new();
    for (query, judged) in &qrels.queries {
        let documents = run.queries.get(query);
        if documents.is_none() {
            evaluation.missing.push(query.clone());
            if !options.complete {
                continue;
            }
        }
        let ranking = Ranking {
            grades: documents.unwrap_or(&nothing).iter().map(|(id, _)| judged.get(id).copied()).collect(),
            given: judged.values().copied().filter(|grade| *grade > 0).collect(),
            judged_not: judged.values().filter(|grade| (0..options.level).contains(*grade)).count(),
            level: options.level,
        };
        evaluation.queries.insert(query.clone(), measures.iter().map(|m| m.of(&ranking)).collect());
    }
    let unjudged = run.queries.keys().filter(|query| !qrels.queries.contains_key(*query));
    evaluation.unjudged.extend(unjudged.cloned());
    evaluation
}

impl Evaluation {
    /// Returns the value of each measure over all queries, in the order of `measures`.
    pub fn of_all(&self) -> Vec<f64> {
        let column = |n: usize| self.queries.values().map(|values| values[n]).collect::<Vec<f64>>();
        self.measures.iter().enumerate().map(|(n, measure)| measure.of_all(&column(n))).collect()
    }

    /// Returns the values as lines in trec_eval's output format. If `each` is true, the lines of the single queries
    /// come first. The lines for all queries together come last.
    pub fn lines(&self, each: bool) -> impl Iterator<Item = String> + '_ {
        let queries = self.queries.iter().filter(move |_| each).flat_map(|(query, values)| {
            let of_query = self.measures.iter().zip(values).filter(|(measure, _)| !measure.is_of_all());
            of_query.map(move |(measure, value)| line(measure, query, *value))
        });
        // Like trec_eval, print the tag of the run only if num_q is printed.
        let named =
            self.measures.contains(&Measure::NumQ).then(|| format!("{:<22}\tall\t{}", "runid", self.tag));
        let all = self.of_all();
        queries
            .chain(named)
            .chain((0..self.measures.len()).map(move |n| line(&self.measures[n], "all", all[n])))
    }
}

fn line(measure: &Measure, query: &str, value: f64) -> String {
    let name: &dyn fmt::Display = &measure.to_string();
    match measure.is_count() {
        true => format!("{name:<22}\t{query}\t{value:.0}"),
        false => format!("{name:<22}\t{query}\t{value:6.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trec::parse_measures;

    fn sample() -> (Qrels, Run) {
        let mut qrels = Qrels::default();
        for (query, document, grade) in [("1", "a", 1), ("1", "b", 0), ("2", "c", 2), ("3", "d", 1)] {
            qrels.queries.entry(query.into()).or_default().insert(document.into(), grade);
        }
        let mut run = Run { tag: "me".into(), ..Run::default() };
        run.queries.insert("1".into(), vec![("b".into(), 2.0), ("a".into(), 1.0)]);
        run.queries.insert("2".into(), vec![("c".into(), 2.0)]);
        run.queries.insert("9".into(), vec![("c".into(), 2.0)]);
        (qrels, run)
    }

    #[test]
    fn unjudged_and_missing_queries_are_reported_and_count_only_with_complete() {
        let (qrels, run) = sample();
        let measures = parse_measures(&["map", "num_q"]).unwrap();
        let evaluation = evaluate(&qrels, &run, &measures, Options::default());
        assert_eq!(
            (evaluation.unjudged.as_slice(), evaluation.missing.as_slice()),
            (&["9".to_owned()][..], &["3".to_owned()][..])
        );
        assert_eq!(evaluation.of_all(), [2.0, 0.75]);
        let complete = evaluate(&qrels, &run, &measures, Options { complete: true, ..Options::default() });
        assert_eq!(complete.of_all(), [3.0, 0.5]);
    }

    #[test]
    fn lines_are_those_of_trec_eval() {
        let (qrels, run) = sample();
        let measures = parse_measures(&["map", "num_ret", "num_q"]).unwrap();
        let evaluation = evaluate(&qrels, &run, &measures, Options::default());
        let lines: Vec<String> = evaluation.lines(true).collect();
        assert_eq!(
            lines,
            [
                "num_ret               \t1\t2",
                "map                   \t1\t0.5000",
                "num_ret               \t2\t1",
                "map                   \t2\t1.0000",
                "runid                 \tall\tme",
                "num_q                 \tall\t2",
                "num_ret               \tall\t3",
                "map                   \tall\t0.7500",
            ]
        );
    }
}
