//! Tests of selectors: training, response selection, reranking, replies and errors.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};

use crate::{
    support::{SAMPLES, Turnwise, lines},
    train::{trained, with_encoder},
};

/// Trains a small selector in the folder `run`.
fn train(t: &Turnwise, run: &str, options: &str) {
    train_from(t, run, &format!("-m ./small {options}"));
}

/// Trains a selector from the base model in `options`, in the folder `run`.
fn train_from(t: &Turnwise, run: &str, options: &str) {
    t.ok(&format!(
        "train selector --corpus {SAMPLES} --steps 12 --batch 6 --learning-rate 1e-3 --evaluate-every 0 --held-out 0 {options} \
         -o {run}"
    ));
}

#[test]
fn a_selector_is_trained_further() {
    let t = with_encoder();
    t.ok(&format!("bench build response {SAMPLES} --samples 300 -o responses.jsonl"));
    let ranks_of = |folder: &str| {
        let found = t.json(&format!("bench response responses.jsonl -r selector:{folder}"));
        found[0]["values"][0]["each"].clone()
    };
    let ranks = |run: &str| ranks_of(&format!("./{run}"));
    let settings = |run: &str| t.read(&format!("{run}/model/selector.json"));
    for (run, options) in [
        ("default", ""),
        ("tokens", "--head pooler --max-tokens 32"),
        ("frozen", "--history sentences --head cls --frozen-sentences --first-weight 0.25 --frame cls-eou"),
    ] {
        train(&t, run, options);
        // With a learning rate of almost 0, the new selector is the old one: its settings, its networks and its head.
        let same = format!("{run}-same");
        t.run(&format!(
            "train selector --corpus {SAMPLES} -m ./{run}/model --steps 1 --learning-rate 1e-12 --dev response:responses.jsonl \
             -o {same}"
        ))
        .says(0, &["selector from ./"]);
        assert_eq!(settings(&same), settings(run));
        assert_eq!(ranks(&same), ranks(run), "{run}");
        // Before the first step, the old selector is evaluated, not the vectors of its network.
        let evaluations = lines(&t.read(&format!("{same}/evaluations.jsonl")));
        assert_eq!(evaluations[0]["step"], 0);
        let (a, b) = (
            evaluations[0]["dev"][0]["each"].as_array().unwrap().clone(),
            ranks(run).as_array().unwrap().clone(),
        );
        // Scores are rounded differently in different batches, which can change the order of almost equal ones.
        let different = a.iter().zip(&b).filter(|(a, b)| a != b).count();
        assert!(a.len() == b.len() && different < a.len() / 50, "{run}: {different}");
    }
    // Before training, the default head scores with the similarities of the model. The other heads know nothing, so the
    // vectors of the model are evaluated.
    for (run, options) in [("untrained", ""), ("untrained-cls", "--head cls")] {
        t.ok(&format!(
            "train selector --corpus {SAMPLES} -m ./small --steps 1 --learning-rate 1e-12 --held-out 0 --dev \
             response:responses.jsonl {options} -o {run}"
        ));
        let evaluations = lines(&t.read(&format!("{run}/evaluations.jsonl")));
        let start = evaluations[0]["dev"][0]["each"].as_array().unwrap().clone();
        let expected = match options {
            "" => ranks(run),
            _ => t.json("bench response responses.jsonl -r model:./small")[0]["values"][0]["each"].clone(),
        };
        let different = start.iter().zip(expected.as_array().unwrap()).filter(|(a, b)| a != b).count();
        assert!(different < start.len() / 50, "{run}: {different}");
    }
    let further = |run: &str, options: &str| {
        t.run(&format!("train selector --corpus {SAMPLES} -m ./{run}/model --steps 2 {options} -o more"))
    };
    // A cross-encoder of sentence-transformers keeps its head, too.
    let cross_encoder = format!("{}/tests/fixtures/agreement/cross-encoder", env!("CARGO_MANIFEST_DIR"));
    t.run(&format!(
        "train selector --corpus {SAMPLES} -m {cross_encoder} --steps 1 --learning-rate 1e-12 --dev response:responses.jsonl \
         -o from-cross-encoder"
    ))
    .says(0, &["selector from "]);
    let (new, old) = (ranks("from-cross-encoder"), ranks_of(&cross_encoder));
    let (new, old) = (new.as_array().unwrap(), old.as_array().unwrap());
    // Pairs that are too long are cut differently, which can change their ranks.
    let different = new.iter().zip(old).filter(|(a, b)| a != b).count();
    assert!(new.len() == 300 && different < 30, "{different}");
    assert!(settings("from-cross-encoder").contains("\"head\": \"pooler\""));
    assert!(!t.path("from-cross-encoder/start").exists(), "no token was added");
    further("tokens", "--head cls")
        .says(2, &["the selector has the head `pooler`, not `cls`", "train it further with `pooler`"]);
    // Other settings of the sentence vectors, with the same networks.
    further("frozen", "--first-weight 0.75 --sentence-segment").says(0, &[]);
    let more = settings("more");
    assert!(more.contains("\"first_weight\": 0.75") && more.contains("cls-eou"), "{more}");
    assert!(more.contains("\"frozen\": true") && more.contains("\"own_segment\": true"), "{more}");
    ranks("more");
    t.run(&format!("train simcse --corpus {SAMPLES} -m ./tokens/model -o x"))
        .says(2, &["is a selector, which scores texts, not an encoder", "train it further"]);
}

