//! Names of speakers in a query.
//!
//! In "What did Ann order?", the name tells who says what is looked for, but not what is said. The turns of Ann get a
//! higher score, and the vector of the query is computed without the name: the turns of other speakers that mention Ann
//! would otherwise be more similar than her own.
//!
//! In "Thanks, Ann!", Ann is addressed, so the turn is by somebody else. Such a name is a word like any other.

use std::ops::Range;

use turnwise_core::Result;
use turnwise_corpus::Role;
use turnwise_index::{engine::Engine, speakers::is_called, vectors::Kind};
use turnwise_text::dates::named_dates;

/// Maximum number of speakers with the same first name. If there are more, the first name alone names nobody.
const NAMESAKES: usize = 64;

/// Maximum number of speakers in an index in which a name in lower case, or at the start of the query, counts as a
/// name. Among more speakers, words such as "bill" and "mark" are likely to be names of speakers by chance.
const FEW_SPEAKERS: usize = 20;

/// Words before a name that addresses somebody, in lower case.
const GREETINGS: [&str; 33] = [
    "bedankt", "bonjour", "bye", "cheers", "cher", "ciao", "congrats", "danke", "dear", "goodbye", "gracias",
    "grazie", "hallo", "hello", "hey", "hi", "hoi", "hola", "liebe", "lieber", "merci", "obrigada",
    "obrigado", "oi", "olá", "salut", "sorry", "thank", "thanks", "thx", "wow", "yeah", "you",
];

/// The speakers that a query names.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NamedSpeakers {
    /// Names of the speakers as in the index, sorted.
    pub(super) speakers: Vec<String>,
    /// The names as they are written in the query.
    pub(super) names: Vec<String>,
    /// Byte ranges of the names in the query, in ascending order. A possessive "'s" is part of the range.
    ranges: Vec<Range<usize>>,
}

impl NamedSpeakers {
    /// Finds the names of speakers of the index in a query.
    pub(super) fn find(engine: &dyn Engine, query: &str) -> Result<Self> {
        let mut found = NamedSpeakers::default();
        let words = words(query);
        let mut called = speakers_of_words(engine, query, &words)?;
        let (mut few, mut dates) = (None, None);
        let mut n = 0;
        while n < words.len() {
            let word = &query[words[n].clone()];
            let is_capital = word.chars().next().is_some_and(char::is_uppercase);
            let speakers = called[n].take();
            n += 1;
            let Some(mut speakers) = speakers else { continue };
            if speakers.is_empty() && is_capital && (n > 1 || possessive(query, words[n - 1].end)) {
                let is_date = dates.get_or_insert_with(|| named_dates(query)).iter();
                if !is_date.clone().any(|date| date.text.contains(&words[n - 1].start))
                    && let Some(speaker) = by_short_name(engine, word)?
                {
                    found.add(query, words[n - 1].clone(), &words[..n], [speaker]);
                }
                continue;
            }
            if speakers.is_empty() {
                continue;
            }
            let many = speakers.len() > NAMESAKES;
            if let (true, Some(next)) = (many, words.get(n)) {
                let two = &query[words[n - 1].start..next.end];
                speakers.extend(engine.speakers(&[two], NAMESAKES + 1)?.into_iter().flatten());
            }
            // The longest name in the query: "Ann Smith" names fewer speakers than "Ann".
            let mut end = n;
            while let Some(next) = words.get(end) {
                let name = &query[words[n - 1].start..next.end];
                if !speakers.iter().any(|speaker| is_called(speaker, name)) {
                    break;
                }
                end += 1;
            }
            if end == n && many {
                continue;
            }
            if end == n && !(is_capital && n > 1) && !possessive(query, words[n - 1].end) {
                let is_few = match few {
                    Some(few) => few,
                    None => engine.all_speakers(FEW_SPEAKERS + 1)?.len() <= FEW_SPEAKERS,
                };
                few = Some(is_few);
                if !is_few {
                    continue;
                }
            }
            let range = words[n - 1].start..words[end - 1].end;
            let name = &query[range.clone()];
            let named = speakers.into_iter().filter(|speaker| is_called(speaker, name));
            found.add(query, range, &words[..n], named);
            n = end;
        }
        found.speakers.sort_unstable();
        found.speakers.dedup();
        Ok(found)
    }

