//! Tests of all static encoders, and of damaged folders.

use std::{fs, path::Path};

use proptest::prelude::*;
use turnwise_core::{error::Class, ids::DialogueId, vectors::cosine};
use turnwise_corpus::Role;

use crate::{DialogueMode, DialogueOptions, DialoguePooling, TextOptions, statics::*};

const TEXTS: [&str; 12] = [
    "my card is gone and I want a new card",
    "the new card has not arrived yet",
    "when will my card arrive?",
    "I want to book a table for two tonight",
    "a table for four at the new restaurant",
    "is there a restaurant near the station?",
    "the train to the station is late",
    "book a train to Paris for two",
    "我要申请退款",
    "退款什么时候到",
    "我的订单还没有发货",
    "when is the next train?",
];

fn corpus() -> impl Iterator<Item = String> {
    TEXTS.iter().map(|t| (*t).to_owned())
}

fn tfidf(settings: &TfidfSettings) -> TfidfSvd {
    fit_tfidf(corpus(), settings).unwrap()
}

/// Returns random word vectors. `common` is added to all elements, so that the vectors have a common component.
fn table_with(common: f32) -> WordTable {
    let mut table = WordTable::new(6);
    let words = [
        "the",
        "a",
        "card",
        "new",
        "train",
        "station",
        "to",
        "restaurant",
        "Paris",
        "退款",
        "我",
        "订单",
        "book",
    ];
    for (n, word) in words.iter().enumerate() {
        let vector: Vec<f32> = (0..6).map(|k| common + linalg::normal(n as u64, k) as f32).collect();
        table.push(word, &vector);
    }
    table
}

fn table() -> WordTable {
    table_with(0.3)
}

fn all() -> Vec<Box<dyn Encoder>> {
    vec![
        Box::new(tfidf(&TfidfSettings::default())),
        Box::new(tfidf(&TfidfSettings {
            dim: 4,
            normalize: true,
            center: false,
            ..TfidfSettings::default()
        })),
        Box::new(WordEncoder::mean(table())),
        Box::new(WordEncoder::fit_sif(table(), 1e-3, corpus()).unwrap()),
    ]
}

fn dialogue(texts: &[String]) -> Dialogue {
    let mut d = Dialogue::new(DialogueId::new("d").unwrap());
    for (n, text) in texts.iter().enumerate() {
        let (name, role) = if n % 2 == 0 { ("Ann", Role::User) } else { ("Bo", Role::Agent) };
        d.push(name, role, text.as_str());
    }
    d
}

fn ways() -> Vec<DialogueOptions> {
    let modes = [DialogueMode::Sequence, DialogueMode::Utterances];
    let poolings = [DialoguePooling::Mean, DialoguePooling::Interlocutors];
    modes
        .into_iter()
        .flat_map(|mode| poolings.map(|pooling| DialogueOptions { mode, pooling, prompt: None }))
        .collect()
}

fn vector(encoder: &dyn Encoder, text: &str) -> Vec<f32> {
    encoder.encode(&[text], &TextOptions::default()).unwrap().vectors.row(0).to_vec()
}

#[test]
fn normalizes_matches_the_length_of_vectors() {
    for encoder in all() {
        let vector = vector(encoder.as_ref(), TEXTS[0]);
        let length = vector.iter().map(|v| v * v).sum::<f32>().sqrt();
        assert_eq!((length - 1.0).abs() < 1e-5, encoder.normalizes(), "{}: {length}", encoder.name());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_vector_does_not_depend_on_its_batch(
        texts in prop::collection::vec(prop_oneof![prop::sample::select(&TEXTS[..]).prop_map(str::to_owned), ".{0,30}"], 0..8),
    ) {
        for encoder in all() {
            let refs: Vec<&str> = texts.iter().map(String::as_str).collect();
            let together = encoder.encode(&refs, &TextOptions::default()).unwrap();
            prop_assert_eq!(together.vectors.len(), texts.len());
            prop_assert_eq!(together.vectors.dim(), encoder.dim());
            prop_assert!(together.vectors.flat().iter().all(|v| v.is_finite()));
            let zeros = together.vectors.rows().filter(|row| row.iter().all(|v| *v == 0.0)).count();
            prop_assert!(together.spent.unknown as usize <= zeros);
            for (n, text) in refs.iter().enumerate() {
                prop_assert_eq!(together.vectors.row(n), &vector(&*encoder, text)[..]);
            }
            let d = dialogue(&texts);
            let other = dialogue(&["a card".to_owned()]);
            for way in ways() {
                let both = encoder.encode_dialogues(&[&other, &d], &way).unwrap();
                let alone = encoder.encode_dialogues(&[&d], &way).unwrap();
                prop_assert!(alone.vectors.flat().iter().all(|v| v.is_finite()));
                prop_assert_eq!(both.vectors.row(1), alone.vectors.row(0));
            }
        }
    }
}

#[test]
fn texts_without_words_have_zero_vectors() {
    for encoder in all() {
        let texts = ["", " ", "😀🏳️‍🌈", "\u{0}\u{1b}[31m\u{200d}", "zzzz"];
        let e = encoder.encode(&texts, &TextOptions::default()).unwrap();
        assert_eq!((e.spent.unknown, e.spent.tokens), (5, 0), "{}", encoder.name());
        assert!(e.vectors.flat().iter().all(|v| *v == 0.0));
        assert!(encoder.encode(&[], &TextOptions::default()).unwrap().vectors.is_empty());
        let prompt = TextOptions { prompt: Some("query".into()) };
        assert_eq!(encoder.encode(&["x"], &prompt).unwrap_err().class(), Class::Input);
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let vectors = |e: &dyn Encoder| e.encode(&TEXTS, &TextOptions::default()).unwrap().vectors;
            all().iter().map(|e| (e.fingerprint(), vectors(&**e))).collect::<Vec<_>>()
        })
    };
    assert_eq!(with(1), with(4));
}

