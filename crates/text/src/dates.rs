//! Dates in texts: dates that a question names, and days that a turn mentions relative to the day on which it was said.
//!
//! The rules prefer missing a date to inventing one: `may` is a month in `in may` and `8 may`, but not in `may cost 20`.
//!
//! ```
//! use turnwise_text::dates::{mentioned_dates, named_dates, DateRange};
//! use jiff::civil::date;
//!
//! let question = named_dates("What did Ann attend in March 2023?");
//! assert!(question[0].matches(&DateRange::day(date(2023, 3, 15))));
//! // Said on Monday, 8 May 2023.
//! let mentioned = mentioned_dates("We met last Tuesday.", date(2023, 5, 8));
//! assert_eq!(mentioned, [DateRange::day(date(2023, 5, 2))]);
//! ```

mod absolute;
mod numeric;
mod phrases;
mod relative;
mod tokens;
mod weekdays;
mod words;

use std::ops::Range;

use jiff::civil::Date;

use tokens::Tokens;

/// Range of days, including the first and the last day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DateRange {
    /// First day.
    pub first: Date,
    /// Last day, not before the first.
    pub last: Date,
}

impl DateRange {
    /// Creates the range of a single day.
    pub fn day(date: Date) -> Self {
        DateRange { first: date, last: date }
    }

    /// Returns whether two ranges have a day in common.
    pub fn overlaps(&self, other: &DateRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Returns the number of days between a day and the nearest day of the range; 0 if the day is in the range.
    fn distance(&self, date: Date) -> i64 {
        let days = |later: Date, earlier: Date| later.duration_since(earlier).as_hours() / 24;
        days(self.first, date).max(days(date, self.last)).max(0)
    }
}

/// Date in a text: a day, a month, a year or a part of one, with or without the year.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedDate {
    /// The year, if the text names it.
    pub year: Option<i16>,
    /// First month and day.
    first: MonthDay,
    /// Last month and day. It is in the next year if it is before the first (winter).
    last: MonthDay,
    /// Byte range of the date in the text.
    pub text: Range<usize>,
}

/// Month and day of any year.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
struct MonthDay {
    month: i8,
    /// Day, or [`END`].
    day: i8,
}

/// Last day of a month, whatever its length.
const END: i8 = i8::MAX;

impl MonthDay {
    fn in_year(self, year: i16) -> Option<Date> {
        if self.day == END {
            return Some(Date::new(year, self.month, 1).ok()?.last_of_month());
        }
        Date::new(year, self.month, self.day).ok()
    }
}

impl NamedDate {
    /// Returns the month if the date is a month, a part of a month or a day.
    pub fn month(&self) -> Option<i8> {
        (self.first.month == self.last.month).then_some(self.first.month)
    }

    /// Returns the day of the month if the date is a day.
    pub fn day(&self) -> Option<i8> {
        (self.first == self.last).then_some(self.first.day)
    }

    /// Returns the days of the date in a year. Returns `None` if the text names a different year, or if the day does not
    /// exist in this year (29 February).
    pub fn range_in(&self, year: i16) -> Option<DateRange> {
        if self.year.is_some_and(|named| named != year) {
            return None;
        }
        let last_year = if self.last < self.first { year.checked_add(1)? } else { year };
        Some(DateRange { first: self.first.in_year(year)?, last: self.last.in_year(last_year)? })
    }

    /// Returns whether the date can be in a range. A date without a year can be in any year.
    pub fn matches(&self, range: &DateRange) -> bool {
        let years = match self.year {
            Some(year) => year..=year,
            // A winter can begin in the year before.
            None => range.first.year().saturating_sub(1)..=range.last.year(),
        };
        years.into_iter().any(|year| self.range_in(year).is_some_and(|own| own.overlaps(range)))
    }

    /// Returns the reading of the date that is nearest to a day. Of two readings at the same distance, the earlier one.
    fn nearest(&self, date: Date) -> Option<DateRange> {
        if let Some(year) = self.year {
            return self.range_in(year);
        }
        // Two leap years are at most eight years apart.
        let years = date.year().saturating_sub(8)..=date.year().saturating_add(8);
        years.filter_map(|year| self.range_in(year)).min_by_key(|range| range.distance(date))
    }
}

/// Returns the absolute dates in a text, in order of appearance: days, months, years and seasons, such as `8 May 2023`,
/// `in May`, `2023-05` and `summer 2022`. If a date has two readings (`08/05/2023`), both are returned, with the same
/// byte range.
///
/// Recognizes names of months in English, German, French, Spanish, Italian, Portuguese and Dutch, and Chinese and
/// Japanese dates in digits.
pub fn named_dates(text: &str) -> Vec<NamedDate> {
    let mut dates = Vec::new();
    let Some(tokens) = Tokens::new(text) else { return dates };
    let mut at = 0;
    while at < tokens.len() {
        match absolute::date_at(&tokens, at) {
            Some(found) => {
                at = found.end;
                dates.push(found.date);
                dates.extend(found.other_reading);
            }
            None => at += 1,
        }
    }
    dates
}

/// Number of dates of a turn after which [`mentioned_dates`] stops.
const MAX_MENTIONED: usize = 64;

/// Returns the distinct dates that a turn mentions, in order of appearance. `said` is the day on which it was said.
///
/// These are the dates that [`named_dates`] finds, without a year in the reading nearest to `said`, and relative dates:
/// `yesterday`, `last week`, `two months ago`, `on Friday`. Weeks begin on Monday. Without `next` or `this`, a weekday is
/// the last one before `said`.
///
/// Stops after 64 dates, so that a long list of dates does not slow down a search.
pub fn mentioned_dates(text: &str, said: Date) -> Vec<DateRange> {
    let mut ranges = Vec::new();
    let Some(tokens) = Tokens::new(text) else { return ranges };
    let mut at = 0;
    while at < tokens.len() && ranges.len() < MAX_MENTIONED {
        let next = if let Some((range, end)) = relative::date_at(&tokens, at, said) {
            add(&mut ranges, range);
            end
        } else if let Some(found) = absolute::date_at(&tokens, at) {
            if let Some((range, end)) = relative::with_relative_year(&tokens, &found, said) {
                add(&mut ranges, range);
                end
            } else {
                let readings = std::iter::once(&found.date).chain(&found.other_reading);
                readings.for_each(|date| add(&mut ranges, date.nearest(said)));
                found.end
            }
        } else {
            at + 1
        };
        at = next.max(at + 1);
    }
    ranges
}

fn add(ranges: &mut Vec<DateRange>, range: Option<DateRange>) {
    ranges.extend(range.filter(|range| !ranges.contains(range)));
}

#[cfg(test)]
mod tests;
