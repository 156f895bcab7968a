//! Words that are part of dates, in seven languages.

use std::sync::LazyLock;

use super::phrases::Phrase;

/// Meaning of a word in a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// Month, from 1 to 12.
    Month(i8, MonthClass),
    Season(Season),
    /// Weekday, from 0 (Monday) to 6. The flag says whether the word is a weekday even without context.
    Weekday(i8, bool),
    Unit(Unit),
    Direction(Direction, Side),
    /// Day relative to the day of the turn, such as -1 for `yesterday`.
    Offset(i8),
    /// Relative date in Chinese or Japanese, such as `上周`.
    Phrase(Phrase),
    /// Number in words, as the smallest and the largest possible value.
    Count(u16, u16),
    /// Third of a month or year: 0 for `early`, 1 for `mid`, 2 for `late`.
    Third(u8),
    /// `morning`, `evening`: together with a direction, a day.
    PartOfDay,
    /// The English article `a` or `an`, which is also a number: `a week ago`.
    A,
    /// The English article `the`.
    The,
    Ago,
    In,
    /// The English `of`.
    Of,
    /// `de` and similar words between day, month and year.
    Link,
    /// Preposition before a day of a month.
    On,
    /// Preposition before a month or a year, with the classes of months that it identifies.
    Preposition(u8),
    /// Word before `of April`, such as `end`.
    Portion,
    /// Plural of things that are counted: `miles`.
    Measure,
    /// Word after which a weekday or a month is not a date: `every Friday`.
    NotADate,
    /// The word `que` in `la semana que viene`.
    Que,
    /// The word `viene` in `la semana que viene`.
    Coming,
    /// `hier`: yesterday in French, here in German and Dutch.
    Hier,
    /// `morgen`: tomorrow or morning.
    Morgen,
    /// `mañana`: tomorrow or morning.
    Manana,
    /// Frequent word of French.
    French,
    /// Frequent word of German or Dutch.
    Germanic,
    /// Frequent word that can follow a date.
    Function,
    /// Signs after numbers in Chinese and Japanese dates.
    YearSign,
    MonthSign,
    DaySign,
}

/// Class of the name of a month. Names that are also other words are months only in a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MonthClass {
    /// Not another word in any of the languages.
    Unambiguous = 0,
    /// `may` and `march`.
    Verb = 1,
    /// First name: `June`.
    FirstName = 2,
    /// English abbreviation.
    Abbreviation = 4,
    /// Name or abbreviation in another language that can be another word.
    Foreign = 8,
    /// `mars`.
    Mars = 16,
}

const ENGLISH: u8 = MonthClass::Verb as u8 | MonthClass::FirstName as u8 | MonthClass::Abbreviation as u8;
const FOREIGN: u8 = MonthClass::Foreign as u8 | MonthClass::FirstName as u8;
const FRENCH: u8 = MonthClass::Foreign as u8 | MonthClass::Mars as u8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Season {
    Spring,
    Summer,
    Autumn,
    Winter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Day,
    Week,
    Weekend,
    Month,
    Year,
    /// The French `an`, which is also an English article. It is a year only before `dernier` or `prochain`.
    An,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Last = -1,
    This = 0,
    Next = 1,
}

/// Position of a direction relative to the word that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Before,
    After,
    Either,
}

use Direction::{Last, Next, This};
use MonthClass::{Abbreviation, FirstName, Foreign, Mars, Unambiguous, Verb};
use Side::{After, Before, Either};
use Word::{Count, Month, Offset, Preposition, Third, Weekday};

