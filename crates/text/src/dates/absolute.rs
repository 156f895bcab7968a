//! Absolute dates: days, months, years and seasons.

use super::{
    END, MonthDay, NamedDate,
    numeric::{numeric, signs},
    tokens::{Kind, Tokens},
    words::{Direction, MonthClass, Season, Side, Unit, Word},
};

/// A date at a position of the text.
pub(super) struct Found {
    pub(super) date: NamedDate,
    /// The other reading of a date such as `08/05/2023`.
    pub(super) other_reading: Option<NamedDate>,
    /// Position after the date.
    pub(super) end: usize,
}

/// Years that can follow a day and a month.
const YEARS: std::ops::RangeInclusive<i16> = 1000..=2999;
/// Years that can follow a month without a day, or a preposition.
pub(super) const RECENT_YEARS: std::ops::RangeInclusive<i16> = 1900..=2099;

/// Returns the date whose first number, month or season is at a position.
pub(super) fn date_at(tokens: &Tokens, at: usize) -> Option<Found> {
    match tokens.kind(at)? {
        Kind::Number { .. } => signs(tokens, at)
            .or_else(|| numeric(tokens, at))
            .or_else(|| day_first(tokens, at))
            .or_else(|| year_alone(tokens, at)),
        Kind::Word(Word::Month(month, class)) => month_first(tokens, at, month, class),
        Kind::Word(Word::Season(season)) => {
            season_and_year(tokens, at, season).or_else(|| season_alone(tokens, at, season))
        }
        _ => None,
    }
}

/// Creates a date from the tokens `first..end`. Returns `None` if the day does not exist.
pub(super) fn found(
    tokens: &Tokens,
    (first, end): (usize, usize),
    year: Option<i16>,
    from: (i8, i8),
    to: (i8, i8),
) -> Option<Found> {
    let [from, to] = [from, to].map(|(month, day)| MonthDay { month, day });
    let date = NamedDate { year, first: from, last: to, text: tokens.range(first, end) };
    // 29 February exists in 2024.
    date.range_in(year.unwrap_or(2024))?;
    Some(Found { date, other_reading: None, end })
}

/// Day of a month, which can be followed by a second day: `8`, `8th`, `8-10`.
struct Days {
    first: i8,
    last: i8,
    ordinal: bool,
    end: usize,
}

fn days(tokens: &Tokens, at: usize) -> Option<Days> {
    let day = |n: usize| match tokens.kind(n)? {
        Kind::Number { value, digits: 1 | 2, ordinal } if (1..=31).contains(&value) => {
            Some((value as i8, ordinal))
        }
        _ => None,
    };
    let (first, ordinal) = day(at)?;
    if (tokens.is_sign(at + 1, '-') || tokens.is_sign(at + 1, '–'))
        && let Some((last, ordinal)) = day(at + 2).filter(|(last, _)| *last > first)
    {
        return tokens.stands_alone(at, at + 2).then_some(Days { first, last, ordinal, end: at + 3 });
    }
    Some(Days { first, last: first, ordinal, end: at + 1 })
}

/// `8 May 2023`, `8th of May`, `8. Mai`, `8 de mayo de 2023`.
fn day_first(tokens: &Tokens, at: usize) -> Option<Found> {
    let days = days(tokens, at)?;
    let mut n = days.end;
    // `8.`, `1°` and `8-May-2023`.
    let has_sign = matches!(tokens.kind(n), Some(Kind::Sign('.' | '°' | '-'))) && tokens.is_attached(n);
    n += usize::from(has_sign);
    let is_linked = matches!(tokens.word(n), Some(Word::Of | Word::Link));
    n += usize::from(is_linked);
    if is_linked && matches!(tokens.kind(n), Some(Kind::Sign('\'' | '’'))) {
        n += 1;
    }
    let Some(Word::Month(month, class)) = tokens.word(n) else { return None };
    if !tokens.stands_alone(at, at) && !tokens.is_sign(at + 1, '-') && !has_sign {
        return None;
    }
    let year = year_after(tokens, n, &YEARS);
    let end = year.map_or(n + 1, |(_, end)| end);
    let uncertain = matches!(class, MonthClass::Verb | MonthClass::Mars);
    let is_verb = uncertain
        && !tokens.is_capitalized(n)
        && (tokens.kind(end) == Some(Kind::Other) || is_before_verb(tokens, end));
    if is_verb && year.is_none() && !days.ordinal && !is_linked
        || !before_is_plain(tokens, at)
        || is_inside_name(tokens, n)
    {
        return None;
    }
    found(tokens, (at, end), year.map(|(year, _)| year), (month, days.first), (month, days.last))
}

