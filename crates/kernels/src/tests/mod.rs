//! Compares the engine with the reference implementation, at every SIMD level of this processor.

mod kernels;

use turnwise_core::{Error, vectors::cosine};

use crate::{
    Batch, CpuEngine, InputVectors, Network, Precision, Sequence, SimdChoice, SimdLevel,
    network::{Activation, LinearBias, Norm, NormKind, NormOrder, RelativeBias, Rotary, Shape, Table},
    reference,
};

fn shape(hidden: usize, heads: usize, intermediate: usize, activation: Activation) -> Shape {
    Shape { activation, ..Shape::bert(hidden, heads, intermediate) }
}

fn engine(network: &Network, precision: Precision, level: SimdLevel) -> CpuEngine {
    CpuEngine::new(network, precision, SimdChoice::Level(level)).unwrap()
}

/// Returns a sequence of `n` pseudo-random token ids.
fn sequence(n: usize, vocabulary: u32) -> Sequence {
    Sequence::new((0..n as u32).map(|i| (i * 37 + n as u32 * 11) % vocabulary).collect())
}

/// Returns the hidden states after layer `layers`, for all sequences one after the other.
fn last(engine: &CpuEngine, layers: usize, sequences: &[Sequence]) -> Vec<f32> {
    let sequences: Vec<&Sequence> = sequences.iter().collect();
    let mut out = Vec::new();
    engine.run(&Batch::new(&sequences), &[layers], &mut |_, states| out.extend(states)).unwrap();
    out
}

/// Returns the largest absolute difference between the hidden states of the engine and of the reference, over all
/// layers.
fn distance(network: &Network, engine: &CpuEngine, sequences: &[Sequence]) -> f64 {
    let expected: Vec<_> = sequences.iter().map(|s| reference::states(network, s)).collect();
    let layers: Vec<usize> = (0..=network.layers.len()).collect();
    let refs: Vec<&Sequence> = sequences.iter().collect();
    let (mut worst, mut seen) = (0.0f64, Vec::new());
    engine
        .run(&Batch::new(&refs), &layers, &mut |layer, states| {
            seen.push(layer);
            let rows = expected.iter().flat_map(|e| &e[layer]).flatten();
            assert_eq!(states.len(), rows.clone().count());
            for (a, b) in states.iter().zip(rows) {
                assert!(a.is_finite());
                worst = worst.max((f64::from(*a) - b).abs());
            }
        })
        .unwrap();
    assert_eq!(seen, layers);
    worst
}

#[test]
fn f32_is_accurate_at_odd_sizes() {
    use Activation::{Gelu, GeluTanh, Relu};
    let sizes = [
        (shape(24, 3, 50, Gelu), 3),
        (shape(24, 3, 50, GeluTanh), 2),
        (shape(24, 3, 50, Relu), 2),
        (shape(10, 5, 7, Gelu), 2),
        (shape(96, 3, 200, Gelu), 2),
        (shape(128, 2, 130, GeluTanh), 1),
    ];
    let sequences = [1, 2, 3, 7, 8, 9, 17, 40, 1].map(|n| sequence(n, 60));
    for (shape, layers) in sizes {
        let network = Network::random(shape, layers, 60, 50, 5);
        for level in SimdLevel::here() {
            let worst = distance(&network, &engine(&network, Precision::F32, level), &sequences);
            assert!(worst < 5e-6, "{:?} at {level}: {worst}", network.shape);
        }
    }
}

#[test]
fn input_vectors_replace_word_embeddings() {
    let network = Network::random(shape(24, 3, 50, Activation::Gelu), 2, 60, 50, 5);
    let with = |n: usize, tokens: &[u32]| {
        let elements = (0..tokens.len() * 24).map(|i| (i as f32 * 0.37).sin()).collect();
        Sequence { vectors: Some(InputVectors { tokens: tokens.to_vec(), elements }), ..sequence(n, 60) }
    };
    let sequences = [with(9, &[1, 3, 8]), sequence(4, 60), with(5, &[0, 1, 2, 3, 4]), with(3, &[])];
    for level in SimdLevel::here() {
        let worst = distance(&network, &engine(&network, Precision::F32, level), &sequences);
        assert!(worst < 5e-6, "{level}: {worst}");
    }
    let engine = engine(&network, Precision::F32, SimdLevel::Portable);
    assert!(last(&engine, 2, &[with(9, &[1])]) != last(&engine, 2, &[sequence(9, 60)]));
    for tokens in [[3, 3], [4, 3], [3, 9]] {
        let run = engine.run(&Batch::new(&[&with(9, &tokens)]), &[2], &mut |_, _| ());
        assert!(matches!(run, Err(Error::Internal(_))), "{tokens:?}");
    }
}

