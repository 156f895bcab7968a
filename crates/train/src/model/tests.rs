//! Compares the trainable network with the inference engine, and its two backward passes with each other.

use candle_core::{DType, Device};

use super::*;
use turnwise_encoder::{
    Batch, Precision, Sequence,
    cpu::{CpuEngine, SimdChoice},
    testing::small_shape,
};

fn network() -> Network {
    Network::random(small_shape(), 3, 50, 40, 3)
}

/// Returns networks without and with a relative position bias.
fn networks() -> [Network; 2] {
    let mut with_bias = network();
    let heads = with_bias.shape.heads;
    let data = (0..RelativeBias::BUCKETS * heads).map(|i| (i as f32 * 1.7).sin()).collect();
    with_bias.relative_bias = Some(RelativeBias { heads, data });
    [network(), with_bias]
}

fn sequences() -> Vec<Sequence> {
    [5u32, 1, 30].iter().map(|n| Sequence::new((0..*n).map(|i| (i * 7 + n) % 50).collect())).collect()
}

fn flat(t: &Tensor) -> Vec<f32> {
    t.flatten_all().unwrap().to_vec1().unwrap()
}

fn trainable(layers: usize, embeddings: bool) -> Trainable {
    trainable_of(network(), layers, embeddings)
}

fn trainable_of(network: Network, layers: usize, embeddings: bool) -> Trainable {
    let freezing = Freezing { layers, embeddings, memory: Some(1 << 20) };
    Trainable::new(network, freezing, &Device::Cpu, DType::F32).unwrap()
}

#[test]
fn states_equal_those_of_the_inference_engine() {
    for network in networks() {
        states_of_a_network_equal_those_of_the_inference_engine(&network);
    }
}

fn states_of_a_network_equal_those_of_the_inference_engine(network: &Network) {
    let sequences = sequences();
    let engine = CpuEngine::new(network, Precision::F32, SimdChoice::Auto).unwrap();
    let mut expected = Vec::new();
    let refs: Vec<&Sequence> = sequences.iter().collect();
    engine.run(&Batch::new(&refs), &[3], &mut |_, states| expected = states.to_vec()).unwrap();
    let packed = Packed::new(sequences);
    for (layers, embeddings) in [(0, false), (0, true), (1, true), (2, false)] {
        let trainable = trainable_of(network.clone(), layers, embeddings);
        // In the second iteration, the outputs of the frozen layers come from the cache.
        for _ in 0..2 {
            let states = flat(&trainable.states(&packed, None).unwrap());
            assert_eq!(states.len(), expected.len());
            for (a, b) in states.iter().zip(&expected) {
                assert!((a - b).abs() < 1e-5, "{layers} {embeddings}: {a} {b}");
            }
        }
    }
}

#[test]
fn the_backward_pass_equals_the_graph_and_frozen_layers_have_no_gradient() {
    for network in networks() {
        the_backward_pass_of_a_network_equals_the_graph(&network);
    }
}

