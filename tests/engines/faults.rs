//! What goes wrong past one machine: told in one sentence, with nothing lost and nothing half there.

use std::{
    net::TcpListener,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use turnwise_core::{Error, Result, error::Class};
use turnwise_corpus::Dialogue;
use turnwise_encoder::{DialogueOptions, Encoded, Encoder, Fingerprint, TextOptions};
use turnwise_milvus::{Milvus, MilvusWriter, Target};
use turnwise_search::{Mode, SearchRequest, Searcher};
use turnwise_store::{Prepared, PutOutcome, ingest::DialogueSink};

use crate::{
    corpus::dialogue,
    places::{Far, Place, encoder},
    server::Server,
    words::Words,
};

fn opened(target: &Target) -> Error {
    Milvus::open(target).err().unwrap()
}

#[test]
fn a_server_that_is_not_there_is_told_at_once() {
    let target: Target = "milvus://127.0.0.1:1/chats?timeout=3".parse().unwrap();
    let begun = Instant::now();
    let e = opened(&target);
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(e.class(), Class::Unavailable);
    assert!(e.to_string().starts_with("Milvus at 127.0.0.1:1 cannot be reached"), "{e}");
    assert!(e.hint().unwrap().contains("the server runs"));
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for_for_ever() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("milvus://{}/chats?timeout=1&attempts=2", silent.local_addr().unwrap());
    let begun = Instant::now();
    let e = opened(&address.parse().unwrap());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(e.class(), Class::Unavailable, "{e}");
    assert!(e.to_string().contains("did not answer within 1 s"), "{e}");
}

#[test]
fn a_server_that_is_slow_to_greet_is_waited_for_as_long_as_was_said() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("milvus://{}/chats?timeout=12", silent.local_addr().unwrap());
    let begun = Instant::now();
    let e = opened(&address.parse().unwrap());
    assert!(begun.elapsed() >= Duration::from_secs(12), "{e}: {:?}", begun.elapsed());
    assert!(e.to_string().contains("did not answer within 12 s"), "{e}");
}

