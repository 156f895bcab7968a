//! Dates in digits, with punctuation or with Chinese and Japanese signs.

use super::{
    END,
    absolute::{Found, RECENT_YEARS, found},
    tokens::{Kind, Tokens},
    words::Word,
};

/// `2023年5月8日`, `5月8日`, `2023年5月`, `5月`, `2023年`.
pub(super) fn signs(tokens: &Tokens, at: usize) -> Option<Found> {
    let followed_by = |n: usize, sign: Word| {
        let Some(Kind::Number { value, ordinal: false, .. }) = tokens.kind(n) else { return None };
        (tokens.word(n + 1) == Some(sign)).then_some(value)
    };
    let small = |value: i16| i8::try_from(value).ok().filter(|value| *value <= 31);
    let year = followed_by(at, Word::YearSign);
    let month_at = if year.is_some() { at + 2 } else { at };
    let Some(month) = followed_by(month_at, Word::MonthSign) else {
        let year = year.filter(|year| RECENT_YEARS.contains(year))?;
        return found(tokens, (at, at + 2), Some(year), (1, 1), (12, END));
    };
    let month = small(month)?;
    match followed_by(month_at + 2, Word::DaySign) {
        Some(day) => {
            let day = (month, small(day)?);
            found(tokens, (at, month_at + 4), year, day, day)
        }
        None => found(tokens, (at, month_at + 2), year, (month, 1), (month, END)),
    }
}

/// `2023-05-08`, `2023/05/08`, `2023-05`, `8.5.2023`, `08/05/2023`.
pub(super) fn numeric(tokens: &Tokens, at: usize) -> Option<Found> {
    let part = |n: usize| match tokens.kind(n) {
        Some(Kind::Number { value, digits, ordinal: false }) => Some((value, digits)),
        _ => None,
    };
    let attached = |n: usize| tokens.is_attached(n) && tokens.is_attached(n + 1);
    let (first, first_digits) = part(at)?;
    let Kind::Sign(separator) = tokens.kind(at + 1)? else { return None };
    let (second, second_digits) = part(at + 2)?;
    if !attached(at + 1) {
        return None;
    }
    let third = (tokens.is_sign(at + 3, separator) && attached(at + 3)).then(|| part(at + 4)).flatten();
    let small = |value: i16| i8::try_from(value).unwrap_or(END - 1);
    let day = |year: i16, month: i16, day: i16| {
        let day = (small(month), small(day));
        found(tokens, (at, at + 5), Some(year), day, day)
    };
    match (separator, first_digits, second_digits, third) {
        ('-' | '/', 4, 2, Some((third, 2))) if tokens.stands_alone(at, at + 4) || is_time(tokens, at + 5) => {
            day(first, second, third)
        }
        ('-', 4, 2, None) if tokens.stands_alone(at, at + 2) && RECENT_YEARS.contains(&first) => {
            let month = small(second);
            found(tokens, (at, at + 3), Some(first), (month, 1), (month, END))
        }
        ('-' | '/' | '.', 1 | 2, 1 | 2, Some((year, 4)))
            if tokens.stands_alone(at, at + 4) && RECENT_YEARS.contains(&year) =>
        {
            let day_first = day(year, second, first);
            // With full stops, the day is always first.
            let month_first =
                (separator != '.' && first != second).then(|| day(year, first, second)).flatten();
            match day_first {
                Some(found) => Some(Found { other_reading: month_first.map(|found| found.date), ..found }),
                None => month_first,
            }
        }
        _ => None,
    }
}

/// Returns whether the token is the time of day in `2023-05-08T10:00`.
fn is_time(tokens: &Tokens, n: usize) -> bool {
    tokens.is_attached(n) && tokens.text(n).starts_with('T')
}
