//! Dates relative to the day on which a turn was said.

use jiff::{ToSpan, civil::Date};

use super::{
    DateRange, NamedDate, absolute,
    phrases::Phrase,
    tokens::{Kind, Tokens},
    weekdays::{date_after_weekday, feira, weekday, weekday_range},
    words::{Direction, Side, Unit, Word},
};

/// Range of a date, `None` if it is not between the years -9999 and 9999, and the position after the date.
pub(super) type Found = (Option<DateRange>, usize);

/// Returns the relative date that begins at a position.
pub(super) fn date_at(tokens: &Tokens, at: usize, said: Date) -> Option<Found> {
    let days = |offset: i64, end: usize| Some((shift(said, offset).map(DateRange::day), end));
    match tokens.kind(at)? {
        Kind::Number { .. } => count_ago(tokens, at, said).or_else(|| day_of_month(tokens, at, said)),
        Kind::Word(word) => match word {
            Word::Offset(offset) => offset_day(tokens, at, said, offset.into()),
            Word::Hier => {
                let before_that =
                    at > 1 && tokens.is_attached(at) && tokens.text(at - 2).eq_ignore_ascii_case("avant");
                // In German and Dutch, `hier` means here.
                (before_that || tokens.is_french()).then_some(())?;
                days(if before_that { -2 } else { -1 }, at + 1)
            }
            Word::Morgen if is_tomorrow(tokens, at) => days(1, at + 1),
            Word::Manana => match tokens.word_before(at) {
                Some(Word::Direction(Direction::This, _)) => days(0, at + 1),
                // `por la mañana`
                _ if tokens.text(at.saturating_sub(1)).eq_ignore_ascii_case("la") => None,
                _ if tokens.text(at.saturating_sub(1)).eq_ignore_ascii_case("pasado") => days(2, at + 1),
                _ => days(1, at + 1),
            },
            Word::Phrase(phrase) => Some((phrase_range(phrase, said), at + 1)),
            Word::Count(..) | Word::A => count_ago(tokens, at, said),
            Word::In => in_count(tokens, at, said),
            Word::Direction(direction, Side::Before | Side::Either) => {
                direction_before(tokens, at, direction, said)
            }
            Word::Unit(unit) => {
                let (direction, end) = direction_after(tokens, at + 1)?;
                Some((unit_range(said, weekend_or(tokens, at, unit), direction as i64), end))
            }
            Word::Weekday(day, certain) => weekday(tokens, at, day, certain, said),
            Word::Month(month, _) => {
                // Only where the month itself is recognized.
                let found = absolute::date_at(tokens, at).filter(|found| found.end == at + 1)?;
                let (direction, end) = direction_after(tokens, found.end)?;
                Some((directed(&absolute::month_date(month), direction, said), end))
            }
            Word::Season(season) => {
                let (direction, end) = direction_after(tokens, at + 1)?;
                Some((directed(&absolute::season_date(season), direction, said), end))
            }
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn shift(date: Date, days: i64) -> Option<Date> {
    date.checked_add(days.days()).ok()
}

/// Returns the unit that contains a day, moved by a number of units. Weeks begin on Monday.
pub(super) fn unit_range(said: Date, unit: Unit, offset: i64) -> Option<DateRange> {
    let week_day =
        |day: i64| shift(said, 7 * offset + day - i64::from(said.weekday().to_monday_zero_offset()));
    let (first, last) = match unit {
        Unit::Day => {
            let day = shift(said, offset)?;
            (day, day)
        }
        Unit::Week => (week_day(0)?, week_day(6)?),
        Unit::Weekend => (week_day(5)?, week_day(6)?),
        Unit::Month => {
            let month = i64::from(said.year()) * 12 + i64::from(said.month()) - 1 + offset;
            let year = i16::try_from(month.div_euclid(12)).ok()?;
            let first = Date::new(year, month.rem_euclid(12) as i8 + 1, 1).ok()?;
            (first, first.last_of_month())
        }
        Unit::Year | Unit::An => {
            let year = i16::try_from(i64::from(said.year()) + offset).ok()?;
            (Date::new(year, 1, 1).ok()?, Date::new(year, 12, 31).ok()?)
        }
    };
    Some(DateRange { first, last })
}

fn phrase_range(phrase: Phrase, said: Date) -> Option<DateRange> {
    match phrase {
        Phrase::Day(offset) => unit_range(said, Unit::Day, offset.into()),
        Phrase::Unit(unit, offset) => unit_range(said, unit, offset.into()),
        Phrase::WeekdayOf(week, day) => {
            let week = unit_range(said, Unit::Week, week.into())?;
            shift(week.first, day.into()).map(DateRange::day)
        }
        Phrase::Weekday(day) => weekday_range(day, Direction::Last, said),
    }
}

/// `yesterday`, `the day before yesterday`, `the day after tomorrow`.
fn offset_day(tokens: &Tokens, at: usize, said: Date, offset: i64) -> Option<Found> {
    let before = |n: usize, word: &str| at >= n && tokens.text(at - n).eq_ignore_ascii_case(word);
    let further = match offset {
        -1 if before(1, "before") && before(2, "day") => -1,
        1 if before(1, "after") && before(2, "day") => 1,
        // `après-demain`
        1 if at > 1
            && tokens.is_attached(at)
            && matches!(tokens.text(at - 2), "après" | "Après" | "apres") =>
        {
            1
        }
        _ => 0,
    };
    Some((shift(said, offset + further).map(DateRange::day), at + 1))
}

/// Returns whether `morgen` means tomorrow in German or Dutch, not morning.
fn is_tomorrow(tokens: &Tokens, at: usize) -> bool {
    // `heute morgen` is this morning, `guten Morgen` a greeting.
    let is_morning = match tokens.word_before(at) {
        Some(Word::Offset(_) | Word::NotADate | Word::Direction(..) | Word::On) => true,
        _ => {
            let before = if at > 0 { tokens.text(at - 1) } else { "" };
            ["guten", "goede", "goeden", "goeie", "der", "den"]
                .iter()
                .any(|word| before.eq_ignore_ascii_case(word))
        }
    };
    let is_greeting = tokens.is_capitalized(at) && (at > 0 || tokens.len() < 4);
    !is_morning && !is_greeting
}

/// Number of units: `two`, `a`, `a few`, `a couple of`, `3`, with the position of the unit.
fn count(tokens: &Tokens, at: usize) -> Option<(i64, i64, usize)> {
    let after_article = at + usize::from(tokens.word(at) == Some(Word::A));
    let (least, most, end) = match tokens.kind(after_article) {
        Some(Kind::Number { value, ordinal: false, .. }) if tokens.stands_alone(at, at) => {
            (value.into(), value.into(), after_article + 1)
        }
        Some(Kind::Word(Word::Count(least, most))) => (least.into(), most.into(), after_article + 1),
        // `an hour` is not a date, so `an` is only the French unit.
        _ if after_article > at => (1, 1, after_article),
        _ => return None,
    };
    Some((least, most, end + usize::from(tokens.word(end) == Some(Word::Of))))
}

fn unit(tokens: &Tokens, at: usize) -> Option<Unit> {
    match tokens.word(at)? {
        Word::Unit(unit) if unit != Unit::An => Some(unit),
        _ => None,
    }
}

/// `two weeks ago`, `a few days ago`, `two weeks from now`.
fn count_ago(tokens: &Tokens, at: usize, said: Date) -> Option<Found> {
    let (least, most, n) = count(tokens, at)?;
    let unit = unit(tokens, n)?;
    // `half a year ago`
    if tokens.word_before(at).is_some_and(|word| matches!(word, Word::Third(_))) {
        return None;
    }
    if tokens.word(n + 1) == Some(Word::Ago) {
        return Some((span(said, unit, -most, -least), n + 2));
    }
    let from_now =
        tokens.text(n + 1).eq_ignore_ascii_case("from") && tokens.text(n + 2).eq_ignore_ascii_case("now");
    from_now.then(|| (span(said, unit, least, most), n + 3))
}

/// `in two weeks`.
fn in_count(tokens: &Tokens, at: usize, said: Date) -> Option<Found> {
    let (least, most, n) = count(tokens, at + 1)?;
    let unit = unit(tokens, n)?;
    // `for the first time in two years`, `twice in a week`, `in one week of May`
    let is_duration = ["time", "once", "twice", "times"]
        .iter()
        .any(|word| at > 0 && tokens.text(at - 1).eq_ignore_ascii_case(word));
    (!is_duration && tokens.word(n + 1) != Some(Word::Of)).then(|| (span(said, unit, least, most), n + 1))
}

/// Unit with a direction, optionally after `of`: `of last year`, `next week`, `de la semana pasada`.
pub(super) fn directed_unit(tokens: &Tokens, at: usize) -> Option<(Unit, Direction, usize)> {
    let n = at + usize::from(matches!(tokens.word(at), Some(Word::Of | Word::Link)));
    if let (Some(Word::Direction(direction, Side::Before | Side::Either)), Some(unit)) =
        (tokens.word(n), unit(tokens, n + 1))
    {
        return Some((unit, direction, n + 2));
    }
    // Articles of other languages, such as `la`, have no meaning of their own.
    let n = n + usize::from(matches!(tokens.text(n), "la" | "el" | "il" | "le" | "l" | "a" | "o"));
    let n = n + usize::from(matches!(tokens.kind(n), Some(Kind::Sign('\'' | '’'))));
    let Some(Word::Unit(unit)) = tokens.word(n) else { return None };
    let (direction, end) = direction_after(tokens, n + 1)?;
    Some((unit, direction, end))
}

/// `the 14th of this month`.
fn day_of_month(tokens: &Tokens, at: usize, said: Date) -> Option<Found> {
    let Some(Kind::Number { value, ordinal: true, .. }) = tokens.kind(at) else { return None };
    let (Unit::Month, direction, end) = directed_unit(tokens, at + 1)? else { return None };
    let month = unit_range(said, Unit::Month, direction as i64)?;
    let day = Date::new(month.first.year(), month.first.month(), i8::try_from(value).ok()?).ok()?;
    Some((Some(DateRange::day(day)), end))
}

/// Returns the date and its end if a date without a year is followed by a relative year: `March of last year`.
pub(super) fn with_relative_year(tokens: &Tokens, found: &absolute::Found, said: Date) -> Option<Found> {
    if found.date.year.is_some() {
        return None;
    }
    let (Unit::Year | Unit::An, direction, end) = directed_unit(tokens, found.end)? else { return None };
    let year = i64::from(said.year()) + direction as i64;
    Some((found.date.range_in(i16::try_from(year).ok()?), end))
}

/// Returns the range from the unit at one offset to the unit at another.
fn span(said: Date, unit: Unit, from: i64, to: i64) -> Option<DateRange> {
    Some(DateRange { first: unit_range(said, unit, from)?.first, last: unit_range(said, unit, to)?.last })
}

/// `last week`, `next Friday`, `this May`, `last two weeks`, `this morning`.
fn direction_before(tokens: &Tokens, at: usize, direction: Direction, said: Date) -> Option<Found> {
    let n = at + 1 + usize::from(matches!(tokens.kind(at + 1), Some(Kind::Sign('\'' | '’'))));
    // `the last week of May`
    if tokens.word(n + 1) == Some(Word::Of) {
        return None;
    }
    let range = match tokens.word(n) {
        // `the next day` is relative to another date.
        Some(Word::Unit(Unit::Day | Unit::An)) => return None,
        // `the coming weeks`
        Some(Word::Unit(_)) if is_plural(tokens.text(n)) => return None,
        Some(Word::Unit(unit)) => unit_range(said, weekend_or(tokens, n, unit), direction as i64),
        Some(Word::Weekday(day, _)) => {
            let date = date_after_weekday(tokens, n);
            if date.is_some() {
                return None;
            }
            let end = n + 1 + feira(tokens, n + 1);
            return Some((weekday_range(day, direction, said), end));
        }
        Some(Word::Month(month, _)) => {
            let found = absolute::date_at(tokens, n).filter(|found| found.end == n + 1)?;
            return Some((directed(&absolute::month_date(month), direction, said), found.end));
        }
        Some(Word::Season(season)) => {
            // `this summer of 2022`
            if absolute::date_at(tokens, n).is_some_and(|found| found.date.year.is_some()) {
                return None;
            }
            directed(&absolute::season_date(season), direction, said)
        }
        Some(Word::PartOfDay) => match direction {
            Direction::Last => shift(said, -1).map(DateRange::day),
            Direction::This => Some(DateRange::day(said)),
            Direction::Next => return None,
        },
        Some(Word::Count(..) | Word::A) | None => {
            let (_, most, unit_at) = count(tokens, n)?;
            let unit = unit(tokens, unit_at)?;
            let (from, to) = match direction {
                Direction::Last => (back(said, unit, most)?, said),
                Direction::Next => (said, forward(said, unit, most)?),
                Direction::This => return None,
            };
            return Some((Some(DateRange { first: from, last: to }), unit_at + 1));
        }
        _ => return None,
    };
    Some((range, n + 1))
}

fn is_plural(unit: &str) -> bool {
    ["weeks", "weekends", "months", "years", "wochen", "weken"]
        .iter()
        .any(|word| unit.eq_ignore_ascii_case(word))
}

/// Returns the day that is a number of weeks ago, or the first day of the unit that is a number of units ago.
fn back(said: Date, unit: Unit, count: i64) -> Option<Date> {
    match unit {
        Unit::Week => shift(said, -7 * count),
        unit => Some(unit_range(said, unit, -count)?.first),
    }
}

/// Returns the day in a number of weeks, or the last day of the unit in a number of units.
fn forward(said: Date, unit: Unit, count: i64) -> Option<Date> {
    match unit {
        Unit::Week => shift(said, 7 * count),
        unit => Some(unit_range(said, unit, count)?.last),
    }
}

/// Direction that follows its word: `dernière`, `pasada`, `que viene`.
pub(super) fn direction_after(tokens: &Tokens, at: usize) -> Option<(Direction, usize)> {
    match tokens.word(at)? {
        Word::Direction(direction, Side::After | Side::Either) => Some((direction, at + 1)),
        Word::Que if tokens.word(at + 1) == Some(Word::Coming) => Some((Direction::Next, at + 2)),
        _ => None,
    }
}

/// `fin de semana` and `fine settimana` are weekends.
fn weekend_or(tokens: &Tokens, at: usize, unit: Unit) -> Unit {
    let linked = tokens.word_before(at) == Some(Word::Link);
    let end = at.checked_sub(1 + usize::from(linked)).map_or("", |n| tokens.text(n));
    let is_weekend = ["fin", "fim", "fine"].iter().any(|word| end.eq_ignore_ascii_case(word));
    if unit == Unit::Week && is_weekend { Unit::Weekend } else { unit }
}

/// Returns the last such month or season that ended before a day, the next one that begins after it, or the one of the
/// same year.
fn directed(date: &NamedDate, direction: Direction, said: Date) -> Option<DateRange> {
    let year = said.year();
    let mut ranges = (year.saturating_sub(2)..=year.saturating_add(1)).filter_map(|year| date.range_in(year));
    match direction {
        Direction::Last => ranges.rfind(|range| range.last < said),
        Direction::Next => ranges.find(|range| range.first > said),
        Direction::This if date.month().is_some() => date.range_in(year),
        Direction::This => date.nearest(said),
    }
}