/// Lets Milvus' own client do something.
fn their_client(server: &Server, call: &str) {
    let script = format!(
        "from pymilvus import MilvusClient\nMilvusClient(uri='http://127.0.0.1:{}').{call}",
        server.port
    );
    let done = Command::new(server.program.with_file_name("python")).args(["-c", &script]).output().unwrap();
    assert!(done.status.success(), "{call}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn collections_that_something_else_changed_are_told() {
    let Some(server) = Server::start() else { return };
    let place = Far { target: server.target("chats") };
    place.ingest(&[dialogue(1, 1)]);
    their_client(&server, "drop_collection('chats_g1_utterances')");
    let e = opened(&place.target);
    assert!(e.class() == Class::Unavailable && e.to_string().contains("chats_g1_utterances"), "{e}");
    their_client(&server, "create_collection('chats_g1_utterances', dimension=4)");
    for e in [opened(&place.target), MilvusWriter::open(&place.target).err().unwrap()] {
        let what = "chats_g1_utterances has a column `id` of a different type: another program changed it";
        assert!(e.to_string().ends_with(what), "{e}");
        assert!(e.hint().unwrap().contains("--replace"), "{e:?}");
    }
}

/// Which words Milvus makes of texts is its own affair; that they are found by the words of a question is ours.
#[test]
fn the_analyzers_of_milvus_may_make_the_words() {
    let Some(server) = Server::start() else { return };
    let target: Target = format!("{}?analyzer=standard", server.target("theirs")).parse().unwrap();
    let place = Far { target };
    let dialogues: Vec<_> = (0..20).map(|n| dialogue(n, 1)).collect();
    place.ingest(&dialogues);
    let searcher = place.searcher();
    let asked = |query: &str| {
        let request =
            SearchRequest { query: query.to_owned(), mode: Some(Mode::Bm25), k: 50, ..Default::default() };
        searcher.search(&request).unwrap().hits
    };
    for turn in dialogues.iter().flat_map(|dialogue| &dialogue.turns) {
        let words: Vec<&str> =
            turn.text.split_whitespace().filter(|w| w.chars().all(char::is_alphabetic)).collect();
        let Some(longest) = words.iter().max_by_key(|word| word.len()) else { continue };
        let shouted = longest.to_uppercase();
        assert!(!asked(&shouted).is_empty(), "{shouted} of `{}`", turn.text);
    }
    assert!(asked("klingon").is_empty());
    // What is there stays as it was made, whatever an address says later.
    let later = Far { target: server.target("theirs") };
    later.ingest(&[dialogue(30, 1)]);
    assert_eq!(later.searcher().engine().totals().dialogues, 21);
}

#[test]
fn what_is_missing_or_of_somebody_else_is_told() {
    let Some(server) = Server::start() else { return };
    let target = server.target("nothing");
    let e = opened(&target);
    assert_eq!(e.to_string(), format!("there are no dialogues at {target}"));
    assert!(e.hint().unwrap().starts_with("`turnwise ingest --engine milvus://"));
    // A collection that somebody else made, with Milvus' own client.
    their_client(&server, "create_collection('theirs', dimension=4)");
    for e in [opened(&server.target("theirs")), MilvusWriter::open(&server.target("theirs")).err().unwrap()] {
        assert!(e.to_string().contains("turnwise did not create it"), "{e}");
    }
}

#[test]
fn vectors_of_another_encoder_do_not_get_in_nor_are_searched() {
    let Some(server) = Server::start() else { return };
    let place = Far { target: server.target("chats") };
    place.ingest(&[dialogue(1, 1)]);
    let other: Arc<dyn Encoder> = Arc::new(Words { salt: 1 });
    let refused = MilvusWriter::open_or_create(
        &place.target,
        Default::default(),
        Some(Words { salt: 1 }.recipe()),
        Some(other.clone()),
    );
    let e = refused.err().unwrap();
    assert!(e.class() == Class::Input && e.to_string().contains("were made by hashed words"), "{e}");
    let engine = Milvus::open(&place.target).unwrap();
    let e = Searcher::of(Box::new(engine)).with_encoder(other).err().unwrap();
    assert!(e.to_string().contains("made by a different encoder"), "{e}");
}

#[test]
fn a_server_that_dies_in_an_ingest_loses_nothing_that_was_acknowledged() {
    let Some(mut server) = Server::start() else { return };
    let target: Target = format!("{}?timeout=3&attempts=2", server.target("chats")).parse().unwrap();
    let place = Far { target };
    let dialogues: Vec<_> = (0..60).map(|n| dialogue(n, 1)).collect();
    let mut home = place.home();
    let put = |home: &mut MilvusWriter, some: &[Dialogue]| {
        some.iter().map(|d| home.put(&Prepared::new(d).unwrap())).collect::<Result<Vec<_>>>()
    };
    put(&mut home, &dialogues[..30]).unwrap();
    home.commit(None).unwrap();
    put(&mut home, &dialogues[30..]).unwrap();
    server.kill();
    let e = home.commit(None).unwrap_err();
    assert!(e.class() == Class::Unavailable && e.to_string().contains("127.0.0.1"), "{e}");
    drop(home);
    server.restart();
    let there = |n: usize| place.searcher().engine().view().find(&format!("d{n:04}")).is_ok();
    assert!((0..30).all(there));
    // The same again goes on where it stopped.
    let puts = place.ingest(&dialogues);
    assert!(puts[..30].iter().all(|put| *put == PutOutcome::Unchanged));
    assert!((0..60).all(there));
    let totals = place.searcher().engine().totals();
    assert_eq!(totals.dialogues, 60, "a dialogue is there twice");
    assert_eq!(totals.turns as usize, dialogues.iter().map(|d| d.turns.len()).sum::<usize>());
}

/// An encoder that breaks its promises.
struct Broken(f32);

impl Encoder for Broken {
    fn name(&self) -> &str {
        "broken"
    }

    fn dim(&self) -> usize {
        encoder().dim()
    }

    fn fingerprint(&self) -> Fingerprint {
        encoder().fingerprint()
    }

    fn describe(&self) -> String {
        "broken".to_owned()
    }

    fn encode(&self, texts: &[&str], options: &TextOptions) -> Result<Encoded> {
        let mut encoded = encoder().encode(texts, options)?;
        encoded.vectors.row_mut(0).fill(self.0);
        Ok(encoded)
    }

    fn encode_dialogues(&self, dialogues: &[&Dialogue], options: &DialogueOptions) -> Result<Encoded> {
        encoder().encode_dialogues(dialogues, options)
    }
}

#[test]
fn what_is_no_vector_does_not_leave_the_house() {
    let Some(server) = Server::start() else { return };
    let target = server.target("chats");
    let home = |number: f32| {
        let recipe = Some(Words { salt: 0 }.recipe());
        let broken: Arc<dyn Encoder> = Arc::new(Broken(number));
        let mut home =
            MilvusWriter::open_or_create(&target, Default::default(), recipe, Some(broken)).unwrap();
        home.put(&Prepared::new(&dialogue(1, 1)).unwrap()).unwrap();
        home
    };
    let mut broken = home(f32::NAN);
    let e = broken.commit(None).unwrap_err();
    assert!(
        e.class() == Class::Data && e.to_string().starts_with("d0001: a vector contains NaN or infinity"),
        "{e}"
    );
    assert_eq!(broken.totals().unwrap().turns, 0);
    // Without a direction it is near nothing, and found by its words all the same.
    home(0.0).commit(None).unwrap();
    let searcher = Far { target }.searcher();
    let first = &dialogue(1, 1).turns[0];
    let found = |mode| {
        let request =
            SearchRequest { query: first.text.clone(), mode: Some(mode), k: 50, ..SearchRequest::default() };
        searcher.search(&request).unwrap().hits.iter().any(|hit| hit.turn == *first)
    };
    assert!(found(Mode::Bm25) && !found(Mode::Dense));
}

#[test]
fn what_milvus_cannot_do_is_an_error_and_no_other_answer() {
    let Some(server) = Server::start() else { return };
    let place = Far { target: server.target("chats") };
    place.ingest(&[dialogue(1, 1), dialogue(2, 1)]);
    let searcher = place.searcher();
    let asked = |change: &dyn Fn(&mut SearchRequest)| {
        let mut request = SearchRequest { query: "card".to_owned(), ..SearchRequest::default() };
        change(&mut request);
        let e = searcher.search(&request).err().unwrap();
        assert_eq!(e.class(), Class::Input, "{e}");
        e.to_string()
    };
    let mode = Some(Mode::Bm25);
    assert!(asked(&|r| (r.syntax, r.mode) = (true, mode)).contains("Tantivy query"));
    assert!(asked(&|r| r.exact = true).contains("exhaustive vector search"));
    assert!(asked(&|r| r.min_percentile = Some(50.0)).contains("a minimum percentile"));
    assert!(asked(&|r| r.k = 20_000).contains("more than 16384 hits"));
    assert!(asked(&|r| r.filter = Some("text=card".parse().unwrap())).contains("comparing the whole text"));
    assert!(
        asked(&|r| {
            r.filter = Some("text~card".parse().unwrap());
            r.of = turnwise_search::HitKind::Dialogues;
        })
        .contains("text of whole dialogues")
    );
    let e = searcher.facets(None, &["domain".to_owned()], 3).err().unwrap();
    assert!(e.to_string().contains("counting dialogues by field values"), "{e}");
}
