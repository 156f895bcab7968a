//! Weekdays relative to the day on which a turn was said.

use jiff::civil::Date;

use super::{
    DateRange, absolute,
    relative::{Found, directed_unit, direction_after, shift, unit_range},
    tokens::{Kind, Tokens},
    words::{Direction, Unit, Word},
};

/// Returns the number of tokens of `-feira` in Portuguese weekdays.
pub(super) fn feira(tokens: &Tokens, at: usize) -> usize {
    let is_feira = tokens.is_sign(at, '-') && tokens.text(at + 1).eq_ignore_ascii_case("feira");
    if is_feira { 2 } else { 0 }
}

/// Returns the absolute date that follows a weekday, such as in `Monday, 8 May`.
pub(super) fn date_after_weekday(tokens: &Tokens, at: usize) -> Option<absolute::Found> {
    let mut n = at + 1 + feira(tokens, at + 1);
    n += usize::from(matches!(tokens.kind(n), Some(Kind::Sign(',' | '.'))));
    let is_article =
        |n: usize| matches!(tokens.word(n), Some(Word::The | Word::On | Word::Germanic | Word::Link));
    n += usize::from(is_article(n) || tokens.text(n).eq_ignore_ascii_case("den"));
    absolute::date_at(tokens, n)
}

/// Weekday without a direction before it: `on Friday`, `viernes pasado`, `Wednesday next week`.
pub(super) fn weekday(tokens: &Tokens, at: usize, day: i8, certain: bool, said: Date) -> Option<Found> {
    let feira = feira(tokens, at + 1);
    let end = at + 1 + feira;
    if let Some((direction, end)) = direction_after(tokens, end) {
        return Some((weekday_range(day, direction, said), end));
    }
    if let Some((Unit::Week, direction, end)) = directed_unit(tokens, end) {
        let week = unit_range(said, Unit::Week, direction as i64)?;
        return Some((shift(week.first, day.into()).map(DateRange::day), end));
    }
    let is_range = |n: usize| {
        matches!(
            tokens.text(n).to_ascii_lowercase().as_str(),
            "to" | "through" | "thru" | "-" | "–" | "bis" | "a" | "à" | "al"
        )
    };
    let is_weekday = |n: usize| matches!(tokens.word(n), Some(Word::Weekday(..)));
    let is_habit = is_range(end) && is_weekday(end + 1) || at > 1 && is_range(at - 1) && is_weekday(at - 2);
    // `a week from Friday`
    let is_after_duration = at > 1
        && tokens.text(at - 1).eq_ignore_ascii_case("from")
        && matches!(tokens.word(at - 2), Some(Word::Unit(_)));
    let is_after_on = at > 0 && tokens.text(at - 1).eq_ignore_ascii_case("on");
    if !(certain || feira > 0 || is_after_on)
        || is_habit
        || tokens.word_before(at) == Some(Word::NotADate)
        || is_after_duration
        || date_after_weekday(tokens, at).is_some()
    {
        return None;
    }
    Some((weekday_range(day, Direction::Last, said), end))
}

/// Returns the last such weekday before a day, the next one after it, or the first one from it on.
pub(super) fn weekday_range(day: i8, direction: Direction, said: Date) -> Option<DateRange> {
    let ahead = (i64::from(day) - i64::from(said.weekday().to_monday_zero_offset())).rem_euclid(7);
    let offset = match direction {
        Direction::Last => ahead - 7,
        Direction::This => ahead,
        Direction::Next if ahead == 0 => 7,
        Direction::Next => ahead,
    };
    shift(said, offset).map(DateRange::day)
}
