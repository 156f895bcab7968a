//! Tests of dates in texts.

use jiff::civil::date;
use proptest::prelude::*;

use super::*;

/// Monday, 8 May 2023.
const SAID: Date = Date::constant(2023, 5, 8);

fn shown(range: &DateRange) -> String {
    match range.first == range.last {
        true => range.first.to_string(),
        false => format!("{}..{}", range.first, range.last),
    }
}

/// Returns the dates that a text mentions if it was said on 8 May 2023, separated by spaces.
fn mentioned(text: &str) -> String {
    mentioned_dates(text, SAID).iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// Returns the dates that a text names, with the part of the text.
fn named(text: &str) -> Vec<(String, &str)> {
    let show = |date: &NamedDate| match date.year {
        Some(year) => date.range_in(year).map_or("invalid".into(), |range| shown(&range)),
        // A leap year, in which every date exists.
        None => date.range_in(2024).map_or("invalid".into(), |range| shown(&range).replace("2024-", "*-")),
    };
    named_dates(text).iter().map(|date| (show(date), &text[date.text.clone()])).collect()
}

#[track_caller]
fn check(table: &[(&str, &str)], dates: fn(&str) -> String) {
    let wrong: Vec<String> = table
        .iter()
        .filter(|(text, expected)| dates(text) != *expected)
        .map(|(text, expected)| format!("{text}\n  expected `{expected}`\n  got      `{}`", dates(text)))
        .collect();
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), table.len(), wrong.join("\n"));
}

fn named_ranges(text: &str) -> String {
    named(text).into_iter().map(|(range, _)| range).collect::<Vec<_>>().join(" ")
}

#[test]
fn absolute_dates_in_english() {
    check(
        &[
            ("What was said on 8 May 2023?", "2023-05-08"),
            ("the 8th of May, 2023", "2023-05-08"),
            ("8th May", "*-05-08"),
            ("On May 8th, 2023, Ann left.", "2023-05-08"),
            ("May 8, 2023", "2023-05-08"),
            ("may 8 2023", "2023-05-08"),
            ("May the 8th", "*-05-08"),
            ("on may 8 we met", "*-05-08"),
            ("8-May-2023", "2023-05-08"),
            ("May 8-10, 2023", "2023-05-08..2023-05-10"),
            ("8–10 May", "*-05-08..*-05-10"),
            ("What did Ann attend in March 2023?", "2023-03-01..2023-03-31"),
            ("March of 2023", "2023-03-01..2023-03-31"),
            ("May, 2023", "2023-05-01..2023-05-31"),
            ("What happened in May?", "*-05-01..*-05-31"),
            ("in may", "*-05-01..*-05-31"),
            ("since march", "*-03-01..*-03-31"),
            ("during June", "*-06-01..*-06-30"),
            ("at the end of April", "*-04-01..*-04-30"),
            ("late February", "*-02-21..*-02-29"),
            ("early May 2023", "2023-05-01..2023-05-10"),
            ("mid-May", "*-05-11..*-05-20"),
            ("Sept. 8", "*-09-08"),
            ("Feb 2022", "2022-02-01..2022-02-28"),
            ("8 Dec. 2022", "2022-12-08"),
            ("Jan 5th", "*-01-05"),
            ("2023-05-08", "2023-05-08"),
            ("at 2023-05-08T10:00", "2023-05-08"),
            ("2023/05/08", "2023-05-08"),
            ("the log of 2023-05.", "2023-05-01..2023-05-31"),
            ("8.5.2023", "2023-05-08"),
            ("(08.05.2023)", "2023-05-08"),
            ("25/12/2022", "2022-12-25"),
            ("12/25/2022", "2022-12-25"),
            ("08/05/2023", "2023-05-08 2023-08-05"),
            ("05/05/2023", "2023-05-05"),
            ("Where did they live in 2021?", "2021-01-01..2021-12-31"),
            ("the best movie of 2022", "2022-01-01..2022-12-31"),
            ("late 2022", "2022-09-01..2022-12-31"),
            ("mid-2022", "2022-05-01..2022-08-31"),
            ("the year 1999", "1999-01-01..1999-12-31"),
            ("summer 2022", "2022-06-01..2022-08-31"),
            ("the winter of 2022", "2022-12-01..2023-02-28"),
            ("What happened in summer?", "*-06-01..*-08-31"),
            ("where were we during the summer holidays", "*-06-01..*-08-31"),
            ("What did Ann do last winter with Bo?", "*-12-01..2025-02-28"),
            ("im Herbst", "*-09-01..*-11-30"),
            ("between 3 May and 5 June 2023", "*-05-03 2023-06-05"),
            ("29 February 2024", "2024-02-29"),
            ("February's bill", "*-02-01..*-02-29"),
            // No dates.
            ("", ""),
            ("It may cost 20 euros", ""),
            ("This may be wrong", ""),
            ("As of may be, 8 may be enough", ""),
            ("may cost 20", ""),
            ("May said that she would march 20 miles", ""),
            ("March 20 miles and rest", ""),
            ("May I have 2?", ""),
            ("A friend of June called April", ""),
            ("order 2023-0508-17", ""),
            ("order 2023-05-08-17", ""),
            ("version 1.5.2023x", ""),
            ("version 1.5.2023.1", ""),
            ("call 555-05-2023", ""),
            ("at 8:30 in the morning", ""),
            ("$2023 and 2023 people", ""),
            ("in 2000 meters, a crowd of 2000 spectators", ""),
            ("2,023 rows, 20.23 %", ""),
            ("31 February", ""),
            ("29 February 2023", ""),
            ("2023-13-40", ""),
            ("99/99/2023", ""),
            ("35 May", ""),
            ("Mar-a-Lago", ""),
            ("https://example.com/2023/05/08/may", ""),
            ("summer, and fall in spring water", ""),
            ("the march, the sun and the august visitors", ""),
            ("24/7 and 1/2", ""),
            ("We met in May. 20 people came", "*-05-01..*-05-31"),
            ("In May 20 people came", "*-05-01..*-05-31"),
            ("99999999999999999999 May", ""),
        ],
        named_ranges,
    );
}

