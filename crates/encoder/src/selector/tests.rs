//! Tests of selectors with small random networks.

use tempfile::TempDir;

use super::*;
use crate::{
    Vectors,
    folder::{Additions, save_extended, tests::Builder},
};

/// Saves a selector with a random head, and opens it.
fn selector(settings: SelectorSettings) -> (TempDir, Selector) {
    let folder = tempfile::tempdir().unwrap();
    let start = folder.path().join("start");
    let mut base = Builder::bert();
    let base = base.open().unwrap();
    let additions = Additions { separator: true, token: Some(EOU), segments: SENTENCE_SEGMENTS };
    save_extended(&base, "base", additions, &start).unwrap().unwrap();
    let base = ModelFolder::open(&start).unwrap();
    let network = base.network().unwrap();
    let width = network.shape.hidden;
    let numbers = |count: usize| (0..count).map(|n| ((n * 7 + 3) as f32).sin()).collect::<Vec<f32>>();
    let head = Head {
        hidden: (settings.head == HeadKind::Pooler)
            .then(|| (numbers(width * width), numbers(width), HeadActivation::Tanh)),
        norm: None,
        weight: numbers(width),
        bias: 0.25,
        scales: (settings.head == HeadKind::Matching).then_some(Scales {
            turns: 3.0,
            context: 2.0,
            tokens: 2.5,
        }),
        pooling: HeadPooling::First,
    };
    let is_frozen = settings.sentences.is_some_and(|sentences| sentences.frozen);
    let other = other_network(&network);
    let saved = SavedSelector {
        trained: Trained {
            network: &network,
            sentence_network: is_frozen.then_some(&other),
            head: &head,
            settings: &settings,
        },
        architecture: base.config().architecture,
        pipeline: base.pipeline(),
        tokenizer: &base.tokenizer().unwrap(),
        base: None,
    };
    let path = folder.path().join("selector");
    save_selector(&path, &saved).unwrap();
    assert!(is_selector(&path) && !is_selector(&start));
    let selector = Selector::open("x", &path, DeviceChoice::Cpu, Some(Precision::F32)).unwrap();
    assert_eq!((selector.settings(), &selector.head), (&settings, &head));
    (folder, selector)
}

/// Returns a network of the same shape with other values.
fn other_network(network: &Network) -> Network {
    let mut other = network.clone();
    other.layers.reverse();
    other
}

fn settings(history: History, head: HeadKind) -> SelectorSettings {
    let sentences = SentenceSettings { max_tokens: 6, own_segment: true, ..SentenceSettings::default() };
    SelectorSettings {
        history,
        max_tokens: 18,
        divider: Divider::Eou,
        head,
        sentences: (history == History::Sentences).then_some(sentences),
    }
}

#[test]
fn scores_do_not_depend_on_the_other_responses_and_contexts() {
    for history in [History::Tokens, History::Sentences] {
        for head in [HeadKind::Pooler, HeadKind::Cls, HeadKind::Matching] {
            let (_folder, selector) = selector(settings(history, head));
            let contexts: [&[&str]; 3] =
                [&["hello world", "a b"], &["c"], &["a", "b", "c", "hello", "a b c"]];
            let responses = ["hello", "a b c", "", "world world world world world world world"];
            let samples: Vec<Sample> =
                contexts.iter().map(|context| Sample::new(context, &responses)).collect();
            let all = selector.select_all(&samples).unwrap();
            for (context, together) in contexts.iter().zip(&all) {
                assert_eq!(together.outputs.len(), 4);
                for (response, output) in responses.iter().zip(&together.outputs) {
                    let alone = selector.select(context, &[response]).unwrap().outputs[0];
                    assert!((alone - output).abs() < 1e-5, "{history:?} {head:?}: {alone} {output}");
                }
            }
            assert!(all[0].outputs != all[1].outputs);
            assert_eq!(all[0].outputs, selector.select(contexts[0], &responses).unwrap().outputs);
        }
    }
}

