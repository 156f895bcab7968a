//! Overhead of turnwise over Milvus's own Rust client. Both run the same searches alternately, in one process.
//!
//!     cargo bench --features milvus --bench milvus -- milvus://127.0.0.1:19530/chats [ROUNDS]
//!
//! The address must name an index with vectors. Create it with `turnwise ingest`, `turnwise migrate` or
//! `benchmarks/scale/milvus.py`. The queries are stored vectors of utterances. Each round (15 by default) runs every
//! query in four ways. The order of the ways rotates from query to query:
//!
//! - the search of the client, with the columns and search parameters that turnwise uses by default;
//! - the search of turnwise's Milvus engine, which returns candidates;
//! - the two requests of the client for a complete answer: the search, and a query for the records of the hits;
//! - the complete search of turnwise, which returns hits with their texts and neighboring turns. Encoding is not
//!   included, because the vectors of the queries are known.
//!
//! For each way, takes the fastest time of each query and prints the median over the queries. Also prints the overhead
//! of turnwise for candidates and for complete answers, in percent.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::{
    collections::HashMap,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use milvus::v2::{
    ClientV2, ConnectConfig, ConsistencyLevel, FieldData, SearchVectors,
    request::dql::{QueryRequest, SearchRequest},
};
use tokio::runtime::Runtime;
use turnwise_core::error::{Error, Result};
use turnwise_corpus::Dialogue;
use turnwise_encoder::{DialogueOptions, EncodeStats, Encoded, Encoder, Fingerprint, TextOptions, Vectors};
use turnwise_index::{engine::Engine, vectors::Kind};
use turnwise_milvus::{Milvus, Target, Walk};
use turnwise_search::{Mode, SearchRequest as Request, Searcher};

/// The memory allocator mimalloc. The program turnwise also uses mimalloc.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const K: usize = 10;
const QUESTIONS: usize = 40;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let target: Target =
        arguments.first().expect("the first argument must be milvus://HOST:PORT/NAME").parse().unwrap();
    let rounds: usize =
        arguments.get(1).map_or(15, |n| n.parse().expect("the number of rounds must be an integer"));
    let questions = questions(&target);
    let engine = Milvus::open(&target).unwrap();
    let raw = Raw::open(&target);
    let known = Arc::new(Known::of(&engine, &questions));
    let searcher = Searcher::of(Box::new(Milvus::open(&target).unwrap())).with_encoder(known).unwrap();

    let mut times: HashMap<(usize, usize), Duration> = HashMap::new();
    for round in 0..rounds {
        for (number, (text, vector)) in questions.iter().enumerate() {
            for turn in 0..4 {
                let way = (turn + round + number) % 4;
                let begun = Instant::now();
                let found = match way {
                    0 => raw.search(vector).len(),
                    1 => engine.view().nearest(Kind::Utterances, vector, K, false).unwrap().found.len(),
                    2 => raw.answer(vector),
                    _ => searcher.search(&request(text)).unwrap().hits.len(),
                };
                let took = begun.elapsed();
                assert_eq!(black_box(found), K, "way {way}");
                let best = times.entry((way, number)).or_insert(took);
                *best = took.min(*best);
            }
        }
    }
    let median = |way: usize| {
        let mut of: Vec<Duration> = (0..questions.len()).map(|number| times[&(way, number)]).collect();
        of.sort_unstable();
        of[of.len() / 2].as_secs_f64() * 1e3
    };
    let [list, ours, answer, whole] = [0, 1, 2, 3].map(median);
    let more = |ours: f64, client: f64| (ours / client - 1.0) * 100.0;
    println!("{} utterances, {} queries, {rounds} rounds", engine.totals().turns, questions.len());
    println!(
        "candidate list (top {K})   client {list:.2} ms, turnwise {ours:.2} ms, {:+.1}%",
        more(ours, list)
    );
    println!(
        "complete answer           client {answer:.2} ms, turnwise {whole:.2} ms, {:+.1}%",
        more(whole, answer)
    );
}

fn request(text: &str) -> Request {
    Request { query: text.to_owned(), mode: Some(Mode::Dense), k: K, ..Request::default() }
}

/// Milvus's own client, and the names of the turnwise collections that it searches.
struct Raw {
    runtime: Runtime,
    client: ClientV2,
    utterances: String,
    records: String,
}

