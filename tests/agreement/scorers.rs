//! Compares the scores of cross-encoders with those of sentence-transformers, for models of both programs.
//!
//! `TURNWISE_WRITE_FIXTURE=1 cargo test --test agreement scorers` writes the stored model again (needs the Python
//! packages).

use std::{
    fs,
    path::{Path, PathBuf},
};

use turnwise_encoder::{
    DeviceChoice, Precision,
    folder::{Additions, ModelFolder, save_extended},
    selector::{
        Divider, EOU, Head, HeadActivation, HeadKind, HeadPooling, History, SavedSelector, Selector,
        SelectorSettings, Trained, is_selector, save_selector,
    },
};

use crate::{
    models::Models,
    support::{Peers, Work, text},
    texts,
};

/// Maximum difference between the scores of two programs.
const CLOSE: f32 = 1e-5;

fn fixture() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/agreement/cross-encoder"))
}

/// Returns pairs of texts: short and long texts, and texts without tokens.
fn pairs() -> Vec<(String, String)> {
    let texts = texts::stored();
    let long = |n: usize| texts[n..n + 12].join(" ");
    let short = (0..60).map(|n| (texts[n].clone(), texts[(7 * n + 3) % texts.len()].clone()));
    let longer = (0..4).flat_map(|n| {
        [(long(10 * n), texts[n].clone()), (texts[n].clone(), long(10 * n)), (long(9 * n), long(8 * n + 1))]
    });
    short.chain(longer).collect()
}

fn write_pairs(work: &Work, pairs: &[(String, String)]) -> PathBuf {
    let path = work.path("pairs.jsonl");
    let lines: String =
        pairs.iter().map(|pair| format!("{}\n", serde_json::json!([pair.0, pair.1]))).collect();
    fs::write(&path, lines).unwrap();
    path
}

/// Returns the scores that the program shows, one call per pair.
fn scores(model: &Path, pairs: &[(String, String)]) -> Vec<f32> {
    let selector = Selector::open("scorer", model, DeviceChoice::Cpu, Some(Precision::F32)).unwrap();
    let score = |(query, response): &(String, String)| {
        let outputs = selector.select(&[query], &[response]).unwrap().outputs;
        selector.activation().apply(outputs[0])
    };
    pairs.iter().map(score).collect()
}

#[track_caller]
fn agree(ours: &[f32], theirs: &[f32], pairs: &[(String, String)], what: &str) {
    assert_eq!(ours.len(), theirs.len());
    for ((a, b), pair) in ours.iter().zip(theirs).zip(pairs) {
        assert!((a - b).abs() < CLOSE, "{what}: {a} and {b} for {pair:?}");
    }
    let (low, high) = theirs.iter().fold((f32::MAX, f32::MIN), |(low, high), s| (low.min(*s), high.max(*s)));
    assert!(high - low > 1e-3, "{what}: all scores are nearly equal");
}

fn parsed(output: &str) -> Vec<f32> {
    serde_json::from_str(output).unwrap()
}

#[test]
fn cross_encoders_have_the_scores_of_sentence_transformers() {
    let Some(peers) = Peers::find("cross_encoders_have_the_scores_of_sentence_transformers") else { return };
    let (work, pairs) = (Work::new(), pairs());
    let file = write_pairs(&work, &pairs);
    let folder = work.path("scorers");
    fs::create_dir(&folder).unwrap();
    let names = peers.reference(&["scorers", text(&file), text(&folder)]);
    assert_eq!(names.lines().count(), 9);
    for name in names.lines() {
        let model = folder.join(name);
        assert!(is_selector(&model));
        let theirs = parsed(&peers.reference(&["scores", text(&model), text(&file)]));
        agree(&scores(&model, &pairs), &theirs, &pairs, name);
    }
}