/// Returns whether the character before a day is not part of an amount, a time or a decimal number.
fn before_is_plain(tokens: &Tokens, at: usize) -> bool {
    // Only the sign before the token matters here: a full stop or a hyphen can follow the day.
    let Some(before) = at.checked_sub(1) else { return true };
    let Some(Kind::Sign(sign)) = tokens.kind(before) else { return true };
    !tokens.is_attached(at)
        || !matches!(sign, '$' | '€' | '£' | '¥' | '#' | ':' | '/' | '.' | ',' | '-' | '@' | '=' | '+')
}

/// `May 8, 2023`, `May the 8th`, `May 2023`, and a month alone where it is certainly a month.
fn month_first(tokens: &Tokens, at: usize, month: i8, class: MonthClass) -> Option<Found> {
    if is_inside_name(tokens, at) {
        return None;
    }
    let third = third_before(tokens, at);
    let first = third.map_or(at, |(_, first)| first);
    let skip_the = usize::from(tokens.word(at + 1) == Some(Word::The));
    let is_abbreviation = matches!(class, MonthClass::Abbreviation | MonthClass::Foreign);
    let abbreviated = tokens.is_sign(at + 1, '.') && tokens.is_attached(at + 1) && is_abbreviation;
    let day_at = at + 1 + skip_the + usize::from(abbreviated);
    let days = days(tokens, day_at).filter(|days| tokens.stands_alone(day_at, days.end - 1));
    if let Some(days) = days {
        let year = year_after(tokens, days.end - 1, &YEARS);
        // In `march 20 miles`, the number is not a day.
        if year.is_some() || days.ordinal || !is_amount(tokens, at, days.end, class) {
            let end = year.map_or(days.end, |(_, end)| end);
            let year = year.map(|(year, _)| year);
            return found(tokens, (at, end), year, (month, days.first), (month, days.last));
        }
    }
    // In `31 February`, the day does not exist.
    let gap = usize::from(matches!(tokens.word_before(at), Some(Word::Of | Word::Link)));
    let before = at.checked_sub(1 + gap).and_then(|n| tokens.kind(n));
    if matches!(before, Some(Kind::Number { digits: 1 | 2, .. })) {
        return None;
    }
    let year =
        year_after(tokens, at, &RECENT_YEARS).filter(|(_, end)| tokens.word(*end) != Some(Word::Measure));
    if year.is_none() && class != MonthClass::Unambiguous && !has_context(tokens, at, class) {
        return None;
    }
    let (from, to) = match third {
        Some((0, _)) => (1, 10),
        Some((1, _)) => (11, 20),
        Some(_) => (21, END),
        None => (1, END),
    };
    let end = year.map_or(at + 1, |(_, end)| end);
    found(tokens, (first, end), year.map(|(year, _)| year), (month, from), (month, to))
}

