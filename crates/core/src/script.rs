//! Scripts of characters and texts.

/// Returns whether a character is Han, Kana or a Hangul syllable. turnwise handles these scripts as if they were
/// written without spaces between words.
pub fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Group of scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Script {
    /// Latin.
    Latin,
    /// Han, Kana or Hangul.
    Unspaced,
    /// Any other script, such as Cyrillic or Arabic.
    Other,
}

impl Script {
    /// Returns the script of most letters of a text. Returns `None` if the text has no letters.
    pub fn of(text: &str) -> Option<Script> {
        let mut counts = [0usize; 3];
        for c in text.chars().filter(|c| c.is_alphabetic()) {
            let script = match c {
                '\0'..'\u{250}' | '\u{1e00}'..'\u{1f00}' => Script::Latin,
                c if is_unspaced(c) => Script::Unspaced,
                _ => Script::Other,
            };
            counts[script as usize] += 1;
        }
        let all = [Script::Latin, Script::Unspaced, Script::Other];
        let most = all.into_iter().rev().max_by_key(|script| counts[*script as usize])?;
        (counts[most as usize] > 0).then_some(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_of_a_text_is_that_of_most_letters() {
        for (text, script) in [
            ("my parcel, 3 May", Some(Script::Latin)),
            ("Où est mon colis ? Tiếng Việt", Some(Script::Latin)),
            ("退款申请 order", Some(Script::Latin)),
            ("退款申请什么时候到", Some(Script::Unspaced)),
            ("食べる 한국어", Some(Script::Unspaced)),
            ("где моя посылка", Some(Script::Other)),
            ("12:30 ✓", None),
            ("", None),
        ] {
            assert_eq!(Script::of(text), script, "{text}");
        }
    }
}
