//! Additional candidates for names and dates in a query.
//!
//! In a large index, the best candidates of the whole index may contain no turn of a person or a day that the query
//! names. The search then also takes the best candidates among the turns of this person, and among those of this day.

use std::collections::HashSet;

use super::{SearchRequest, Searcher, find::Lists, query::Query};
use turnwise_core::Result;
use turnwise_corpus::filter::Filter;
use turnwise_index::engine::{Candidate, SearchModes};
use turnwise_text::dates::NamedDate;

/// Number of years before the present in which a date without a year is looked for.
const YEARS: i16 = 10;

/// Maximum number of conditions in one of the filters. A filter has at most 64, and the filter of the request is added.
const MAX_CONDITIONS: usize = 32;

impl Searcher {
    /// Adds to each list its best candidates among the turns that match the filter of the request and are by a speaker, or
    /// of a date, that the query names.
    pub(super) fn add_named(
        &self,
        request: &SearchRequest,
        query: &Query,
        depth: usize,
        lists: &mut Lists,
    ) -> Result<()> {
        let filter = request.combined_filter()?;
        let this_year = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).year();
        for conditions in [of_speakers(&query.speakers), of_dates(&query.dates, this_year)] {
            if conditions.is_empty() || conditions.len() > MAX_CONDITIONS {
                continue;
            }
            let named: Filter = conditions.join(" or ").parse()?;
            let both = match &filter {
                Some(filter) => filter.and(&named)?,
                None => named,
            };
            let mut view = self.engine().view();
            view.admit(&both, query.kind, SearchModes { dense: true, lexical: true })?;
            if let Some(vector) = &query.vector {
                add(&mut lists.dense, view.nearest(query.kind, vector, depth, request.exact)?.found);
            }
            if let Some(words) = query.words.as_ref().filter(|words| !words.is_empty()) {
                add(&mut lists.bm25, view.keyword_search(query.kind, words, depth)?.found);
            }
        }
        Ok(())
    }
}

/// Adds the candidates that are not in the list yet, and sorts the list by score.
fn add(list: &mut Vec<Candidate>, found: Vec<Candidate>) {
    let known: HashSet<_> = list.iter().map(|candidate| (candidate.version, candidate.turn)).collect();
    list.extend(found.into_iter().filter(|candidate| !known.contains(&(candidate.version, candidate.turn))));
    list.sort_by(|a, b| b.score.total_cmp(&a.score));
}

fn of_speakers(names: &[String]) -> Vec<String> {
    let quoted = |name: &String| name.replace('\\', r"\\").replace('"', r#"\""#);
    names.iter().map(|name| format!("speaker=\"{}\"", quoted(name))).collect()
}

/// Returns the conditions of dates. A date without a year has one for each of the last years.
fn of_dates(dates: &[NamedDate], this_year: i16) -> Vec<String> {
    let days = dates.iter().flat_map(|date| {
        let years = match date.year {
            Some(year) => year..=year,
            None => this_year.saturating_sub(YEARS)..=this_year,
        };
        years.filter_map(|year| date.range_in(year))
    });
    days.filter_map(|days| {
        let after = days.last.tomorrow().ok()?;
        Some(format!("(time>={} and time<{after})", days.first))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_text::dates::named_dates;

    #[test]
    fn names_and_dates_become_conditions_of_a_filter() {
        let speakers = of_speakers(&["Ann \"A\" Smith".to_owned(), r"Bo\b".to_owned()]);
        assert_eq!(speakers, [r#"speaker="Ann \"A\" Smith""#, r#"speaker="Bo\\b""#]);
        let dates = of_dates(&named_dates("on 31 December 2023 or 8 May"), 2026);
        assert_eq!(dates[0], "(time>=2023-12-31 and time<2024-01-01)");
        assert_eq!((dates.len(), dates[11].as_str()), (12, "(time>=2026-05-08 and time<2026-05-09)"));
        for conditions in [speakers, dates] {
            conditions.join(" or ").parse::<Filter>().unwrap();
        }
    }
}