/// Returns whether the number between a month and `end` is an amount (`march 20 miles`).
fn is_amount(tokens: &Tokens, month: usize, end: usize, class: MonthClass) -> bool {
    if matches!(tokens.word(end), Some(Word::Measure | Word::Unit(_))) {
        return true;
    }
    let uncertain = matches!(class, MonthClass::Verb | MonthClass::Mars) && !tokens.is_capitalized(month);
    let is_after_preposition = matches!(
        tokens.word_before(month),
        Some(Word::On | Word::In | Word::Of | Word::Preposition(_) | Word::Weekday(..))
    ) || tokens.is_attached(month);
    uncertain && !is_after_preposition && tokens.kind(end) == Some(Kind::Other)
}

/// Returns whether a month is part of a name or an address, such as `Mar-a-Lago`.
fn is_inside_name(tokens: &Tokens, at: usize) -> bool {
    let is_text = |n: usize| matches!(tokens.kind(n), Some(Kind::Word(_) | Kind::Other));
    let before = at > 1
        && match tokens.kind(at - 1) {
            Some(Kind::Sign('-')) => {
                is_text(at - 2)
                    && !matches!(tokens.word(at - 2), Some(Word::Third(_)))
                    && tokens.is_attached(at - 1)
            }
            Some(Kind::Sign('/' | '@' | '.' | '_' | '#')) => is_text(at - 2) && tokens.is_attached(at - 1),
            _ => false,
        }
        && tokens.is_attached(at);
    let after = match tokens.kind(at + 1) {
        // `February's` is a month, but `May've` is not.
        Some(Kind::Sign('\'' | '’'))
            if matches!(tokens.word(at), Some(Word::Month(_, MonthClass::Unambiguous))) =>
        {
            false
        }
        Some(Kind::Sign('-' | '/' | '@' | '.' | '_' | '\'' | '’')) => {
            tokens.is_attached(at + 1) && tokens.is_attached(at + 2) && is_text(at + 2)
        }
        _ => false,
    };
    before || after
}

/// Returns the year after the token `n`, and the position after the year: `, 2023`, `of 2023`, `de 2023`.
fn year_after(tokens: &Tokens, n: usize, years: &std::ops::RangeInclusive<i16>) -> Option<(i16, usize)> {
    let mut at = n + 1;
    if tokens.is_sign(at, '.') && tokens.is_attached(at) {
        at += 1;
    }
    let is_separator = matches!(tokens.kind(at), Some(Kind::Sign(',' | '-')))
        || matches!(tokens.word(at), Some(Word::Of | Word::Link));
    at += usize::from(is_separator);
    match tokens.kind(at)? {
        Kind::Number { value, digits: 4, ordinal: false } if years.contains(&value) => {
            let hyphenated = tokens.is_sign(at - 1, '-');
            (hyphenated || tokens.stands_alone(at, at)).then_some((value, at + 1))
        }
        _ => None,
    }
}

/// Returns the third of a month or year before it (`early`), and the position of that word.
fn third_before(tokens: &Tokens, at: usize) -> Option<(u8, usize)> {
    let hyphens = usize::from(at > 0 && tokens.is_sign(at - 1, '-') && tokens.is_attached(at));
    let n = at.checked_sub(1 + hyphens)?;
    match tokens.word(n) {
        // `mi` is also Spanish.
        Some(Word::Third(third)) if hyphens == 1 || tokens.text(n) != "mi" => Some((third, n)),
        _ => None,
    }
}

/// Returns whether `may` before this position is a verb: `may be`.
fn is_before_verb(tokens: &Tokens, at: usize) -> bool {
    matches!(tokens.text(at), "be" | "have" | "not")
}