#[test]
fn a_selector_is_trained_evaluated_and_saved() {
    let t = with_encoder();
    t.ok(&format!("bench build response {SAMPLES} -o responses.jsonl"));
    let runs = [
        ("tokens", ""),
        ("sentences", "--history sentences --head cls --first-weight 0.25 --sentence-segment"),
    ];
    for (run, options) in runs {
        let outcome = t.run(&format!(
            "train selector --corpus {SAMPLES} -m ./small --steps 12 --batch 6 --learning-rate 1e-3 {options} -o {run}"
        ));
        outcome.says(0, &["every turn ends with [EOU], a new token", "selector from ./small"]);
        assert!(outcome.out.contains("R@1 of ten responses to "), "{outcome:?}");
        assert!(outcome.out.contains("(selected by the held-out dialogues)"), "{outcome:?}");
        let settings: Value = serde_json::from_str(&t.read(&format!("{run}/model/selector.json"))).unwrap();
        assert_eq!(settings["history"], run);
        let card = t.read(&format!("{run}/model/README.md"));
        assert!(card.contains("turnwise respond") && !card.contains("SentenceTransformer("), "{card}");
        // The folder of the run, or of its model.
        for selector in [format!("./{run}"), format!("./{run}/model")] {
            let found = t.json(&format!("bench response responses.jsonl -r selector:{selector}"));
            let recall = found.to_string();
            assert!(recall.contains("R@1"), "{recall}");
        }
        t.run(&format!("embed {SAMPLES} --model ./{run}/model -o x.npy"))
            .says(2, &["is a selector, which scores texts, not an encoder"]);
    }
    // Frozen sentence vectors: the folder has both networks.
    t.ok(&format!(
        "train selector --corpus {SAMPLES} -m ./small --steps 12 --batch 6 --learning-rate 1e-3 --history sentences --head pooler \
         --frozen-sentences -o frozen"
    ));
    assert!(t.read("frozen/model/selector.json").contains("\"frozen\": true"));
    assert!(t.read("frozen/recipe.toml").contains("frozen = true"));
    let size = |run: &str| fs::metadata(t.path(&format!("{run}/model/model.safetensors"))).unwrap().len();
    assert!(size("frozen") > 3 * size("sentences") / 2);
    let found = t.json("bench response responses.jsonl -r selector:./frozen");
    assert!(found[0]["values"][0]["value"].as_f64().unwrap() > 0.0, "{found}");
    let refused = |objective: &str, options: &str| {
        t.run(&format!("train {objective} --corpus {SAMPLES} -m ./small --frozen-sentences {options} -o x"))
    };
    refused("selector", "")
        .says(2, &["frozen has no effect: the history consists of tokens", "--history sentences"]);
    refused("selector", "--history sentences")
        .says(2, &["the head `matching` trains the vectors of turns", "use the head `cls` or `pooler`"]);
    refused("post-training", "--history sentences")
        .says(2, &["`post-training` trains the sentence vectors", "omit --frozen-sentences"]);
    t.run(&format!("train selector --corpus {SAMPLES} -m ./small --context 5 -o x"))
        .says(2, &["`selector` does not use the setting context", "omit --context"]);
    t.run(&format!("train selector --corpus {SAMPLES} -m ./tokens -o x"))
        .says(2, &["is the folder of a training run", "tokens/model"]);
    // The last turns or tokens of the context.
    let scores = |suffix: &str| {
        t.json(&format!("bench response responses.jsonl -r selector:./tokens{suffix}"))[0]["values"][0]["each"].clone()
    };
    assert_eq!(scores("+last-1000"), scores(""));
    assert_eq!(scores("+last-100000-tokens"), scores(""));
    assert_ne!(scores("+last-1-tokens"), scores(""));
    assert_ne!(scores("+last-1"), scores(""));
    let recipe = t.read("sentences/recipe.toml");
    assert!(recipe.contains("first_weight = 0.25") && recipe.contains("max_tokens = 64"), "{recipe}");
    t.run("bench response responses.jsonl -r selector:./small")
        .says(2, &["small is not a selector, but an encoder"]);
    // A missing model is reported before another ranker is run.
    for missing in ["selector:./nowhere", "model:./nowhere"] {
        let outcome = t.run(&format!("bench response responses.jsonl -r bm25 -r {missing}"));
        outcome.says(2, &["nowhere"]);
        assert!(outcome.out.is_empty() && !outcome.err.contains("ranking"), "{outcome:?}");
    }
    for ranker in ["selector", "selector:"] {
        t.run(&format!("bench response responses.jsonl -r {ranker}")).says(2, &["selector:DIR"]);
    }
}

