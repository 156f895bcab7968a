//! Detection of scripts that are written without spaces between words.

/// Returns whether a character is Han, Kana or a Hangul syllable. turnwise handles these scripts as if they were
/// written without spaces between words.
pub fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}
