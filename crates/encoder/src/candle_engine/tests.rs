use candle_core::{Device as CandleDevice, IndexOp, Tensor};
use candle_nn::{Module, VarBuilder};
use candle_transformers::models::{bert, jina_bert};

use crate::{
    Part, Sequence,
    candle_engine::*,
    cpu::{CpuEngine, SimdChoice},
    network::{Activation, NormKind, NormOrder, Rotary},
    testing::small_shape,
};

fn sequences() -> Vec<Sequence> {
    [7usize, 1, 12, 3]
        .iter()
        .map(|&n| Sequence::new((0..n as u32).map(|i| (i * 31 + n as u32) % 50).collect()))
        .collect()
}

/// Function that stores a tensor: name, numbers and shape.
type Put<'a> = &'a mut dyn FnMut(String, &[f32], &[usize]);

/// Builds the BERT of candle-transformers with the parameters of `network`.
fn theirs(network: &Network) -> bert::BertModel {
    let mut tensors = std::collections::HashMap::new();
    let mut put = |name: String, data: &[f32], shape: &[usize]| {
        tensors.insert(name, Tensor::from_slice(data, shape, &CandleDevice::Cpu).unwrap());
    };
    let s = &network.shape;
    let e = &network.embeddings;
    let types = e.types.as_ref().unwrap();
    let positions = e.positions.as_ref().unwrap();
    for (name, table) in [("word", &e.words), ("position", positions), ("token_type", types)] {
        put(format!("embeddings.{name}_embeddings.weight"), &table.data, &[table.rows, s.hidden]);
    }
    let norm = |name: &str, norm: &network::Norm, put: Put<'_>| {
        put(format!("{name}.weight"), &norm.weight, &[s.hidden]);
        put(format!("{name}.bias"), &norm.bias, &[s.hidden]);
    };
    norm("embeddings.LayerNorm", e.norm.as_ref().unwrap(), &mut put);
    for (n, layer) in network.layers.iter().enumerate() {
        let p = format!("encoder.layer.{n}");
        let linears = [
            ("attention.self.query", &layer.query),
            ("attention.self.key", &layer.key),
            ("attention.self.value", &layer.value),
            ("attention.output.dense", &layer.attention_output),
            ("intermediate.dense", &layer.intermediate),
            ("output.dense", &layer.output),
        ];
        for (name, linear) in linears {
            put(format!("{p}.{name}.weight"), &linear.weight, &[linear.outputs, linear.inputs]);
            put(format!("{p}.{name}.bias"), &linear.bias, &[linear.outputs]);
        }
        let attention_norm = layer.attention_norm.as_ref().unwrap();
        norm(&format!("{p}.attention.output.LayerNorm"), attention_norm, &mut put);
        norm(&format!("{p}.output.LayerNorm"), &layer.output_norm, &mut put);
    }
    let config = bert::Config {
        vocab_size: e.words.rows,
        hidden_size: s.hidden,
        num_hidden_layers: network.layers.len(),
        num_attention_heads: s.heads,
        intermediate_size: s.intermediate,
        hidden_act: bert::HiddenAct::Gelu,
        max_position_embeddings: positions.rows,
        type_vocab_size: types.rows,
        layer_norm_eps: f64::from(s.norm_epsilon),
        ..bert::Config::default()
    };
    let vb = VarBuilder::from_tensors(tensors, bert::DTYPE, &CandleDevice::Cpu);
    bert::BertModel::load(vb, &config).unwrap()
}

fn all_states(engine: &CandleEngine, sequences: &[&Sequence], layer: usize) -> Vec<f32> {
    let mut states = Vec::new();
    engine.run(&Batch::new(sequences), &[layer], &mut |_, s| states = s.to_vec()).unwrap();
    states
}

#[track_caller]
fn assert_near(a: &[f32], b: &[f32], tolerance: f32) {
    assert_eq!(a.len(), b.len());
    let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= tolerance, "differs by {worst}");
}