/// The words by meaning, in NFKC and lower case.
#[rustfmt::skip]
const WORDS: &[(Word, &str)] = &[
    (Month(1, Unambiguous), "january januar jänner janvier enero gennaio janeiro januari"),
    (Month(1, Abbreviation), "jan"),
    (Month(1, Foreign), "janv ene"),
    (Month(2, Unambiguous), "february februar février fevrier febrero febbraio fevereiro februari"),
    (Month(2, Abbreviation), "feb"),
    (Month(2, Foreign), "févr fev"),
    (Month(3, Verb), "march"),
    (Month(3, Unambiguous), "märz maerz marzo março maart"),
    (Month(3, Abbreviation), "mar"),
    (Month(3, Foreign), "mär mrt"),
    (Month(3, Mars), "mars"),
    (Month(4, FirstName), "april"),
    (Month(4, Unambiguous), "avril abril aprile"),
    (Month(4, Abbreviation), "apr"),
    (Month(4, Foreign), "avr abr"),
    (Month(5, Verb), "may"),
    (Month(5, Unambiguous), "maggio maio"),
    (Month(5, Foreign), "mai mayo mei"),
    (Month(6, FirstName), "june"),
    (Month(6, Unambiguous), "juni juin junio giugno junho"),
    (Month(6, Abbreviation), "jun"),
    (Month(7, Unambiguous), "july juillet luglio julho"),
    (Month(7, Abbreviation), "jul"),
    (Month(7, Foreign), "juli julio juil"),
    (Month(8, FirstName), "august"),
    (Month(8, Unambiguous), "août aout agosto"),
    (Month(8, Abbreviation), "aug"),
    (Month(8, Foreign), "augustus"),
    (Month(9, Unambiguous), "september septembre septiembre setiembre settembre setembro"),
    (Month(9, Abbreviation), "sep sept"),
    (Month(9, Foreign), "sett"),
    (Month(10, Unambiguous), "october oktober octobre octubre ottobre outubro"),
    (Month(10, Abbreviation), "oct"),
    (Month(10, Foreign), "okt ott"),
    (Month(11, Unambiguous), "november novembre noviembre novembro"),
    (Month(11, Abbreviation), "nov"),
    (Month(12, Unambiguous), "december dezember décembre decembre diciembre dicembre dezembro"),
    (Month(12, Abbreviation), "dec"),
    (Month(12, Foreign), "déc dez dic"),

    (Word::Season(Season::Spring), "spring frühling frühjahr printemps primavera"),
    (Word::Season(Season::Summer), "summer sommer été verano verão zomer"),
    (Word::Season(Season::Autumn), "autumn fall herbst automne otoño autunno outono herfst"),
    (Word::Season(Season::Winter), "winter hiver invierno inverno"),

    (Weekday(0, true), "monday montag lundi lunes lunedì maandag"),
    (Weekday(1, true), "tuesday tues dienstag mardi martes martedì dinsdag"),
    (Weekday(2, true), "wednesday mittwoch mercredi miércoles miercoles mercoledì woensdag"),
    (Weekday(3, true), "thursday thurs donnerstag jeudi jueves giovedì donderdag"),
    (Weekday(4, true), "friday freitag vendredi viernes venerdì vrijdag"),
    (Weekday(5, true), "saturday samstag sonnabend samedi sábado sabado sabato zaterdag"),
    (Weekday(6, true), "sunday sonntag dimanche domenica zondag"),
    // `tue` is also a German verb.
    (Weekday(1, false), "tue"),
    (Weekday(3, false), "thu thur"),
    (Weekday(4, false), "fri"),
    // Portuguese weekdays are also numerals, and `Domingo` is also a name.
    (Weekday(0, false), "segunda"),
    (Weekday(1, false), "terça"),
    (Weekday(2, false), "quarta"),
    (Weekday(3, false), "quinta"),
    (Weekday(4, false), "sexta"),
    (Weekday(6, false), "domingo"),

    (Word::Unit(Unit::Day), "day days"),
    (Word::Unit(Unit::Week), "week weeks woche wochen semaine semana settimana weken"),
    (Word::Unit(Unit::Weekend), "weekend weekends wochenende"),
    (Word::Unit(Unit::Month), "month months monat mois mes mese mês maand"),
    (Word::Unit(Unit::Year), "year years jahr année annee año anno ano jaar"),
    (Word::Unit(Unit::An), "an"),

    (Word::Direction(Last, Before), "last past letzte letzten letzter letztes letztem vorige vorigen voriger voriges \
        vergangene vergangenen vergangener vergangenes afgelopen laatste"),
    (Word::Direction(Next, Before), "next coming nächste nächsten nächster nächstes nächstem kommende kommenden \
        kommender kommendes volgende volgend"),
    (Word::Direction(Next, Either), "próximo próxima proximo proxima prossimo prossima"),
    (Word::Direction(This, Before), "this diese diesen dieser dieses diesem cette ce esta este essa esse nesta neste \
        nessa nesse questa questo quest deze dit"),
    (Word::Direction(Last, After), "dernier dernière derniere passé passée pasado pasada passado passada"),
    (Word::Direction(Last, Either), "scorso scorsa"),
    (Word::Direction(Next, After), "prochain prochaine"),

    (Offset(-2), "vorgestern anteayer anteontem eergisteren"),
    (Offset(-1), "yesterday gestern ayer ieri ontem gisteren gisteravond"),
    (Offset(0), "today tonight heute aujourd hoy oggi stasera stamattina stamani hoje vandaag vanavond vanmorgen \
        vanochtend vanmiddag"),
    (Offset(1), "tomorrow demain domani amanhã amanha"),
    (Offset(2), "übermorgen dopodomani overmorgen"),
    (Word::Hier, "hier"),
    (Word::Morgen, "morgen"),
    (Word::Manana, "mañana"),

    (Count(1, 1), "one"),
    (Count(2, 2), "two couple"),
    (Count(3, 3), "three"),
    (Count(4, 4), "four"),
    (Count(5, 5), "five"),
    (Count(6, 6), "six"),
    (Count(7, 7), "seven"),
    (Count(8, 8), "eight"),
    (Count(9, 9), "nine"),
    (Count(10, 10), "ten"),
    (Count(11, 11), "eleven"),
    (Count(12, 12), "twelve"),
    (Count(2, 5), "few"),

    (Third(0), "early anfang début"),
    (Third(1), "mid mitte mi half"),
    (Third(2), "late ende fin eind"),
    (Word::PartOfDay, "morning afternoon evening night"),
    (Word::A, "a"),
    (Word::The, "the"),
    (Word::Ago, "ago"),
    (Word::In, "in"),
    (Word::Of, "of"),
    (Word::Link, "de di del du d do"),
    (Word::On, "on from before after am le el il op vom"),
    (Preposition(ENGLISH), "during since until till"),
    (Preposition(ENGLISH & !(FirstName as u8)), "by"),
    (Preposition(FOREIGN | Abbreviation as u8), "im"),
    (Preposition(FOREIGN), "seit bis em nel desde hasta até sinds tot vanaf"),
    (Preposition(FRENCH), "en depuis"),

    (Word::Portion, "end beginning start middle rest first part"),
    (Word::Measure, "people persons miles km kilometers kilometres meters metres feet minutes hours seconds dollars \
        euros pounds bucks percent points times pages steps guests items cups kids pieces students members copies \
        units others more bars"),
    (Word::NotADate, "every each any black good cyber ash happy jeden jeder chaque tous cada ogni elke toda todo"),
    (Word::Que, "que"),
    (Word::Coming, "viene vem"),
    (Word::French, "je j tu nous vous est suis avec pas les des une c et ai était avons chez soir matin"),
    (Word::Germanic, "ich bin ist wir und das der die nicht ik het een van niet wij zijn sind auch ook"),
    (Word::Function, "and or was is were are be at to but with for he she i we they you it that when where who what \
        which did does had has have will would my our her his their there then so because if as not just"),
];