#[test]
fn relative_dates_in_english() {
    check(
        &[
            ("We met last Tuesday.", "2023-05-02"),
            ("I was there yesterday", "2023-05-07"),
            ("the day before yesterday", "2023-05-06"),
            ("the day after tomorrow", "2023-05-10"),
            ("Tomorrow's fine", "2023-05-09"),
            ("last night", "2023-05-07"),
            ("this morning and tonight", "2023-05-08"),
            ("last week", "2023-05-01..2023-05-07"),
            ("this week", "2023-05-08..2023-05-14"),
            ("next week", "2023-05-15..2023-05-21"),
            ("last weekend", "2023-05-06..2023-05-07"),
            ("next weekend", "2023-05-20..2023-05-21"),
            ("last month", "2023-04-01..2023-04-30"),
            ("next month", "2023-06-01..2023-06-30"),
            ("last year", "2022-01-01..2022-12-31"),
            ("last year's party", "2022-01-01..2022-12-31"),
            ("last summer", "2022-06-01..2022-08-31"),
            ("this winter", "2022-12-01..2023-02-28"),
            ("next fall", "2023-09-01..2023-11-30"),
            ("last May", "2022-05-01..2022-05-31"),
            ("last April", "2023-04-01..2023-04-30"),
            ("next March", "2024-03-01..2024-03-31"),
            ("this December", "2023-12-01..2023-12-31"),
            ("3 days ago", "2023-05-05"),
            ("two weeks ago", "2023-04-24..2023-04-30"),
            ("a month ago", "2023-04-01..2023-04-30"),
            ("a couple of days ago", "2023-05-06"),
            ("a few days ago", "2023-05-03..2023-05-06"),
            ("twelve years ago", "2011-01-01..2011-12-31"),
            ("a year ago", "2022-01-01..2022-12-31"),
            ("two weekends ago", "2023-04-29..2023-04-30"),
            ("in 3 days", "2023-05-11"),
            ("in two weeks", "2023-05-22..2023-05-28"),
            ("in a week", "2023-05-15..2023-05-21"),
            ("two days from now", "2023-05-10"),
            ("the past two weeks", "2023-04-24..2023-05-08"),
            ("the last few months", "2022-12-01..2023-05-08"),
            ("on Friday", "2023-05-05"),
            ("on Tue and last fri", "2023-05-02 2023-05-05"),
            ("last Monday", "2023-05-01"),
            ("Monday was great", "2023-05-01"),
            ("this Monday", "2023-05-08"),
            ("next Monday", "2023-05-15"),
            ("next Friday", "2023-05-12"),
            ("Friday night", "2023-05-05"),
            ("on Monday, 1 May", "2023-05-01"),
            ("Tuesday the 9th of May", "2023-05-09"),
            ("the 14th of this month", "2023-05-14"),
            ("the 31st of last month", "2023-04-01..2023-04-30"),
            ("Wednesday next week", "2023-05-17"),
            ("on Friday of last week", "2023-05-05"),
            ("this coming Tuesday", "2023-05-09"),
            ("in March of last year", "2022-03-01..2022-03-31"),
            ("May 8 last year", "2022-05-08"),
            ("in January", "2023-01-01..2023-01-31"),
            ("in December", "2022-12-01..2022-12-31"),
            ("24 December", "2022-12-24"),
            ("29 February", "2024-02-29"),
            ("yesterday and yesterday again", "2023-05-07"),
            // No dates.
            ("every Friday", ""),
            ("Monday to Friday, 9 to 5", ""),
            ("Happy Friday!", ""),
            ("the last week of school", ""),
            ("the next day", ""),
            ("in the coming weeks and the past years", ""),
            ("a day in the life", ""),
            ("for the first time in two years", ""),
            ("an hour ago", ""),
            ("half a year ago", ""),
            ("a week from Friday", ""),
            ("two hours ago", ""),
            ("one last time", ""),
            ("the sun in the morning", ""),
            ("Black Friday", ""),
            ("9999 years ago", "-007976-01-01..-007976-12-31"),
            ("in 9999 years", ""),
        ],
        mentioned,
    );
}