#[test]
fn f32_is_accurate_at_the_sizes_of_real_models() {
    for (hidden, layers) in [(384, 2), (768, 1)] {
        let network = Network::random(shape(hidden, 12, 4 * hidden, Activation::Gelu), layers, 40, 30, 6);
        let sequences = [5, 1, 26].map(|n| sequence(n, 40));
        for level in SimdLevel::here() {
            let worst = distance(&network, &engine(&network, Precision::F32, level), &sequences);
            assert!(worst < 1e-5, "{hidden} at {level}: {worst}");
        }
    }
}

#[test]
fn all_embedding_tables_are_used() {
    let mut network = Network::random(shape(24, 3, 40, Activation::Gelu), 1, 30, 20, 7);
    network.shape.first_position = 2;
    let table = |rows: usize| Table { rows, data: (0..rows * 24).map(|i| (i % 17) as f32 / 9.0).collect() };
    network.embeddings.positions = Some(table(22));
    network.embeddings.turns = Some(table(5));
    network.embeddings.roles = Some(table(3));
    let mut full = sequence(6, 30);
    full.types = Some(vec![0, 1, 1, 0, 1, 0]);
    full.positions = Some(vec![19, 3, 3, 0, 1, 7]);
    full.turns = Some(vec![0, 1, 2, 3, 4, 0]);
    full.roles = Some(vec![2, 1, 0, 0, 1, 2]);
    let engine = CpuEngine::new(&network, Precision::F32, SimdChoice::Auto).unwrap();
    let worst = distance(&network, &engine, &[full, sequence(20, 30)]);
    assert!(worst < 5e-6, "{worst}");
}

/// Adds a relative position bias with pseudo-random numbers.
fn with_bias(mut network: Network) -> Network {
    let heads = network.shape.heads;
    let data = (0..RelativeBias::BUCKETS * heads).map(|i| 2.0 * (i as f32 * 1.7).sin()).collect();
    network.relative_bias = Some(RelativeBias { heads, data });
    network
}

#[test]
fn a_relative_position_bias_is_added_to_the_scores() {
    for (shape, layers) in
        [(shape(24, 3, 50, Activation::Gelu), 3), (shape(128, 2, 130, Activation::GeluTanh), 1)]
    {
        let network = with_bias(Network::random(shape, layers, 60, 210, 5));
        let sequences = [1, 2, 3, 17, 40, 64, 65, 210, 1].map(|n| sequence(n, 60));
        for level in SimdLevel::here() {
            let engine = engine(&network, Precision::F32, level);
            let worst = distance(&network, &engine, &sequences);
            assert!(worst < 1e-5, "{level}: {worst}");
        }
    }
    let network = with_bias(Network::random(shape(16, 2, 32, Activation::Relu), 1, 20, 10, 11));
    let mut long = sequence(11, 20);
    long.positions = Some(vec![0; 11]);
    let engine = CpuEngine::new(&network, Precision::F32, SimdChoice::Auto).unwrap();
    let error = engine.run(&Batch::new(&[&long]), &[1], &mut |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("11 tokens; the maximum of the model is 10"), "{error}");
    let mut broken = network;
    broken.relative_bias.as_mut().unwrap().data.pop();
    assert!(CpuEngine::new(&broken, Precision::F32, SimdChoice::Auto).is_err());
}

/// Returns a network with a rotary position embedding. With [`NormOrder::Before`], every second layer has a window.
fn with_rotary(shape: Shape, order: NormOrder, layers: usize, tokens: usize) -> Network {
    let rotary = Rotary { max_tokens: tokens, base: 160_000.0, window_base: 10_000.0, divisor: 1.5 };
    let shape = Shape { norm_order: order, rotary: Some(rotary), ..shape };
    let mut network = Network::random(shape, layers, 60, tokens, 5);
    if order == NormOrder::Before {
        network.layers.iter_mut().skip(1).step_by(2).for_each(|layer| layer.window = Some(5));
    }
    network
}

