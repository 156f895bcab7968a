//! Ranking measures. Their names are the names in trec_eval.

use std::fmt;

use turnwise_core::error::{Error, Result};
use turnwise_measures::{random_baseline::RandomBaseline, ranking::Ranking};

/// Ranking measure. The variants are in the order in which trec_eval prints the measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Number of queries. It has no value for a single query.
    NumQ,
    /// Number of returned documents.
    NumRet,
    /// Number of relevant documents.
    NumRel,
    /// Number of relevant documents that were returned.
    NumRelRet,
    /// Average precision; its mean over all queries is MAP.
    Map,
    /// Geometric mean of average precision. It has no value for a single query.
    GmMap,
    /// R-precision: precision at rank R, where R is the number of relevant documents.
    Rprec,
    /// Bpref, a measure of how often relevant documents rank above documents that were judged as not relevant.
    Bpref,
    /// Reciprocal rank of the first relevant document; 0 if no relevant document was returned.
    RecipRank,
    /// Interpolated precision at the given recall, which is in percent.
    IprecAtRecall(u32),
    /// Precision of the top k documents.
    P(u32),
    /// Recall of the top k documents.
    Recall(u32),
    /// Normalized discounted cumulative gain of the whole ranking.
    Ndcg,
    /// Normalized discounted cumulative gain of the top k documents.
    NdcgCut(u32),
    /// Average precision of the top k documents.
    MapCut(u32),
    /// 1 if at least one of the top k documents is relevant, otherwise 0.
    Success(u32),
}

/// Measure with a cutoff: its name, its constructor from a cutoff, and trec_eval's default cutoffs.
type WithCutoffs = (&'static str, fn(u32) -> Measure, &'static [u32]);

/// trec_eval's default cutoffs for most measures.
const CUTS: [u32; 9] = [5, 10, 15, 20, 30, 100, 200, 500, 1000];
const SUCCESS: [u32; 3] = [1, 5, 10];
const RECALLS: [u32; 11] = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
/// Lower bound of the average precision of a query in the geometric mean, as in trec_eval.
const LEAST: f64 = 0.00001;