#[test]
fn absolute_dates_in_other_languages() {
    check(
        &[
            ("am 8. Mai 2023", "2023-05-08"),
            ("Was war im Mai?", "*-05-01..*-05-31"),
            ("8.Mai", "*-05-08"),
            ("Anfang März 2022", "2022-03-01..2022-03-10"),
            ("im Jahr 2021", "2021-01-01..2021-12-31"),
            ("im Sommer 2022", "2022-06-01..2022-08-31"),
            ("le 8 mai 2023", "2023-05-08"),
            ("le 1er août", "*-08-01"),
            ("en mars", "*-03-01..*-03-31"),
            ("la fin d'avril 2022", "2022-04-01..2022-04-30"),
            ("depuis février", "*-02-01..*-02-29"),
            ("8 de mayo de 2023", "2023-05-08"),
            ("en mayo del 2023", "2023-05-01..2023-05-31"),
            ("el 3 de septiembre", "*-09-03"),
            ("l'8 maggio 2023", "2023-05-08"),
            ("nel 2021", "2021-01-01..2021-12-31"),
            ("8 de março de 2023", "2023-03-08"),
            ("em maio", "*-05-01..*-05-31"),
            ("1º de dezembro", "*-12-01"),
            ("8 mei 2023", "2023-05-08"),
            ("in de maand mei", "*-05-01..*-05-31"),
            ("in mei", "*-05-01..*-05-31"),
            ("sinds augustus", "*-08-01..*-08-31"),
            ("fe\u{301}vrier 2022", "2022-02-01..2022-02-28"),
            ("2023年5月8日", "2023-05-08"),
            ("我们在5月8号见面", "*-05-08"),
            ("5月去了北京", "*-05-01..*-05-31"),
            ("2022 年 12 月", "2022-12-01..2022-12-31"),
            ("２０２３年５月８日", "2023-05-08"),
            ("2021年", "2021-01-01..2021-12-31"),
            // No dates.
            ("de sept personnes", ""),
            ("Marco sprach mit Jan", ""),
            ("a sandwich with mayo", ""),
            ("5个月, 3年, 13月, 5月40日", ""),
            ("la planète Mars", ""),
        ],
        named_ranges,
    );
}