#[test]
fn similar_texts_have_similar_vectors() {
    for settings in [TfidfSettings::default(), TfidfSettings { center: false, ..TfidfSettings::default() }] {
        let e = tfidf(&TfidfSettings { dim: 5, ..settings });
        let like = |a: &str, b: &str| cosine(&vector(&e, a), &vector(&e, b));
        assert!(
            like("has my new card arrived", "my card is gone")
                > 0.2 + like("has my new card arrived", "退款")
        );
        assert!(like("退款", "我要申请退款") > 0.2 + like("退款", "a table for two"));
    }
}

#[test]
fn a_whole_dialogue_is_one_document() {
    let d = dialogue(&["my card is gone".to_owned(), "the new card will arrive".to_owned()]);
    for encoder in all() {
        let whole = encoder.encode_dialogues(&[&d], &DialogueOptions::default()).unwrap();
        assert_eq!(whole.vectors.row(0), &vector(&*encoder, &document(&d))[..]);
    }
}

#[test]
fn sif_removes_the_common_component() {
    // No two of these texts share a word.
    let texts = ["card", "new", "train", "station", "restaurant", "退款"];
    let shared = |e: &WordEncoder| {
        let v = e.encode(&texts, &TextOptions::default()).unwrap().vectors;
        let pairs: Vec<_> = (0..texts.len()).flat_map(|a| (0..a).map(move |b| (a, b))).collect();
        pairs.iter().map(|(a, b)| cosine(v.row(*a), v.row(*b))).sum::<f32>() / pairs.len() as f32
    };
    assert!(shared(&WordEncoder::mean(table_with(3.0))) > 0.8);
    let fitted = WordEncoder::fit_sif(table_with(3.0), 1e-3, corpus()).unwrap();
    assert!(shared(&fitted) < 0.4, "{}", shared(&fitted));
    let e = WordEncoder::fit_sif(table(), 1e-3, ["zzzz".to_owned()].into_iter()).map(drop).unwrap_err();
    assert!(e.to_string().contains("none of the words in 1 documents"), "{e}");
    assert!(WordEncoder::fit_sif(table(), 0.0, corpus()).is_err());
}

#[test]
fn averages_match_the_definition() {
    let t = table();
    let want: Vec<f32> = (0..6)
        .map(|k| {
            let of = |word: &str| f64::from(t.vector(t.row_of(word).unwrap())[k]);
            ((of("card") + of("new") + of("card")) / 3.0) as f32
        })
        .collect();
    assert_eq!(vector(&WordEncoder::mean(table()), "Card new zzzz CARD!"), want);
}

#[test]
fn a_small_corpus_gives_fewer_dimensions_and_a_note() {
    let e = fit_tfidf(["one two".to_owned(), "one three".to_owned()].into_iter(), &TfidfSettings::default())
        .unwrap();
    assert!(e.dim() <= 2);
    assert!(e.notes()[0].contains("not 128"), "{:?}", e.notes());
    // No term reaches the minimum of two documents, so all terms are kept.
    let e = fit_tfidf(["one".to_owned(), "two".to_owned()].into_iter(), &TfidfSettings::default()).unwrap();
    assert_eq!(e.fit.terms, 2);
    for documents in [vec![], vec!["…".to_owned()]] {
        let e = fit_tfidf(documents.into_iter(), &TfidfSettings::default()).map(drop).unwrap_err();
        assert_eq!(e.class(), Class::Data);
    }
}

