//! Redaction of personal data: e-mail addresses, phone numbers and payment card numbers.
//!
//! Card numbers are recognized by length and check digit. Phone numbers are recognized by an international prefix, a
//! usual grouping of digits, or a usual national prefix. Order numbers, dates and amounts usually do not match.

use std::{borrow::Cow, sync::LazyLock};

use regex::{Captures, Regex};

use crate::{Dialogue, clean::Cleaned};

/// Placeholder for an e-mail address.
pub const EMAIL: &str = "[EMAIL]";
/// Placeholder for a phone number.
pub const PHONE: &str = "[PHONE]";
/// Placeholder for a card number.
pub const CARD: &str = "[CARD]";

/// Compiles a regular expression. Panics if the expression is invalid. This cannot happen to a user, because all
/// expressions are constants that the tests compile.
#[allow(clippy::expect_used)]
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a valid pattern")
}

// Word boundaries (`\b`) are ASCII only, because Chinese text has no spaces between numbers and Han characters.
static EMAILS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)[\p{Latin}0-9._%+-]+(?:@|\s?\[at\]\s?|\s\(at\)\s)[\p{Latin}0-9-]+(?:\.[\p{Latin}0-9-]+)*\.\p{Latin}{2,}",
    )
});
static CARDS: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?-u:\b)\d(?:[ -]?\d){11,18}(?-u:\b)"));
static PHONES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?P<intl>(?:\+|(?-u:\b)00)\d{1,3}(?:[ .\-/]?\(?\d{1,5}\)?){2,6})",
        r"|(?P<paren>\(\d{2,5}\)[ .\-/]?\d{2,4}(?:[ .\-/]\d{2,5}){0,3})",
        r"|(?P<us>(?-u:\b)(?:1[ .\-])?\d{3}[ .\-]\d{3}[ .\-]\d{4}(?-u:\b))",
        r"|(?P<local>(?-u:\b)\d{3}-\d{4}(?-u:\b))",
        r"|(?P<national>(?-u:\b)0\d{2,5}[ \-/]\d{3,4}(?:[ \-]?\d{2,5}){0,2}(?-u:\b))",
        r"|(?P<plain>(?-u:\b)0[1-9]\d{8,9}(?-u:\b))",
        r"|(?P<cn>(?-u:\b)1[3-9]\d[ -]?[\d*]{4}[ -]?\d{4}(?-u:\b))",
    ))
});

/// Replaces personal data in a text with placeholders, and adds the number of replacements to `cleaned`.
pub fn text<'t>(text: &'t str, cleaned: &mut Cleaned) -> Cow<'t, str> {
    let mut out = Cow::Borrowed(text);
    // Fast path for most turns: a text without any of these characters contains no match.
    if !text.bytes().any(|b| b.is_ascii_digit() || b == b'@' || b == b'[' || b == b'(') {
        return out;
    }
    out = replace(out, &EMAILS, EMAIL, &mut cleaned.emails, |_| true);
    out = replace(out, &CARDS, CARD, &mut cleaned.cards, |found| has_check_digit(&found[0]));
    replace(out, &PHONES, PHONE, &mut cleaned.phones, is_phone)
}

fn replace<'t>(
    text: Cow<'t, str>,
    pattern: &Regex,
    placeholder: &str,
    count: &mut u64,
    accept: impl Fn(&Captures<'_>) -> bool,
) -> Cow<'t, str> {
    let mut found = 0;
    let replaced = pattern.replace_all(&text, |captures: &Captures<'_>| {
        if accept(captures) {
            found += 1;
            placeholder.to_owned()
        } else {
            captures[0].to_owned()
        }
    });
    *count += found;
    if found == 0 { text } else { Cow::Owned(replaced.into_owned()) }
}

fn is_phone(found: &Captures<'_>) -> bool {
    let digits = found[0].bytes().filter(|b| b.is_ascii_digit() || *b == b'*').count();
    found.name("local").is_some() || (7..=15).contains(&digits)
}