#[test]
fn a_long_context_keeps_its_last_turns() {
    for history in [History::Tokens, History::Sentences] {
        let (_folder, selector) = selector(settings(history, HeadKind::Cls));
        let long: Vec<&str> = ["a", "b", "c", "hello"].into_iter().cycle().take(40).collect();
        let changed: Vec<&str> = ["world"].into_iter().chain(long[1..].iter().copied()).collect();
        let (whole, other) =
            (selector.select(&long, &["a"]).unwrap(), selector.select(&changed, &["a"]).unwrap());
        // The first turn is cut off, so it has no effect; a cut context is counted.
        assert_eq!(whole, other);
        assert!(whole.cut_context >= 30, "{whole:?}");
        assert!(whole.cut_responses.is_empty());
        // 18 inputs without 3 special tokens and the response hold 7 turns with their [EOU].
        let kept = selector.select(&long[33..], &["a"]).unwrap();
        assert_eq!((kept.outputs, kept.cut_context), (whole.outputs, 0));
        let response = "b ".repeat(200);
        assert_eq!(selector.select(&["a"], &[&response]).unwrap().cut_responses, [0]);
    }
}

#[test]
fn blank_turns_are_skipped_and_a_context_without_text_is_an_error() {
    for history in [History::Tokens, History::Sentences] {
        let (_folder, selector) = selector(settings(history, HeadKind::Cls));
        let with_blank = selector.select(&["a", " ", "b"], &["c"]).unwrap();
        assert_eq!(with_blank, selector.select(&["a", "b"], &["c"]).unwrap());
        let error = selector.select(&["", " "], &["c"]).unwrap_err().to_string();
        assert!(error.contains("nothing to answer"), "{error}");
        assert!(selector.select(&["a"], &[]).unwrap().outputs.is_empty());
    }
}

#[test]
fn responses_beyond_the_most_similar_ones_are_not_read_and_come_last() {
    let (_folder, selector) = selector(settings(History::Tokens, HeadKind::Matching));
    let texts: Vec<String> =
        (0..40).map(|n| ["a", "b", "c", "hello", "world"][n % 5].repeat(n / 5 + 1)).collect();
    let responses: Vec<&str> = texts.iter().map(String::as_str).collect();
    let context = ["hello world", "a b"];
    let all = selector.select(&context, &responses).unwrap();
    let alone = |n: usize| selector.select(&context, &responses[n..=n]).unwrap().outputs[0];
    let mut order: Vec<usize> = (0..40).collect();
    order.sort_by(|a, b| all.outputs[*b].total_cmp(&all.outputs[*a]));
    let exact = |n: &usize| (alone(*n) - all.outputs[*n]).abs() < 1e-5;
    assert!(order[..16].iter().all(exact), "{:?}", all.outputs);
    assert_eq!(selector.select(&context, &responses[..16]).unwrap().outputs.len(), 16);
    // Fewer responses are read if the context is long.
    assert_eq!([0, 192, 193, 512, 10_000].map(select::most_read), [16, 16, 15, 6, 4]);
    let inputs = |history, max_tokens| {
        let settings = SelectorSettings { max_tokens, ..settings(history, HeadKind::Matching) };
        let layout = Layout::with_tokens(settings, LayoutTokens { eou: Some(9), ..LayoutTokens::default() });
        layout.context_inputs(&[&[1, 2, 3], &[4, 5]])
    };
    let all = [History::Tokens, History::Sentences].map(|history| [inputs(history, 100), inputs(history, 3)]);
    assert_eq!(all, [[7, 3], [4, 3]]);
    // Without scores before reading, all are read.
    assert_eq!(select::read_first(&[], 40, usize::MAX).len(), 40);
    let read = select::read_first(&[1.0, 5.0, 3.0], 3, 16);
    assert_eq!(read, [0, 1, 2]);
    let mut scores: Vec<f32> = (0..20).map(|n| n as f32).collect();
    let read = select::read_first(&scores, 20, 16);
    assert_eq!(read, (4..20).collect::<Vec<_>>());
    // The lowest score of a response that was read is 1 (6 - 5), so the scores of the others fall by 2.
    let outputs: Vec<f32> = (0..16).map(|n| if n == 2 { -5.0 } else { 0.5 }).collect();
    select::add_outputs(&mut scores, &read, &outputs);
    assert_eq!(scores[..8], [-2.0, -1.0, 0.0, 1.0, 4.5, 5.5, 1.0, 7.5]);
}

