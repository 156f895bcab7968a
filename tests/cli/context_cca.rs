//! Tests of `train context-cca`, which learns a linear layer in closed form and appends it to an encoder.

use std::fs;

use safetensors::SafeTensors;
use serde_json::{Value, json};

use crate::{
    support::{SAMPLES, Turnwise},
    train::{lines, trained, with_encoder},
};

/// Returns the numbers of the tensor with this name in a model file.
fn numbers(bytes: &[u8], name: &str) -> Vec<f32> {
    let tensors = SafeTensors::deserialize(bytes).unwrap();
    let data = tensors.tensor(name).unwrap().data();
    data.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

/// Returns the step of an evaluation, and whether the model then had the layer.
fn step_and_layer(evaluation: &Value) -> Value {
    json!([evaluation["step"], evaluation["layer"]])
}

/// Returns the vectors of a text by two models.
fn vectors(t: &Turnwise, models: [&str; 2]) -> [Vec<f32>; 2] {
    t.write("text.txt", "where is my parcel\n");
    models.map(|model| {
        t.ok(&format!(
            "embed text.txt --model ./{model} --precision f32 -o {}.jsonl",
            model.replace('/', "-")
        ));
        let line = &lines(t, &format!("{}.jsonl", model.replace('/', "-")))[0];
        let numbers = line.as_object().unwrap().values().find_map(Value::as_array).unwrap();
        numbers.iter().map(|v| v.as_f64().unwrap() as f32).collect()
    })
}

#[test]
fn a_layer_is_appended_and_the_encoder_is_unchanged() {
    let t = with_encoder();
    t.ok(&format!("corpus split {SAMPLES} --parts train=0.7,dev=0.3 --seed 1 -o parts"));
    let train = format!("train context-cca --corpus {SAMPLES} -m ./small");
    let outcome = t.run(&format!("{train} --dev dialogues:parts/dev.jsonl -o run"));
    outcome.says(
        0,
        &[
            "excluded from training, because a dev task has the same: 80 dialogues",
            "before: ",
            "with the layer: ",
        ],
    );
    assert!(outcome.out.contains("learned a layer from the contexts of 2,"), "{outcome:?}");
    assert!(
        outcome
            .out
            .contains("1 of 16 directions correlate more than by chance, the first with a correlation of 0."),
        "{outcome:?}"
    );
    assert!(outcome.out.contains("(not a goal of the layer)"), "{outcome:?}");
    let places: Vec<Value> = lines(&t, "run/evaluations.jsonl").iter().map(step_and_layer).collect();
    assert_eq!(places, [json!([0, null]), json!([0, true])]);
    assert!(t.read("run/curves.svg").contains("of dialogues:dev.jsonl"));
    let card = t.read("run/model/README.md");
    assert!(card.contains("an appended linear layer"), "{card}");
    // The encoder is unchanged, and its vectors pass through the layer.
    let small = fs::read(t.path("small/model.safetensors")).unwrap();
    for name in ["embeddings.word_embeddings.weight", "encoder.layer.1.output.dense.weight"] {
        assert_eq!(numbers(&trained(&t, "run"), name), numbers(&small, name), "{name}");
    }
    let layer = fs::read(t.path("run/model/2_Dense/model.safetensors")).unwrap();
    let (weight, bias) = (numbers(&layer, "linear.weight"), numbers(&layer, "linear.bias"));
    let [before, after] = vectors(&t, ["small", "run/model"]);
    for (n, (row, bias)) in weight.chunks_exact(16).zip(&bias).enumerate() {
        let expected: f32 = row.iter().zip(&before).map(|(a, b)| a * b).sum::<f32>() + bias;
        assert!((expected - after[n]).abs() < 1e-4, "{n}: {expected} {}", after[n]);
    }
    let recipe = t.read("run/recipe.toml");
    assert!(recipe.contains("strength = 0.5") && !recipe.contains("batch"), "{recipe}");
    // A run from the saved recipe learns the same layer. A complete run does not resume, and different settings are
    // refused.
    t.ok("train run/recipe.toml -o again");
    let ended = t.run(&format!("{train} --dev dialogues:parts/dev.jsonl -o run --resume"));
    ended.says(0, &["the run in run has already ended"]);
    assert_eq!(ended.out.lines().next(), outcome.out.lines().next());
    t.run(&format!("{train} --context-weight 0.7 -o run --resume"))
        .says(2, &["different settings: dev (", "strength (0.5, now 0.7)"]);
    assert!(!t.path("run/checkpoints").exists());
    // A run that was stopped before its model was saved starts again.
    fs::remove_dir_all(t.path("run/model")).unwrap();
    t.ok("train run/recipe.toml -o run --resume");
    for run in ["again", "run"] {
        assert_eq!(
            fs::read(t.path(&format!("{run}/model/2_Dense/model.safetensors"))).unwrap(),
            layer,
            "{run}"
        );
    }
    assert_eq!(lines(&t, "run/evaluations.jsonl").len(), 2);
    t.run(&format!("train context-cca --corpus {SAMPLES} -m ./run/model --evaluate-every 0 -o twice"))
        .says(0, &["./run/model already has a dense layer"]);
    assert!(t.path("twice/model/3_Dense/model.safetensors").exists());
    // A model with a layer cannot be trained further, because training needs mean pooling without a layer.
    t.run(&format!("train simcse --corpus {SAMPLES} -m ./run/model -o none")).says(2, &["has a dense layer"]);
    // The model with the layer can be used as an encoder.
    t.ok(&format!("ingest -i chats {SAMPLES} --no-encode"));
    t.ok("encode -i chats --model ./run/model");
    assert_eq!(t.json("search parcel -i chats --mode dense")["hits"].as_array().unwrap().len(), 10);
}

#[test]
fn a_layer_after_training_steps_equals_a_layer_of_the_trained_model() {
    let t = with_encoder();
    let on = format!("--corpus {SAMPLES} --dev sr:select.txt");
    t.ok(&format!("bench build sr {SAMPLES} -o select.txt --sentences 200"));
    let steps = "responses -m ./small --steps 4 --batch 4 --learning-rate 1e-3";
    let outcome = t.run(&format!("train {steps} {on} --context-layer -o at-once"));
    outcome.says(0, &["after 4 steps: ", "with the layer: "]);
    assert!(
        outcome.out.contains("4 steps, loss ")
            && outcome.out.contains("learned a layer from the contexts of 3,208"),
        "{outcome:?}"
    );
    let places: Vec<Value> = lines(&t, "at-once/evaluations.jsonl").iter().map(step_and_layer).collect();
    assert_eq!((&places[0], &places[4..]), (&json!([0, null]), &[json!([4, null]), json!([4, true])][..]));
    // A run with --context-layer saves the same model as two separate runs.
    t.ok(&format!("train {steps} {on} -o first"));
    t.ok(&format!("train context-cca -m ./first/model {on} -o second"));
    assert_eq!(trained(&t, "at-once"), trained(&t, "second"));
    let layer = |run: &str| {
        numbers(
            &fs::read(t.path(&format!("{run}/model/2_Dense/model.safetensors"))).unwrap(),
            "linear.weight",
        )
    };
    assert_eq!(layer("at-once"), layer("second"));
    // Resuming a complete run changes nothing.
    t.ok(&format!("train {steps} {on} --context-layer -o at-once --resume"));
    assert_eq!(
        (layer("at-once"), lines(&t, "at-once/evaluations.jsonl").len()),
        (layer("second"), places.len())
    );
    // With too little data for a layer, the model of the steps is saved.
    let outcome =
        t.run(&format!("train {steps} --corpus {SAMPLES} --dialogues 5 --context-layer -o without"));
    outcome.says(0, &["warning: no layer was added to the trained model: too few utterances"]);
    assert!(
        outcome.out.contains("4 steps, loss ") && !t.path("without/model/2_Dense").exists(),
        "{outcome:?}"
    );
    let card = t.read("at-once/model/README.md");
    assert!(
        card.contains("4 steps of 4") && card.contains("The model ends with an appended linear layer"),
        "{card}"
    );
}

#[test]
fn the_settings_of_the_layer_have_an_effect_and_can_be_swept() {
    let t = with_encoder();
    let train = format!("--corpus {SAMPLES} -m ./small --evaluate-every 0");
    t.ok(&format!("train sweep --vary strength=0,1 --vary context=1,2 context-cca {train} -o swept"));
    let layer = |run: &str| {
        numbers(
            &fs::read(t.path(&format!("swept/{run}/model/2_Dense/model.safetensors"))).unwrap(),
            "linear.weight",
        )
    };
    // With strength 0, the layer is the identity; with strength 1, it is not.
    let off = |layer: &[f32]| -> f32 {
        let one = |at: usize| if at.is_multiple_of(17) { 1.0 } else { 0.0 };
        layer.iter().enumerate().map(|(at, v)| (v - one(at)).abs()).fold(0.0, f32::max)
    };
    assert!(off(&layer("strength=0_context=1")) < 1e-6);
    assert!(off(&layer("strength=1_context=1")) > 0.1);
    assert_ne!(layer("strength=1_context=1"), layer("strength=1_context=2"));
    t.ok(&format!("train context-cca {train} --preset small -o small-run"));
}

#[test]
fn unsupported_layer_settings_are_reported_before_anything_is_written() {
    let t = with_encoder();
    let alone = r#"{"id":"a","turns":[{"speaker":"x","text":"hello"}]}"#;
    t.write(
        "alone.jsonl",
        (0..300).map(|n| alone.replace("\"a\"", &format!("\"{n}\"")) + "\n").collect::<String>(),
    );
    let on = format!("--corpus {SAMPLES} -m ./small -o run");
    for (line, code, says) in [
        (
            format!("train context-cca {on} --steps 5 --batch 2"),
            2,
            "`context-cca` does not use the settings steps, batch",
        ),
        (
            format!("train context-cca {on} --auxiliary self-distillation=1"),
            2,
            "`context-cca` does not use the setting auxiliary",
        ),
        (format!("train context-cca {on} --select last"), 2, "`context-cca` does not use the setting select"),
        (format!("train context-cca {on} --context-layer"), 2, "already learns a layer"),
        (format!("train simcse {on} --context-layer --context-weight 2"), 2, "strength cannot be 2"),
        (
            format!("train context-cca {on} --context-weight 2"),
            2,
            "--context-weight takes a number from 0 to 1",
        ),
        (format!("train context-cca {on} --context 0"), 2, "context cannot be 0"),
        (
            format!("train context-cca {on} --devices cpu,cpu"),
            2,
            "no steps to distribute over several devices",
        ),
        (
            format!("train dialoguecse {on} --context-weight 0.5"),
            2,
            "dialoguecse has no layer that the context weight",
        ),
        (
            format!("train simcse {on} --auxiliary context-cca=1"),
            2,
            "context-cca cannot be combined with simcse",
        ),
        (
            "train context-cca --corpus alone.jsonl -m ./small -o run".to_owned(),
            3,
            "too few utterances with context turns: 0",
        ),
    ] {
        t.run(&line).says(code, &[says]);
        assert!(!t.path("run").exists(), "{line}");
    }
    t.model();
    t.run(&format!("train context-cca --corpus {SAMPLES} -m ./fitted -o run")).says(2, &["a static encoder"]);
}
