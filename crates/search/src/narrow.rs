//! Additional candidates for names, dates and titles in a query.
//!
//! In a large index, the best candidates of the whole index may contain no turn of a person, a day or a dialogue that the
//! query names. The search then also takes the best candidates among the turns of this person, day or dialogue.

use std::collections::HashSet;

use super::{SearchRequest, Searcher, find::Lists, fuse::Named, query::Query};
use turnwise_core::Result;
use turnwise_corpus::filter::Filter;
use turnwise_index::{
    engine::{Candidate, SearchModes, Version},
    vectors::Kind,
};
use turnwise_text::dates::{DateRange, NamedDate};

/// Number of years before the present in which a date without a year is looked for.
const YEARS: i16 = 10;

/// Maximum number of alternatives in one of the filters. A date has two conditions, and a filter has at most 64, with
/// those of the request. If there are more, the first ones are used.
const MAX_ALTERNATIVES: usize = 31;

/// In a search for whole dialogues, the candidates with a speaker or a date that the query names: those that the
/// restricted searches find. A restricted search finds all candidates of the first lists that have the speaker or the date.
/// It can miss one that was found only by its title, or by another restricted search.
#[derive(Debug, Default)]
pub(super) struct NamedDialogues {
    by_speaker: HashSet<Version>,
    by_date: HashSet<Version>,
}

impl NamedDialogues {
    pub(super) fn of(&self, version: Version) -> Named {
        Named { speaker: self.by_speaker.contains(&version), date: self.by_date.contains(&version) }
    }
}

