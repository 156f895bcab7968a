//! Runs benchmark tasks on real data, without a model. Compares the results with values that a separate program
//! computed.

use turnwise_eval::{
    rank::{Bm25, Lda, RandomBaseline, Ranker, Terms, Tfidf, TfidfThenSvd},
    tasks::{
        DialogueTask, LoadOptions, Outcome, Profile, Similarity, Task, TaskSettings, semantic_retrieval,
    },
};

use crate::data;

fn done(task: &dyn Task, ranker: &dyn Ranker) -> Outcome {
    let scorer = ranker.prepare(task.pool(), &()).unwrap();
    task.run(scorer.as_ref(), false, &()).unwrap()
}

/// Returns the value of a measure in percent.
fn of(outcome: &Outcome, measure: &str) -> f64 {
    100.0 * outcome.values.iter().find(|value| value.measure == measure).unwrap().value
}

fn near(value: f64, expected: f64, within: f64) {
    assert!((value - expected).abs() <= within + 0.05, "{value} instead of {expected}");
}

#[test]
fn published_lists_give_the_values_of_the_reference_evaluator() {
    let Some(folder) = data::folder("dialoguecse_dev") else { return };
    let folder = folder.join("dialoguecse_dev");
    let pairs = Bm25 { terms: Terms::Pairs, ..Bm25::default() };
    // The separate program orders equal scores differently, so its MRR is 42.0 instead of 42.1.
    for (corpus, queries, map, mrr, d_sts) in
        [("jddc", 2094, 41.1, 42.1, 74.7), ("edc", 2373, 49.9, 74.2, 49.0)]
    {
        let select = folder.join(corpus).join("dev/select.txt");
        let task = semantic_retrieval(&select).unwrap();
        assert_eq!((task.queries.len(), task.skipped.len()), (queries, 0));
        let by_words = done(&task, &pairs);
        near(of(&by_words, "MAP"), map, 0.0);
        near(of(&by_words, "MRR"), mrr, 0.0);
        // The random baseline is exact; a random order is close to it.
        let floor = by_words.values[0].floor.unwrap();
        near(100.0 * floor, 46.0, 0.0);
        near(of(&done(&task, &RandomBaseline { seed: 1 }), "MAP"), 100.0 * floor, 0.5);
        let settings = Similarity { data: "dev/sts.txt".into(), background: Some("dev/select.txt".into()) };
        let with = LoadOptions { seed: 0, read_dialogues: &|_| Ok(Vec::new()), progress: &() };
        let sts = settings.load(&folder.join(corpus), &with).unwrap().task;
        near(of(&done(sts.as_ref(), &Tfidf { terms: Terms::Letters }), "Spearman"), d_sts, 0.0);
    }
}

#[test]
fn single_domain_dialogues_give_the_values_of_the_reference_evaluator() {
    let Some(folder) = data::folder("sgd_dev") else { return };
    let read = data::read(&folder.join("sgd_dev/dev"), None, &Default::default());
    let task = DialogueTask::new(read.dialogues, Profile::Paper, 0).unwrap();
    assert_eq!(task.size(), "836 dialogues of 17 domains");
    assert_eq!((task.skipped()[0].count, task.skipped().len()), (1262, 1));
    let words = done(&task, &Bm25::default());
    near(of(&words, "MAP"), 87.6, 0.0);
    near(100.0 * words.values[0].floor.unwrap(), 7.3, 0.0);
    // This value is from scikit-learn's default, a randomized decomposition. With the exact decomposition, the value is
    // 86.4.
    let svd = done(&task, &TfidfThenSvd { dim: 128, seed: 0, terms: Some(Terms::Scikit) });
    near(of(&svd, "MAP"), 86.9, 0.1);
    near(of(&svd, "purity"), 96.2, 1.6);
    let topics = done(&task, &Lda { rounds: 60, ..Lda::new(17, 1) });
    assert!(of(&topics, "purity") > 70.0, "{topics:?}");
}