#[test]
fn input_vectors_and_a_relative_position_bias_are_those_of_the_cpu_engine() {
    let mut network = Network::random(small_shape(), 2, 50, 40, 3);
    input_vectors_are_those_of_the_cpu_engine(&network);
    let heads = network.shape.heads;
    let data = (0..network::RelativeBias::BUCKETS * heads).map(|i| (i as f32 * 1.7).sin()).collect();
    network.relative_bias = Some(network::RelativeBias { heads, data });
    input_vectors_are_those_of_the_cpu_engine(&network);
}

#[test]
fn rotary_positions_gates_windows_and_norms_before_sublayers_are_those_of_the_cpu_engine() {
    let rotary = Rotary { max_tokens: 40, base: 160_000.0, window_base: 10_000.0, divisor: 1.5 };
    for order in [NormOrder::After, NormOrder::Before] {
        for activation in [Activation::Gelu, Activation::Silu] {
            let shape =
                network::Shape { norm_order: order, rotary: Some(rotary), activation, ..small_shape() };
            let mut network = Network::random(shape, 2, 50, 40, 3);
            input_vectors_are_those_of_the_cpu_engine(&network);
            network.layers[1].window = Some(4);
            input_vectors_are_those_of_the_cpu_engine(&network);
        }
    }
}

#[test]
fn a_linear_bias_is_that_of_the_cpu_engine() {
    let linear_bias = Some(network::LinearBias { max_tokens: 40 });
    let network = Network::random(network::Shape { linear_bias, ..small_shape() }, 2, 50, 40, 3);
    input_vectors_are_those_of_the_cpu_engine(&network);
}

#[test]
fn parts_of_decoders_are_those_of_the_cpu_engine() {
    let rotary = Rotary { max_tokens: 40, base: 10_000.0, window_base: 1000.0, divisor: 1.0 };
    for causal in [true, false] {
        let shape = network::Shape {
            key_heads: 2,
            head_size: 10,
            causal,
            norm_order: NormOrder::Before,
            norm_kind: NormKind::Rms,
            rotary: Some(rotary),
            ..network::Shape::bert(24, 6, 50)
        };
        let mut network = Network::random(shape, 2, 50, 40, 3);
        network.embeddings.norm = None;
        let norm = |n: usize| network::Norm {
            weight: (0..n).map(|i| 1.0 + 0.3 * (i as f32 * 1.3).sin()).collect(),
            bias: vec![0.0; n],
        };
        for layer in &mut network.layers {
            layer.attention_norm.get_or_insert_with(|| norm(24)).bias.fill(0.0);
            layer.output_norm.bias.fill(0.0);
            layer.head_norms = Some([norm(10), norm(10)]);
            layer.result_norms = (!causal).then(|| [norm(24), norm(24)]);
        }
        network.final_norm = Some(norm(24));
        network.layers[1].window = Some(4);
        input_vectors_are_those_of_the_cpu_engine(&network);
    }
}

fn input_vectors_are_those_of_the_cpu_engine(network: &Network) {
    let width = network.shape.hidden;
    let mut sequences = sequences();
    for (sequence, tokens) in sequences.iter_mut().zip([vec![0, 3, 6], vec![], vec![11]]) {
        let elements = (0..tokens.len() * width).map(|i| (i as f32 * 0.37).sin()).collect();
        sequence.vectors = Some(crate::InputVectors { tokens, elements });
    }
    let refs: Vec<&Sequence> = sequences.iter().collect();
    let cpu = CpuEngine::new(network, Precision::F32, SimdChoice::Auto).unwrap();
    let mut expected = Vec::new();
    cpu.run(&Batch::new(&refs), &[2], &mut |_, states| expected = states.to_vec()).unwrap();
    let engine =
        CandleEngine::new(network, Device::open(DeviceChoice::Cpu).unwrap(), Precision::F32).unwrap();
    assert_near(&all_states(&engine, &refs, 2), &expected, 1e-5);
}