/// Returns whether the words around a month show that it is a month.
fn has_context(tokens: &Tokens, at: usize, class: MonthClass) -> bool {
    if matches!(tokens.word(at + 1), Some(Word::Direction(_, Side::After | Side::Either))) {
        return true;
    }
    if third_before(tokens, at).is_some() {
        return true;
    }
    // `as of may be`
    if class == MonthClass::Verb && is_before_verb(tokens, at + 1) {
        return false;
    }
    let class_bit = class as u8;
    match tokens.word_before(at) {
        Some(Word::In) => class != MonthClass::Mars,
        Some(Word::Of) => match class {
            MonthClass::Verb | MonthClass::Abbreviation => true,
            MonthClass::FirstName => {
                let portion = at.checked_sub(2).and_then(|n| tokens.kind(n));
                matches!(
                    portion,
                    Some(Kind::Word(Word::Portion | Word::Unit(_)) | Kind::Number { ordinal: true, .. })
                )
            }
            _ => false,
        },
        Some(Word::Link | Word::Unit(Unit::Month)) => class == MonthClass::Foreign,
        Some(Word::Preposition(classes)) => classes & class_bit != 0,
        // `this may take a while`
        Some(Word::Direction(Direction::This, _)) => {
            class != MonthClass::Mars && (class != MonthClass::Verb || tokens.is_capitalized(at))
        }
        Some(Word::Direction(..)) => class != MonthClass::Mars,
        _ => false,
    }
}

/// `in 2023`, `late 2023`, `the year 2023`.
fn year_alone(tokens: &Tokens, at: usize) -> Option<Found> {
    let Some(Kind::Number { value: year, digits: 4, ordinal: false }) = tokens.kind(at) else { return None };
    let third = third_before(tokens, at);
    let first = third.map_or(at, |(_, first)| first);
    if !RECENT_YEARS.contains(&year) || !tokens.stands_alone(first, at) {
        return None;
    }
    let next = tokens.kind(at + 1);
    if matches!(next, Some(Kind::Word(Word::Measure | Word::Unit(_)))) {
        return None;
    }
    let (from, to) = third.map_or((1, 12), |(third, _)| (4 * third as i8 + 1, 4 * third as i8 + 4));
    let is_year = match tokens.word_before(at) {
        _ if third.is_some() => true,
        Some(Word::In | Word::Preposition(_) | Word::Unit(Unit::Year)) => true,
        // `a crowd of 2000 spectators`
        Some(Word::Of) => next != Some(Kind::Other),
        _ => false,
    };
    if !is_year {
        return None;
    }
    found(tokens, (first, at + 1), Some(year), (from, 1), (to, END))
}

/// `summer 2022`, `summer of 2022`.
fn season_and_year(tokens: &Tokens, at: usize, season: Season) -> Option<Found> {
    let (year, end) = year_after(tokens, at, &RECENT_YEARS)?;
    let (from, to) = months(season);
    found(tokens, (at, end), Some(year), (from, 1), (to, END))
}

/// `in summer`, `during the summer holidays`, `last winter`.
fn season_alone(tokens: &Tokens, at: usize, season: Season) -> Option<Found> {
    let the = usize::from(tokens.word_before(at) == Some(Word::The));
    let is_season = match tokens.word_before(at - the) {
        // `in spring water`
        Some(Word::In) => tokens.kind(at + 1) != Some(Kind::Other),
        Some(Word::Preposition(_) | Word::Direction(_, Side::Before | Side::Either)) => true,
        _ => false,
    };
    let (from, to) = months(season);
    if is_season { found(tokens, (at, at + 1), None, (from, 1), (to, END)) } else { None }
}

/// Returns the first and the last month of a season on the northern hemisphere.
fn months(season: Season) -> (i8, i8) {
    match season {
        Season::Spring => (3, 5),
        Season::Summer => (6, 8),
        Season::Autumn => (9, 11),
        Season::Winter => (12, 2),
    }
}

/// Returns the date of a season of any year.
pub(super) fn season_date(season: Season) -> NamedDate {
    let (from, to) = months(season);
    let (first, last) = (MonthDay { month: from, day: 1 }, MonthDay { month: to, day: END });
    NamedDate { year: None, first, last, text: 0..0 }
}

/// Returns the date of a month of any year.
pub(super) fn month_date(month: i8) -> NamedDate {
    let (first, last) = (MonthDay { month, day: 1 }, MonthDay { month, day: END });
    NamedDate { year: None, first, last, text: 0..0 }
}