fn the_backward_pass_of_a_network_equals_the_graph(network: &Network) {
    let packed = Packed::new(sequences());
    let all = 3 + 1 + 3 * 10 + usize::from(network.relative_bias.is_some());
    for (layers, embeddings, count) in [(0, false, all), (0, true, 3 * 10), (2, false, 10)] {
        let trainable = trainable_of(network.clone(), layers, embeddings);
        let names: Vec<&str> = trainable.parameters().iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names.len(), count, "{names:?}");
        let dropout = DropoutConfig { probability: 0.1, key: 5 };
        for dropout in [None, Some(&dropout)] {
            // Compare the states and gradients of the autograd graph with those of the passes that save activations.
            // Run these passes twice, so that buffers are reused.
            let graph = trainable.graph(PassInput::new(&packed), dropout).unwrap().states;
            // Use random weights: the plain sum of squares of normalized rows would be constant.
            let weights = crate::ops::tests::numbers(graph.dims2().unwrap(), 4);
            let of_states = ((graph.detach() * 2.0).unwrap() * &weights).unwrap();
            let mut expected =
                (graph.sqr().unwrap() * weights).unwrap().sum_all().unwrap().backward().unwrap();
            let expected = Gradients::take(&mut expected, trainable.parameters());
            for _ in 0..2 {
                let pass = trainable.run(PassInput::new(&packed), dropout).unwrap();
                for (a, b) in flat(&pass.states).iter().zip(flat(&graph)) {
                    assert!((a - b).abs() < 1e-5, "{a} {b}");
                }
                let (gradients, _) = trainable.backward(pass, &OfStates::of_last(of_states.clone())).unwrap();
                for (parameter, (ours, graphs)) in
                    trainable.parameters().iter().zip(gradients.each().zip(expected.each()))
                {
                    let (ours, graphs) = (flat(ours.unwrap()), flat(graphs.unwrap()));
                    assert!(ours.iter().all(|g| g.is_finite()), "{}", parameter.name);
                    assert!(ours.iter().any(|g| *g != 0.0), "{}", parameter.name);
                    // The rounding error of a sum is relative to its largest terms, so small
                    // gradients (sums that nearly cancel) have a large relative error.
                    let largest = graphs.iter().fold(1f32, |largest, g| largest.max(g.abs()));
                    for (a, b) in ours.iter().zip(&graphs) {
                        assert!((a - b).abs() < 5e-5 * largest, "{}: {a} {b}", parameter.name);
                    }
                }
            }
        }
    }
}

#[test]
fn dropout_depends_on_the_key() {
    let packed = Packed::new(sequences());
    let trainable = trainable(1, true);
    let of = |key| flat(&trainable.states(&packed, Some(&DropoutConfig { probability: 0.1, key })).unwrap());
    assert!(of(1) == of(1) && of(1) != of(2));
}

#[test]
fn frozen_layers_have_no_dropout_in_the_graph_either() {
    let packed = Packed::new(sequences());
    let dropout = DropoutConfig { probability: 0.1, key: 5 };
    for (layers, embeddings) in [(0, true), (1, true), (2, false)] {
        // In f64, candle runs all layers, including frozen layers, as on a GPU.
        let freezing = Freezing { layers, embeddings, memory: Some(1 << 20) };
        let other = Trainable::new(network(), freezing, &Device::Cpu, DType::F64).unwrap();
        let states = flat(&other.states(&packed, Some(&dropout)).unwrap());
        let expected = flat(&trainable(layers, embeddings).states(&packed, Some(&dropout)).unwrap());
        for (a, b) in states.iter().zip(&expected) {
            assert!((a - b).abs() < 1e-5, "{layers} {embeddings}: {a} {b}");
        }
    }
}

#[test]
fn the_network_contains_the_current_parameters() {
    let [_, start] = networks();
    let trainable = trainable_of(start.clone(), 0, false);
    assert_eq!(trainable.network().unwrap(), start);
    for parameter in trainable.parameters() {
        let numbers = parameter.numbers().unwrap();
        parameter.set(numbers.iter().map(|n| n + 1.0).collect()).unwrap();
    }
    let changed = trainable.network().unwrap();
    assert_eq!(changed.layers[2].value.weight[3], network().layers[2].value.weight[3] + 1.0);
    let bias = |network: &Network| network.embeddings.norm.as_ref().unwrap().bias[1];
    assert_eq!(bias(&changed), bias(&network()) + 1.0);
    let bias = |network: &Network| network.relative_bias.as_ref().unwrap().data[5];
    assert_eq!(bias(&changed), bias(&start) + 1.0);
    let again = Trainable::new(
        changed.clone(),
        Freezing { layers: 0, embeddings: false, memory: Some(0) },
        &Device::Cpu,
        DType::F32,
    );
    assert_eq!(again.unwrap().network().unwrap(), changed);
}

#[test]
fn freezing_all_layers_is_an_error() {
    let freezing = Freezing { layers: 3, embeddings: true, memory: Some(0) };
    let error = Trainable::new(network(), freezing, &Device::Cpu, DType::F32).err().unwrap();
    assert!(error.to_string().contains("3 layers"), "{error}");
}

