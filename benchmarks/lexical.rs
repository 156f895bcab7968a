//! CPU time of BM25 search over utterances and over dialogues. `benchmarks/README.md` has the commands and results.
//!
//! * `samples [UTTERANCES]` (default): searches dialogues that are generated from the sample dialogues.
//! * `folder FOLDER [UTTERANCES]`: searches the first dialogues of a folder.
//!
//! Both add complete dialogues until there are at least UTTERANCES utterances, 200,000 by default.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use tantivy::{
    Index, Term,
    collector::TopDocs,
    query::{BooleanQuery, Occur, Query, TermQuery},
    schema::IndexRecordOption,
};
use turnwise::samples;
use turnwise_core::ids::DialogueId;
use turnwise_corpus::{Dialogue, Role, formats::ReadOptions, walk};
use turnwise_index::{
    lexical::{Lexical, LexicalQuery},
    vectors::Kind,
};
use turnwise_store::{Prepared, Snapshot, Store};

const UTTERANCES: usize = 200_000;

/// Queries as users type them.
const USER_QUERIES: [&str; 12] = [
    "it says delivered but there is no parcel",
    "charged twice this month",
    "包裹显示签收但我没收到",
    "refund",
    "my card was declined",
    "how do I cancel my booking and get the money back",
    "where is it",
    "can you call me tomorrow morning please",
    "thank you",
    "the password reset mail never came",
    "is there a table for four on friday evening",
    "i would like to change the date of my flight to the third of march because of a wedding",
];

fn main() {
    // cargo bench adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let number = |n: usize| {
        args.get(n)
            .map_or(UTTERANCES, |text| text.parse().expect("the number of utterances must be an integer"))
    };
    match args.first().map(String::as_str) {
        None | Some("samples") => measure(&from_samples(number(1))),
        Some("folder") if args.len() > 1 => measure(&from_folder(Path::new(&args[1]), number(2))),
        _ => println!(
            "usage: cargo bench --bench lexical -- [samples [UTTERANCES] | folder FOLDER [UTTERANCES]]"
        ),
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// Generates dialogues of ten turns, with at least `utterances` turns in total.
///
/// About a third of the turns are copies of sample turns. The others join the first half of one sample turn and the
/// second half of another.
fn from_samples(utterances: usize) -> Vec<Dialogue> {
    let texts: Vec<String> = samples::SUPPORT
        .iter()
        .flat_map(|(_, lines)| lines.lines())
        .flat_map(|line| serde_json::from_str::<Dialogue>(line).unwrap().turns)
        .map(|turn| turn.text)
        .collect();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let half = |text: &str, second: bool| {
        let letters: Vec<char> = text.chars().collect();
        let middle = letters.iter().skip(letters.len() / 2).position(|c| *c == ' ').unwrap_or(0);
        let (a, b) = letters.split_at(letters.len() / 2 + middle);
        (if second { b } else { a }).iter().collect::<String>()
    };
    (0..utterances.div_ceil(10))
        .map(|n| {
            let mut dialogue = Dialogue::new(DialogueId::new(format!("made-{n:06}")).unwrap());
            for _ in 0..10 {
                let (one, other) = (&texts[random.below(texts.len())], &texts[random.below(texts.len())]);
                let text = match random.below(3) {
                    0 => one.clone(),
                    _ => format!("{} {}", half(one, false), half(other, true)),
                };
                dialogue.push("a", Role::User, text);
            }
            dialogue.check().unwrap();
            dialogue
        })
        .collect()
}

fn from_folder(folder: &Path, utterances: usize) -> Vec<Dialogue> {
    let plan = walk::plan(&[folder.to_owned()], None).unwrap();
    let mut dialogues = Vec::new();
    let mut turns = 0;
    for source in plan.sources {
        for mut dialogue in source.read(&ReadOptions::default()).unwrap().filter_map(Result::ok) {
            if turns >= utterances {
                return dialogues;
            }
            dialogue.check().unwrap();
            turns += dialogue.turns.len();
            dialogues.push(dialogue);
        }
    }
    dialogues
}

fn measure(dialogues: &[Dialogue]) {
    let work = tempfile::tempdir().unwrap();
    let root: PathBuf = work.path().join("index");
    let mut store = Store::open_or_create(&root, "benchmark").unwrap();
    for dialogue in dialogues {
        store.put(&Prepared::new(dialogue).unwrap()).unwrap();
    }
    store.commit(None).unwrap();
    store.close().unwrap();
    let snapshot = Snapshot::open(&root).unwrap();
    let started = Instant::now();
    let indexed = Lexical::update(None, &root, &snapshot, &|| false, &mut |_| {}).unwrap();
    println!(
        "{} dialogues with {indexed} utterances indexed in {:.1} s; {:.0} MB on disk",
        dialogues.len(),
        started.elapsed().as_secs_f64(),
        turnwise_core::files::folder_bytes(&root.join("lexical")) as f64 / 1e6
    );
    let lexical = Lexical::open(&root).unwrap();
    let drawn = drawn(dialogues);
    let typed: Vec<String> = USER_QUERIES.iter().map(|text| (*text).to_owned()).collect();
    for (name, texts) in [("user queries", &typed), ("pieces of utterances, 2 to 8 words", &drawn)] {
        println!("{} queries, {name}:", texts.len());
        let queries: Vec<LexicalQuery> = texts.iter().map(|text| lexical.words(text)).collect();
        for k in [10, 100] {
            let utterances =
                |query: &LexicalQuery| lexical.find(Kind::Utterances, query, k, None).unwrap().len();
            print(&format!("utterances, top {k}"), &queries, utterances);
            let dialogues =
                |query: &LexicalQuery| lexical.find(Kind::Dialogues, query, k, None).unwrap().len();
            print(&format!("dialogues, top {k}"), &queries, dialogues);
            for side in ["utterances", "dialogues"] {
                let search = by_tantivy(&root.join("lexical").join(side), k);
                print(&format!("Tantivy, {side}, top {k}"), &queries, search);
            }
        }
    }
}

/// Returns a function that searches the same files with Tantivy's own collector. Its result is the number of hits.
///
/// Unlike turnwise, Tantivy reads no dialogue ids, and orders equal scores by its internal document addresses.
fn by_tantivy(folder: &Path, k: usize) -> impl Fn(&LexicalQuery) -> usize + use<> {
    let index = Index::open_in_dir(folder).unwrap();
    let text = index.schema().get_field("text").unwrap();
    let searcher = index.reader().unwrap().searcher();
    move |query| {
        let clause = |term: &String| {
            let term = Term::from_field_text(text, term);
            let clause: Box<dyn Query> = Box::new(TermQuery::new(term, IndexRecordOption::WithFreqs));
            (Occur::Should, clause)
        };
        let query = BooleanQuery::new(query.terms().iter().map(clause).collect());
        searcher.search(&query, &TopDocs::with_limit(k).order_by_score()).unwrap().len()
    }
}

/// Returns 500 sequences of 2 to 8 successive words from random utterances; fewer words if an utterance is shorter.
fn drawn(dialogues: &[Dialogue]) -> Vec<String> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    (0..500)
        .map(|_| {
            let dialogue = &dialogues[random.below(dialogues.len())];
            let turn = &dialogue.turns[random.below(dialogue.turns.len())];
            let words: Vec<&str> = turn.text.split_whitespace().collect();
            let length = 2 + random.below(7);
            let start = random.below(words.len().saturating_sub(length).max(1));
            words[start..].iter().take(length).copied().collect::<Vec<_>>().join(" ")
        })
        .collect()
}