/// Saves an encoder of each kind, and calls `check` with its folder and the encoder.
fn saved(check: impl Fn(&Path, &dyn Encoder)) {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("encoder");
    let lsa = tfidf(&TfidfSettings::default());
    lsa.save(&folder).unwrap();
    check(&folder, &lsa);
    fs::remove_dir_all(&folder).unwrap();
    for words in [WordEncoder::mean(table()), WordEncoder::fit_sif(table(), 1e-3, corpus()).unwrap()] {
        words.save(&folder).unwrap();
        check(&folder, &words);
        fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn saved_encoders_are_opened_unchanged() {
    saved(|folder, encoder| {
        assert!(is_static(folder));
        let opened = open(folder).unwrap();
        assert_eq!(opened.fingerprint(), encoder.fingerprint());
        assert_eq!((opened.name(), opened.dim()), (encoder.name(), encoder.dim()));
        for text in TEXTS {
            assert_eq!(vector(&*opened, text), vector(encoder, text));
        }
        let names: Vec<_> =
            fs::read_dir(folder.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["encoder"], "no other folder is left");
    });
}

#[test]
fn different_encoders_have_different_fingerprints() {
    let mut prints: Vec<_> = all().iter().map(|e| e.fingerprint()).collect();
    prints.push(tfidf(&TfidfSettings { sublinear: false, ..TfidfSettings::default() }).fingerprint());
    prints.push(tfidf(&TfidfSettings { dim: 4, ..TfidfSettings::default() }).fingerprint());
    prints.push(WordEncoder::mean(table_with(0.4)).fingerprint());
    assert_eq!(
        prints.iter().map(ToString::to_string).collect::<std::collections::HashSet<_>>().len(),
        prints.len()
    );
    assert_eq!(tfidf(&TfidfSettings::default()).fingerprint(), prints[0]);
}

#[test]
fn damaged_and_truncated_files_are_errors() {
    saved(|folder, _| {
        for name in ["words.txt", "model.safetensors", "turnwise.json"] {
            let path = folder.join(name);
            let whole = fs::read(&path).unwrap();
            let step = whole.len().div_ceil(40);
            for at in (0..whole.len()).step_by(step) {
                for damaged in [&whole[..at], &[&whole[..at], &[whole[at] ^ 0x80], &whole[at + 1..]].concat()]
                {
                    fs::write(&path, damaged).unwrap();
                    let e = open(folder).map(drop).expect_err(name);
                    assert!(e.hint().is_some(), "{e}");
                }
            }
            fs::remove_file(&path).unwrap();
            assert!(open(folder).is_err());
            fs::write(&path, whole).unwrap();
        }
        open(folder).unwrap();
    });
}

#[test]
fn only_encoders_are_replaced() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("mine");
    fs::create_dir(&folder).unwrap();
    let encoder = WordEncoder::mean(table());
    encoder.save(&folder).unwrap();
    tfidf(&TfidfSettings::default()).save(&folder).unwrap();
    assert_eq!(open(&folder).unwrap().name(), "TF-IDF + SVD");
    let other = temporary.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("thesis.txt"), "years of work").unwrap();
    let e = encoder.save(&other).unwrap_err();
    assert_eq!(e.class(), Class::Input);
    assert!(other.join("thesis.txt").exists() && !is_static(&other));
    assert!(open(&other).map(drop).unwrap_err().to_string().contains("is not a static encoder"));
    assert!(!is_static(&temporary.path().join("nowhere")));
}

/// While an encoder is replaced, readers see either the old encoder or the new one.
#[test]
#[cfg(target_os = "linux")]
fn an_encoder_is_there_while_it_is_replaced() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("mine");
    let encoder = WordEncoder::mean(table());
    encoder.save(&folder).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..50).for_each(|_| encoder.save(&folder).unwrap());
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        while !done.load(std::sync::atomic::Ordering::Acquire) {
            assert!(folder.join("turnwise.json").exists());
        }
    });
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1, "no other folder is left");
}

#[test]
fn other_versions_and_analyzers_are_errors() {
    saved(|folder, _| {
        let path = folder.join("turnwise.json");
        let text = fs::read_to_string(&path).unwrap();
        for (from, to, want) in
            [("\"version\": 1", "\"version\": 2", "version 2"), ("mixed-1", "mixed-9", "`mixed-9`")]
        {
            fs::write(&path, text.replace(from, to)).unwrap();
            let e = open(folder).map(drop).unwrap_err();
            assert!(e.to_string().contains(want) && e.class() == Class::Input, "{e}");
        }
        fs::write(&path, text.replace("\"kind\": \"", "\"kind\": \"un")).unwrap();
        assert!(!is_static(folder) && open(folder).is_err());
        fs::write(&path, text).unwrap();
    });
}

#[test]
fn static_encoders_have_no_token_vectors() {
    for encoder in all() {
        let refused = encoder.encode_tokens(&TEXTS, &TextOptions::default()).unwrap_err();
        assert_eq!(refused.class(), Class::Input);
        assert_eq!(refused.to_string(), format!("{} has no token vectors", encoder.name()));
        assert!(refused.hint().unwrap().contains("use a transformer"));
    }
}
