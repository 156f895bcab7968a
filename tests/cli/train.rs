//! Tests of `turnwise train`: complete, killed and resumed runs, evaluations and errors.

use std::{fs, thread, time::Duration};

use serde_json::{Value, json};

use crate::support::{SAMPLES, Turnwise};

/// Writes an encoder with two layers, a vocabulary of letters and digits, and pseudo-random weights.
fn encoder(t: &Turnwise, name: &str) {
    let config = json!({
        "model_type": "bert", "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2,
        "intermediate_size": 24, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "vocab_size": 77,
        "max_position_embeddings": 64, "type_vocab_size": 2, "pad_token_id": 0,
    });
    let modules = json!([
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]);
    let mut vocabulary =
        vec!["[PAD]".to_owned(), "[UNK]".into(), "[CLS]".into(), "[SEP]".into(), "[MASK]".into()];
    for letter in ('a'..='z').chain('0'..='9') {
        vocabulary.push(letter.to_string());
        vocabulary.push(format!("##{letter}"));
    }
    let file = |path: &str, bytes: &[u8]| t.write(&format!("{name}/{path}"), bytes);
    file("config.json", config.to_string().as_bytes());
    file("modules.json", modules.to_string().as_bytes());
    let pooling = json!({"word_embedding_dimension": 16, "pooling_mode_mean_tokens": true});
    file("1_Pooling/config.json", pooling.to_string().as_bytes());
    file("sentence_bert_config.json", br#"{"max_seq_length": 64, "do_lower_case": false}"#);
    file("tokenizer_config.json", br#"{"tokenizer_class": "BertTokenizer", "do_lower_case": true}"#);
    file("vocab.txt", (vocabulary.join("\n") + "\n").as_bytes());
    file("model.safetensors", &weights());
}

fn weights() -> Vec<u8> {
    let mut shapes: Vec<(String, Vec<usize>)> = vec![
        ("embeddings.word_embeddings.weight".into(), vec![77, 16]),
        ("embeddings.position_embeddings.weight".into(), vec![64, 16]),
        ("embeddings.token_type_embeddings.weight".into(), vec![2, 16]),
        ("embeddings.LayerNorm.weight".into(), vec![16]),
        ("embeddings.LayerNorm.bias".into(), vec![16]),
    ];
    for layer in 0..2 {
        for (part, outputs, inputs) in [
            ("attention.self.query", 16, 16),
            ("attention.self.key", 16, 16),
            ("attention.self.value", 16, 16),
            ("attention.output.dense", 16, 16),
            ("intermediate.dense", 24, 16),
            ("output.dense", 16, 24),
        ] {
            shapes.push((format!("encoder.layer.{layer}.{part}.weight"), vec![outputs, inputs]));
            shapes.push((format!("encoder.layer.{layer}.{part}.bias"), vec![outputs]));
        }
        for part in ["attention.output.LayerNorm", "output.LayerNorm"] {
            shapes.push((format!("encoder.layer.{layer}.{part}.weight"), vec![16]));
            shapes.push((format!("encoder.layer.{layer}.{part}.bias"), vec![16]));
        }
    }
    let (mut header, mut data, mut state) = (serde_json::Map::new(), Vec::new(), 12_345u32);
    for (name, shape) in shapes {
        let start = data.len();
        for _ in 0..shape.iter().product::<usize>() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let drawn = (state >> 8) as f32 / (1 << 24) as f32 - 0.5;
            let norm = name.ends_with("LayerNorm.weight");
            data.extend((if norm { 1.0 } else { drawn * 0.6 }).to_le_bytes());
        }
        header.insert(name, json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]}));
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    [&(header.len() as u64).to_le_bytes()[..], &header, &data].concat()
}

/// Creates a test folder with a small encoder in the folder `small`.
pub fn with_encoder() -> Turnwise {
    let t = Turnwise::new();
    encoder(&t, "small");
    t
}

pub fn trained(t: &Turnwise, run: &str) -> Vec<u8> {
    fs::read(t.path(&format!("{run}/model/model.safetensors"))).unwrap()
}

#[test]
fn every_objective_ends_in_a_model_that_encodes() {
    let t = with_encoder();
    for objective in [
        "dialoguecse",
        "dial2vec",
        "simcse",
        "neighbors",
        "responses",
        "role-position",
        "siamese-s",
        "siamese-m",
        "mlm",
        "relevance",
        "joint",
        "post-training",
    ] {
        let batch = if objective == "dial2vec" { 2 } else { 6 };
        let outcome = t.run(&format!(
            "train {objective} --corpus {SAMPLES} -m ./small -o {objective} --steps 6 --batch {batch} --learning-rate 1e-3"
        ));
        let held_out =
            if ["role-position", "mlm", "relevance", "post-training"].contains(&objective) { 0 } else { 28 };
        let trained_on = format!("{} dialogues", 280 - held_out);
        outcome.says(0, &[&trained_on, &format!("{objective} from ./small")]);
        assert_eq!(
            outcome.out.contains("neighbors shared by the halves of 28 held-out dialogues (7.4 by chance): "),
            held_out > 0
        );
        assert!(
            outcome.out.contains("6 steps, loss ") && outcome.out.contains("saved the model"),
            "{outcome:?}"
        );
        let lines: Vec<Value> = t
            .read(&format!("{objective}/metrics.jsonl"))
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        assert_eq!(lines.len(), 6);
        assert!(
            lines.iter().all(|l| l["loss"].as_f64().unwrap() > 0.0 && l["gradient"].as_f64().unwrap() > 0.0)
        );
        assert_ne!(trained(&t, objective), fs::read(t.path("small/model.safetensors")).unwrap());
        let card = t.read(&format!("{objective}/model/README.md"));
        assert!(card.contains("# small, trained on dialogues") && card.contains(&trained_on), "{card}");
        // The start model is a folder, not a repository of the hub.
        assert!(!card.contains("base_model"), "{card}");
        t.ok(&format!("embed {SAMPLES} --model ./{objective}/model -o {objective}.npy"));
    }
    // The objective `auto` trains the same model. The run reports the dialogues of the teacher.
    t.run(&format!(
        "train auto --corpus {SAMPLES} -m ./small -o auto --steps 6 --batch 6 --learning-rate 1e-3"
    ))
    .says(0, &["fitted a teacher on 252 dialogues: "]);
    assert_eq!(trained(&t, "auto"), trained(&t, "neighbors"));
    // The embeddings and half of the layers are frozen.
    let recipe = t.read("dialoguecse/recipe.toml");
    assert!(recipe.contains("frozen_layers = 1") && recipe.contains("temperature = 0.1"), "{recipe}");
}