#[test]
fn a_killed_training_of_a_selector_resumes_to_the_same_selector() {
    let t = with_encoder();
    for (kind, options) in [
        ("t", "-m ./small --history tokens --head pooler"),
        ("s", "-m ./small --history sentences --negatives 2 --hard-negatives 1"),
        ("f", "-m ./small --history sentences --head cls --frozen-sentences"),
        // A selector that is trained further.
        ("g", "-m ./f-whole/model"),
    ] {
        train_from(&t, &format!("{kind}-whole"), options);
        let command = format!(
            "train selector --corpus {SAMPLES} --steps 12 --batch 6 --learning-rate 1e-3 --evaluate-every 0 --held-out 0 \
             --checkpoint-every 2 {options} -o {kind}-killed"
        );
        let mut child = t.command(&command.split_whitespace().collect::<Vec<_>>()).spawn().unwrap();
        while !t.path(&format!("{kind}-killed/checkpoints")).exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        t.ok(&format!("{command} --resume"));
        assert_eq!(trained(&t, &format!("{kind}-killed")), trained(&t, &format!("{kind}-whole")), "{kind}");
    }
}

#[test]
fn post_training_ends_in_an_encoder_from_which_a_selector_starts() {
    let t = with_encoder();
    t.ok(&format!(
        "train post-training --corpus {SAMPLES} -m ./small --steps 6 --batch 6 --learning-rate 1e-3 -o post"
    ));
    t.ok(&format!("embed {SAMPLES} --model ./post/model -o x.npy"));
    let config: Value = serde_json::from_str(&t.read("post/model/config.json")).unwrap();
    assert_eq!(config["vocab_size"], 78);
    let outcome = t.run(&format!(
        "train selector --corpus {SAMPLES} -m ./post/model --steps 4 --batch 4 --evaluate-every 0 --held-out 0 -o replies"
    ));
    outcome.says(0, &["selector from ./post/model"]);
    assert!(!outcome.err.contains("a new token"), "{outcome:?}");
    // On sentence vectors, whose settings are stored and checked.
    let post = |options: &str| {
        t.run(&format!(
            "train post-training --corpus {SAMPLES} -m ./small --steps 4 --batch 6 --learning-rate 1e-3 {options} -o on-vectors"
        ))
    };
    post("--history sentences --head cls")
        .says(2, &["`post-training` trains no selector, so it has no head"]);
    post("--first-weight 0.3").says(2, &["first_weight has no effect: the history consists of tokens"]);
    post("--history sentences --first-weight 0.3").says(0, &["post-training from ./small"]);
    let recipe = t.read("on-vectors/recipe.toml");
    assert!(recipe.contains("first_weight = 0.3") && !recipe.contains("head"), "{recipe}");
    t.ok(&format!("embed {SAMPLES} --model ./on-vectors/model -o y.npy"));
}

