//! Tasks in which a ranker ranks documents for each query.

use std::{cmp::Ordering, collections::HashMap};

use rayon::prelude::*;

use super::{Outcome, Ranked, Skipped, Task, Value};
use crate::{
    rank::{self, Pool, Progress, Scorer, Step, ensure_finite},
    trec::Measure,
};
use turnwise_core::error::Result;
use turnwise_measures::{random_baseline::RandomBaseline, ranking::Ranking};

/// Number of queries that each thread processes between two progress updates.
const CHUNK: usize = 64;

/// Candidate documents of each query, with their grades.
#[derive(Debug, Clone)]
pub enum Candidates {
    /// A list of judged documents for each query, as pairs of a document index and a grade.
    Given(Vec<Vec<(u32, i32)>>),
    /// All documents of the pool. Documents without a judgment are not relevant.
    All {
        /// Grades of the judged documents of each query, by document index.
        judged: Vec<HashMap<u32, i32>>,
        /// Maximum number of top documents that are evaluated.
        depth: usize,
    },
}

/// Task that ranks documents for each query.
#[derive(Debug, Clone)]
pub struct RankingTask {
    /// Short name of the task that is used on the command line.
    pub name: &'static str,
    /// Description of the task that contains the name of its paper.
    pub about: &'static str,
    /// Documents to rank, and the queries for which they are ranked.
    pub pool: Pool,
    /// Ids of the documents. If documents have equal scores, the document with the greater id comes first.
    pub documents: Vec<String>,
    /// Ids of the queries.
    pub queries: Vec<String>,
    /// Index of each query among the queries of the pool.
    pub pool_indices: Vec<u32>,
    /// Candidates of each query.
    pub candidates: Candidates,
    /// Measures to compute, with the names that papers use for them.
    pub measures: Vec<(&'static str, Measure)>,
    /// Numbers of data items that were skipped, with the reasons.
    pub skipped: Vec<Skipped>,
}

impl Task for RankingTask {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn size(&self) -> String {
        let queries = self.queries.len();
        match &self.candidates {
            Candidates::All { .. } => format!("{queries} queries, {} documents", self.documents.len()),
            Candidates::Given(lists) => {
                let sizes = lists.iter().map(Vec::len);
                let positive = lists.iter().map(|list| list.iter().filter(|(_, grade)| *grade > 0).count());
                format!(
                    "{queries} queries, {} candidates each, {} of them positive",
                    span(sizes),
                    span(positive)
                )
            }
        }
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    fn identity(&self) -> String {
        let measures: Vec<String> = self.measures.iter().map(|(_, measure)| measure.to_string()).collect();
        format!("{}/{}", self.name, measures.join(","))
    }