#[test]
fn it_agrees_with_the_bert_of_candle_transformers() {
    let network = Network::random(small_shape(), 3, 50, 16, 1);
    let engine = CandleEngine::new(&network, Device::cpu(), Precision::F32).unwrap();
    let model = theirs(&network);
    for sequence in sequences() {
        let ids = Tensor::new(sequence.ids.as_slice(), &CandleDevice::Cpu).unwrap().unsqueeze(0).unwrap();
        let expected = model.forward(&ids, &ids.zeros_like().unwrap(), None).unwrap().i(0).unwrap();
        let expected: Vec<f32> = expected.flatten_all().unwrap().to_vec1().unwrap();
        assert_near(&all_states(&engine, &[&sequence], 3), &expected, 1e-5);
    }
}

#[test]
fn it_agrees_with_the_jina_bert_of_candle_transformers() {
    let linear_bias = Some(network::LinearBias { max_tokens: 16 });
    // The number of heads, 3, is not a power of two.
    let mut network = Network::random(network::Shape { linear_bias, ..small_shape() }, 3, 50, 16, 1);
    for layer in &mut network.layers {
        layer.intermediate.bias.fill(0.0);
        layer.gate.as_mut().unwrap().bias.fill(0.0);
    }
    let (s, e) = (&network.shape, &network.embeddings);
    let mut tensors = std::collections::HashMap::new();
    let mut put = |name: String, data: &[f32], shape: &[usize]| {
        tensors.insert(name, Tensor::from_slice(data, shape, &CandleDevice::Cpu).unwrap());
    };
    let types = e.types.as_ref().unwrap();
    for (name, table) in [("word", &e.words), ("token_type", types)] {
        put(format!("embeddings.{name}_embeddings.weight"), &table.data, &[table.rows, s.hidden]);
    }
    let norm = |name: String, norm: &network::Norm, put: Put<'_>| {
        put(format!("{name}.weight"), &norm.weight, &[s.hidden]);
        put(format!("{name}.bias"), &norm.bias, &[s.hidden]);
    };
    norm("embeddings.LayerNorm".to_owned(), e.norm.as_ref().unwrap(), &mut put);
    for (n, layer) in network.layers.iter().enumerate() {
        let p = format!("encoder.layer.{n}");
        let linears = [
            ("attention.self.query", &layer.query),
            ("attention.self.key", &layer.key),
            ("attention.self.value", &layer.value),
            ("attention.output.dense", &layer.attention_output),
            ("mlp.wo", &layer.output),
        ];
        for (name, linear) in linears {
            put(format!("{p}.{name}.weight"), &linear.weight, &[linear.outputs, linear.inputs]);
            put(format!("{p}.{name}.bias"), &linear.bias, &[linear.outputs]);
        }
        let gated = [layer.intermediate.weight.as_slice(), &layer.gate.as_ref().unwrap().weight].concat();
        put(format!("{p}.mlp.gated_layers.weight"), &gated, &[2 * s.intermediate, s.hidden]);
        norm(format!("{p}.attention.output.LayerNorm"), layer.attention_norm.as_ref().unwrap(), &mut put);
        norm(format!("{p}.mlp.layernorm"), &layer.output_norm, &mut put);
    }
    let config = jina_bert::Config {
        vocab_size: e.words.rows,
        hidden_size: s.hidden,
        num_hidden_layers: network.layers.len(),
        num_attention_heads: s.heads,
        intermediate_size: s.intermediate,
        max_position_embeddings: network.max_tokens(),
        type_vocab_size: types.rows,
        layer_norm_eps: f64::from(s.norm_epsilon),
        ..jina_bert::Config::v2_base()
    };
    let vb = VarBuilder::from_tensors(tensors, jina_bert::DTYPE, &CandleDevice::Cpu);
    let model = jina_bert::BertModel::new(vb, &config).unwrap();
    let engine = CandleEngine::new(&network, Device::cpu(), Precision::F32).unwrap();
    for sequence in sequences() {
        let ids = Tensor::new(sequence.ids.as_slice(), &CandleDevice::Cpu).unwrap().unsqueeze(0).unwrap();
        let expected = model.forward(&ids).unwrap().i(0).unwrap();
        let expected: Vec<f32> = expected.flatten_all().unwrap().to_vec1().unwrap();
        assert_near(&all_states(&engine, &[&sequence], 3), &expected, 1e-5);
    }
}