/// Returns whether a number has the length and the Luhn check digit of a payment card number.
fn has_check_digit(number: &str) -> bool {
    let digits: Vec<u32> = number.chars().filter_map(|c| c.to_digit(10)).collect();
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(n, &d)| match (n % 2, d * 2) {
            (0, _) => d,
            (_, double) if double > 9 => double - 9,
            (_, double) => double,
        })
        .sum();
    (13..=19).contains(&digits.len()) && sum.is_multiple_of(10) && digits.iter().any(|&d| d != 0)
}

/// Redacts the title of a dialogue, and the texts, speaker names and metadata strings of the dialogue and its turns.
pub fn dialogue(dialogue: &mut Dialogue, cleaned: &mut Cleaned) {
    let mut redact = |field: &mut String| {
        if let Cow::Owned(redacted) = text(field, cleaned) {
            *field = redacted;
        }
    };
    dialogue.title.iter_mut().for_each(&mut redact);
    for turn in &mut dialogue.turns {
        redact(&mut turn.text);
        redact(&mut turn.speaker);
    }
    let of_turns = dialogue.turns.iter_mut().flat_map(|turn| turn.metadata.values_mut());
    for value in dialogue.metadata.values_mut().chain(of_turns) {
        strings(value, &mut redact);
    }
}

/// Calls `f` on each string value inside a JSON value, at any depth.
fn strings(value: &mut serde_json::Value, f: &mut impl FnMut(&mut String)) {
    match value {
        serde_json::Value::String(text) => f(text),
        serde_json::Value::Array(values) => values.iter_mut().for_each(|v| strings(v, f)),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(|v| strings(v, f)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(input: &str) -> String {
        text(input, &mut Cleaned::default()).into_owned()
    }

    #[test]
    fn personal_data_is_replaced() {
        for (input, expected) in [
            ("mail me: Jo.Smith+x@mail.example.co.uk please", "mail me: [EMAIL] please"),
            ("用zhang_3@example.com联系", "用[EMAIL]联系"),
            ("jo [at] example.com", "[EMAIL]"),
            ("call +44 20 7946 0958 today", "call [PHONE] today"),
            ("call 0044 20 7946 0958", "call [PHONE]"),
            ("it's (020) 7946 0958.", "it's [PHONE]."),
            ("555-0142", "[PHONE]"),
            ("212-555-0142 or 1 212 555 0142", "[PHONE] or [PHONE]"),
            ("07700 900123", "[PHONE]"),
            ("手机13800138000,谢谢", "手机[PHONE],谢谢"),
            ("138****0123", "[PHONE]"),
            ("card 4111 1111 1111 1111 exp 12/27", "card [CARD] exp 12/27"),
            ("4111111111111111", "[CARD]"),
        ] {
            assert_eq!(redacted(input), expected);
        }
    }

    #[test]
    fn other_numbers_are_unchanged() {
        for input in [
            "order 4410-22873 of 2026-03-02 at 09:14",
            "parcel 1Z999AA10123456784",
            "ref 40071 and 40072, 164 a night, 119 x 2",
            "card ending 4471",
            "invoice 4111 1111 1111 1112",
            "it cost 1,234,567.89 in total",
            "IP 192.168.100.200",
            "room 214, 24 to 27 October",
            "see you @ 5",
        ] {
            assert_eq!(redacted(input), input);
        }
    }

    #[test]
    fn all_texts_of_a_dialogue_are_redacted() {
        let mut d: Dialogue = serde_json::from_str(
            r#"{"id":"d","title":"from a@example.org","metadata":{"x":["b@example.org",{"y":"555-0101"}]},
                "turns":[{"speaker":"+1 212 555 0100","text":"4111111111111111","metadata":{"z":"c@example.org"}}]}"#,
        )
        .unwrap();
        let mut cleaned = Cleaned::default();
        dialogue(&mut d, &mut cleaned);
        assert_eq!((cleaned.emails, cleaned.phones, cleaned.cards), (3, 2, 1));
        let json = serde_json::to_string(&d).unwrap();
        assert!(!json.contains("example.org") && !json.contains("555") && !json.contains("4111"), "{json}");
    }
}