#[test]
fn a_selector_chooses_replies_and_reranks() {
    let t = with_encoder();
    train(&t, "replies", "");
    t.ok(&format!("ingest -i chats {SAMPLES} --no-encode"));
    t.ok("encode -i chats --model ./small");
    t.write("chat.txt", "hello\nmy card was stolen\n");
    t.write("macros.txt", "I blocked your card.\n\nYour parcel is on its way.\nok\nok\n");
    let plain = t.json("respond -i chats --context chat.txt");
    assert_eq!(plain["schema"], "turnwise/respond/1");
    // JSON in an unknown layout is not read as lines of text.
    t.write("unknown.json", "[{\"role\": \"user\", \"content\": \"my card was stolen\"}]");
    t.run("respond -i chats --context unknown.json")
        .says(3, &["unknown.json looks like JSON, but is not a dialogue in a known format", "\"messages\""]);
    t.run("respond -i chats").says(2, &["there is no conversation to answer", "--context FILE"]);
    t.run("respond -i chats hello --role boss").says(
        0,
        &["no answer is by a speaker with the role boss; the roles in these dialogues: user, agent"],
    );
    // A line in brackets is text.
    t.write("brackets.txt", "[ticket 5] my card was stolen\n");
    t.run("respond -i chats --context brackets.txt").says(0, &[]);
    fs::write(t.path("latin1.txt"), b"caf\xe9\n").unwrap();
    for option in ["--context", "--turn hello --candidates"] {
        t.run(&format!("respond -i chats {option} latin1.txt"))
            .says(3, &["latin1.txt: invalid UTF-8 at byte 3", "iconv"]);
    }
    // What was already said is no suggestion.
    let reply = plain["replies"][0]["text"].as_str().unwrap();
    t.write("said.txt", format!("hello\n{}\nmy card was stolen\n", reply.to_uppercase()));
    let again = t.json("respond -i chats --context said.txt -k 50");
    assert!(again["replies"].as_array().unwrap().iter().all(|other| other["text"] != reply), "{again}");
    let chosen = t.json("respond -i chats --context chat.txt --selector ./replies -k 3");
    let replies = chosen["replies"].as_array().unwrap();
    assert_eq!(replies.len(), 3);
    let scores: Vec<f64> = replies.iter().map(|reply| reply["score"].as_f64().unwrap()).collect();
    assert!(
        scores.is_sorted_by(|a, b| a >= b) && scores.iter().all(|s| (0.0..=1.0).contains(s)),
        "{scores:?}"
    );
    assert!(replies[0]["said"]["answered"]["text"].is_string());
    // The scores are shares of all answers that were found.
    let all = t.json("respond -i chats --context chat.txt --selector ./replies -k 50");
    let sum: f64 = all["replies"].as_array().unwrap().iter().map(|r| r["score"].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-4, "{sum}");
    let agents = t.json("respond -i chats --context chat.txt --selector ./replies --role agent");
    assert!(agents["replies"].as_array().unwrap().iter().all(|r| r["said"]["turn"]["role"] == "agent"));
    // Candidates need no index with vectors, and the numbers are lines without the blank ones.
    let best = t.json("respond -i chats --context chat.txt --selector ./replies --candidates macros.txt");
    let without_index = t.json("respond --context chat.txt --selector ./replies --candidates macros.txt");
    assert_eq!(without_index["replies"], best["replies"]);
    let mut candidates: Vec<u64> =
        best["replies"].as_array().unwrap().iter().map(|r| r["candidate"].as_u64().unwrap()).collect();
    candidates.sort_unstable();
    // Lines from 0, without the blank and the repeated one.
    assert_eq!(candidates, [0, 2, 3]);
    // As many answers of a role as requested: turns of the other role are often more similar to the question.
    for (role, options) in [("agent", "-k 20"), ("agent", "-k 5 --mode bm25"), ("user", "-k 20")] {
        let found = t.json(&format!("respond -i chats refund --role {role} {options}"));
        let texts: Vec<&str> =
            found["replies"].as_array().unwrap().iter().map(|r| r["text"].as_str().unwrap()).collect();
        let expected = if options.contains("bm25") { 5 } else { 20 };
        assert_eq!(texts.len(), expected, "{role} {options}: {texts:?}");
        // No two of them differ only in case, spaces and punctuation.
        let words = |text: &&str| text.to_lowercase().replace(|c: char| !c.is_alphanumeric(), "");
        let different: BTreeSet<String> = texts.iter().map(words).collect();
        assert_eq!(different.len(), expected, "{texts:?}");
    }
    t.run("respond -i chats hello --selector ./replies").says(0, &[]);
    let outcome = t.run("respond -i chats hello");
    assert!(
        outcome.out.contains("in answer to: ") && outcome.err.contains("turnwise train selector"),
        "{outcome:?}"
    );
    // The score of a reranked hit is that of the selector.
    let found = t.json("search -i chats refund --rerank selector:./replies -k 5");
    let hits = found["hits"].as_array().unwrap();
    let scores: Vec<f64> = hits.iter().map(|hit| hit["score"].as_f64().unwrap()).collect();
    assert!(
        scores.is_sorted_by(|a, b| a >= b) && scores.iter().all(|s| (0.0..=1.0).contains(s)),
        "{scores:?}"
    );
    let explained = t.ok("search -i chats refund --rerank selector:./replies --explain");
    assert!(explained.contains("score of the selector; rank "), "{explained}");
    t.write("queries.jsonl", "refund\nparcel\n");
    let batch = t.ok("search -i chats --queries queries.jsonl --rerank selector:./replies");
    assert_eq!(lines(&batch)[0]["hits"], found_of(&t, "refund")["hits"]);
}

