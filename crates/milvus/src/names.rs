//! Encoding of texts, field names and terms for Milvus expressions and columns.

use std::fmt::Write;

/// Prefix of a term that is encoded in hexadecimal.
const HEX_PREFIX: &str = "zq";
pub(super) const LONGEST_TEXT: usize = 65_535;
/// Maximum number of bytes of a fact (field name and value). Longer facts are not stored.
pub(super) const LONGEST_FACT: usize = 2_048;

pub(super) fn quoted(text: &str) -> String {
    let escapes = [('\\', "\\\\"), ('"', "\\\""), ('\n', "\\n"), ('\r', "\\r")];
    let escaped = escapes.into_iter().fold(text.to_owned(), |text, (c, escape)| text.replace(c, escape));
    format!("\"{escaped}\"")
}

/// Returns a number as a literal for an expression. The literal of an integer has no decimal point.
pub(super) fn number(number: f64) -> String {
    match number.fract() == 0.0 && number.abs() < 9e15 {
        true => format!("{}", number as i64),
        false => format!("{number:e}"),
    }
}

/// Returns a field name as a key of a JSON column. The name of a metadata field is encoded in hexadecimal if it
/// contains characters other than ASCII letters, digits, `.`, `_` and `-`.
pub(super) fn key(field: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match field.strip_prefix("meta.") {
        Some(own) if !own.chars().all(plain) => format!("metax.{}", hex(own)),
        _ => field.to_owned(),
    }
}

/// Returns a field and a value as one text. Distinct pairs have distinct texts. `kind` is the type of the value: `t`
/// for a text, `n` for a number, `i` for a time.
pub(super) fn fact(field: &str, kind: char, value: &str) -> String {
    format!("{}:{field}={kind}{value}", field.len())
}

/// Returns a text in lower case for the operator `like`. Replaces the wildcards and the escape character with
/// private-use characters, because some servers do not support escapes in patterns.
pub(super) fn folded(text: &str) -> String {
    let unlike = |c: char| match c {
        '%' => '\u{e001}',
        '_' => '\u{e002}',
        '\\' => '\u{e003}',
        c => c,
    };
    text.to_lowercase().chars().map(unlike).collect()
}

/// Joins terms into one text. A tokenizer of Milvus splits this text into one token per term. A term is encoded in
/// hexadecimal if it contains characters other than lower-case ASCII letters and digits.
pub(super) fn terms<'a>(terms: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for term in terms {
        if !text.is_empty() {
            text.push(' ');
        }
        let plain = term.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if plain && !term.starts_with(HEX_PREFIX) {
            text.push_str(term);
        } else {
            text.extend([HEX_PREFIX, &hex(term)]);
        }
    }
    text
}

fn hex(text: &str) -> String {
    text.bytes().fold(String::with_capacity(2 * text.len()), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_quoted_text_ends_where_it_should(text in "\\PC*|[\"\\\\\n\r x]*") {
            let quoted = quoted(&text);
            let inner = &quoted[1..quoted.len() - 1];
            let mut read = String::new();
            let mut chars = inner.chars();
            while let Some(c) = chars.next() {
                prop_assert!(c != '"' && c != '\n' && c != '\r');
                read.push(match c {
                    '\\' => match chars.next() {
                        Some('n') => '\n',
                        Some('r') => '\r',
                        Some(c) => c,
                        None => return Err(TestCaseError::fail("it ends within")),
                    },
                    c => c,
                });
            }
            prop_assert_eq!(read, text);
        }

        #[test]
        fn terms_stay_apart(a in "\\PC{1,6}", b in "\\PC{1,6}") {
            let written = |term: &str| terms([term].into_iter());
            prop_assert_eq!(a == b, written(&a) == written(&b));
            prop_assert!(written(&a).bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()));
        }

        #[test]
        fn facts_stay_apart(a in "[a=t:1]{1,5}", x in "[a=t:1]{0,5}", b in "[a=t:1]{1,5}", y in "[a=t:1]{0,5}") {
            prop_assert_eq!((&a, &x) == (&b, &y), fact(&a, 't', &x) == fact(&b, 't', &y));
        }
    }

    #[test]
    fn numbers_and_keys_are_what_milvus_reads() {
        assert_eq!([number(3.0), number(-0.5), number(1e300)], ["3", "-5e-1", "1e300"]);
        assert_eq!(
            [key("role"), key("meta.channel"), key("meta.a\"b")],
            ["role", "meta.channel", "metax.612262"]
        );
        assert_eq!(folded("50%_Ä\\"), "50\u{e001}\u{e002}ä\u{e003}");
    }
}
