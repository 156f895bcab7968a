//! Tests failures of Milvus. Each failure must cause a clear error, lose no acknowledged data and leave no partial
//! data.

use std::{
    net::TcpListener,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use turnwise_core::{DialogueId, Error, Result, error::Class};
use turnwise_corpus::Dialogue;
use turnwise_encoder::{DialogueOptions, Encoded, Encoder, Fingerprint, TextOptions};
use turnwise_milvus::{Milvus, MilvusWriter, Target};
use turnwise_search::{Mode, SearchRequest, Searcher};
use turnwise_store::{Prepared, PutOutcome, ingest::DialogueSink};

use crate::{
    corpus::dialogue,
    hashed_words::HashedWords,
    server::Server,
    test_engines::{MilvusEngine, TestEngine, encoder},
};

fn open_error(target: &Target) -> Error {
    Milvus::open(target).err().unwrap()
}

#[test]
fn an_unreachable_server_gives_an_error_at_once() {
    let target: Target = "milvus://127.0.0.1:1/chats?timeout=3".parse().unwrap();
    let started = Instant::now();
    let e = open_error(&target);
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert_eq!(e.class(), Class::Unavailable);
    assert!(e.to_string().starts_with("Milvus at 127.0.0.1:1 cannot be reached"), "{e}");
    assert!(e.hint().unwrap().contains("the server runs"));
}

#[test]
fn an_unresponsive_server_gives_an_error_after_the_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("milvus://{}/chats?timeout=1&attempts=2", silent.local_addr().unwrap());
    let started = Instant::now();
    let e = open_error(&address.parse().unwrap());
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert_eq!(e.class(), Class::Unavailable, "{e}");
    assert!(e.to_string().contains("did not answer within 1 s"), "{e}");
}

#[test]
fn the_connection_waits_for_the_whole_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("milvus://{}/chats?timeout=12", silent.local_addr().unwrap());
    let started = Instant::now();
    let e = open_error(&address.parse().unwrap());
    assert!(started.elapsed() >= Duration::from_secs(12), "{e}: {:?}", started.elapsed());
    assert!(e.to_string().contains("did not answer within 12 s"), "{e}");
}