#[test]
fn an_answer_that_several_turns_got_is_the_better_one() {
    let t = Turnwise::new();
    let answers = ["No idea", "It is on its way.", "it is on its way!"];
    let chats = answers.iter().enumerate().map(|(n, answer)| {
        let turns =
            json!([{"role": "user", "text": "where is my parcel"}, {"role": "agent", "text": answer}]);
        json!({"id": format!("d{n}"), "turns": turns}).to_string() + "\n"
    });
    t.write("chats.jsonl", chats.collect::<String>());
    t.ok("ingest -i chats chats.jsonl --no-encode");
    let found = t.json("respond -i chats parcel");
    let replies = found["replies"].as_array().unwrap();
    // The three turns have the same score, so either spelling of the answer can be the first.
    let words = |reply: &Value| reply["text"].as_str().unwrap().replace(['.', '!'], "").to_lowercase();
    let texts: Vec<String> = replies.iter().map(words).collect();
    assert_eq!(texts, ["it is on its way", "no idea"]);
    for (reply, share) in replies.iter().zip([2.0 / 3.0, 1.0 / 3.0]) {
        assert!((reply["score"].as_f64().unwrap() - share).abs() < 1e-6, "{found}");
    }
}

fn found_of(t: &Turnwise, query: &str) -> Value {
    t.json(&format!("search -i chats {query} --rerank selector:./replies"))
}