#[test]
fn a_killed_run_resumes_to_the_same_model() {
    let t = with_encoder();
    let command = format!(
        "train dialoguecse --corpus {SAMPLES} -m ./small --steps 120 --batch 8 --checkpoint-every 10 --learning-rate 1e-3 --seed 3"
    );
    t.ok(&format!("{command} -o whole"));
    let mut child =
        t.command(&format!("{command} -o killed").split(' ').collect::<Vec<_>>()).spawn().unwrap();
    // Kill the run as soon as a checkpoint exists.
    while !t.path("killed/checkpoints/step-00000010/state.json").exists()
        && child.try_wait().unwrap().is_none()
    {
        thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!t.path("killed/model").exists(), "the run ended before it was killed");
    t.run(&format!("{command} -o killed")).says(2, &["already contains a run", "--resume"]);
    let outcome = t.run(&format!("{command} -o killed --resume"));
    outcome.says(0, &["resuming after "]);
    assert_eq!(trained(&t, "killed"), trained(&t, "whole"));
    let losses = |run: &str| -> Vec<Value> {
        let of = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        t.read(&format!("{run}/metrics.jsonl"))
            .lines()
            .map(|l| json!([of(l)["step"], of(l)["loss"]]))
            .collect()
    };
    assert_eq!(losses("killed"), losses("whole"));
    // A run can be repeated from its recipe.
    t.ok("train whole/recipe.toml -o again");
    assert_eq!(trained(&t, "again"), trained(&t, "whole"));
    t.ok("train whole/recipe.toml -o other --seed 0");
    assert!(t.read("other/recipe.toml").contains("seed = 0"));
    assert_ne!(trained(&t, "other"), trained(&t, "whole"));
    // A run does not resume with different settings, and a complete run does not change.
    let recipe = t.read("killed/recipe.toml");
    t.run("train whole/recipe.toml -o killed --resume --learning-rate 2e-3").says(
        2,
        &[
            "the run in killed has different settings: learning_rate (0.001, now 0.002)\n",
            "the run has ended; to train its model further, start a new run with `-m killed/model`",
        ],
    );
    assert_eq!(t.read("killed/recipe.toml"), recipe);
    let outcome = t.run("train whole/recipe.toml -o killed --resume");
    outcome.says(0, &["the run in killed has already ended"]);
    assert!(outcome.out.contains("120 steps, loss "), "{outcome:?}");
    assert_eq!(trained(&t, "killed"), trained(&t, "whole"));
    // A missing model is created again from the last checkpoint.
    fs::remove_dir_all(t.path("killed/model")).unwrap();
    t.run("train killed/recipe.toml -o killed --resume").says(0, &["resuming after 120 steps"]);
    assert_eq!(trained(&t, "killed"), trained(&t, "whole"));
    // The model is named after its run.
    assert_eq!(t.json("model info ./killed/model")["name"], "killed/model");
}

#[test]
fn a_folder_has_one_run_at_a_time() {
    let t = with_encoder();
    let train =
        format!("train simcse --corpus {SAMPLES} -m ./small -o runs/one --batch 4 --evaluate-every 0");
    let command = format!("{train} --steps 100000");
    let mut child = t.command(&command.split(' ').collect::<Vec<_>>()).spawn().unwrap();
    while !t.path("runs/one/metrics.jsonl").exists() && child.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(2));
    }
    t.run(&format!("{command} --resume"))
        .says(5, &["runs/one is being written by process", "wait until it ends"]);
    child.kill().unwrap();
    child.wait().unwrap();
    // The run has released the folder, and the refused run left no files.
    t.run(&format!("{train} --steps 3 --resume")).says(
        2,
        &[
            "steps (100000, now 3)\n",
            "to continue it: `turnwise train runs/one/recipe.toml -o runs/one --resume`",
        ],
    );
    // A run that was killed before its first step can be started again.
    t.write("early/lock", "");
    t.run(&format!(
        "train simcse --corpus {SAMPLES} -m ./small --steps 1 --batch 4 --evaluate-every 0 -o early --resume"
    ))
    .says(0, &["nothing to resume in early yet: starting a new run"]);
    t.run("train simcse --corpus gone.jsonl -m ./small -o other/below").says(2, &["gone.jsonl"]);
    assert!(!t.path("other").exists());
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_keeps_its_steps_and_resumes_its_evaluation() {
    let t = with_encoder();
    t.ok(&format!("corpus split {SAMPLES} --parts train=0.7,dev=0.3 --seed 1 -o parts"));
    // Most of the time is spent on evaluation, so the interrupt happens there.
    let command = "train simcse --corpus parts/train.jsonl -m ./small --dev dialogues:parts/dev.jsonl --steps 30 --batch 4 \
                   --evaluate-every 1 --patience 0 --learning-rate 1e-3";
    t.ok(&format!("{command} -o whole"));
    let mut child =
        t.command(&format!("{command} -o stopped").split_whitespace().collect::<Vec<_>>()).spawn().unwrap();
    let measured =
        || fs::read_to_string(t.path("stopped/evaluations.jsonl")).map_or(0, |text| text.lines().count());
    while measured() < 3 && child.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(2));
    }
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let outcome = t.run(&format!("{command} -o stopped --resume"));
    assert!(outcome.code == 0 && !outcome.err.contains("starting from the beginning"), "{outcome:?}");
    assert_eq!(trained(&t, "stopped"), trained(&t, "whole"));
    let result = |run: &str| -> Vec<Value> {
        let of = |e: &Value| json!([e["step"], e["dev"], e["agreement"]]);
        lines(&t, &format!("{run}/evaluations.jsonl")).iter().map(of).collect()
    };
    assert_eq!(result("stopped"), result("whole"));
    assert_eq!(result("whole").len(), 31);
}