#[test]
fn a_context_that_is_encoded_as_one_text_keeps_its_last_tokens() {
    let (_folder, selector) = selector(settings(History::Tokens, HeadKind::Matching));
    let LayoutTokens { before, after, .. } = selector.layout.special_tokens().clone();
    let ids = |turns: &[&[u32]]| selector.layout.whole_context(turns).sequence.ids;
    let framed = |words: &[u32]| [&before, words, &after].concat();
    assert_eq!(ids(&[&[10, 11], &[12]]), framed(&[10, 11, after[0], 12]));
    // 18 tokens without the 2 special tokens around the text: the last 8 turns with 7 separators.
    let turns: Vec<Vec<u32>> = (10..40).map(|id| vec![id]).collect();
    let turns: Vec<&[u32]> = turns.iter().map(Vec::as_slice).collect();
    let last: Vec<u32> = (32..40).flat_map(|id| [after[0], id]).collect();
    assert_eq!(ids(&turns), framed(&last[1..]));
    let long: Vec<u32> = (10..40).collect();
    assert_eq!(ids(&[&[9], &long]), framed(&long[14..]));
    // Special tokens between the turns are not compared.
    assert_eq!(selector.layout.whole_context(&[&[10, 11], &[12]]).compared, [1, 2, 4]);
    // A text of special tokens only must not be empty, because an empty set has no maximum.
    assert_eq!(selector.layout.whole_context(&[&[after[0]]]).compared, [1]);
    // The mean of the last layer, as of a turn.
    assert_eq!(selector.layout.whole_context(&[&[10]]), selector.layout.utterance(&[10]));
}

#[test]
fn a_limit_of_context_tokens_keeps_the_last_ones() {
    for history in [History::Tokens, History::Sentences] {
        let (_folder, selector) = selector(settings(history, HeadKind::Cls));
        let context = ["a b c", "b c", "a b"];
        let last = |room| {
            let sample = Sample { last_tokens: Some(room), ..Sample::new(&context, &["c"]) };
            selector.select_all(&[sample]).unwrap().remove(0)
        };
        let cut = |tokens, turns| if history == History::Tokens { tokens } else { turns };
        let of = |context: &[&str], cut_context| Selected {
            cut_context,
            ..selector.select(context, &["c"]).unwrap()
        };
        assert_eq!(last(2), of(&["a b"], cut(5, 2)));
        assert_eq!(last(3), of(&["c", "a b"], cut(4, 1)));
        assert_eq!(last(6), of(&["b c", "b c", "a b"], cut(1, 0)));
        assert_eq!(last(7), of(&context, 0));
        assert_eq!(last(100), of(&context, 0));
    }
}

#[test]
fn a_sentence_vector_is_the_weighted_mean_of_two_layers() {
    let (_folder, selector) = selector(settings(History::Sentences, HeadKind::Cls));
    let turns =
        ["a b c", "hello"].map(|text| selector.layout.utterance(&selector.tokenizer.pieces(text).unwrap()));
    let vectors = selector.sentence_vectors(&turns).unwrap();
    let ids = selector.tokenizer.encode("a b c").unwrap().ids;
    let sequence = crate::Sequence::new(ids);
    let mut means = Vec::new();
    let batch = [&sequence];
    selector
        .engine
        .backend
        .run(&crate::Batch::new(&batch), &[1, 2], &mut |_, states| {
            let width = states.len() / sequence.len();
            let mean =
                |n: usize| states.chunks_exact(width).map(|row| row[n]).sum::<f32>() / sequence.len() as f32;
            means.push((0..width).map(mean).collect::<Vec<f32>>());
        })
        .unwrap();
    for (n, element) in vectors.row(0).iter().enumerate() {
        assert!((element - (0.4 * means[0][n] + 0.6 * means[1][n])).abs() < 1e-5);
    }
}