#[test]
fn wrong_uses_of_selectors_are_reported() {
    let t = with_encoder();
    train(&t, "replies", "");
    t.ok(&format!("ingest -i chats {SAMPLES} --no-encode"));
    t.ok("encode -i chats --model ./small");
    t.write("blank.txt", "\n \n");
    t.write("long.txt", "a b c d ".repeat(2_500) + "\n");
    fs::create_dir(t.path("begun")).unwrap();
    t.write("begun/recipe.toml", "");
    t.write("list.json", "[\n \"yes\",\n \"no\"\n]\n");
    t.write("lines.txt", "{\"text\": \"yes\"}\n{\"text\": \"no\"}\n");
    t.write("table.csv", "id,text\n1,yes\n");
    t.write("texts.jsonl", "{\"id\": \"a\", \"turns\": []}\n");
    t.write("braces.txt", "{{name}}, we are looking into it\n[order] is on its way\n");
    t.run("respond -i chats hello --candidates braces.txt").says(0, &[]);
    fs::create_dir(t.path("runs")).unwrap();
    let outcome = t.run("respond -i chats x --selector runs/nothere");
    assert!(!outcome.err.contains("model pull"), "{outcome:?}");
    t.run(&format!("bench build response {SAMPLES} --role boss -o x.jsonl"))
        .says(3, &["no turn has the role `boss`", "the roles in these dialogues: user, agent"]);
    // Data that cannot be used is reported before the run has started.
    let one = t.ok(&format!("corpus convert {SAMPLES} -o -"));
    t.write("one.jsonl", lines(&one)[0].to_string() + "\n");
    t.run("train selector --corpus one.jsonl -m ./small --steps 2 -o one")
        .says(3, &["at least two dialogues"]);
    assert!(!t.path("one").exists());
    let on = format!("--corpus {SAMPLES} -m ./small -o run");
    for (command, texts) in [
        ("search -i chats x --rerank selector", vec!["selector:MODEL"]),
        ("search -i chats x --rerank maxsi", vec!["unknown reranking method `maxsi`", "maxsim"]),
        ("search -i chats x --rerank selector:./nowhere", vec!["nowhere"]),
        (
            "search -i chats x --of dialogues --rerank selector:./replies",
            vec!["reranking by a selector is possible only with a query and for utterances"],
        ),
        ("search -i chats x --rerank selector:./small", vec!["is not a selector, but an encoder"]),
        ("respond -i chats x --selector .", vec![". is not the folder of a selector", "such as ./replies"]),
        ("respond -i chats x --selector runs/nothere", vec!["such as runs/replies"]),
        ("respond -i chats x --selector begun", vec!["the training run begun is not finished", "--resume"]),
        ("respond -i chats x --candidates list.json", vec!["list.json is JSON, not a text file", "per line"]),
        ("respond -i chats x --candidates lines.txt", vec!["lines.txt is JSON, not a text file", "per line"]),
        (
            "respond -i chats x --candidates table.csv",
            vec!["table.csv is a table, not a text file", "per line"],
        ),
        (
            "bench response texts.jsonl -r bm25",
            vec!["texts.jsonl:1: not a sample", "turnwise bench build response"],
        ),
        (
            "bench build response chats -o x.jsonl",
            vec!["`chats` is an index", "turnwise corpus export -i chats"],
        ),
        ("respond -i chats --context blank.txt", vec!["blank.txt has no text"]),
        ("respond -i chats hello --candidates blank.txt", vec!["blank.txt has no text"]),
        ("respond -i chats", vec!["there is no conversation to answer"]),
    ] {
        let outcome = t.run(command);
        assert!(outcome.code > 0, "{command}: {outcome:?}");
        texts.iter().for_each(|text| assert!(outcome.err.contains(text), "{command}: {outcome:?}"));
    }
    // A context and a candidate of 10,000 tokens are cut, with a warning for the candidate.
    let outcome = t.run("respond -i chats --context long.txt --selector ./replies --candidates long.txt");
    outcome
        .says(0, &["warning: the selector read only the beginning of 1 candidate, because it is too long: "]);
    for (options, texts) in [
        (
            "--first-weight 0.5",
            ["first_weight has no effect: the history consists of tokens", "--history sentences"],
        ),
        ("--history sentences --first-weight 1.5", ["the weight of the first layer cannot be 1.5", "0.4"]),
        ("--history sentences --frame none --sentence-pooling cls", ["`cls` needs [CLS]", "cls-sep"]),
        ("--history words", ["unknown kind of history `words`", "tokens"]),
        ("--dev sr:x.txt", ["a selector cannot be evaluated on the task sr", "--dev response:FILE"]),
        ("--max-tokens 8", ["a selector cannot read 8 tokens", "use 16 to 64"]),
    ] {
        t.write("x.txt", "1\ta\tb\n");
        let outcome = t.run(&format!("train selector {options} {on}"));
        outcome.says(2, &texts);
        assert!(!t.path("run").exists(), "{options}");
    }
    t.run(&format!("train simcse --history sentences {on}"))
        .says(2, &["`simcse` does not use the setting selector", "--history"]);
    // A damaged head is found.
    let path = t.path("replies/model/selector.json");
    let settings = fs::read_to_string(&path).unwrap();
    fs::write(&path, settings.replace("\"max_tokens\": 64", "\"max_tokens\": 6400")).unwrap();
    t.run("respond -i chats hello --selector ./replies").says(3, &["selector.json", "6400 tokens"]);
    fs::write(&path, settings.replace("eou", "eo")).unwrap();
    t.run("respond -i chats hello --selector ./replies").says(3, &["selector.json"]);
}

