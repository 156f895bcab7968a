//! Relative dates in Chinese and Japanese, which have no spaces between words.

use super::words::Unit;

/// Relative date in Chinese or Japanese.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phrase {
    /// Number of days from the day of the turn.
    Day(i8),
    /// Number of units from the current one.
    Unit(Unit, i8),
    /// Weekday in the week that many weeks from the current one.
    WeekdayOf(i8, i8),
    /// Last such weekday before the day of the turn.
    Weekday(i8),
}

/// Relative dates in Chinese and Japanese. Weeks are in [`phrase`].
const PHRASES: &[(&str, Phrase)] = &[
    ("前天", Phrase::Day(-2)),
    ("昨天", Phrase::Day(-1)),
    ("昨日", Phrase::Day(-1)),
    ("昨晚", Phrase::Day(-1)),
    ("今天", Phrase::Day(0)),
    ("今日", Phrase::Day(0)),
    ("今晚", Phrase::Day(0)),
    ("今早", Phrase::Day(0)),
    ("明天", Phrase::Day(1)),
    ("明日", Phrase::Day(1)),
    ("明晚", Phrase::Day(1)),
    ("后天", Phrase::Day(2)),
    ("後天", Phrase::Day(2)),
    ("上个月", Phrase::Unit(Unit::Month, -1)),
    ("上個月", Phrase::Unit(Unit::Month, -1)),
    ("上月", Phrase::Unit(Unit::Month, -1)),
    ("先月", Phrase::Unit(Unit::Month, -1)),
    ("这个月", Phrase::Unit(Unit::Month, 0)),
    ("這個月", Phrase::Unit(Unit::Month, 0)),
    ("本月", Phrase::Unit(Unit::Month, 0)),
    ("今月", Phrase::Unit(Unit::Month, 0)),
    ("下个月", Phrase::Unit(Unit::Month, 1)),
    ("下個月", Phrase::Unit(Unit::Month, 1)),
    ("下月", Phrase::Unit(Unit::Month, 1)),
    ("来月", Phrase::Unit(Unit::Month, 1)),
    ("前年", Phrase::Unit(Unit::Year, -2)),
    ("去年", Phrase::Unit(Unit::Year, -1)),
    ("昨年", Phrase::Unit(Unit::Year, -1)),
    ("今年", Phrase::Unit(Unit::Year, 0)),
    ("明年", Phrase::Unit(Unit::Year, 1)),
    ("来年", Phrase::Unit(Unit::Year, 1)),
    ("先週", Phrase::Unit(Unit::Week, -1)),
    ("今週", Phrase::Unit(Unit::Week, 0)),
    ("来週", Phrase::Unit(Unit::Week, 1)),
];

/// Returns the relative date at the beginning of a Chinese or Japanese text, and its length in bytes. `before` is the
/// character before the text.
pub(super) fn phrase(text: &str, before: Option<char>) -> Option<(Phrase, usize)> {
    let first = text.chars().next()?;
    if !"前昨今明后後上先这這本下来去周週星礼禮".contains(first) {
        return None;
    }
    // `晚上` ends with the same character as `上周` begins; `一周` is a duration.
    if before.is_some_and(|c| "上下晚早马馬以日一二三四五六七八九十两兩几幾每数數半".contains(c))
    {
        return None;
    }
    if let Some((phrase, meaning)) = PHRASES.iter().find(|(phrase, _)| text.starts_with(phrase)) {
        return Some((*meaning, phrase.len()));
    }
    let (offset, rest) = match first {
        '上' => (Some(-1), &text[first.len_utf8()..]),
        '下' => (Some(1), &text[first.len_utf8()..]),
        '这' | '這' | '本' => (Some(0), &text[first.len_utf8()..]),
        _ => (None, text),
    };
    let rest = rest.strip_prefix(['个', '個']).filter(|_| offset.is_some()).unwrap_or(rest);
    let rest = ["周", "週", "星期", "礼拜", "禮拜"].iter().find_map(|week| rest.strip_prefix(week))?;
    let next = rest.chars().next();
    let length = text.len() - rest.len();
    let weekday =
        next.and_then(|c| "一二三四五六日天".chars().position(|day| day == c)).map(|n| n.min(6) as i8);
    match (offset, weekday, next) {
        (Some(offset), Some(day), Some(c)) => Some((Phrase::WeekdayOf(offset, day), length + c.len_utf8())),
        (None, Some(day), Some(c)) => Some((Phrase::Weekday(day), length + c.len_utf8())),
        (Some(offset), _, Some(c @ '末')) => {
            Some((Phrase::Unit(Unit::Weekend, offset), length + c.len_utf8()))
        }
        (Some(offset), ..) => Some((Phrase::Unit(Unit::Week, offset), length)),
        _ => None,
    }
}
