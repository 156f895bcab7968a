use std::collections::HashSet;

use super::*;
use crate::{groups::Group, result::Of, tasks::TaskSpec};
use turnwise_core::random::Random;
use turnwise_corpus::formats;

/// Two conversations with two sessions each. The second conversation has the same words as the first one.
const LOCOMO: &str = r#"[
 {"sample_id": "a", "qa": [
   {"question": "dog", "evidence": ["D1:1; D2:2", "D1:1"], "category": 1},
   {"question": "cat", "evidence": ["D:2:1", "D9:9"], "category": 4},
   {"question": "nothing", "evidence": ["D"], "category": 4},
   {"question": "bird", "evidence": ["D1:1"], "category": 5}],
  "session_1": [{"dia_id": "D1:1", "text": "a dog"}, {"dia_id": "D1:2", "text": "a bird"}],
  "session_2": [{"dia_id": "D2:1", "text": "a cat"}, {"dia_id": "D2:2", "text": "the dog"}]},
 {"sample_id": "b", "qa": [{"question": "dog", "evidence": ["D1:1"], "category": 4}],
  "session_1": [{"dia_id": "D1:1", "text": "a dog"}]}]"#;

fn read_dialogues(path: &Path) -> Result<Vec<Dialogue>> {
    let mut all = Vec::new();
    for source in turnwise_corpus::walk::plan(&[path.to_owned()], None)?.sources {
        all.extend(source.read(&formats::ReadOptions::default())?.filter_map(Result::ok));
    }
    Ok(all)
}

fn load(files: &[(&str, &str)], toml: &str) -> Result<Loaded> {
    let dir = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| std::fs::write(dir.path().join(name), text).unwrap());
    let spec: TaskSpec = toml::from_str(&format!("kind = 'memory'\n{toml}")).unwrap();
    let with = LoadOptions { seed: 1, read_dialogues: &read_dialogues, progress: &() };
    spec.settings().load(dir.path(), &with)
}

fn locomo() -> Loaded {
    load(&[("l.json", LOCOMO)], "data = 'l.json'").unwrap()
}

/// Scorer with given scores: the first score is that of document 0.
struct Given(Vec<f32>);

impl Scorer for Given {
    fn scores(&self, _: usize, documents: &[u32], scores: &mut Vec<f32>) -> Result<()> {
        scores.clear();
        scores.extend(documents.iter().map(|n| self.0[*n as usize]));
        Ok(())
    }
}

#[test]
fn questions_search_their_own_conversation() {
    let loaded = locomo();
    let task = loaded.task.memory().unwrap();
    assert_eq!(loaded.data.size, "3 questions, 5 turns in 3 dialogues, 2 conversations");
    let questions: Vec<_> =
        task.questions.iter().map(|q| (q.id.as_str(), q.collection, q.evidence.clone())).collect();
    assert_eq!(questions, [("a/1", 0, vec![0, 3]), ("a/2", 0, vec![2]), ("b/1", 1, vec![4])]);
    let skipped: Vec<_> =
        task.skipped().iter().map(|s| (s.what.as_str(), s.count, s.first.as_str())).collect();
    assert_eq!(
        skipped,
        [
            ("questions without an answer (category 5)", 1, "a/4"),
            ("evidence ids that do not exist", 2, "a/2: a-D9#9"),
            ("questions without evidence", 1, "a/3"),
        ]
    );
    assert_eq!(task.document("b-D1#1"), Some(4));
}