#[test]
fn a_selector_of_tokens_opens_in_sentence_transformers_with_the_same_scores() {
    let test = "a_selector_of_tokens_opens_in_sentence_transformers_with_the_same_scores";
    let (Some(peers), Some(models)) = (Peers::find(test), Models::find(test)) else { return };
    let pairs = pairs();
    for name in ["bert-mean", "roberta", "xlm-roberta", "distilbert", "mpnet"] {
        let work = Work::new();
        let start = work.path("start");
        let base = ModelFolder::open(&models.folder(name)).unwrap();
        let additions = Additions { separator: true, token: Some(EOU), segments: 0 };
        save_extended(&base, name, additions, &start).unwrap();
        let base = ModelFolder::open(&start).unwrap();
        let (network, tokenizer) = (base.network().unwrap(), base.tokenizer().unwrap());
        let numbers = |seed: usize, count: usize| -> Vec<f32> {
            (0..count).map(|n| ((n * 37 + seed * 11) as f32 * 0.61).sin() * 0.4).collect()
        };
        let width = network.shape.hidden;
        let architecture = base.config().architecture;
        let hidden = (numbers(1, width * width), numbers(2, width), HeadActivation::of(architecture));
        let head = Head {
            hidden: Some(hidden),
            norm: None,
            weight: numbers(3, width),
            bias: 0.3,
            scales: None,
            pooling: HeadPooling::First,
        };
        let settings = SelectorSettings {
            history: History::Tokens,
            max_tokens: base.config().max_tokens(),
            // The tokenizer of XLM-RoBERTa adds a space around a special token within a text.
            divider: if name == "xlm-roberta" { Divider::None } else { Divider::Eou },
            head: HeadKind::Pooler,
            sentences: None,
        };
        let saved = SavedSelector {
            architecture,
            pipeline: base.pipeline(),
            tokenizer: &tokenizer,
            trained: Trained { network: &network, sentence_network: None, head: &head, settings: &settings },
            base: Some(name),
        };
        let target = work.path("saved");
        save_selector(&target, &saved).unwrap();
        // A turn of the context ends with [EOU], which the tokenizer recognizes within a text. The tokenizers of these
        // models return no tokens for some texts; a context needs at least one.
        let spoken = |(query, response): &&(String, String)| {
            // The selector gives a response at most half of the sequence.
            !tokenizer.pieces(query).unwrap().is_empty() && query.len() < 45 && response.len() < 45
        };
        let short: Vec<(String, String)> = pairs[..60].iter().filter(spoken).cloned().collect();
        let eou = if settings.divider == Divider::Eou { EOU } else { "" };
        let theirs: Vec<(String, String)> =
            short.iter().map(|(query, response)| (format!("{query}{eou}"), response.clone())).collect();
        let file = write_pairs(&work, &theirs);
        let theirs = parsed(&peers.reference(&["scores", text(&target), text(&file)]));
        agree(&scores(&target, &short), &theirs, &short, name);
    }
}

#[test]
fn the_stored_cross_encoder_has_the_stored_scores() {
    let (pairs, file) = (pairs(), fixture().join("scores.json"));
    if std::env::var_os("TURNWISE_WRITE_FIXTURE").is_some() {
        let peers = Peers::find("the_stored_cross_encoder_has_the_stored_scores").unwrap();
        let work = Work::new();
        let made = write_pairs(&work, &pairs);
        peers.reference(&["scorers", text(&made), text(&work.path("")), "small"]);
        let _ = fs::remove_dir_all(fixture());
        fs::create_dir_all(fixture()).unwrap();
        for entry in fs::read_dir(work.path("bert")).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != "README.md" {
                fs::copy(entry.path(), fixture().join(entry.file_name())).unwrap();
            }
        }
        let scores = parsed(&peers.reference(&["scores", text(&fixture()), text(&made)]));
        let lines: Vec<serde_json::Value> = pairs
            .iter()
            .zip(scores)
            .map(|(pair, score)| serde_json::json!([pair.0, pair.1, score]))
            .collect();
        fs::write(&file, format!("{:#}\n", serde_json::Value::Array(lines))).unwrap();
    }
    let stored: Vec<(String, String, f32)> =
        serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let pairs: Vec<(String, String)> = stored.iter().map(|(a, b, _)| (a.clone(), b.clone())).collect();
    let theirs: Vec<f32> = stored.iter().map(|(.., score)| *score).collect();
    agree(&scores(&fixture(), &pairs), &theirs, &pairs, "the stored cross-encoder");
}