    /// Adds the speakers with the name at `range` of the query, unless it addresses somebody. `words` are the words of the
    /// query up to the first word of the name.
    fn add(
        &mut self,
        query: &str,
        range: Range<usize>,
        words: &[Range<usize>],
        speakers: impl IntoIterator<Item = String>,
    ) {
        let before = words.len().checked_sub(2).map(|before| &query[words[before].clone()]);
        if is_addressed(query, &range, before) {
            return;
        }
        self.speakers.extend(speakers);
        self.names.push(query[range.clone()].to_owned());
        let possessive = if possessive(query, range.end) {
            1 + query[range.end..].chars().next().map_or(0, char::len_utf8)
        } else {
            0
        };
        self.ranges.push(range.start..range.end + possessive);
    }

    /// Returns the query text for dense search. It contains no names in a search for utterances, whose vectors know no
    /// speakers.
    pub(super) fn dense_text(&self, query: &str, kind: Kind) -> String {
        match kind {
            Kind::Utterances => self.removed_from(query),
            Kind::Dialogues => query.to_owned(),
        }
    }

    /// Returns the query without the names. Returns the whole query if it consists of names only.
    fn removed_from(&self, query: &str) -> String {
        let mut rest = String::with_capacity(query.len());
        let mut from = 0;
        for range in &self.ranges {
            rest.push_str(&query[from..range.start]);
            from = range.end;
        }
        rest.push_str(&query[from..]);
        if self.ranges.is_empty() || !rest.chars().any(char::is_alphanumeric) {
            return query.to_owned();
        }
        rest.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Returns the byte ranges of the words of a text: runs of letters, digits, hyphens and underscores.
fn words(text: &str) -> Vec<Range<usize>> {
    let mut words: Vec<Range<usize>> = Vec::new();
    for (at, c) in text.char_indices().filter(|(_, c)| c.is_alphanumeric() || matches!(c, '-' | '_')) {
        let end = at + c.len_utf8();
        match words.last_mut() {
            Some(last) if last.end == at => last.end = end,
            _ => words.push(at..end),
        }
    }
    words
}

/// Returns the speakers called by each of the words of a query; `None` for a word that is no name: a function word or a role
/// such as "user".
fn speakers_of_words(
    engine: &dyn Engine,
    query: &str,
    words: &[Range<usize>],
) -> Result<Vec<Option<Vec<String>>>> {
    let analyzer = engine.analyzer();
    let can_be_name =
        |word: &str| !analyzer.is_function_word(word) && matches!(Role::from(word), Role::Other(_));
    let names: Vec<Option<&str>> =
        words.iter().map(|word| Some(&query[word.clone()]).filter(|word| can_be_name(word))).collect();
    let asked: Vec<&str> = names.iter().flatten().copied().collect();
    let mut speakers = match asked.is_empty() {
        true => Vec::new(),
        false => engine.speakers(&asked, NAMESAKES + 1)?,
    }
    .into_iter();
    Ok(names.into_iter().map(|name| name.map(|_| speakers.next().unwrap_or_default())).collect())
}

/// Returns whether a possessive "'s" follows at byte `at` of a text.
fn possessive(text: &str, at: usize) -> bool {
    let mut rest = text[at..].chars();
    matches!(rest.next(), Some('\'' | '’'))
        && matches!(rest.next(), Some('s' | 'S'))
        && rest.next().is_none_or(|c| !c.is_alphanumeric())
}

/// Returns whether the name at `range` addresses somebody: "Hi Ann", "thank you, Ann", "Yes, Ann!". `before` is the word
/// before the name.
fn is_addressed(query: &str, range: &Range<usize>, before: Option<&str>) -> bool {
    query[range.end..].starts_with(['!', '！'])
        || before.is_some_and(|word| GREETINGS.binary_search(&word.to_lowercase().as_str()).is_ok())
}

/// Minimum number of letters of a short form of a name.
const SHORT_NAME: usize = 3;

/// Returns the speaker whose name begins with the letters of `name`, such as Melanie for "Mel", if there is only one and
/// the index has few speakers.
fn by_short_name(engine: &dyn Engine, name: &str) -> Result<Option<String>> {
    if name.chars().count() < SHORT_NAME || !name.chars().all(char::is_alphabetic) {
        return Ok(None);
    }
    let all = engine.all_speakers(FEW_SPEAKERS + 1)?;
    if all.len() > FEW_SPEAKERS {
        return Ok(None);
    }
    let start = name.to_lowercase();
    let mut named = all.into_iter().filter(|speaker| {
        matches!(Role::from(speaker.as_str()), Role::Other(_)) && speaker.to_lowercase().starts_with(&start)
    });
    Ok(named.next().filter(|_| named.next().is_none()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::dialogue_index;

    /// Returns the speakers that the query names, and the query without the names.
    fn named(engine: &dyn Engine, query: &str) -> (Vec<String>, String) {
        let named = NamedSpeakers::find(engine, query).unwrap();
        let rest = named.removed_from(query);
        (named.speakers, rest)
    }

    #[test]
    fn names_are_found_and_removed() {
        let (_dir, searcher) = dialogue_index(&["Ann Smith", "Ann Jones", "Bo", "Will", "user"]);
        let engine = searcher.engine();
        let found = |query: &str| {
            let (speakers, rest) = named(engine, query);
            (speakers.join(", "), rest)
        };
        let of = |speakers: &str, rest: &str| (speakers.to_owned(), rest.to_owned());
        assert_eq!(found("What did Ann order?"), of("Ann Jones, Ann Smith", "What did order?"));
        assert_eq!(found("what did ann smith order"), of("Ann Smith", "what did order"));
        assert_eq!(found("Bo's parcel and Ann Jones’s refund"), of("Ann Jones, Bo", "parcel and refund"));
        // A name that addresses somebody tells nothing about the speaker.
        for text in ["Hey Bo! How are you?", "thank you, Ann Smith, for the parcel", "Yes, Bo! It is late"] {
            assert_eq!(found(text), of("", text));
        }
        assert_eq!(
            found("Thanks Bo, what did Ann Jones order?"),
            of("Ann Jones", "Thanks Bo, what did order?")
        );
        // A short form of a single speaker's name.
        assert_eq!(found("what did Wil order in May"), of("Will", "what did order in May"));
        assert_eq!(found("what did Smi and An order, and wil"), of("", "what did Smi and An order, and wil"));
        // A query of names only is not shortened.
        assert_eq!(found("Bo"), of("Bo", "Bo"));
        // Roles are not names, and a part of a word is not a word.
        assert_eq!(found("what did the user say in Bonn"), of("", "what did the user say in Bonn"));
        assert_eq!(found(""), of("", ""));
    }

    #[test]
    fn names_are_found_in_upper_and_lower_case() {
        let (_dir, searcher) = dialogue_index(&["ann", "BO", "Cy", "Şule", "Ann Lee"]);
        let speakers = |query: &str| named(searcher.engine(), query).0.join(", ");
        assert_eq!(speakers("What did Ann say to Bo and CY?"), "Ann Lee, BO, Cy, ann");
        assert_eq!(speakers("what did ann say to bo and şule"), "Ann Lee, BO, ann, Şule");
        assert_eq!(speakers("ANN LEE"), "Ann Lee");
    }

    #[test]
    fn a_first_name_of_many_speakers_names_nobody() {
        let names: Vec<String> = (10..80).map(|n| format!("Ann P{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (_dir, searcher) = dialogue_index(&names);
        let of = |query: &str| named(searcher.engine(), query).0;
        assert_eq!(of("what did Ann say"), [] as [&str; 0]);
        assert_eq!(of("what did Ann P79 say"), ["Ann P79"]);
        assert_eq!(of("what did ann p79 say"), ["Ann P79"]);
    }

    #[test]
    fn among_many_speakers_only_clear_names_count() {
        let mut names: Vec<String> = (0..40).map(|n| format!("P{n}")).collect();
        names.extend(["Mark", "Mark Twain"].map(str::to_owned));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (_dir, searcher) = dialogue_index(&names);
        let speakers = |query: &str| named(searcher.engine(), query).0;
        assert_eq!(speakers("mark the parcel as lost"), [] as [&str; 0]);
        assert_eq!(speakers("Mark the parcel as lost"), [] as [&str; 0]);
        assert_eq!(speakers("what did Mark say"), ["Mark", "Mark Twain"]);
        assert_eq!(speakers("Mark's parcel"), ["Mark", "Mark Twain"]);
        assert_eq!(speakers("what did mark twain say"), ["Mark Twain"]);
    }
}