#[test]
fn a_damaged_checkpoint_is_reported() {
    let t = with_encoder();
    let command =
        format!("train simcse --corpus {SAMPLES} -m ./small -o run --steps 4 --checkpoint-every 2 --batch 4");
    t.ok(&command);
    // Without its model, the run is not complete.
    fs::remove_dir_all(t.path("run/model")).unwrap();
    let file = "run/checkpoints/step-00000004/tensors.safetensors";
    let bytes = fs::read(t.path(file)).unwrap();
    t.write(file, &bytes[..bytes.len() / 2]);
    let resume = format!("{command} --resume");
    t.run(&resume).says(4, &["step-00000004", "remove this folder"]);
    // With a flipped bit, the number is still valid, so only the checksum detects it.
    let mut turned = bytes.clone();
    let last = turned.len() - 1;
    turned[last] ^= 0x40;
    t.write(file, turned);
    t.run(&resume).says(4, &["step-00000004", "the checksum of tensors.safetensors does not match"]);
    fs::remove_dir_all(t.path("run/checkpoints/step-00000004")).unwrap();
    t.run(&resume).says(0, &["resuming after 2 steps"]);
}

#[test]
fn a_run_does_not_resume_with_changed_dev_tasks() {
    let t = with_encoder();
    t.ok(&format!("bench build sr {SAMPLES} -o dev.txt --sentences 120"));
    let train =
        format!("train simcse --corpus {SAMPLES} -m ./small -o run --steps 2 --batch 4 --dev sr:dev.txt");
    t.ok(&train);
    t.ok(&format!("bench build sr {SAMPLES} -o dev.txt --sentences 120 --candidate-selection released"));
    let resume = format!("{train} --resume");
    t.run(&resume)
        .says(2, &["cannot resume the run in run: the data of its dev tasks", "restore the original files"]);
    // Without a corpus, and with the folder of a run instead of a recipe, the error names the recipe of the run.
    t.run("train simcse -m ./small -o run --resume")
        .says(2, &["turnwise train run/recipe.toml -o run --resume"]);
    t.run("train run -o other").says(2, &["run is the folder of a run", "its recipe is run/recipe.toml"]);
}

#[test]
fn a_failed_step_saves_its_batch() {
    let t = with_encoder();
    too_large(&t);
    let outcome = t.run(&format!("train simcse --corpus {SAMPLES} -m ./small -o run --steps 4 --batch 4"));
    outcome.says(3, &["failed-batch.json"]);
    let batch = batch_of(&t, "run");
    assert_eq!((&batch["step"], batch["sequences"].as_array().unwrap().len()), (&json!(1), 8));
    assert!(!t.path("run/model").exists());
}

/// Sets the weights of the last layer norm so large that the squares of its outputs are infinite.
fn too_large(t: &Turnwise) {
    let mut bytes = fs::read(t.path("small/model.safetensors")).unwrap();
    let end = bytes.len();
    for n in 0..16 {
        bytes[end - 64 + 4 * n..end - 60 + 4 * n].copy_from_slice(&1e30f32.to_le_bytes());
    }
    t.write("small/model.safetensors", bytes);
}

fn batch_of(t: &Turnwise, run: &str) -> Value {
    serde_json::from_str(&t.read(&format!("{run}/failed-batch.json"))).unwrap()
}

#[test]
fn an_encoder_with_a_prompt_is_trained_with_it() {
    let t = with_encoder();
    let settings = json!({"prompts": {"query": "q: "}, "default_prompt_name": "query"});
    t.write("small/config_sentence_transformers.json", settings.to_string());
    let pooling =
        json!({"word_embedding_dimension": 16, "pooling_mode_mean_tokens": true, "include_prompt": false});
    t.write("small/1_Pooling/config.json", pooling.to_string());
    let train = format!("train responses --corpus {SAMPLES} -m ./small --steps 4 --batch 4");
    t.run(&format!("{train} -o run")).says(0, &["with the prompt \"q: \""]);
    // The model was trained with the prompt, so the saved model has the same prompt.
    assert_eq!(t.json("model info ./run/model")["prompts"]["query"], "q: ");
    let pooling: Value = serde_json::from_str(&t.read("run/model/1_Pooling/config.json")).unwrap();
    assert_eq!(pooling["include_prompt"], true);
    // `[CLS]`, `q`, and the unknown token for the colon.
    too_large(&t);
    t.run(&format!("{train} -o broken")).says(3, &["failed-batch.json"]);
    let batch = batch_of(&t, "broken");
    let sequences = batch["sequences"].as_array().unwrap();
    assert!(
        sequences.iter().all(|ids| ids.as_array().unwrap()[..3] == json!([2, 37, 1]).as_array().unwrap()[..]),
        "{batch}"
    );
}

#[test]
fn an_index_can_be_trained_on() {
    let t = with_encoder();
    t.ok(&format!("ingest -i chats {SAMPLES} --no-encode"));
    t.ok("train simcse --corpus chats -m ./small -o by-name --steps 3 --batch 4");
    t.ok("train simcse --corpus indexes/chats -m ./small -o by-path --steps 3 --batch 4");
    assert_eq!(trained(&t, "by-name"), trained(&t, "by-path"));
    // Options for reading files do not apply to an index.
    t.run("train simcse --corpus chats --from whatsapp -m ./small -o none")
        .says(2, &["--from is an option for files, but chats is an index"]);
    assert!(!t.path("none").exists());
}