impl Raw {
    fn open(target: &Target) -> Self {
        let runtime = Runtime::new().unwrap();
        let config = ConnectConfig::new().uri(format!("http://{}:{}", target.host, target.port));
        let client = runtime.block_on(ClientV2::new(&config)).unwrap();
        let generation = Walk::over(target).unwrap().manifest().generation;
        let name = |what: &str| format!("{}_g{generation}_{what}", target.name);
        Raw { runtime, client, utterances: name("utterances"), records: name("records") }
    }

    /// Searches for the nearest `K` utterances. Returns the keys of their dialogues, one for each utterance.
    fn search(&self, vector: &[f32]) -> Vec<String> {
        let request = SearchRequest::builder()
            .collection_name(&self.utterances)
            .vector_field("vector")
            .vectors(SearchVectors::Float(vec![vector.to_vec()]))
            .output_fields(["key", "version", "turn", "dialogue", "directed"])
            .limit(K as i64)
            .extra_params(HashMap::from([("ef".to_owned(), "512".to_owned())]))
            .consistency_level(ConsistencyLevel::Strong)
            .build()
            .unwrap();
        let answer = self.runtime.block_on(self.client.search(request)).unwrap();
        let columns = answer.results().get_results()[0].get_output_fields();
        texts(columns, "key")
    }

    /// Searches and then fetches the records of the hits. Returns the number of hits.
    fn answer(&self, vector: &[f32]) -> usize {
        let keys = self.search(vector);
        let mut different: Vec<String> = keys.iter().map(|key| format!("\"{key}\"")).collect();
        different.sort();
        different.dedup();
        let request = QueryRequest::builder()
            .collection_name(&self.records)
            .filter(format!("key in [{}]", different.join(", ")))
            .output_fields(["key", "version", "piece", "pieces", "json"])
            .limit(16_384)
            .consistency_level(ConsistencyLevel::Strong)
            .build()
            .unwrap();
        let answer = self.runtime.block_on(self.client.query(request)).unwrap();
        let records = texts(answer.results().get_output_fields(), "json");
        assert!(records.len() >= different.len());
        keys.len()
    }
}

fn texts(columns: &[FieldData], wanted: &str) -> Vec<String> {
    let column = columns.iter().find_map(|column| match column {
        FieldData::VarChar { name, values } if name == wanted => Some(values.clone()),
        _ => None,
    });
    column.unwrap_or_default()
}

/// Encoder that returns the stored vector of a query text. It panics for any other text.
struct Known {
    dim: usize,
    fingerprint: Fingerprint,
    vectors: HashMap<String, Vec<f32>>,
}

impl Known {
    fn of(engine: &Milvus, questions: &[(String, Vec<f32>)]) -> Self {
        let recipe = engine.recipe().expect("the dialogues must have vectors");
        Known {
            dim: recipe.dim,
            fingerprint: recipe.fingerprint,
            vectors: questions.iter().cloned().collect(),
        }
    }
}

impl Encoder for Known {
    fn name(&self) -> &str {
        "known vectors"
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    fn describe(&self) -> String {
        self.name().to_owned()
    }

    fn encode(&self, texts: &[&str], _: &TextOptions) -> Result<Encoded> {
        let mut vectors = Vectors::new(self.dim);
        texts.iter().for_each(|text| vectors.push(&self.vectors[*text]));
        Ok(Encoded { vectors, spent: EncodeStats::default() })
    }

    fn encode_dialogues(&self, _: &[&Dialogue], _: &DialogueOptions) -> Result<Encoded> {
        Err(Error::input("dialogues are not supported"))
    }
}

/// Returns at most `QUESTIONS` turns from all parts of the index: the text and the stored vector of each.
fn questions(target: &Target) -> Vec<(String, Vec<f32>)> {
    let mut walk = Walk::over(target).unwrap();
    let mut questions = Vec::new();
    while let Some((_, part)) = walk.next_part().unwrap() {
        for moved in part.into_iter().step_by(7) {
            let Some((turn, Some(vector))) = moved.dialogue.turns.iter().zip(moved.turns).nth(1) else {
                continue;
            };
            questions.push((turn.text.clone(), vector));
        }
    }
    let step = (questions.len() / QUESTIONS).max(1);
    questions.into_iter().step_by(step).take(QUESTIONS).collect()
}