#[test]
fn relative_dates_in_other_languages() {
    check(
        &[
            ("Gestern war ich da", "2023-05-07"),
            ("bis übermorgen", "2023-05-10"),
            ("Wir sehen uns morgen", "2023-05-09"),
            ("letzte Woche", "2023-05-01..2023-05-07"),
            ("letzten Freitag", "2023-05-05"),
            ("am Freitag", "2023-05-05"),
            ("nächsten Monat", "2023-06-01..2023-06-30"),
            ("voriges Jahr", "2022-01-01..2022-12-31"),
            ("hier, j'étais chez toi", "2023-05-07"),
            ("avant-hier", "2023-05-06"),
            ("aujourd’hui", "2023-05-08"),
            ("après-demain", "2023-05-10"),
            ("la semaine dernière", "2023-05-01..2023-05-07"),
            ("le mois prochain", "2023-06-01..2023-06-30"),
            ("l'an dernier", "2022-01-01..2022-12-31"),
            ("vendredi dernier", "2023-05-05"),
            ("cette année", "2023-01-01..2023-12-31"),
            ("ayer", "2023-05-07"),
            ("Nos vemos mañana por la mañana", "2023-05-09"),
            ("pasado mañana", "2023-05-10"),
            ("la semana pasada", "2023-05-01..2023-05-07"),
            ("el fin de semana pasado", "2023-05-06..2023-05-07"),
            ("el mes que viene", "2023-06-01..2023-06-30"),
            ("el próximo viernes", "2023-05-12"),
            ("el viernes pasado", "2023-05-05"),
            ("el año pasado", "2022-01-01..2022-12-31"),
            ("en marzo del año pasado", "2022-03-01..2022-03-31"),
            ("en mars l'an dernier", "2022-03-01..2022-03-31"),
            ("ieri sera", "2023-05-07"),
            ("la settimana scorsa", "2023-05-01..2023-05-07"),
            ("lo scorso anno", "2022-01-01..2022-12-31"),
            ("quest'anno", "2023-01-01..2023-12-31"),
            ("venerdì prossimo", "2023-05-12"),
            ("ontem", "2023-05-07"),
            ("a semana que vem", "2023-05-15..2023-05-21"),
            ("na sexta-feira passada", "2023-05-05"),
            ("no mês passado", "2023-04-01..2023-04-30"),
            ("gisteren en vandaag", "2023-05-07 2023-05-08"),
            ("vorige week", "2023-05-01..2023-05-07"),
            ("afgelopen vrijdag", "2023-05-05"),
            ("volgend jaar", "2024-01-01..2024-12-31"),
            ("我昨天去了", "2023-05-07"),
            ("今天和明天", "2023-05-08 2023-05-09"),
            ("上周很忙，下周休息", "2023-05-01..2023-05-07 2023-05-15..2023-05-21"),
            ("上周五", "2023-05-05"),
            ("下个星期三", "2023-05-17"),
            ("周五见", "2023-05-05"),
            ("这个周末", "2023-05-13..2023-05-14"),
            ("上个月", "2023-04-01..2023-04-30"),
            ("去年", "2022-01-01..2022-12-31"),
            ("先週、来月", "2023-05-01..2023-05-07 2023-06-01..2023-06-30"),
            // No dates.
            ("Guten Morgen!", ""),
            ("jeden Freitag", ""),
            ("Ich bin hier", ""),
            ("Ich tue das", ""),
            ("Hij is hier", ""),
            ("por la mañana", ""),
            ("一周一次", ""),
            ("lunes a viernes", ""),
        ],
        mentioned,
    );
    assert_eq!(mentioned("heute Morgen"), "2023-05-08");
    assert_eq!(mentioned("esta mañana"), "2023-05-08");
}

#[test]
fn the_byte_range_covers_the_date() {
    let text = "Fête: le 8 mai 2023, or early June, or 5月8日。";
    let parts: Vec<&str> = named(text).into_iter().map(|(_, part)| part).collect();
    assert_eq!(parts, ["8 mai 2023", "early June", "5月8日"]);
}

#[test]
fn a_date_without_year_matches_every_year() {
    let day = |year, month, day| DateRange::day(date(year, month, day));
    let named = &named_dates("8 May")[0];
    assert!(named.matches(&day(2020, 5, 8)) && named.matches(&day(1999, 5, 8)));
    assert!(!named.matches(&day(2020, 5, 9)));
    assert!(named.matches(&DateRange { first: date(2022, 12, 1), last: date(2023, 6, 1) }));
    assert_eq!((named.year, named.month(), named.day()), (None, Some(5), Some(8)));
    assert_eq!(named.range_in(2023), Some(day(2023, 5, 8)));
    let leap = &named_dates("29 February")[0];
    assert_eq!(leap.range_in(2023), None);
    assert!(leap.matches(&DateRange { first: date(2023, 1, 1), last: date(2024, 12, 31) }));
    let month = &named_dates("May 2023")[0];
    assert!(month.matches(&day(2023, 5, 31)) && !month.matches(&day(2022, 5, 31)));
    assert_eq!((month.month(), month.day(), month.range_in(2022)), (Some(5), None, None));
    let winter = &named_dates("winter 2022")[0];
    assert!(winter.matches(&day(2023, 2, 28)) && !winter.matches(&day(2022, 2, 28)));
}