#[test]
fn rotary_positions_gates_windows_and_norms_before_sublayers_are_accurate() {
    let shapes = [
        (shape(24, 3, 50, Activation::Gelu), 4),
        (shape(12, 6, 7, Activation::Silu), 3),
        (shape(128, 2, 130, Activation::GeluTanh), 2),
    ];
    for (shape, layers) in shapes {
        for order in [NormOrder::After, NormOrder::Before] {
            let network = with_rotary(shape.clone(), order, layers, 210);
            let mut given = sequence(6, 60);
            given.positions = Some(vec![0, 1, 0, 1, 2, 209]);
            let mut sequences: Vec<_> = [1, 2, 3, 17, 40, 64, 65, 210, 1].map(|n| sequence(n, 60)).into();
            sequences.push(given);
            for level in SimdLevel::here() {
                let worst = distance(&network, &engine(&network, Precision::F32, level), &sequences);
                assert!(worst < 2e-5, "{order:?}, {:?} at {level}: {worst}", network.shape);
            }
        }
    }
    let network = with_rotary(shape(16, 2, 32, Activation::Relu), NormOrder::Before, 2, 10);
    let engine = CpuEngine::new(&network, Precision::F32, SimdChoice::Auto).unwrap();
    let error = engine.run(&Batch::new(&[&sequence(11, 20)]), &[1], &mut |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("11 tokens; the maximum of the model is 10"), "{error}");
    let mut broken = network;
    broken.shape.rotary = None;
    assert!(CpuEngine::new(&broken, Precision::F32, SimdChoice::Auto).is_err());
}

/// Returns a network with the parts of decoders: RMS norms, also of heads and of the outputs of sublayers, heads that are
/// not as wide as the hidden states, groups of heads that share a key head, and no norm of the embeddings.
fn decoder(hidden: usize, key_heads: usize, head_size: usize, causal: bool) -> Network {
    let rotary = Rotary { max_tokens: 210, base: 10_000.0, window_base: 1000.0, divisor: 1.0 };
    let shape = Shape {
        key_heads,
        head_size,
        causal,
        norm_order: NormOrder::Before,
        norm_kind: NormKind::Rms,
        rotary: Some(rotary),
        activation: Activation::Silu,
        ..Shape::bert(hidden, 6, 2 * hidden + 2)
    };
    let mut network = Network::random(shape, 3, 60, 210, 5);
    network.embeddings.norm = None;
    let norm = |n: usize| {
        let weight = (0..n).map(|i| 1.0 + 0.3 * (i as f32 * 1.3).sin()).collect();
        Norm { weight, bias: vec![0.0; n] }
    };
    for layer in &mut network.layers {
        layer.attention_norm.get_or_insert_with(|| norm(hidden));
        layer.head_norms = Some([norm(head_size), norm(head_size)]);
        layer.result_norms = (!causal).then(|| [norm(hidden), norm(hidden)]);
    }
    network.layers[1].window = (key_heads < 6).then_some(7);
    network
}

#[test]
fn a_linear_bias_is_added_to_the_scores() {
    for (shape, layers) in
        [(shape(24, 3, 50, Activation::Gelu), 3), (shape(128, 4, 130, Activation::Gelu), 1)]
    {
        let shape = Shape { linear_bias: Some(LinearBias { max_tokens: 210 }), ..shape };
        let network = Network::random(shape, layers, 60, 210, 5);
        assert!(network.embeddings.positions.is_none());
        let sequences = [1, 2, 3, 17, 40, 64, 65, 210, 1].map(|n| sequence(n, 60));
        for level in SimdLevel::here() {
            let worst = distance(&network, &engine(&network, Precision::F32, level), &sequences);
            assert!(worst < 1e-5, "{level}: {worst}");
        }
    }
}

#[test]
fn parts_of_decoders_are_accurate() {
    for (key_heads, head_size, causal) in [(6, 4, true), (2, 8, true), (1, 20, false), (3, 34, true)] {
        let network = decoder(24, key_heads, head_size, causal);
        let sequences: Vec<_> = [1, 2, 3, 17, 40, 64, 65, 210, 1].map(|n| sequence(n, 60)).into();
        for level in SimdLevel::here() {
            let worst = distance(&network, &engine(&network, Precision::F32, level), &sequences);
            assert!(worst < 2e-5, "{:?} at {level}: {worst}", network.shape);
        }
    }
    let mut broken = decoder(24, 2, 8, true);
    broken.shape.key_heads = 4;
    assert!(CpuEngine::new(&broken, Precision::F32, SimdChoice::Auto).is_err());
    let mut broken = decoder(24, 2, 8, true);
    broken.layers[0].head_norms.as_mut().unwrap()[1].weight.pop();
    assert!(CpuEngine::new(&broken, Precision::F32, SimdChoice::Auto).is_err());
}