#[test]
fn frozen_sentence_vectors_come_from_a_network_of_their_own() {
    let of = |frozen| {
        let mut settings = settings(History::Sentences, HeadKind::Cls);
        settings.sentences.as_mut().unwrap().frozen = frozen;
        selector(settings)
    };
    let ((folder, frozen), (_folder, trained)) = (of(true), of(false));
    let network = ModelFolder::open(&folder.path().join("start")).unwrap().network().unwrap();
    let turns =
        ["a b c", "hello"].map(|text| frozen.layout.utterance(&frozen.tokenizer.pieces(text).unwrap()));
    let settings = frozen.layout.vector_settings();
    let vectors_of = |network: &Network| {
        let engine = Engine::new(network, DeviceChoice::Cpu, Some(Precision::F32)).unwrap();
        engine.sentence_vectors(&settings, &turns).unwrap()
    };
    let own = frozen.sentence_vectors(&turns).unwrap();
    assert!(own == vectors_of(&other_network(&network)));
    assert!(own != vectors_of(&network));
    assert!(trained.sentence_vectors(&turns).unwrap() == vectors_of(&network));
    assert_ne!(frozen.fingerprint(), trained.fingerprint());
    // The separate network changes the scores.
    let scores = |selector: &Selector| selector.select(&["a b c", "hello"], &["a", "b"]).unwrap().outputs;
    assert_ne!(scores(&frozen), scores(&trained));
    // A folder without it is damaged.
    let file = folder.path().join("selector/model.safetensors");
    std::fs::copy(folder.path().join("start/model.safetensors"), &file).unwrap();
    let path = folder.path().join("selector");
    let error = Selector::open("x", &path, DeviceChoice::Cpu, None).unwrap_err().to_string();
    assert!(error.contains("model.safetensors"), "{error}");
}

#[test]
fn similarities_equal_their_formulas() {
    let vectors = |seed: f32, rows: usize| {
        let flat: Vec<f32> = (0..rows * 37).map(|n| (n as f32 * seed).sin()).collect();
        Vectors::from_flat(37, flat).unwrap()
    };
    let (mut context, mut response) = (vectors(0.7, 5), vectors(1.3, 3));
    let smooth = |word: &[f32]| {
        let powers =
            context.rows().map(|row| f64::from(turnwise_core::vectors::cosine(row, word) / SOFTNESS).exp());
        f64::from(SOFTNESS) * powers.sum::<f64>().ln()
    };
    let each: Vec<f64> = response.rows().map(smooth).collect();
    let of_turns = f64::from(select::similarity(&context, response.row(0)));
    assert!((of_turns - each[0]).abs() < 1e-5, "{of_turns} {each:?}");
    context.normalize();
    response.normalize();
    let of_tokens = f64::from(select::similarity_of_tokens(&context, &response));
    assert!((of_tokens - each.iter().sum::<f64>() / 3.0).abs() < 1e-5, "{of_tokens} {each:?}");
    assert_eq!(select::similarity_of_tokens(&context, &Vectors::new(37)), 0.0);
}

#[test]
fn the_longer_text_of_a_pair_is_shortened_first() {
    let of = |first, second| super::layout::longest_first(first, second, 10);
    assert_eq!(
        [of(4, 6), of(4, 20), of(20, 4), of(20, 30), of(5, 6)],
        [(4, 6), (4, 6), (6, 4), (5, 5), (5, 5)]
    );
}