#[cfg(feature = "serve")]
#[test]
fn a_server_uses_its_selector() {
    use crate::http::Server;

    let t = with_encoder();
    train(&t, "replies", "");
    t.ok(&format!("ingest -i chats {SAMPLES} --no-encode"));
    t.ok("encode -i chats --model ./small");
    let server = Server::start(&t, "-i chats --selector ./replies");
    let context = json!(["hello", "my card was stolen"]);
    let candidates = json!(["I blocked your card.", "Your parcel is on its way.", "ok"]);
    let typed = t.json("respond -i chats --turn hello --turn stolen --selector ./replies");
    let found = server.post("/v1/respond", &json!({"context": ["hello", "stolen"]})).json(200);
    assert_eq!(found["replies"], typed["replies"]);
    let by_cosine = server
        .post("/v1/respond", &json!({"context": context, "candidates": candidates, "select": false}))
        .json(200);
    let selected =
        server.post("/v1/respond", &json!({"context": context, "candidates": candidates})).json(200);
    let scores = |found: &Value| -> Vec<f64> {
        found["replies"].as_array().unwrap().iter().map(|r| r["score"].as_f64().unwrap()).collect()
    };
    assert_ne!(scores(&by_cosine), scores(&selected));
    let ranked =
        server.post("/v1/rerank", &json!({"query": "my card was stolen", "documents": candidates})).json(200);
    assert_eq!(ranked["model"], "replies/model");
    let by_encoder = json!({"query": "my card was stolen", "documents": candidates, "model": "small"});
    assert_ne!(server.post("/v1/rerank", &by_encoder).json(200)["results"], ranked["results"]);
    let request = json!({"query": "refund", "rerank": {"by": "selector"}, "k": 5});
    let hits = server.post("/v1/search", &request).json(200);
    assert_eq!(hits["hits"], t.json("search -i chats refund --rerank selector:./replies -k 5")["hits"]);
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "respond", "arguments": {"context": ["hello", "stolen"], "k": 5}},
    });
    let answer = server.post("/mcp", &call).json(200);
    assert!(answer["result"].to_string().contains("replies"), "{answer}");
    // Wrong types are reported with the path of the value.
    for (body, text) in [
        (
            json!({"context": [{"role": "user", "text": "hi"}]}),
            "`context[0]`: invalid type: object, expected a string",
        ),
        (json!({"context": "hi"}), "`context`: invalid type: string \\\"hi\\\", expected an array"),
        (json!({"context": ["hi"], "candidates": []}), "there are no candidates with text"),
        (json!({"context": ["hi"], "candidates": [" "]}), "there are no candidates with text"),
    ] {
        server.post("/v1/respond", &body).says(400, &[text]);
    }
    server
        .post("/v1/search", &json!({"query": "refund", "rerank": "selector"}))
        .says(400, &["`rerank`: invalid type: string", "expected an object", "openapi.json"]);
    // Without a selector, a request for it is refused.
    let server = Server::start(&t, "-i chats");
    server.post("/v1/search", &request).says(400, &["there is no selector"]);
}