#[test]
fn states_do_not_depend_on_other_sequences() {
    let network = Network::random(small_shape(), 2, 50, 16, 2);
    let engine = CandleEngine::new(&network, Device::cpu(), Precision::F32).unwrap();
    let sequences = sequences();
    let all: Vec<&Sequence> = sequences.iter().collect();
    let alone: Vec<f32> = all.iter().flat_map(|s| all_states(&engine, &[s], 2)).collect();
    assert_near(&all_states(&engine, &all, 2), &alone, 1e-5);
}

#[test]
fn pooling_on_the_device_agrees_with_pooling_on_the_host() {
    let network = Network::random(small_shape(), 3, 50, 16, 3);
    let engine = CandleEngine::new(&network, Device::cpu(), Precision::F32).unwrap();
    let sequences = sequences();
    let all: Vec<&Sequence> = sequences.iter().collect();
    let part = |rows: std::ops::Range<usize>, weight| Part { rows, weight };
    let parts = [
        vec![part(0..3, 0.2), part(5..7, -1.0)],
        vec![part(0..1, 1.0)],
        vec![part(0..12, 1.0 / 12.0)],
        vec![part(1..3, 0.5)],
    ];
    let parts: Vec<&[Part]> = parts.iter().map(Vec::as_slice).collect();
    let batch = Batch::new(&all);
    let pools = [Reduction::Sum, Reduction::Max].map(|reduction| Pool { reduction, parts: parts.clone() });
    let wanted = PoolRequest { layers: &[(0, 0.25), (3, 0.75)], pools: &pools };
    let pooled = engine.pool(&batch, &wanted).unwrap();
    struct Plain<'a>(&'a CandleEngine);
    impl Backend for Plain<'_> {
        fn run(&self, b: &Batch, layers: &[usize], take: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
            self.0.run(b, layers, take)
        }
        fn hidden(&self) -> usize {
            self.0.hidden()
        }
        fn best_batch(&self) -> usize {
            1
        }
        fn wants_threads(&self) -> bool {
            false
        }
        fn describe(&self) -> String {
            String::new()
        }
    }
    let here = Plain(&engine).pool(&batch, &wanted).unwrap();
    assert_eq!(pooled.len(), 2);
    pooled.iter().zip(&here).for_each(|(a, b)| assert_near(a.flat(), b.flat(), 1e-5));
}

#[test]
fn turn_embeddings_are_added_if_present() {
    let mut network = Network::random(small_shape(), 1, 50, 16, 4);
    let plain = CandleEngine::new(&network, Device::cpu(), Precision::F32).unwrap();
    network.embeddings.turns = Some(network::Table { rows: 2, data: vec![0.3; 48] });
    let engine = CandleEngine::new(&network, Device::cpu(), Precision::F32).unwrap();
    let mut sequence = Sequence::new(vec![3, 4, 5]);
    let without = all_states(&plain, &[&sequence], 1);
    sequence.turns = Some(vec![0, 1, 1]);
    // The second row of the table must not be constant, because layer normalization removes a constant.
    network.embeddings.turns.as_mut().unwrap().data[30] = 2.0;
    let with = CandleEngine::new(&network, Device::cpu(), Precision::F32).unwrap();
    assert_near(&all_states(&engine, &[&sequence], 1), &without, 1e-4);
    let seen = all_states(&with, &[&sequence], 1);
    assert!(seen.iter().zip(&without).any(|(a, b)| (a - b).abs() > 0.1));
}

#[test]
fn invalid_sequences_and_layers_are_errors() {
    let network = Network::random(small_shape(), 1, 50, 16, 5);
    let engine = CandleEngine::new(&network, Device::cpu(), Precision::F32).unwrap();
    let run = |s: &Sequence, layer| engine.run(&Batch::new(&[s]), &[layer], &mut |_, _| {});
    assert!(run(&Sequence::new(vec![50]), 1).is_err());
    assert!(run(&Sequence::new(vec![1; 17]), 1).is_err());
    assert!(run(&Sequence::default(), 1).is_err());
    assert!(run(&Sequence::new(vec![1]), 2).is_err());
    assert!(CandleEngine::new(&network, Device::cpu(), Precision::Int8).is_err());
}