/// Returns input vectors for a batch of the test sequences: two rows share a vector.
fn replaced() -> Replaced {
    let vectors = crate::ops::tests::numbers((3, small_shape().hidden), 8);
    Replaced { places: vec![(1, 2), (5, 0), (9, 1), (20, 2)], vectors }
}

#[test]
fn input_vectors_have_the_gradient_of_the_graph() {
    let (packed, replaced) = (Packed::new(sequences()), replaced());
    for (layers, embeddings) in [(0, false), (0, true), (2, false)] {
        let freezing = Freezing { layers, embeddings, memory: None };
        let trainable = Trainable::new(network(), freezing, &Device::Cpu, DType::F32).unwrap();
        let dropout = DropoutConfig { probability: 0.1, key: 5 };
        for dropout in [None, Some(&dropout)] {
            let input = PassInput { packed: &packed, replaced: Some(&replaced), first: true };
            let graph = trainable.graph(input, dropout).unwrap();
            let shape = graph.states.dims2().unwrap();
            let of = |seed| crate::ops::tests::numbers(shape, seed);
            let of_states = OfStates { last: of(4), first: Some(of(6)) };
            let first = graph.first.clone().unwrap();
            let sum = ((&graph.states * of(4)).unwrap() + (&first * of(6)).unwrap()).unwrap();
            let mut store = sum.sum_all().unwrap().backward().unwrap();
            let expected_vectors = store.remove(graph.vectors.as_ref().unwrap()).unwrap();
            let expected = Gradients::take(&mut store, trainable.parameters());
            let pass = trainable.run(input, dropout).unwrap();
            for (ours, graphs) in [(&pass.states, &graph.states), (pass.first.as_ref().unwrap(), &first)] {
                assert!(flat(ours).iter().zip(flat(graphs)).all(|(a, b)| (a - b).abs() < 1e-5));
            }
            let (gradients, of_vectors) = trainable.backward(pass, &of_states).unwrap();
            let ours = gradients.each().map(|g| flat(g.unwrap())).chain([flat(&of_vectors.unwrap())]);
            let theirs = expected.each().map(|g| flat(g.unwrap())).chain([flat(&expected_vectors)]);
            for (ours, theirs) in ours.zip(theirs) {
                let largest = theirs.iter().fold(1f32, |largest, g| largest.max(g.abs()));
                assert!(ours.iter().any(|g| *g != 0.0));
                for (a, b) in ours.iter().zip(&theirs) {
                    assert!((a - b).abs() < 5e-5 * largest, "{layers} {embeddings}: {a} {b}");
                }
            }
        }
    }
}

#[test]
fn input_vectors_equal_those_of_the_inference_engine() {
    let (mut sequences, replaced) = (sequences(), replaced());
    let packed = Packed::new(sequences.clone());
    let rows: Vec<Vec<f32>> = replaced.vectors.to_vec2().unwrap();
    for (n, sequence) in sequences.iter_mut().enumerate() {
        let own = replaced.places.iter().filter(|(row, _)| packed.rows(n).contains(&(*row as usize)));
        let (tokens, elements): (Vec<u32>, Vec<Vec<f32>>) =
            own.map(|(row, v)| (row - packed.starts[n] as u32, rows[*v as usize].clone())).unzip();
        sequence.vectors =
            Some(turnwise_encoder::InputVectors { tokens, elements: elements.concat().into() });
    }
    let engine = CpuEngine::new(&network(), Precision::F32, SimdChoice::Auto).unwrap();
    let refs: Vec<&Sequence> = sequences.iter().collect();
    let mut expected = Vec::new();
    engine.run(&Batch::new(&refs), &[3], &mut |_, states| expected = states.to_vec()).unwrap();
    let input = PassInput { packed: &packed, replaced: Some(&replaced), first: false };
    let states = flat(&trainable(0, false).run(input, None).unwrap().states);
    assert!(states.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5));
}