/// Calls a method of Milvus's own Python client.
fn run_milvus_client(server: &Server, call: &str) {
    let script = format!(
        "from pymilvus import MilvusClient\nMilvusClient(uri='http://127.0.0.1:{}').{call}",
        server.port
    );
    let done = Command::new(server.program.with_file_name("python")).args(["-c", &script]).output().unwrap();
    assert!(done.status.success(), "{call}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn a_collection_that_another_program_changed_is_reported() {
    let Some(server) = Server::start() else { return };
    let engine = MilvusEngine { target: server.target("chats") };
    engine.ingest(&[dialogue(1, 1)]);
    run_milvus_client(&server, "drop_collection('chats_g1_utterances')");
    let e = open_error(&engine.target);
    assert!(e.class() == Class::Unavailable && e.to_string().contains("chats_g1_utterances"), "{e}");
    run_milvus_client(&server, "create_collection('chats_g1_utterances', dimension=4)");
    for e in [open_error(&engine.target), MilvusWriter::open(&engine.target).err().unwrap()] {
        let what = "chats_g1_utterances has a column `id` of a different type: another program changed it";
        assert!(e.to_string().ends_with(what), "{e}");
        assert!(e.hint().unwrap().contains("--replace"), "{e:?}");
    }
}

/// With an analyzer of Milvus, a turn must still be found by its longest word.
#[test]
fn an_analyzer_of_milvus_can_replace_ours() {
    let Some(server) = Server::start() else { return };
    let target: Target = format!("{}?analyzer=standard", server.target("theirs")).parse().unwrap();
    let engine = MilvusEngine { target };
    let dialogues: Vec<_> = (0..20).map(|n| dialogue(n, 1)).collect();
    engine.ingest(&dialogues);
    let searcher = engine.searcher();
    let hits = |query: &str| {
        let request =
            SearchRequest { query: query.to_owned(), mode: Some(Mode::Bm25), k: 50, ..Default::default() };
        searcher.search(&request).unwrap().hits
    };
    for turn in dialogues.iter().flat_map(|dialogue| &dialogue.turns) {
        let words: Vec<&str> =
            turn.text.split_whitespace().filter(|w| w.chars().all(char::is_alphabetic)).collect();
        let Some(longest) = words.iter().max_by_key(|word| word.len()) else { continue };
        let uppercase = longest.to_uppercase();
        assert!(!hits(&uppercase).is_empty(), "{uppercase} of `{}`", turn.text);
    }
    assert!(hits("klingon").is_empty());
    // Existing collections keep their analyzer, even if a later address has none.
    let later = MilvusEngine { target: server.target("theirs") };
    later.ingest(&[dialogue(30, 1)]);
    assert_eq!(later.searcher().engine().totals().dialogues, 21);
}

#[test]
fn missing_and_foreign_collections_are_reported() {
    let Some(server) = Server::start() else { return };
    let target = server.target("nothing");
    let e = open_error(&target);
    assert_eq!(e.to_string(), format!("there are no dialogues at {target}"));
    assert!(e.hint().unwrap().starts_with("`turnwise ingest --engine milvus://"));
    // A collection that Milvus's own client created is refused.
    run_milvus_client(&server, "create_collection('theirs', dimension=4)");
    for e in
        [open_error(&server.target("theirs")), MilvusWriter::open(&server.target("theirs")).err().unwrap()]
    {
        assert!(e.to_string().contains("turnwise did not create it"), "{e}");
    }
}

#[test]
fn a_different_encoder_is_refused_for_writing_and_searching() {
    let Some(server) = Server::start() else { return };
    let engine = MilvusEngine { target: server.target("chats") };
    engine.ingest(&[dialogue(1, 1)]);
    let other: Arc<dyn Encoder> = Arc::new(HashedWords { salt: 1 });
    let refused = MilvusWriter::open_or_create(
        &engine.target,
        Default::default(),
        Some(HashedWords { salt: 1 }.recipe()),
        Some(other.clone()),
    );
    let e = refused.err().unwrap();
    assert!(e.class() == Class::Input && e.to_string().contains("were made by hashed words"), "{e}");
    let engine = Milvus::open(&engine.target).unwrap();
    let e = Searcher::of(Box::new(engine)).with_encoder(other).err().unwrap();
    assert!(e.to_string().contains("made by a different encoder"), "{e}");
}

#[test]
fn no_acknowledged_dialogue_is_lost_if_the_server_is_killed() {
    let Some(mut server) = Server::start() else { return };
    let target: Target = format!("{}?timeout=3&attempts=2", server.target("chats")).parse().unwrap();
    let engine = MilvusEngine { target };
    let dialogues: Vec<_> = (0..60).map(|n| dialogue(n, 1)).collect();
    let mut writer = engine.writer();
    let put = |writer: &mut MilvusWriter, some: &[Dialogue]| {
        some.iter().map(|d| writer.put(&Prepared::new(d).unwrap())).collect::<Result<Vec<_>>>()
    };
    put(&mut writer, &dialogues[..30]).unwrap();
    writer.commit(None).unwrap();
    put(&mut writer, &dialogues[30..]).unwrap();
    server.kill();
    let e = writer.commit(None).unwrap_err();
    assert!(e.class() == Class::Unavailable && e.to_string().contains("127.0.0.1"), "{e}");
    drop(writer);
    server.restart();
    let exists = |n: usize| engine.searcher().engine().view().find(&format!("d{n:04}")).is_ok();
    assert!((0..30).all(exists));
    // The same ingest continues where it stopped.
    let puts = engine.ingest(&dialogues);
    assert!(puts[..30].iter().all(|put| *put == PutOutcome::Unchanged));
    assert!((0..60).all(exists));
    let totals = engine.searcher().engine().totals();
    assert_eq!(totals.dialogues, 60, "a dialogue is stored twice");
    assert_eq!(totals.turns as usize, dialogues.iter().map(|d| d.turns.len()).sum::<usize>());
}

/// Encoder whose first vector has this value in every dimension.
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
fn invalid_vectors_are_not_sent() {
    let Some(server) = Server::start() else { return };
    let target = server.target("chats");
    let writer_with = |number: f32| {
        let recipe = Some(HashedWords { salt: 0 }.recipe());
        let broken: Arc<dyn Encoder> = Arc::new(Broken(number));
        let mut writer =
            MilvusWriter::open_or_create(&target, Default::default(), recipe, Some(broken)).unwrap();
        writer.put(&Prepared::new(&dialogue(1, 1)).unwrap()).unwrap();
        writer
    };
    let mut broken = writer_with(f32::NAN);
    let e = broken.commit(None).unwrap_err();
    assert!(
        e.class() == Class::Data && e.to_string().starts_with("d0001: a vector contains NaN or infinity"),
        "{e}"
    );
    assert_eq!(broken.totals().unwrap().turns, 0);
    // A zero vector is not stored, but lexical search finds the text.
    writer_with(0.0).commit(None).unwrap();
    let searcher = MilvusEngine { target }.searcher();
    let first = &dialogue(1, 1).turns[0];
    let found = |mode| {
        let request =
            SearchRequest { query: first.text.clone(), mode: Some(mode), k: 50, ..SearchRequest::default() };
        searcher.search(&request).unwrap().hits.iter().any(|hit| hit.turn == *first)
    };
    assert!(found(Mode::Bm25) && !found(Mode::Dense));
}

#[test]
fn a_new_name_is_created_with_the_first_dialogues() {
    let Some(server) = Server::start() else { return };
    let target = server.target("chats");
    let writer = || MilvusWriter::open_or_create(&target, None, None, None).unwrap();
    let put = |writer: &mut MilvusWriter, id: &str, text: &str| {
        let json = serde_json::json!({"id": id, "turns": [{"role": "user", "text": text}]});
        let mut dialogue: Dialogue = serde_json::from_value(json).unwrap();
        dialogue.check().unwrap();
        writer.put(&Prepared::new(&dialogue).unwrap()).unwrap()
    };
    // A writer that writes nothing leaves nothing behind.
    let mut first = writer();
    put(&mut first, "d0", "hello");
    assert_eq!(
        (first.totals().unwrap().dialogues, first.get(&DialogueId::new("d0").unwrap()).unwrap().is_some()),
        (0, true)
    );
    drop(first);
    assert!(open_error(&target).to_string().starts_with("there are no dialogues at"));
    // The language of the first dialogues determines how words are stemmed.
    let (mut one, mut other) = (writer(), writer());
    for (n, text) in [
        "Ich habe die Pakete nicht bekommen, und auf die Mails hat bis jetzt auch keiner von euch geantwortet.",
        "Das tut mir leid. Wir haben es noch nicht verschickt, weil die Adresse auf dem Formular nicht stimmt.",
    ]
    .into_iter()
    .enumerate()
    {
        put(&mut one, &format!("d{n}"), text);
    }
    put(&mut other, "d9", "hello");
    one.commit(None).unwrap();
    // The other writer must not delete what the first one has written.
    let e = other.commit(None).unwrap_err();
    assert!(
        e.class() == Class::Unavailable && e.to_string().starts_with("another process has created"),
        "{e}"
    );
    let found = |query: &str| {
        let searcher = Searcher::of(Box::new(Milvus::open(&target).unwrap()));
        let request =
            SearchRequest { query: query.to_owned(), mode: Some(Mode::Bm25), ..SearchRequest::default() };
        searcher.search(&request).unwrap().hits.into_iter().map(|hit| hit.id).collect::<Vec<_>>()
    };
    assert_eq!(
        (found("Paket"), found("Formulare"), found("hello")),
        (vec!["d0#1".to_owned()], vec!["d1#1".to_owned()], vec![])
    );
    // A new generation detects the language of its own dialogues.
    let mut replacement = MilvusWriter::new_generation_by_language(&target, None, None).unwrap();
    put(&mut replacement, "d9", "hello");
    replacement.commit(None).unwrap();
    assert_eq!(found("Paket"), ["d0#1"]);
    replacement.finish().unwrap();
    assert_eq!((found("Paket"), found("hello")), (vec![], vec!["d9#1".to_owned()]));
}

#[test]
fn an_unsupported_request_is_an_error() {
    let Some(server) = Server::start() else { return };
    let engine = MilvusEngine { target: server.target("chats") };
    engine.ingest(&[dialogue(1, 1), dialogue(2, 1)]);
    let searcher = engine.searcher();
    let error_of = |change: &dyn Fn(&mut SearchRequest)| {
        let mut request = SearchRequest { query: "card".to_owned(), ..SearchRequest::default() };
        change(&mut request);
        let e = searcher.search(&request).err().unwrap();
        assert_eq!(e.class(), Class::Input, "{e}");
        e.to_string()
    };
    let mode = Some(Mode::Bm25);
    assert!(error_of(&|r| (r.syntax, r.mode) = (true, mode)).contains("Tantivy query"));
    assert!(error_of(&|r| r.exact = true).contains("exhaustive vector search"));
    assert!(error_of(&|r| r.min_percentile = Some(50.0)).contains("a minimum percentile"));
    assert!(error_of(&|r| r.k = 20_000).contains("more than 16384 hits"));
    assert!(
        error_of(&|r| r.filter = Some("text=card".parse().unwrap())).contains("comparing the whole text")
    );
    assert!(
        error_of(&|r| {
            r.filter = Some("text~card".parse().unwrap());
            r.of = turnwise_search::HitKind::Dialogues;
        })
        .contains("text of whole dialogues")
    );
    let e = searcher.facets(None, &["domain".to_owned()], 3).err().unwrap();
    assert!(e.to_string().contains("counting dialogues by field values"), "{e}");
}