impl Measure {
    const PLAIN: [(&'static str, Measure); 10] = [
        ("num_q", Measure::NumQ),
        ("num_ret", Measure::NumRet),
        ("num_rel", Measure::NumRel),
        ("num_rel_ret", Measure::NumRelRet),
        ("map", Measure::Map),
        ("gm_map", Measure::GmMap),
        ("Rprec", Measure::Rprec),
        ("bpref", Measure::Bpref),
        ("recip_rank", Measure::RecipRank),
        ("ndcg", Measure::Ndcg),
    ];

    /// Measures that have a cutoff in their name.
    const CUT: [WithCutoffs; 6] = [
        ("iprec_at_recall", Measure::IprecAtRecall, &RECALLS),
        ("P", Measure::P, &CUTS),
        ("recall", Measure::Recall, &CUTS),
        ("ndcg_cut", Measure::NdcgCut, &CUTS),
        ("map_cut", Measure::MapCut, &CUTS),
        ("success", Measure::Success, &SUCCESS),
    ];

    /// Returns the measures that trec_eval prints by default.
    fn official() -> Vec<Measure> {
        let plain = Measure::PLAIN.iter().map(|(_, measure)| *measure).filter(|m| *m != Measure::Ndcg);
        plain.chain(RECALLS.map(Measure::IprecAtRecall)).chain(CUTS.map(Measure::P)).collect()
    }

    /// Returns whether the measure is a count. A count is summed over the queries instead of averaged.
    pub fn is_count(self) -> bool {
        matches!(self, Measure::NumQ | Measure::NumRet | Measure::NumRel | Measure::NumRelRet)
    }

    /// Returns whether the measure has a value only for all queries together, not for a single query.
    pub fn is_of_all(self) -> bool {
        matches!(self, Measure::NumQ | Measure::GmMap)
    }

    /// Returns the value for one query, as input of [`Measure::of_all`]. For [`Measure::GmMap`], it is the logarithm of
    /// the average precision.
    pub fn of(self, ranking: &Ranking) -> f64 {
        let all = usize::MAX;
        match self {
            Measure::NumQ => 1.0,
            Measure::NumRet => ranking.grades.len() as f64,
            Measure::NumRel => ranking.relevant() as f64,
            Measure::NumRelRet => ranking.found(all) as f64,
            Measure::Map => ranking.average_precision(all),
            Measure::GmMap => ranking.average_precision(all).max(LEAST).ln(),
            Measure::Rprec => ranking.r_precision(),
            Measure::Bpref => ranking.bpref(),
            Measure::RecipRank => ranking.reciprocal_rank(),
            Measure::IprecAtRecall(hundredths) => {
                ranking.interpolated_precision(f64::from(hundredths) / 100.0)
            }
            Measure::P(k) => ranking.precision(k as usize),
            Measure::Recall(k) => ranking.recall(k as usize),
            Measure::Ndcg => ranking.ndcg(all),
            Measure::NdcgCut(k) => ranking.ndcg(k as usize),
            Measure::MapCut(k) => ranking.average_precision(k as usize),
            Measure::Success(k) => ranking.success(k as usize),
        }
    }

    /// Returns the expected value of the measure for a random ranking; `None` for a measure without a known formula.
    pub fn random_baseline(self, random: RandomBaseline) -> Option<f64> {
        match self {
            Measure::Map => Some(random.average_precision(usize::MAX)),
            Measure::MapCut(k) => Some(random.average_precision(k as usize)),
            Measure::RecipRank => Some(random.reciprocal_rank()),
            Measure::P(k) => Some(random.precision(k as usize)),
            Measure::Recall(k) => Some(random.recall(k as usize)),
            Measure::NdcgCut(k) => Some(random.ndcg(k as usize)),
            Measure::Ndcg => Some(random.ndcg(usize::MAX)),
            _ => None,
        }
    }

    /// Computes the value of the measure over all queries from the values of the single queries.
    pub fn of_all(self, values: &[f64]) -> f64 {
        let sum: f64 = values.iter().sum();
        let mean = if values.is_empty() { 0.0 } else { sum / values.len() as f64 };
        match self {
            _ if self.is_count() => sum,
            Measure::GmMap if !values.is_empty() => mean.exp(),
            _ => mean,
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Measure::IprecAtRecall(hundredths) => {
                write!(f, "iprec_at_recall_{:.2}", f64::from(*hundredths) / 100.0)
            }
            Measure::P(k) => write!(f, "P_{k}"),
            Measure::Recall(k) => write!(f, "recall_{k}"),
            Measure::NdcgCut(k) => write!(f, "ndcg_cut_{k}"),
            Measure::MapCut(k) => write!(f, "map_cut_{k}"),
            Measure::Success(k) => write!(f, "success_{k}"),
            plain => {
                let name = Measure::PLAIN.iter().find(|(_, measure)| measure == plain);
                f.write_str(name.map_or("", |(name, _)| name))
            }
        }
    }
}

/// Parses names of measures, for example `map`, `P.5,10` or `P_5`. A name without a cutoff, such as `P`, selects the
/// measure with each default cutoff. `official` selects all measures that trec_eval prints by default. Returns the
/// measures in trec_eval's order, without duplicates.
pub fn parse_measures<S: AsRef<str>>(names: &[S]) -> Result<Vec<Measure>> {
    let mut measures = Vec::new();
    for name in names {
        let name = name.as_ref();
        if name == "official" {
            measures.extend(Measure::official());
        } else if let Some((_, measure)) = Measure::PLAIN.iter().find(|(plain, _)| *plain == name) {
            measures.push(*measure);
        } else {
            measures.extend(with_cutoffs(name)?);
        }
    }
    measures.sort_unstable();
    measures.dedup();
    Ok(measures)
}

fn with_cutoffs(name: &str) -> Result<Vec<Measure>> {
    let found =
        Measure::CUT.iter().find_map(|(cut, make, cutoffs)| Some((make, cutoffs, name.strip_prefix(cut)?)));
    let unknown = || {
        let known =
            Measure::PLAIN.iter().map(|(name, _)| *name).chain(Measure::CUT.iter().map(|(name, ..)| *name));
        Error::unknown_name("measure", name, known.chain(["official"]))
    };
    let (make, cutoffs, rest) = found.ok_or_else(unknown)?;
    if rest.is_empty() {
        return Ok(cutoffs.iter().map(|cutoff| make(*cutoff)).collect());
    }
    let rest = rest.strip_prefix(['.', '_']).ok_or_else(unknown)?;
    let recall = *cutoffs == RECALLS;
    let parse = |text: &str| {
        let cutoff = if recall {
            text.parse::<f64>().ok().filter(|r| (0.0..=1.0).contains(r)).map(|r| (r * 100.0).round() as u32)
        } else {
            text.parse::<u32>().ok().filter(|k| *k > 0)
        };
        cutoff.map(make).ok_or_else(|| {
            Error::input(format!("`{text}` in the measure `{name}` is not a valid cutoff")).with_hint(
                if recall {
                    "use a recall from 0 to 1, such as iprec_at_recall.0.10"
                } else {
                    "use positive integers, such as P.5,10"
                }
                .to_owned(),
            )
        })
    };
    rest.split(',').map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(asked_for: &[&str]) -> Vec<String> {
        parse_measures(asked_for).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_are_trec_evals_and_come_in_its_order() {
        assert_eq!(names(&["P.10,5", "map", "P_5", "ndcg_cut.10"]), ["map", "P_5", "P_10", "ndcg_cut_10"]);
        assert_eq!(names(&["success"]), ["success_1", "success_5", "success_10"]);
        assert_eq!(names(&["iprec_at_recall.0.10,0.5"]), ["iprec_at_recall_0.10", "iprec_at_recall_0.50"]);
        let official = names(&["official"]);
        assert_eq!(official.len(), 9 + 11 + 9);
        assert_eq!(official[..5], ["num_q", "num_ret", "num_rel", "num_rel_ret", "map"]);
        assert_eq!(official.last().map(String::as_str), Some("P_1000"));
    }

    #[test]
    fn unknown_measures_are_errors() {
        for (name, hint) in [
            ("mapp", "did you mean `map`?"),
            ("P.0", "use positive integers, such as P.5,10"),
            ("P.x", "use positive integers, such as P.5,10"),
        ] {
            assert_eq!(parse_measures(&[name]).unwrap_err().hint().as_deref(), Some(hint), "{name}");
        }
        assert!(parse_measures(&["Pfoo"]).is_err() && parse_measures(&["iprec_at_recall.2"]).is_err());
    }
}