/// Measures and prints the mean CPU time per query, percentiles of the wall-clock time, and the mean number of hits.
///
/// The percentiles use the fastest of three runs of each query.
fn print(what: &str, queries: &[LexicalQuery], search: impl Fn(&LexicalQuery) -> usize) {
    let hits: usize = queries.iter().map(&search).sum();
    let rounds = 4000_usize.div_ceil(queries.len());
    let before = processor_seconds();
    let started = Instant::now();
    for _ in 0..rounds {
        queries.iter().for_each(|query| assert!(search(query) < usize::MAX));
    }
    let clock = started.elapsed().as_secs_f64();
    let processor = processor_seconds().zip(before).map(|(after, before)| after - before);
    let each = 1e3 / (rounds * queries.len()) as f64;
    let mut fastest: Vec<f64> = queries
        .iter()
        .map(|query| {
            let once = || {
                let started = Instant::now();
                search(query);
                started.elapsed().as_secs_f64() * 1e3
            };
            (0..3).map(|_| once()).fold(f64::INFINITY, f64::min)
        })
        .collect();
    fastest.sort_by(f64::total_cmp);
    let at = |part: f64| fastest[((fastest.len() - 1) as f64 * part) as usize];
    println!(
        "  {what:<30} mean {:.3} ms CPU ({:.3} ms wall clock); p50 {:.3}, p95 {:.3}, slowest {:.3} ms; {:.0} hits",
        processor.unwrap_or(clock) * each,
        clock * each,
        at(0.5),
        at(0.95),
        at(1.0),
        hits as f64 / queries.len() as f64
    );
}

/// Returns the CPU seconds of this thread, with nanosecond resolution, or `None` if they cannot be read.
fn processor_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}