#[test]
fn a_causal_network_does_not_look_ahead() {
    let network = decoder(24, 2, 8, true);
    let (one, two) = (sequence(200, 60), sequence(200, 60));
    let two = Sequence { ids: [&two.ids[..150], &[3; 50]].concat(), ..two };
    for level in SimdLevel::here() {
        for precision in [Precision::F32, Precision::Bf16, Precision::Int8] {
            let engine = engine(&network, precision, level);
            let [one, two] = [&one, &two].map(|s| last(&engine, 3, std::slice::from_ref(s)));
            assert!(one[..150 * 24] == two[..150 * 24], "{precision} at {level}");
            assert!(one[150 * 24..] != two[150 * 24..]);
        }
    }
}

#[test]
fn a_window_hides_all_other_tokens() {
    let mut network = with_rotary(shape(32, 2, 64, Activation::Gelu), NormOrder::Before, 1, 400);
    network.layers[0].window = Some(70);
    let (mut one, mut two) = (sequence(300, 60), sequence(300, 60));
    one.ids[290] = 3;
    two.ids[290] = 4;
    for level in SimdLevel::here() {
        for precision in [Precision::F32, Precision::Bf16, Precision::Int8] {
            let engine = engine(&network, precision, level);
            let [one, two] = [&one, &two].map(|s| last(&engine, 1, std::slice::from_ref(s)));
            let differ: Vec<usize> =
                (0..300).filter(|i| one[i * 32..][..32] != two[i * 32..][..32]).collect();
            assert_eq!(differ, (220..300).collect::<Vec<_>>(), "{precision} at {level}");
        }
    }
}