#[test]
fn a_dialogue_that_is_read_twice_is_used_once() {
    let t = with_encoder();
    write_pieces(&t);
    // One export has all dialogues. A second export repeats some of them and has one dialogue with changed content.
    let (all, some) = (t.read("all.jsonl"), t.read("pieces/0.jsonl"));
    let first = some.lines().next().unwrap();
    let mut changed: Value = serde_json::from_str(first).unwrap();
    changed["turns"][0]["text"] = json!("something else");
    t.write("exports/a.jsonl", &all);
    t.write("exports/b.jsonl", format!("{some}\n{changed}\n"));
    t.write("once.jsonl", format!("{all}{changed}\n"));
    let train = "train simcse -m ./small --steps 3 --batch 4 --evaluate-every 0";
    t.run(&format!("{train} --corpus exports -o twice"))
        .says(0, &["60 dialogues of exports were already read", "with 281 dialogues"]);
    // A corpus whose dialogues were all read before gets no training steps.
    t.run(&format!("{train} --corpus once.jsonl all.jsonl -o both"))
        .says(0, &["280 dialogues of all.jsonl were already read", "it has no other dialogues"]);
    assert_eq!(trained(&t, "both"), trained(&t, "twice"));
    let outcome = t.run(&format!("{train} --corpus once.jsonl -o once"));
    assert!(!outcome.err.contains("already read"), "{outcome:?}");
    assert_eq!(trained(&t, "twice"), trained(&t, "once"));
}

#[test]
fn unsuitable_training_data_is_reported() {
    let t = with_encoder();
    let turn = |text: &str| json!({"speaker": "x", "text": text});
    let dialogue =
        |n: usize| json!({"id": format!("d{n}"), "turns": [turn("你好吗"), turn(" "), turn("hello")]});
    t.write("few.jsonl", (0..4).map(|n| format!("{}\n", dialogue(n))).collect::<String>());
    let outcome =
        t.run("train simcse --corpus few.jsonl -m ./small --steps 1 --batch 2 --evaluate-every 0 -o few");
    outcome.says(
        0,
        &[
            "4 dialogues and 8 turns; 4 turns without text, skipped",
            "warning: training on only 4 dialogues: ",
            "warning: 12 of the 32 tokens are unknown to ./small",
        ],
    );
    // -q suppresses hints, but not warnings.
    let outcome =
        t.run(&format!("train simcse --corpus {SAMPLES} -m ./small --steps 1 --batch 2 -o many -q"));
    assert!(outcome.err.lines().all(|line| line.starts_with("warning: ")), "{outcome:?}");
}