/// Maximum length of a word in the list, in bytes.
pub(super) const MAX_LENGTH: usize = 12;

/// The words in alphabetical order, with a filter that rejects most other words.
struct Index {
    words: Vec<(&'static str, Word)>,
    /// Bit set of the keys of all words; see [`key`].
    filter: [u64; 256],
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut index = Index { words: Vec::new(), filter: [0; 256] };
    for (meaning, words) in WORDS {
        for word in words.split_whitespace() {
            let key = key(word.as_bytes());
            index.filter[key / 64] |= 1 << (key % 64);
            index.words.push((word, *meaning));
        }
    }
    index.words.sort_unstable_by_key(|(word, _)| *word);
    index
});

/// Returns a number below 16384 from the length, the first byte and the last byte of a word. The lowest five bits of an
/// ASCII letter do not depend on its case.
fn key(word: &[u8]) -> usize {
    let bits = |byte: Option<&u8>| usize::from(byte.copied().unwrap_or(0) & 31);
    (word.len() & 15) << 10 | bits(word.first()) << 5 | bits(word.last())
}

/// Returns whether a word can be in the list. Ignores the case of ASCII letters.
pub(super) fn may_have_meaning(word: &[u8]) -> bool {
    let key = key(word);
    word.len() <= MAX_LENGTH && INDEX.filter[key / 64] & (1 << (key % 64)) != 0
}

/// Returns the meaning of a word in NFKC and lower case; `None` if it is not part of dates.
pub(super) fn meaning(word: &[u8]) -> Option<Word> {
    if !may_have_meaning(word) {
        return None;
    }
    let index = &*INDEX;
    let n = index.words.binary_search_by(|(other, _)| other.as_bytes().cmp(word)).ok()?;
    Some(index.words[n].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_found_and_normalized() {
        use unicode_normalization::UnicodeNormalization;
        for word in WORDS.iter().flat_map(|(_, words)| words.split_whitespace()) {
            assert!(word.len() <= MAX_LENGTH, "{word}");
            assert!(meaning(word.as_bytes()).is_some(), "{word}");
            assert_eq!(word.nfkc().collect::<String>().to_lowercase(), word);
        }
        assert_eq!(meaning(b"parcel"), None);
    }

    #[test]
    fn a_word_has_one_meaning() {
        let mut words: Vec<&str> = WORDS.iter().flat_map(|(_, words)| words.split_whitespace()).collect();
        words.sort_unstable();
        assert_eq!(words.windows(2).find(|pair| pair[0] == pair[1]), None);
    }
}