impl Searcher {
    /// Adds to each list its best candidates among the turns that match the filter of the request and are by a speaker, of a
    /// date, or of a dialogue, that the query names.
    pub(super) fn add_named(
        &self,
        request: &SearchRequest,
        query: &Query,
        depth: usize,
        lists: &mut Lists,
    ) -> Result<()> {
        let filter = request.combined_filter()?;
        let whole = query.kind == Kind::Dialogues;
        let this_year = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).year();
        // Turns of the dates, and turns of the days after them, which can mention them ("yesterday").
        let (mut days, mut later) = (Vec::new(), Vec::new());
        for range in days_of(&query.dates, this_year) {
            if self.engine().has_time(&range)? {
                days.extend(condition(&range));
            }
            let after = days_after(range);
            if !whole && self.engine().has_time(&after)? {
                later.extend(condition(&after));
            }
        }
        let titled = match whole {
            true => Vec::new(),
            false => lists.named_dialogues(self.engine().view().as_ref(), query, self.engine().analyzer())?,
        };
        let all = [of_speakers(&query.speakers), days, later, of_dialogues(&titled)];
        for (n, alternatives) in all.into_iter().enumerate() {
            let Some(both) = with_alternatives(filter.as_ref(), &alternatives) else { continue };
            let mut view = self.engine().view();
            view.admit(&both, query.kind, SearchModes { dense: true, lexical: true })?;
            let mut found = Vec::new();
            if let Some(vector) = &query.vector {
                found = view.nearest(query.kind, vector, depth, request.exact)?.found;
                add(&mut lists.dense, &found);
            }
            if let Some(words) = query.words.as_ref().filter(|words| !words.is_empty()) {
                let by_words = view.keyword_search(query.kind, words, depth)?.found;
                add(&mut lists.bm25, &by_words);
                found.extend(by_words);
            }
            let versions = found.iter().map(|candidate| candidate.version);
            match n {
                0 => lists.named.by_speaker.extend(versions),
                1 => lists.named.by_date.extend(versions),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns the filter of the request with a further condition: one of the alternatives. Leaves out the last alternatives
/// if there are too many for one filter. Returns `None` if there is no room for any, or if there are none.
fn with_alternatives(filter: Option<&Filter>, alternatives: &[String]) -> Option<Filter> {
    let mut count = alternatives.len().min(MAX_ALTERNATIVES);
    while count > 0 {
        let named = alternatives[..count].join(" or ").parse::<Filter>();
        let both = named.and_then(|named| match filter {
            Some(filter) => filter.and(&named),
            None => Ok(named),
        });
        if let Ok(both) = both {
            return Some(both);
        }
        count /= 2;
    }
    None
}

/// Adds the candidates that are not in the list yet, and sorts the list by score.
fn add(list: &mut Vec<Candidate>, found: &[Candidate]) {
    let known: HashSet<_> = list.iter().map(|candidate| (candidate.version, candidate.turn)).collect();
    list.extend(
        found.iter().copied().filter(|candidate| !known.contains(&(candidate.version, candidate.turn))),
    );
    list.sort_by(|a, b| b.score.total_cmp(&a.score));
}

fn of_speakers(names: &[String]) -> Vec<String> {
    names.iter().map(|name| format!("speaker=\"{}\"", escaped(name))).collect()
}

fn of_dialogues(ids: &[String]) -> Vec<String> {
    ids.iter().map(|id| format!("id=\"{}\"", escaped(id))).collect()
}

fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', r#"\""#)
}

/// Number of days after a date in which turns that mention it are looked for.
const DAYS_AFTER: i64 = 7;

/// Returns the days after a range. At the end of the calendar, returns the range itself.
fn days_after(range: DateRange) -> DateRange {
    let after = |days: i64| range.last.checked_add(jiff::Span::new().days(days));
    match (after(1), after(DAYS_AFTER)) {
        (Ok(first), Ok(last)) => DateRange { first, last },
        _ => range,
    }
}

/// Returns the condition that a turn has a time in a range of days. Returns `None` at the end of the calendar.
fn condition(days: &DateRange) -> Option<String> {
    Some(format!("(time>={} and time<{})", days.first, days.last.tomorrow().ok()?))
}

/// Returns the days of dates. A date without a year has days in each of the last years, the present year first.
fn days_of(dates: &[NamedDate], this_year: i16) -> impl Iterator<Item = DateRange> {
    // If there are too many, the dates with a year and the recent years are kept.
    (0..=YEARS).flat_map(move |age| {
        dates.iter().filter_map(move |date| match date.year {
            Some(year) => date.range_in(year).filter(|_| age == 0),
            None => date.range_in(this_year.saturating_sub(age)),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_text::dates::named_dates;

    #[test]
    fn names_and_dates_become_conditions_of_a_filter() {
        let speakers = of_speakers(&["Ann \"A\" Smith".to_owned(), r"Bo\b".to_owned()]);
        assert_eq!(speakers, [r#"speaker="Ann \"A\" Smith""#, r#"speaker="Bo\\b""#]);
        let conditions = |text: &str| -> Vec<String> {
            days_of(&named_dates(text), 2026).filter_map(|days| condition(&days)).collect()
        };
        let dates = conditions("on 31 December 2023 or 8 May");
        assert_eq!(dates[0], "(time>=2023-12-31 and time<2024-01-01)");
        assert_eq!((dates.len(), dates[1].as_str()), (12, "(time>=2026-05-08 and time<2026-05-09)"));
        assert_eq!(dates[11], "(time>=2016-05-08 and time<2016-05-09)");
        for conditions in [speakers, dates] {
            conditions.join(" or ").parse::<Filter>().unwrap();
        }
    }

    #[test]
    fn many_names_and_dates_fit_into_the_filter_of_the_request() {
        let conditions = |count: usize| vec!["turn=1"; count].join(" or ");
        let long: Filter = conditions(63).parse().unwrap();
        let full: Filter = conditions(64).parse().unwrap();
        let names: Vec<String> = (0..70).map(|n| format!("Ann {n}")).collect();
        let speakers = of_speakers(&names);
        let dates = named_dates("on 8 May, 9 May, 10 May, 11 May or 31 December 9999");
        let dates: Vec<String> = days_of(&dates, 2026).filter_map(|days| condition(&days)).collect();
        for alternatives in [&speakers, &dates] {
            let own = with_alternatives(None, alternatives).unwrap();
            assert!(own.as_str().contains(&alternatives[MAX_ALTERNATIVES - 1]));
            let short = "role=user".parse().unwrap();
            assert!(
                with_alternatives(Some(&short), alternatives).unwrap().as_str().len() > own.as_str().len()
            );
            assert!(with_alternatives(Some(&full), alternatives).is_none());
        }
        assert!(with_alternatives(Some(&long), &speakers).unwrap().as_str().ends_with("(speaker=\"Ann 0\")"));
        assert!(with_alternatives(None, &[]).is_none());
    }
}