#[test]
fn invalid_runs_are_refused_before_anything_is_written() {
    let t = with_encoder();
    t.write("one.jsonl", r#"{"id":"a","turns":[{"speaker":"x","text":"hello"}]}"#);
    let on = format!("--corpus {SAMPLES} -m ./small -o run");
    for (line, code, says) in [
        (format!("train dialogcse {on}"), 2, "dialoguecse"),
        ("train simcse -m ./small -o run".to_owned(), 2, "no dialogues to train on"),
        (format!("train simcse {on} --window 3"), 2, "`simcse` does not use the setting window"),
        (format!("train dialoguecse {on} --negatives 3 --hard-negatives 4"), 2, "hard_negatives"),
        (format!("train simcse {on} --learning-rate 7"), 2, "learning_rate cannot be 7"),
        (format!("train simcse {on} --dropout -0.5"), 2, "--dropout takes a number from 0 to 0.9"),
        (format!("train simcse {on} --window 3 --context 2"), 2, "omit --context and --window"),
        (format!("train simcse {on} --context-weight 0.5"), 2, "append a layer with --context-layer"),
        (
            format!("train simcse --corpus {SAMPLES} -m ./small -o one.jsonl"),
            2,
            "one.jsonl is a file, but a run needs a folder",
        ),
        (
            format!("train simcse {on} --dev dialogues:{SAMPLES}"),
            3,
            "all 280 dialogues of the corpus are also in a dev task",
        ),
        ("train runs.toml -o run".to_owned(), 2, "recipe runs.toml not found"),
        (format!("train simcse {on} --frozen-layers 2"), 2, "0 to 1"),
        (format!("train auto {on} --auxiliary responses=1 --micro-batches 2"), 2, "parts"),
        (format!("train self-distillation {on}"), 2, "self-distillation cannot be the only objective"),
        (format!("train simcse {on} --auxiliary simcse=1"), 2, "simcse cannot be combined with simcse"),
        (format!("train simcse {on} --beside keep"), 2, "OBJECTIVE=WEIGHT"),
        (format!("train simcse {on} --select dev"), 2, "select"),
        (format!("train simcse {on} --select dev --evaluate-every 0"), 2, "no evaluations to choose from"),
        (
            format!("train simcse {on} --held-out 5 --evaluate-every 0"),
            2,
            "held-out dialogues are never used",
        ),
        (format!("train simcse {on} --held-out 20000"), 2, "held_out cannot be 20000"),
        (format!("train simcse {on} --steps 0"), 2, "--steps cannot be 0"),
        (
            format!("train simcse {on} --steps -3"),
            2,
            "invalid value '-3' for '--steps <N>': must be a non-negative integer",
        ),
        (format!("train simcse {on} --temperature 0"), 2, "--temperature cannot be 0"),
        (
            format!("train sweep --vary temperature=0.1,0.0 simcse {on}"),
            2,
            "temperature cannot be 0.0: must be a number above 0",
        ),
        (format!("train sweep --vary seed=1,1 simcse {on}"), 2, "seed=1 is in --vary twice"),
        (
            format!("train simcse {on} --min-turns 1000"),
            3,
            "every dialogue is shorter than 1,000 turns: 252 dialogues skipped",
        ),
        (format!("train simcse {on} --dev sr"), 2, "`sr` is not a task with its data"),
        (format!("train simcse {on} --dev sr:gone.txt"), 2, "gone.txt"),
        (format!("train simcse {on} --seeds 5..2"), 2, "`5..2` is not a valid list of seeds"),
        (format!("train sweep simcse {on}"), 2, "--vary"),
        (format!("train sweep --vary temprature=1 simcse {on}"), 2, "did you mean `temperature`?"),
        (format!("train sweep --vary temperature=1,-1 simcse {on}"), 2, "temperature cannot be -1"),
        (
            "train auto --corpus one.jsonl -m ./small -o run".to_owned(),
            3,
            "too few dialogues to train a teacher: 1",
        ),
        (format!("train simcse {on} --devices cpu,tpu"), 2, "tpu"),
        (format!("train simcse {on} --devices cpu,cpu --device cpu"), 2, "cannot be used with"),
        (format!("train simcse {on} --devices cuda:0,cpu,cuda:0"), 2, "cuda:0 is listed twice"),
        (
            format!("train simcse --corpus {SAMPLES} -m ./small -o small --resume"),
            2,
            "contains no run to resume",
        ),
        (format!("train simcse {on} --held-out 5"), 2, "held_out cannot be 5"),
        ("train simcse --corpus nowhere -m ./small -o run".to_owned(), 2, "no index of that name in "),
        (
            "train dialoguecse --corpus one.jsonl -m ./small -o run".to_owned(),
            3,
            "every dialogue is shorter than 2 turns: 1 dialogue skipped",
        ),
        ("train simcse --corpus gone.jsonl -m ./small -o run".to_owned(), 2, "gone.jsonl"),
        (format!("train simcse --corpus {SAMPLES} -m ./gone -o run"), 2, "gone"),
    ] {
        t.run(&line).says(code, &[says]);
        assert!(!t.path("run").exists(), "{line}");
    }
    t.model();
    t.run(&format!("train simcse --corpus {SAMPLES} -m ./fitted -o run")).says(2, &["a static encoder"]);
    t.write("bad.toml", "objective = \"simcse\"\nmodel = \"./small\"\ncorpus = []\nstepps = 3\n");
    t.run(&format!("train bad.toml --corpus {SAMPLES} -o run")).says(3, &["bad.toml:4: ", "stepps"]);
    // A recipe can omit settings that are given on the command line.
    t.write("short.toml", "objective = \"simcse\"\nsteps = 1\nbatch = 4\n");
    t.run("train short.toml -m ./small -o run").says(2, &["no dialogues to train on"]);
    t.ok(&format!("train short.toml -m ./small --corpus {SAMPLES} -o short"));
    t.run(&format!(
        "train simcse {on} --steps 2 --batch 4 --learning-rate 0.9 --temperature 0.0001 --clip 0"
    ));
}

#[test]
fn models_are_trained_with_mean_pooling() {
    let t = with_encoder();
    encoder(&t, "first");
    let pooling = json!({"word_embedding_dimension": 16, "pooling_mode_cls_token": true});
    t.write("first/1_Pooling/config.json", pooling.to_string().as_bytes());
    let train = format!("--corpus {SAMPLES} --steps 3 --batch 4 --learning-rate 1e-3 --evaluate-every 0");
    t.run(&format!("train simcse {train} -m ./first -o first-run")).says(0, &["uses cls pooling"]);
    t.ok(&format!("train simcse {train} -m ./small -o small-run"));
    assert_eq!(trained(&t, "first-run"), trained(&t, "small-run"));
    // The saved model has mean pooling.
    for run in ["first-run", "small-run"] {
        t.ok(&format!("embed {SAMPLES} --model ./{run}/model -o {run}.npy"));
    }
    assert_eq!(fs::read(t.path("first-run.npy")).unwrap(), fs::read(t.path("small-run.npy")).unwrap());
}

/// Removes the separator and the special tokens around texts from the tokenizer of an encoder.
fn without_separator(t: &Turnwise, name: &str) {
    let words: Vec<String> = t.read(&format!("{name}/vocab.txt")).lines().map(str::to_owned).collect();
    let vocab: serde_json::Map<String, Value> = words
        .iter()
        .enumerate()
        .map(|(id, word)| (if word == "[SEP]" { "[unused]".to_owned() } else { word.clone() }, json!(id)))
        .collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": null, "decoder": null,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocab},
    });
    fs::remove_file(t.path(&format!("{name}/vocab.txt"))).unwrap();
    t.write(&format!("{name}/tokenizer.json"), tokenizer.to_string());
    t.write(
        &format!("{name}/tokenizer_config.json"),
        br#"{"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}"#,
    );
}

#[test]
fn a_separator_token_is_added_if_the_tokenizer_has_none() {
    let t = with_encoder();
    without_separator(&t, "small");
    let train = format!("--corpus {SAMPLES} -m ./small --steps 4 --batch 4 --learning-rate 1e-3");
    let result = t.run(&format!("train responses {train} --frozen-layers 0 -o run"));
    assert!(result.err.contains("separated by [SEP], a new token"), "{result:?}");
    let config: Value = serde_json::from_str(&t.read("run/model/config.json")).unwrap();
    assert_eq!(config["vocab_size"], 78);
    // Training uses the new token: its embedding is no longer the mean of the other embeddings.
    t.write("texts.txt", "where is my parcel\n");
    for (model, name) in [("run/model", "trained"), ("run/start", "begun")] {
        t.ok(&format!("embed texts.txt -m ./{model} --precision f32 -o {name}.npy"));
    }
    assert_ne!(fs::read(t.path("trained.npy")).unwrap(), fs::read(t.path("begun.npy")).unwrap());
    assert!(t.read("run/model/tokenizer.json").contains("[SEP]"));
    let result = t.run(&format!("train responses {train} --frozen-layers 1 -o frozen"));
    assert!(result.err.contains("with a fixed random vector"), "{result:?}");
    // An objective with single utterances needs no separator.
    t.ok(&format!("train simcse {train} -o alone"));
    assert!(!t.path("alone/start").exists());
}