    fn run(&self, scorer: &dyn Scorer, keep: bool, watch: &dyn Progress) -> Result<Outcome> {
        let id_ranks = rank::descending_ranks(&self.documents);
        let all: Vec<u32> = (0..self.documents.len() as u32).collect();
        let mut rows = Vec::with_capacity(self.queries.len());
        let numbers: Vec<usize> = (0..self.queries.len()).collect();
        for chunk in numbers.chunks(CHUNK * rayon::current_num_threads()) {
            watch.check()?;
            let ranked = |n: &usize| self.ranked(*n, scorer, &id_ranks, &all, keep);
            let done: Vec<Row> =
                chunk.par_iter().with_min_len(CHUNK / 8).map(ranked).collect::<Result<_>>()?;
            rows.extend(done);
            watch.done(Step::Ranking, rows.len(), self.queries.len());
        }
        let values = self.measures.iter().enumerate().map(|(m, (name, _))| {
            let each: Vec<f64> = rows.iter().map(|row| row.values[m]).collect();
            let random: Option<Vec<f64>> = rows.iter().map(|row| row.random_baseline[m]).collect();
            let mean = |values: &[f64]| values.iter().sum::<f64>() / rows.len().max(1) as f64;
            let floor = random.map(|random| mean(&random));
            Value { measure: (*name).to_owned(), value: mean(&each), deviation: None, floor, each }
        });
        Ok(Outcome {
            values: values.collect(),
            queries: self.queries.clone(),
            rankings: if keep { rows.into_iter().map(|row| row.ranked).collect() } else { Vec::new() },
            ..Outcome::default()
        })
    }
}

/// Result of one query: for each measure its value and its random baseline, and the ranking.
struct Row {
    values: Vec<f64>,
    random_baseline: Vec<Option<f64>>,
    ranked: Ranked,
}

impl RankingTask {
    fn ranked(
        &self,
        n: usize,
        scorer: &dyn Scorer,
        id_ranks: &[u32],
        all: &[u32],
        keep: bool,
    ) -> Result<Row> {
        let own = self.pool_indices[n];
        let (documents, judged, depth): (Vec<u32>, Vec<i32>, usize) = match &self.candidates {
            Candidates::Given(lists) => {
                let (documents, grades) = lists[n].iter().copied().unzip();
                (documents, grades, usize::MAX)
            }
            Candidates::All { judged, depth } => {
                (all.to_vec(), judged[n].values().copied().collect(), *depth)
            }
        };
        let grade = |at: usize| match &self.candidates {
            Candidates::Given(lists) => Some(lists[n][at].1),
            Candidates::All { judged, .. } => judged[n].get(&documents[at]).copied(),
        };
        let mut scores = Vec::new();
        scorer.scores(own as usize, &documents, &mut scores)?;
        ensure_finite("the ranker", &self.queries[n], &scores)?;
        // If the documents are also the queries, the query itself is not a candidate.
        let is_itself = |at: &u32| {
            let whole = matches!(self.candidates, Candidates::All { .. });
            whole && self.pool.queries.is_none() && documents[*at as usize] == own
        };
        let mut order: Vec<u32> = (0..documents.len() as u32).filter(|at| !is_itself(at)).collect();
        let ranked_among = order.len();
        let better = |a: &u32, b: &u32| {
            let (a, b) = (*a as usize, *b as usize);
            let id_rank = |at: usize| id_ranks[documents[at] as usize];
            scores[b]
                .partial_cmp(&scores[a])
                .unwrap_or(Ordering::Equal)
                .then_with(|| id_rank(a).cmp(&id_rank(b)))
        };
        if order.len() > depth {
            order.select_nth_unstable_by(depth, better);
            order.truncate(depth);
        }
        order.sort_unstable_by(better);
        let ranking = Ranking {
            grades: order.iter().map(|at| grade(*at as usize)).collect(),
            given: judged.into_iter().filter(|grade| *grade > 0).collect(),
            judged_not: 0,
            level: 1,
        };
        let random = RandomBaseline { all: ranked_among, relevant: ranking.relevant() };
        let ranked = if keep {
            let documents = order.iter().map(|at| {
                let document = documents[*at as usize];
                (self.documents[document as usize].clone(), scores[*at as usize], grade(*at as usize))
            });
            Ranked { query: self.queries[n].clone(), documents: documents.collect() }
        } else {
            Ranked::default()
        };
        Ok(Row {
            values: self.measures.iter().map(|(_, measure)| measure.of(&ranking)).collect(),
            random_baseline: self
                .measures
                .iter()
                .map(|(_, measure)| measure.random_baseline(random))
                .collect(),
            ranked,
        })
    }
}

/// Formats the range of sizes, for example as `30` or `21 to 30`.
fn span(sizes: impl Iterator<Item = usize> + Clone) -> String {
    match (sizes.clone().min(), sizes.max()) {
        (Some(least), Some(most)) if least == most => most.to_string(),
        (Some(least), Some(most)) => format!("{least} to {most}"),
        _ => "0".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        rank::{Dense, Ranker},
        tasks::semantic_retrieval_of,
    };
    use turnwise_encoder::testing::HashEncoder;

    fn done(encoder: &HashEncoder, keep: bool) -> Result<Outcome> {
        let lines =
            "b\tlost card\tx\tc,a\td\na\tcard lost\tx\tb\tc,d\nc\tcard\tx\ta\td\nd\tparcel\ty\t\ta,b\n";
        let task = semantic_retrieval_of(lines.as_bytes(), std::path::Path::new("made up")).unwrap();
        let dense = Dense::new(encoder);
        task.run(dense.prepare(task.pool(), &()).unwrap().as_ref(), keep, &())
    }

    #[test]
    fn a_score_that_is_not_finite_is_an_error_that_names_the_query() {
        let e = done(&HashEncoder { not_finite_on: Some("parcel"), ..HashEncoder::default() }, false)
            .unwrap_err();
        assert_eq!(e.to_string(), "the ranker returned a score that is not a finite number for the query b");
    }

    #[test]
    fn rankings_are_kept_on_request_and_ties_are_broken_by_id() {
        let outcome = done(&HashEncoder::default(), true).unwrap();
        assert_eq!(outcome.queries, ["b", "a", "c"]);
        // "lost card" and "card lost" have the same vector, and therefore the same score for "card".
        let of_c = &outcome.rankings[2];
        assert_eq!(of_c.documents.iter().map(|(id, ..)| id.as_str()).collect::<Vec<_>>(), ["a", "d"]);
        let of_b: Vec<(&str, Option<i32>)> =
            outcome.rankings[0].documents.iter().map(|(id, _, g)| (id.as_str(), *g)).collect();
        assert_eq!((of_b[0], of_b.len()), (("a", Some(1)), 3));
        assert!(done(&HashEncoder::default(), false).unwrap().rankings.is_empty());
    }
}