#[test]
fn the_first_and_the_last_day_of_the_calendar_do_not_overflow() {
    for said in [Date::MIN, Date::MAX] {
        let text = "yesterday, tomorrow, last year, next year, next Friday, last Friday, 9999 weeks ago, in 9999 days, \
                    29 February, last winter, next summer, 上周五, last 9999 months, next 9999 weeks";
        for range in mentioned_dates(text, said) {
            assert!(range.first <= range.last);
        }
    }
    assert!(named_dates("winter 9999, 0000-00-00, 31 of February").is_empty());
}

#[test]
fn a_long_list_of_dates_is_not_read_to_the_end() {
    let text: String = (1000..3000).map(|year| format!("8 May {year}, ")).collect();
    assert_eq!(named_dates(&text).len(), 2000);
    assert_eq!(mentioned_dates(&text, SAID).len(), MAX_MENTIONED);
}

#[test]
fn weekdays_agree_with_a_search_day_by_day() {
    const NAMES: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    let mut said = date(2023, 12, 1);
    for _ in 0..366 {
        for (n, name) in NAMES.iter().enumerate() {
            let is_day = |day: &Date| day.weekday().to_monday_zero_offset() as usize == n;
            let previous =
                std::iter::successors(said.yesterday().ok(), |day| day.yesterday().ok()).find(is_day);
            let next = std::iter::successors(said.tomorrow().ok(), |day| day.tomorrow().ok()).find(is_day);
            let this = if is_day(&said) { Some(said) } else { next };
            for (text, expected) in
                [("on ", previous), ("last ", previous), ("", previous), ("next ", next), ("this ", this)]
            {
                let text = format!("We met {text}{name}.");
                let expected: Vec<DateRange> = expected.into_iter().map(DateRange::day).collect();
                assert_eq!(mentioned_dates(&text, said), expected, "{text} {said}");
            }
        }
        said = said.tomorrow().unwrap();
    }
}

/// Parts of texts: words and punctuation of dates.
#[rustfmt::skip]
const PARTS: &[&str] = &[
    "may", "May", "March", "8", "8th", "31", "2023", "0000", "9999", "99999", "in", "of", "the", "last",
    "next", "this", "week", "year", "ago", "a", "few", "couple", "Friday", "summer", "early", "-", ".", ",",
    "/", ":", " ", " ", " ", " ", "'", "de", "mayo", "dernier", "que", "vem", "hier", "je", "morgen",
    "mañana", "fin", "semana", "sexta", "feira", "年", "月", "日", "上周", "五", "末", "e\u{301}", "\u{301}", "é",
    "mid", "yesterday", "day", "before", "2023-05-08", "2023-05", "8.5.2023", "08/05/2023", "T10:00", "29",
    "Feb", "$", "９", "\n", "🙂", "İ", "ﬁ",
];

/// Texts of words and punctuation that occur in dates, and of other characters.
fn texts() -> impl Strategy<Value = String> {
    let part = prop_oneof![4 => proptest::sample::select(PARTS).prop_map(String::from), 1 => ".{0,3}"];
    proptest::collection::vec(part, 0..16).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_gives_ordered_ranges(text in texts(), days in -4_371_587i64..2_932_896) {
        let said = date(1970, 1, 1).checked_add(jiff::Span::new().days(days)).unwrap();
        for range in mentioned_dates(&text, said) {
            prop_assert!(range.first <= range.last, "{:?}", range);
            prop_assert!(range.overlaps(&range));
        }
        let mut end = 0;
        let mut start = 0;
        for named in named_dates(&text) {
            prop_assert!(text.get(named.text.clone()).is_some_and(|part| !part.is_empty()));
            // Two readings of the same part, or a later part.
            prop_assert!(named.text.start >= end || named.text.start == start);
            (start, end) = (named.text.start, named.text.end);
            let range = named.range_in(named.year.unwrap_or(2024)).unwrap();
            prop_assert!(range.first <= range.last && named.matches(&range));
        }
    }
}