/// Returns the parsed lines of a JSON lines file of a run.
pub fn lines(t: &Turnwise, path: &str) -> Vec<Value> {
    t.read(path).lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[test]
fn a_run_is_evaluated_during_training_and_keeps_its_best_step() {
    let t = with_encoder();
    t.ok(&format!("corpus split {SAMPLES} --parts train=0.7,dev=0.3 --seed 1 -o parts"));
    let train = format!(
        "train simcse --corpus {SAMPLES} -m ./small --steps 12 --batch 6 --learning-rate 3e-3 --evaluate-every 4 \
         --dev dialogues:parts/dev.jsonl --checkpoint-every 5"
    );
    let outcome = t.run(&format!("{train} -o run"));
    outcome.says(
        0,
        &[
            "excluded from training, because a dev task has the same: ",
            "after 0 steps: agreement with words",
            "after 12 steps",
        ],
    );
    let measured = lines(&t, "run/evaluations.jsonl");
    let steps: Vec<u64> = measured.iter().map(|e| e["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [0, 4, 8, 12]);
    let agreement = |e: &Value| e["agreement"].as_f64().unwrap();
    let most = measured[1..].iter().map(agreement).fold(0.0, f64::max);
    let best = measured[1..].iter().rfind(|e| agreement(e) >= most - 0.005).unwrap();
    assert!(
        outcome.out.contains(&format!(
            "of step {} in run/model (selected by the agreement with words)",
            best["step"]
        )),
        "{outcome:?}"
    );
    // In `bench`, the saved model has the same value.
    let state: Value = serde_json::from_str(&t.read("run/checkpoints/best/state.json")).unwrap();
    assert_eq!(state["step"], best["step"]);
    let curves = t.read("run/curves.svg");
    for part in
        ["simcse from ./small, seed 0", "of dialogues:dev.jsonl", &format!("kept: step {}<", best["step"])]
    {
        assert!(curves.contains(part), "{part}");
    }
    assert!(t.read("run/model/README.md").contains(&format!("step {}", best["step"])));
    assert!(fs::read(t.path("run/tensorboard/events.out.tfevents.turnwise")).unwrap().len() > 500);
    // A run that is stopped after a checkpoint and then resumed has the same result.
    let copy = |from: &str, to: &str| {
        fs::create_dir_all(t.path(to)).unwrap();
        for entry in fs::read_dir(t.path(from)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_file() {
                fs::copy(&path, t.path(&format!("{to}/{name}"))).unwrap();
            }
        }
    };
    copy("run", "again");
    copy("run/checkpoints/step-00000010", "again/checkpoints/step-00000010");
    copy("run/checkpoints/best", "again/checkpoints/best");
    t.ok(&format!("{train} -o again --resume"));
    assert_eq!(trained(&t, "again"), trained(&t, "run"));
    // The summary covers all steps, not only those after the resume.
    let examples = |run: &str| t.json(&format!("{train} -o {run} --resume"))["examples"].take();
    assert_eq!((examples("again"), examples("run")), (json!(72), json!(72)));
    let without_seconds = |name: &str| -> Vec<Value> {
        let mut all = lines(&t, &format!("{name}/evaluations.jsonl"));
        all.iter_mut().for_each(|e| drop(e.as_object_mut().unwrap().remove("seconds")));
        all
    };
    assert_eq!(without_seconds("again"), without_seconds("run"));
    // If the step was selected by labels, the summary says so. The last step is not a selection.
    let outcome = t.run(&format!("{train} -o dev --select dev"));
    assert!(outcome.out.contains("selected by the dev tasks"), "{outcome:?}");
    let outcome = t.run(&format!("{train} -o last --select last"));
    assert!(outcome.out.contains("of step 12 in last/model\n"), "{outcome:?}");
}

#[test]
fn without_labels_held_out_dialogues_measure_the_gain() {
    let t = with_encoder();
    let train = "train dialoguecse -m ./small --steps 6 --batch 4 --learning-rate 1e-3 --evaluate-every 3";
    let outcome = t.run(&format!("{train} --corpus {SAMPLES} -o run"));
    outcome.says(
        0,
        &[
            "held out for evaluation: 28 dialogues",
            "252 dialogues",
            "after 3 steps: neighbors shared by halves ",
        ],
    );
    let measured = lines(&t, "run/evaluations.jsonl");
    let aside =
        |n: usize| (measured[n]["aside"]["value"].as_f64().unwrap(), measured[n]["aside"]["each"].clone());
    assert!(measured.len() == 3 && aside(0).1.as_array().unwrap().len() == 28, "{measured:?}");
    let kept = t.json(&format!("{train} --corpus {SAMPLES} -o run --resume"));
    let kept_step = kept["kept"].as_u64().unwrap() as usize / 3;
    let gain = &kept["dev"][0];
    assert_eq!((&gain["task"], &gain["measure"]), (&json!("aside"), &json!("halves")));
    assert_eq!((gain["start"].as_f64(), gain["kept"].as_f64()), (Some(aside(0).0), Some(aside(kept_step).0)));
    let result = format!(
        "neighbors shared by the halves of 28 held-out dialogues (7.4 by chance): {:.2} → {:.2} (p ",
        100.0 * aside(0).0,
        100.0 * aside(kept_step).0
    );
    assert!(outcome.out.contains(&result) && outcome.out.contains("\n  not significant"), "{outcome:?}");
    assert!(outcome.out.contains("(selected by the held-out dialogues)"), "{outcome:?}");
    assert!(t.read("run/model/README.md").contains("the halves of 28 held-out dialogues (7.4 by chance) | "));
    assert!(t.read("run/recipe.toml").contains("aside = 400"));
    assert!(t.read("run/curves.svg").contains("neighbors shared by halves, held out"));
    // If the run is repeated, the values are the same. A different seed trains differently, but holds out the same
    // dialogues, so that the gains of several seeds can be compared.
    t.ok("train run/recipe.toml -o again");
    assert_eq!(lines(&t, "again/evaluations.jsonl")[2]["aside"], measured[2]["aside"]);
    t.ok("train run/recipe.toml --seed 1 -o other");
    assert_eq!(lines(&t, "other/evaluations.jsonl")[0]["aside"], measured[0]["aside"]);
    let losses = |run: &str| lines(&t, run).iter().map(|line| line["loss"].clone()).collect::<Vec<_>>();
    assert_eq!(losses("again/metrics.jsonl"), losses("run/metrics.jsonl"));
    assert_ne!(losses("other/metrics.jsonl"), losses("run/metrics.jsonl"));
    // With --held-out 0, or with too few dialogues, none are held out.
    let outcome = t.run(&format!("{train} --corpus {SAMPLES} --held-out 0 -o none"));
    assert!(
        outcome.out.contains("agreement of neighbors with words: ") && !outcome.err.contains("held out"),
        "{outcome:?}"
    );
    write_pieces(&t);
    t.run(&format!("{train} --corpus pieces/0.jsonl -o few")).says(
        0,
        &["20 with at least four turns are needed, but a tenth of the corpus is only 6", "60 dialogues"],
    );
}

#[test]
fn a_run_without_further_gain_stops() {
    let t = with_encoder();
    let outcome = t.run(&format!(
        "train simcse --corpus {SAMPLES} -m ./small -o run --steps 400 --batch 4 --learning-rate 1e-2 --evaluate-every 1 \
         --patience 2"
    ));
    assert!(outcome.out.contains("of 400 (stopped early: no more gain)"), "{outcome:?}");
    let steps = lines(&t, "run/metrics.jsonl").len();
    assert!(steps < 400);
    // Resuming a stopped run changes nothing.
    t.ok(&format!(
        "train simcse --corpus {SAMPLES} -m ./small -o run --steps 400 --batch 4 --learning-rate 1e-2 --evaluate-every 1 \
         --patience 2 --resume"
    ));
    assert_eq!(lines(&t, "run/metrics.jsonl").len(), steps);
}

#[test]
fn micro_batches_and_several_devices_give_the_same_model() {
    let t = with_encoder();
    let train = |name: &str, how: &str| {
        t.ok(&format!(
            "train simcse --corpus {SAMPLES} -m ./small -o {name} --steps 3 --batch 12 --dropout 0 --learning-rate 1e-3 \
             --evaluate-every 0 {how}"
        ));
        lines(&t, &format!("{name}/metrics.jsonl"))
    };
    let whole = train("whole", "");
    for (name, how) in [
        ("parts", "--micro-batches 4"),
        ("devices", "--devices cpu,cpu"),
        ("both", "--devices cpu,cpu --micro-batches 2"),
    ] {
        let other = train(name, how);
        assert_eq!((whole.len(), other.len()), (3, 3));
        for (whole, other) in whole.iter().zip(other) {
            for number in ["loss", "gradient"] {
                let (a, b) = (whole[number].as_f64().unwrap(), other[number].as_f64().unwrap());
                assert!((a - b).abs() < 1e-3 * a, "{how}, {number}: {a} {b}");
            }
        }
    }
}

#[test]
fn an_included_recipe_finds_its_data_and_start_model() {
    let t = with_encoder();
    let dialogue = |n: usize| {
        let turns: Vec<Value> = (0..5)
            .map(|i| json!({"speaker": format!("s{}", i % 2), "text": format!("{n} says {i} words")}))
            .collect();
        json!({"id": format!("d{n}"), "turns": turns}).to_string() + "\n"
    };
    t.write("there/mdc_dev/x.jsonl", (0..20).map(dialogue).collect::<String>());
    let short = "--steps 2 --batch 4 --evaluate-every 0";
    t.run(&format!("train dialoguecse-mdc --data there {short} -o runs/dialoguecse-mdc")).says(
        2,
        &["base model not found: runs/words-mdc/model", "turnwise train words-mdc -o runs/words-mdc"],
    );
    t.ok(&format!("train words-mdc --data there -m ./small {short} -o runs/words-mdc"));
    t.ok(&format!("train dialoguecse-mdc --data there {short} -o runs/dialoguecse-mdc"));
    let recipe = t.read("runs/dialoguecse-mdc/recipe.toml");
    assert!(recipe.contains("there/mdc_dev") && recipe.contains("runs/words-mdc/model"), "{recipe}");
    // The default data folder is the same as for benchmarks.
    t.run(&format!("train words-mdc -m ./small {short} -o run")).says(
        2,
        &["the recipe words-mdc needs data that are missing: data/mdc_dev", "`--data FOLDER`", "train list"],
    );
    t.run("train dialoguecse-mcd -o run").says(2, &["did you mean `dialoguecse-mdc`?"]);
}

#[test]
fn recipes_are_listed_with_their_models_and_data() {
    let t = Turnwise::new();
    fs::create_dir_all(t.path("d/sgd_train_slim/train")).unwrap();
    fs::create_dir_all(t.path("d/sgd_dev/dev")).unwrap();
    let text = t.ok("train list --data d");
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("auto-sgd").contains("has data") && line("auto-sgd").contains("all-MiniLM-L6-v2"), "{text}");
    assert!(line("dialoguecse-mdc").contains("no data"), "{text}");
    assert!(text.contains("turnwise train NAME --data d -o runs/NAME"), "{text}");
    let listed = t.json("train list --data d");
    let recipe = |name: &str| listed.as_array().unwrap().iter().find(|r| r["name"] == name).unwrap().clone();
    assert_eq!(recipe("auto-sgd")["missing"], json!([]));
    assert_eq!(recipe("dialoguecse-mdc")["model"], "runs/words-mdc/model");
    assert_eq!(recipe("dial2vec-bitod")["missing"][0], "d/bitod/train");
}

#[test]
fn several_seeds_and_settings_are_compared() {
    let t = with_encoder();
    let train = format!("simcse --corpus {SAMPLES} -m ./small --steps 3 --batch 4 --learning-rate 1e-3");
    let outcome = t.run(&format!("train {train} --seeds 3..4 -o seeds"));
    assert!(
        [
            "all seeds (2 runs)\n",
            "  agreement with words: ",
            "  neighbors shared by the halves of 28 held-out dialogues"
        ]
        .iter()
        .all(|part| outcome.out.contains(part)),
        "{outcome:?}"
    );
    t.ok(&format!("train {train} --seed 4 -o four"));
    assert_eq!(trained(&t, "seeds/seed-4"), trained(&t, "four"));
    assert_ne!(trained(&t, "seeds/seed-3"), trained(&t, "four"));
    let outcome =
        t.run(&format!("train sweep --vary temperature=0.05,0.5 --vary dialogues=40,80 {train} -o swept"));
    assert!(outcome.out.contains("temperature=0.5, dialogues=40 (1 run)"), "{outcome:?}");
    let runs: Value = serde_json::from_str(&t.read("swept/runs.json")).unwrap();
    assert_eq!(runs.as_array().unwrap().len(), 4);
    let recipe = t.read("swept/temperature=0.05_dialogues=80/recipe.toml");
    assert!(recipe.contains("temperature = 0.05") && recipe.contains("dialogues = 80"), "{recipe}");
    // --resume skips the complete run, and trains the missing one again.
    fs::remove_dir_all(t.path("seeds/seed-4")).unwrap();
    t.run(&format!("train {train} --seeds 3..4 -o seeds")).says(2, &["already contains runs"]);
    t.run(&format!("train {train} --seeds 3..4 -o seeds --resume"))
        .says(0, &["the run in seeds/seed-3 has already ended"]);
    assert_eq!(trained(&t, "seeds/seed-4"), trained(&t, "four"));
    // Additional seeds are added to the existing ones.
    let outcome = t.run(&format!("train {train} --seeds 5..5 -o seeds --resume"));
    assert!(outcome.out.contains("all seeds (3 runs)"), "{outcome:?}");
    assert!(!t.ok(&format!("train {train} --seeds 1 -o single")).contains('±'));
    // Without evaluations, the losses are compared.
    let outcome = t.run(&format!("train {train} --seeds 2 --evaluate-every 0 -o blind"));
    assert!(outcome.out.contains("all seeds (2 runs)\n  loss: "), "{outcome:?}");
}

/// Writes the sample dialogues to files in the folder `pieces`, 60 per file and in their order.
fn write_pieces(t: &Turnwise) {
    t.ok(&format!("corpus convert {SAMPLES} -o all.jsonl"));
    let text = t.read("all.jsonl");
    let lines: Vec<&str> = text.lines().collect();
    for (n, some) in lines.chunks(60).enumerate() {
        t.write(&format!("pieces/{n}.jsonl"), some.join("\n"));
    }
}

#[test]
fn streamed_and_in_memory_training_give_the_same_model() {
    let t = with_encoder();
    write_pieces(&t);
    for objective in ["joint", "auto", "mlm", "responses"] {
        let command = format!(
            "train {objective} --corpus pieces -m ./small --steps 6 --batch 6 --learning-rate 1e-3 --dialogues 200"
        );
        t.ok(&format!("{command} -o {objective}/stream"));
        t.ok(&format!("{command} -o {objective}/memory --in-memory"));
        let [stream, memory] = ["stream", "memory"].map(|how| {
            let result = |file: &str| -> Vec<Value> {
                let of = |line: &str| {
                    let mut line = serde_json::from_str::<Value>(line).unwrap();
                    line["seconds"].take();
                    line
                };
                t.read(&format!("{objective}/{how}/{file}")).lines().map(of).collect()
            };
            let model = trained(&t, &format!("{objective}/{how}"));
            (
                result("metrics.jsonl"),
                result("evaluations.jsonl"),
                t.read(&format!("{objective}/{how}/recipe.toml")),
                model,
            )
        });
        assert_eq!(stream.0.len(), 6);
        assert!(stream == memory, "{objective}: {:?} {:?}", (stream.0, stream.1), (memory.0, memory.1));
    }
    // The temporary files of the run are removed.
    let left = |folder: &str| {
        let names = fs::read_dir(t.path(folder)).unwrap().map(|e| e.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().contains("spool")).count()
    };
    assert_eq!(left(".") + left("joint") + left("joint/stream"), 0);
}

#[test]
fn damaged_and_changed_inputs_are_reported() {
    let t = with_encoder();
    write_pieces(&t);
    let command =
        "train simcse --corpus pieces -m ./small --steps 4 --checkpoint-every 2 --batch 4 --evaluate-every 0";
    t.ok(&format!("{command} -o run"));
    // The input changed, so the run does not resume.
    let text = t.read("pieces/2.jsonl");
    t.write("pieces/2.jsonl", text.lines().skip(1).collect::<Vec<_>>().join("\n"));
    t.run(&format!("{command} -o run --resume")).says(2, &["cannot resume the run in run: the dialogues"]);
    // Test a truncated archive.
    t.ok("corpus convert all.jsonl -o pieces/9.jsonl.gz");
    let archive = fs::read(t.path("pieces/9.jsonl.gz")).unwrap();
    t.write("pieces/9.jsonl.gz", &archive[..archive.len() / 2]);
    t.run(&format!("{command} -o other")).says(3, &["9.jsonl.gz", "1 file could not be read to the end"]);
    assert!(!t.path("other").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported() {
    let t = with_encoder();
    write_pieces(&t);
    let program = t.command(&[]);
    let script = format!(
        "trap '' XFSZ; ulimit -f 64; exec {:?} train simcse --corpus pieces -m ./small -o run --steps 2 --batch 4",
        program.get_program()
    );
    let mut shell = std::process::Command::new("bash");
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.current_dir(t.path("."));
    let outcome = crate::support::Outcome::of(shell.args(["-c", &script]).output().unwrap());
    outcome.says(6, &["cannot write", "spool"]);
    assert!(!t.path("run").exists());
}