#[test]
fn results_are_identical_with_any_number_of_threads() {
    let network = Network::random(shape(384, 12, 1536, Activation::Gelu), 2, 60, 120, 8);
    let all: Vec<Sequence> = [3, 110, 1, 60].map(|n| sequence(n, 60)).into();
    let sequences: Vec<&Sequence> = all.iter().collect();
    for level in SimdLevel::here() {
        for precision in [Precision::F32, Precision::Bf16, Precision::Int16, Precision::Int8] {
            let engine = engine(&network, precision, level);
            let alone = last(&engine, 2, &all);
            for threads in [2, 3, 64] {
                let batch = Batch { sequences: &sequences, threads };
                engine
                    .run(&batch, &[2], &mut |_, states| {
                        assert!(states == alone, "{precision} at {level} over {threads} threads");
                    })
                    .unwrap();
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_the_other_sequences_of_a_batch() {
    let network = Network::random(shape(48, 3, 100, Activation::Gelu), 2, 60, 300, 8);
    let all: Vec<Sequence> = [3, 1, 290, 12, 50, 1, 7].map(|n| sequence(n, 60)).into();
    for level in SimdLevel::here() {
        for precision in [Precision::F32, Precision::Bf16, Precision::Int16, Precision::Int8] {
            let engine = engine(&network, precision, level);
            let together = last(&engine, 2, &all);
            let alone: Vec<f32> =
                all.iter().flat_map(|s| last(&engine, 2, std::slice::from_ref(s))).collect();
            assert!(together == alone, "{precision} at {level}");
        }
    }
}

#[test]
fn first_tokens_have_the_states_that_a_run_over_all_tokens_gives_them() {
    let networks = [
        Network::random(shape(48, 3, 100, Activation::Gelu), 2, 60, 300, 8),
        Network::random(shape(96, 3, 200, Activation::Relu), 2, 60, 300, 8),
        with_rotary(shape(48, 3, 100, Activation::Gelu), NormOrder::Before, 2, 300),
    ];
    for network in networks {
        let hidden = network.shape.hidden;
        let all: Vec<Sequence> = [3, 1, 290, 12, 50, 1, 7].map(|n| sequence(n, 60)).into();
        let sequences: Vec<&Sequence> = all.iter().collect();
        for level in SimdLevel::here() {
            for precision in [Precision::F32, Precision::Bf16, Precision::Int16, Precision::Int8] {
                let engine = engine(&network, precision, level);
                for layer in [1, 2] {
                    let states = last(&engine, layer, &all);
                    let (mut start, mut expected) = (0, Vec::new());
                    for sequence in &all {
                        expected.extend_from_slice(&states[start * hidden..][..hidden]);
                        start += sequence.len();
                    }
                    for threads in [1, 2] {
                        let (mut got, batch) = (Vec::new(), Batch { sequences: &sequences, threads });
                        engine
                            .first_tokens(&batch, layer, &mut |states| got.extend_from_slice(states))
                            .unwrap();
                        assert!(got == expected, "{precision} at {level}, layer {layer}, {threads} threads");
                    }
                }
            }
        }
    }
    let network = Network::random(shape(16, 2, 32, Activation::Relu), 1, 20, 10, 11);
    let engine = engine(&network, Precision::F32, SimdLevel::Portable);
    let run = |layer| engine.first_tokens(&Batch::new(&[&sequence(4, 20)]), layer, &mut |_| ());
    assert!(matches!(run(0), Err(Error::Internal(_))) && matches!(run(2), Err(Error::Input { .. })));
}

#[test]
fn lower_precisions_are_close_to_f32() {
    let plain = Network::random(shape(96, 3, 384, Activation::Gelu), 4, 60, 50, 9);
    let rotary = |order| with_rotary(shape(96, 3, 384, Activation::Gelu), order, 4, 50);
    let networks = [plain.clone(), with_bias(plain), rotary(NormOrder::After), rotary(NormOrder::Before)];
    // The heads of this network are normalized.
    let decoder = decoder(192, 2, 32, true);
    for network in networks.into_iter().chain([decoder]) {
        let (layers, hidden) = (network.layers.len(), network.shape.hidden);
        let sequences: Vec<Sequence> = (1..40).map(|n| sequence(n, 60)).collect();
        let expected = last(&engine(&network, Precision::F32, SimdLevel::Portable), layers, &sequences);
        for level in SimdLevel::here() {
            for (precision, near) in
                [(Precision::Bf16, 0.9999), (Precision::Int16, 0.999_999), (Precision::Int8, 0.99)]
            {
                let got = last(&engine(&network, precision, level), layers, &sequences);
                let rows = expected.chunks(hidden).zip(got.chunks(hidden));
                let least = rows.map(|(a, b)| cosine(a, b)).fold(1.0, f32::min);
                assert!(least > near, "{precision} at {level}: {least}");
            }
        }
    }
}

#[test]
fn layers_above_the_last_requested_one_are_skipped_and_workspaces_are_reused() {
    let network = Network::random(shape(16, 2, 32, Activation::Relu), 3, 20, 20, 10);
    let mut cut = network.clone();
    cut.layers.truncate(1);
    let s = [sequence(9, 20)];
    let engine = engine(&network, Precision::F32, SimdLevel::Portable);
    let first = last(&engine, 3, &s);
    assert_eq!(last(&engine, 1, &s), last(&self::engine(&cut, Precision::F32, SimdLevel::Portable), 1, &s));
    assert_eq!(last(&engine, 3, &s), first);
    engine.run(&Batch::new(&[]), &[1], &mut |_, _| unreachable!()).unwrap();
    engine.run(&Batch::new(&[&s[0]]), &[], &mut |_, _| unreachable!()).unwrap();
}

#[test]
fn invalid_input_is_an_error() {
    let network = Network::random(shape(16, 2, 32, Activation::Relu), 1, 20, 10, 11);
    let engine = engine(&network, Precision::F32, SimdLevel::Portable);
    let refused = |change: &dyn Fn(&mut Sequence), layers: &[usize], says: &str| {
        let mut s = sequence(4, 20);
        change(&mut s);
        let e = engine.run(&Batch::new(&[&s]), layers, &mut |_, _| ()).unwrap_err();
        assert!(matches!(e, Error::Input { .. }), "{e}");
        assert!(e.to_string().contains(says), "{e}");
    };
    refused(&|s| s.ids.clear(), &[1], "without tokens");
    refused(&|s| s.ids = vec![0; 11], &[1], "11 tokens");
    refused(&|s| s.ids[2] = 20, &[1], "no token 20");
    refused(&|s| s.types = Some(vec![0, 0, 0, 2]), &[1], "no segment 2");
    refused(&|s| s.types = Some(vec![0; 3]), &[1], "3 segment ids");
    refused(&|s| s.turns = Some(vec![0, 0, 1, 0]), &[1], "no turn 1");
    refused(&|s| s.positions = Some(vec![0, 1, 2, 10]), &[1], "no position 10");
    refused(&|_| (), &[2], "layer 2");

    let f16 = CpuEngine::new(&network, Precision::F16, SimdChoice::Auto).err().unwrap();
    assert!(matches!(f16, Error::Input { hint: Some(hint), .. } if hint.contains("int16")));
    let mut broken = network.clone();
    broken.layers[0].output.bias.pop();
    let broken = CpuEngine::new(&broken, Precision::F32, SimdChoice::Auto).err().unwrap();
    assert!(matches!(broken, Error::Data { .. }), "{broken}");
}

#[test]
fn describe_names_precision_and_level() {
    let network = Network::random(shape(16, 2, 32, Activation::Relu), 1, 20, 10, 12);
    let engine = engine(&network, Precision::Int16, SimdLevel::Portable);
    assert_eq!(engine.describe(), "int16 on cpu (portable)");
    assert_eq!((engine.hidden(), engine.level()), (16, SimdLevel::Portable));
}