#[test]
fn the_values_are_those_computed_by_hand() {
    let loaded = locomo();
    // Order in the first conversation: a-D2#1, a-D1#2, a-D1#1; the turn a-D2#2 is not found.
    let outcome = loaded.task.run(&Given(vec![1.0, 2.0, 3.0, NOT_FOUND, 0.0]), true, &()).unwrap();
    let each = |name: &str| outcome.values.iter().find(|v| v.measure == name).unwrap().each.clone();
    assert_eq!(each("R@5"), [0.5, 1.0, 1.0]);
    assert_eq!(each("hit@5"), [1.0; 3]);
    assert_eq!(each("MRR"), [1.0 / 3.0, 1.0, 1.0]);
    assert_eq!(each("session R@5"), [1.0; 3]);
    assert_eq!(outcome.categories, ["1 multi-hop", "4 single-hop", "4 single-hop"]);
    assert_eq!(outcome.rankings[0].documents.len(), 4);
    let last = outcome.rankings[0].documents.last().unwrap();
    assert_eq!((last.0.as_str(), last.2), ("a-D2#2", Some(1)));
    let data = &loaded.data;
    let options = loaded.task.identity();
    let of = Of { task: loaded.task.as_ref().into(), options: &options, data, ranker: ("x", "x"), seed: 1 };
    let groups = Group::all(&of.done(outcome, 0.0), 1);
    let shown: Vec<_> =
        groups.iter().map(|g| (g.category.as_deref(), g.queries, g.values[0].value)).collect();
    assert_eq!(shown, [(None, 3, 2.5 / 3.0), (Some("1 multi-hop"), 1, 0.5), (Some("4 single-hop"), 2, 1.0)]);
    assert_eq!(groups[1].values[0].interval, (0.5, 0.5));
}

/// Builds a corpus of dialogues with seven turns, and questions with random evidence.
fn random_task(random: &mut Random) -> Loaded {
    let turn = r#"{"text":"x"}"#;
    let dialogue = |n: usize| format!("{{\"id\":\"d{n}\",\"turns\":[{}]}}\n", [turn; 7].join(","));
    let corpus: String = (0..40).map(dialogue).collect();
    let mut questions = String::new();
    for _ in 0..30 {
        let count = 1 + random.below(4);
        let mut id = || format!("\"d{}#{}\"", random.below(40), 1 + random.below(7));
        let evidence: Vec<String> = (0..count).map(|_| id()).collect();
        questions.push_str(&format!("{{\"query\":\"q\",\"evidence\":[{}]}}\n", evidence.join(",")));
    }
    load(&[("c.jsonl", &corpus), ("q.jsonl", &questions)], "corpus = 'c.jsonl'\nquestions = 'q.jsonl'")
        .unwrap()
}

#[test]
fn the_measures_equal_those_of_a_naive_computation() {
    let mut random = Random::new(5, 0);
    let loaded = random_task(&mut random);
    let task = loaded.task.memory().unwrap();
    let scores: Vec<f32> = (0..280)
        .map(|n| if random.below(10) == 0 { NOT_FOUND } else { (random.below(50) + n % 2) as f32 })
        .collect();
    let outcome = task.run(&Given(scores.clone()), false, &()).unwrap();
    let mut order: Vec<usize> = (0..280).filter(|n| scores[*n] != NOT_FOUND).collect();
    // Equal scores are in descending order of the ids.
    order.sort_by(|a, b| {
        let id = |n: usize| format!("d{}#{}", n / 7, 1 + n % 7);
        scores[*b].total_cmp(&scores[*a]).then_with(|| id(*b).cmp(&id(*a)))
    });
    order.truncate(100);
    let mut sessions: Vec<usize> = Vec::new();
    for n in &order {
        if !sessions.contains(&(n / 7)) {
            sessions.push(n / 7);
        }
    }
    for (n, question) in task.questions.iter().enumerate() {
        let evidence: HashSet<usize> = question.evidence.iter().map(|n| *n as usize).collect();
        let wanted: HashSet<usize> = evidence.iter().map(|n| n / 7).collect();
        let share = |ranked: &[usize], wanted: &HashSet<usize>, k: usize| {
            ranked.iter().take(k).filter(|n| wanted.contains(n)).count() as f64 / wanted.len() as f64
        };
        let first = order.iter().position(|n| evidence.contains(n));
        let expected = [
            share(&order, &evidence, 5),
            share(&order, &evidence, 10),
            f64::from(first.is_some_and(|at| at < 5)),
            first.map_or(0.0, |at| 1.0 / (at + 1) as f64),
            share(&sessions, &wanted, 5),
            share(&sessions, &wanted, 10),
        ];
        let computed: Vec<f64> = outcome.values.iter().map(|value| value.each[n]).collect();
        assert_eq!(computed, expected, "question {}", question.id);
    }
}

