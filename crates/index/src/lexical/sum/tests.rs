use std::collections::BTreeMap;

use tantivy::{DocSet, TERMINATED, collector::TopDocs, postings::Postings};

use super::*;
use crate::{lexical::Lexical, vectors::Kind};
use turnwise_core::ids::DialogueId;
use turnwise_corpus::{Dialogue, Role, filter::Filter};
use turnwise_store::{Prepared, Snapshot, Store};

/// Reference for [`best`]: computes all sums and keeps the largest.
fn reference(
    state: &SearchState,
    terms: &[Term],
    k: usize,
    selected: Option<&Selected>,
) -> Vec<Vec<(DocId, f32)>> {
    let mut all = Vec::new();
    for (n, segment) in state.searcher.segment_readers().iter().enumerate() {
        let wanted = Wanted::of(segment, selected.map(|selected| selected.segment(n)));
        let mut sums: BTreeMap<DocId, f64> = BTreeMap::new();
        for term in terms {
            let weight = Bm25Weight::for_terms(&state.searcher, std::slice::from_ref(term)).unwrap();
            let norms = segment.get_fieldnorms_reader(term.field()).unwrap();
            let index = segment.inverted_index(term.field()).unwrap();
            let postings = index.read_postings(term, IndexRecordOption::WithFreqs).unwrap();
            let Some(mut postings) = postings else { continue };
            while postings.doc() != TERMINATED {
                let doc = postings.doc();
                let score = weight.score(norms.fieldnorm_id(doc), postings.term_freq());
                *sums.entry(doc).or_default() += f64::from(score);
                postings.advance();
            }
        }
        let sums = sums.into_iter().filter(|(doc, _)| wanted.holds(*doc));
        all.push(sums.map(|(doc, sum)| (doc, sum as f32)).collect::<Vec<_>>());
    }
    let mut scores: Vec<f32> = all.iter().flatten().map(|(_, score)| *score).collect();
    scores.sort_by(|a, b| b.total_cmp(a));
    let least = scores.get(k - 1).copied().unwrap_or(f32::MIN);
    all.iter_mut().for_each(|documents| documents.retain(|(_, score)| *score >= least));
    all
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// A few words are in most texts, and most words are in few texts.
    fn word(&mut self) -> String {
        let bits = 1 + self.below(11);
        format!("w{}", self.below(1 << bits))
    }

    fn words(&mut self, n: u64) -> String {
        (0..n).map(|_| self.word()).collect::<Vec<_>>().join(" ")
    }
}

/// Segments of several windows and of less than one, with texts of 1 to 60 words, and with deletions.
fn made(root: &std::path::Path) -> Lexical {
    let mut random = Random(11);
    let mut store = Store::open_or_create(root, "test").unwrap();
    for (batch, dialogues) in [2500, 700, 40].into_iter().enumerate() {
        for n in 0..dialogues {
            let mut dialogue = Dialogue::new(DialogueId::new(format!("{batch}-{n}")).unwrap());
            for _ in 0..1 + random.below(4) {
                let words = [1 + random.below(12), 1 + random.below(60)][usize::from(random.below(10) == 0)];
                dialogue.push("a", Role::User, random.words(words));
            }
            dialogue.check().unwrap();
            store.put(&Prepared::new(&dialogue).unwrap()).unwrap();
        }
        for _ in 0..20 {
            store.delete(&DialogueId::new(format!("{batch}-{}", random.below(dialogues))).unwrap()).unwrap();
        }
        store.commit(None).unwrap();
        Lexical::update(root, &Snapshot::open(root).unwrap(), &|| false, &mut |_| {}).unwrap();
    }
    Lexical::open(root).unwrap()
}

#[test]
fn pruning_never_loses_a_top_k_document() {
    let dir = tempfile::tempdir().unwrap();
    let lexical = made(dir.path());
    let snapshot = Snapshot::open(dir.path()).unwrap();
    let filter: Filter = "turn = 2".parse().unwrap();
    let mut random = Random(5);
    let mut full = 0;
    for (kind, side) in [(Kind::Utterances, &lexical.utterances), (Kind::Dialogues, &lexical.dialogues)] {
        let state = side.state().unwrap();
        let selected = lexical.select(&snapshot, &filter, kind).unwrap().unwrap();
        for round in 0..120 {
            let n = [1 + random.below(4), 1 + random.below(30)][round % 2];
            let query = lexical.words(&random.words(n));
            let terms = query.sum.as_deref().unwrap();
            for k in [1, 3, 10, 100, 3000] {
                for selected in [None, Some(&selected)] {
                    let wanted = reference(state, terms, k, selected);
                    full += usize::from(wanted.iter().map(Vec::len).sum::<usize>() >= k);
                    assert_eq!(
                        best(state, terms, k, selected).unwrap(),
                        wanted,
                        "{k} of {:?}",
                        query.terms()
                    );
                }
            }
            // Tantivy adds up in single precision.
            let theirs = TopDocs::with_limit(10).order_by_score();
            let theirs = state.searcher.search(query.query.as_ref(), &theirs).unwrap();
            let mut ours: Vec<f32> =
                best(state, terms, 10, None).unwrap().into_iter().flatten().map(|(_, score)| score).collect();
            ours.sort_by(|a, b| b.total_cmp(a));
            for ((their, _), our) in theirs.iter().zip(&ours) {
                assert!((their - our).abs() <= our * 1e-5, "{their} {our}");
            }
        }
    }
    assert!(full > 1000, "{full}");
}