#[test]
fn the_random_baseline_is_the_mean_over_random_orders() {
    let mut random = Random::new(7, 0);
    let loaded = random_task(&mut random);
    let task = loaded.task.memory().unwrap();
    let mut sums = [0.0; MEASURES.len()];
    const DRAWS: usize = 2_000;
    let mut floors = Vec::new();
    for _ in 0..DRAWS {
        let mut scores: Vec<f32> = (0..280).map(|n| n as f32).collect();
        random.shuffle(&mut scores);
        let outcome = task.run(&Given(scores), false, &()).unwrap();
        sums.iter_mut().zip(&outcome.values).for_each(|(sum, value)| *sum += value.value / DRAWS as f64);
        floors = outcome.values.iter().map(|value| value.floor).collect();
    }
    for (n, sum) in sums.iter().enumerate() {
        assert!((sum - floors[n].unwrap()).abs() < 0.003, "{}: {sum} {floors:?}", MEASURES[n].0);
    }
    assert_eq!(floors[4..], [None, None]);
}

#[test]
fn a_filter_restricts_the_turns_of_a_question() {
    let corpus = r#"{"id":"x","metadata":{"thread":7},"turns":[{"text":"a"},{"text":"b"}]}
{"id":"y","turns":[{"text":"a"}]}
{"id":"x","metadata":{"thread":7},"turns":[{"text":"c"},{"text":"b"}]}"#;
    let with = |questions: &str| {
        load(&[("c.jsonl", corpus), ("q.jsonl", questions)], "corpus = ['c.jsonl']\nquestions = 'q.jsonl'")
    };
    let loaded = with(
        r#"{"id":"q7","query":"a","evidence":["x#2","y#1"],"within":"meta.thread=7","category":"c"}
{"query":"a","evidence":["y#1","x#1"]}"#,
    )
    .unwrap();
    let task = loaded.task.memory().unwrap();
    assert_eq!(loaded.data.size, "2 questions, 3 turns in 2 dialogues");
    let skipped: Vec<_> = task.skipped().iter().map(|s| (s.what.as_str(), s.count)).collect();
    assert_eq!(
        skipped,
        [("dialogues with the id of a later dialogue", 1), ("evidence ids outside of the searched turns", 1)]
    );
    assert_eq!(task.lists[task.questions[0].list], [0, 1]);
    assert_eq!((task.questions[0].id.as_str(), task.questions[1].id.as_str()), ("q7", "2"));
    let outcome = task.run(&Given(vec![1.0, 2.0, 3.0]), false, &()).unwrap();
    assert_eq!(outcome.categories, ["c", ""]);
    assert_eq!(outcome.values[3].each, [1.0, 1.0]);
    let error = |questions: &str| with(questions).err().unwrap().to_string();
    assert!(
        error(r#"{"query":"a","evidence":["x#1"],"within":"thread="}"#).contains("q.jsonl:1: `within`: ")
    );
    assert!(
        error(r#"{"query":"a"}"#)
            .contains("q.jsonl:1: expected an object with `query` and `evidence`: missing")
    );
    assert!(error("").contains("no question has a turn as evidence"));
    let e = with(r#"{"query":"a","evidence":["z#1"]}"#).err().unwrap();
    assert_eq!(
        e.hint().as_deref(),
        Some(
            "skipped: 1 dialogues with the id of a later dialogue, 1 evidence ids that do not exist, 1 questions without evidence"
        )
    );
}

#[test]
fn the_command_line_has_all_paths() {
    let command = |toml: &str| {
        let spec: TaskSpec = toml::from_str(&format!("kind = 'memory'\n{toml}")).unwrap();
        (spec.settings().command(Path::new("d")), spec.settings().files().len())
    };
    assert_eq!(command("data = 'x'"), ("turnwise bench memory d/x".to_owned(), 1));
    assert_eq!(
        command("corpus = ['x', 'y']\nquestions = 'q'"),
        ("turnwise bench memory --corpus d/x --corpus d/y --questions d/q".to_owned(), 3)
    );
}
