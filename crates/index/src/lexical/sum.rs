//! Exact top-k search for sums of term scores.
//!
//! This is the MaxScore algorithm of Turtle and Flood, with windows of documents as in Lucene. First, the posting lists
//! of the terms with the highest maximum score are added completely. The other lists are added only for documents that
//! can still reach the top k. A document that contains only terms of the other lists cannot reach the top k.
//!
//! Scores are added in double precision. The sum of a few single-precision scores is then the same in any order, so
//! equal documents get equal sums.

use tantivy::{
    DocId, Searcher, SegmentReader, TantivyError, Term, fieldnorm::FieldNormReader,
    postings::BlockSegmentPostings, query::Bm25Weight, schema::IndexRecordOption,
};

use super::{
    Selected,
    query::documents,
    side::SearchState,
    top::{Best, SelectedDocuments},
};

/// Number of documents per window. The sums fit into the L1 cache.
const WINDOW: usize = 2048;
/// Number of lookups of single documents that take as long as decoding a block of postings.
const LOOKUPS_PER_BLOCK: usize = 2;
/// Length of each document, and mean length, if the length has no influence.
const SAME_LENGTH: u32 = 1;
/// Number of postings in a block of Tantivy.
const BLOCK: usize = 128;

/// Terms of one field whose scores are added.
pub(super) struct Sum {
    pub(super) terms: Vec<Term>,
    /// True if a term scores higher in a shorter document.
    pub(super) normalizes_length: bool,
}

/// Returns for each segment, in document order, the documents that score at least as high as the `k`th best document
/// of all segments.
pub(super) fn best(
    state: &SearchState,
    sum: &Sum,
    k: usize,
    selected: Option<&Selected>,
) -> tantivy::Result<Vec<Vec<(DocId, f32)>>> {
    let mut weights: Vec<Weight<'_>> =
        sum.terms.iter().map(|term| Weight::of(term, sum, &state.searcher)).collect::<Result<_, _>>()?;
    weights.sort_by(|a, b| b.most.total_cmp(&a.most));
    let mut best = Best::of(k);
    for (n, segment) in state.searcher.segment_readers().iter().enumerate() {
        let wanted = SelectedDocuments::of(segment, selected.map(|selected| selected.segment(n)));
        best.begin_segment();
        if let Some(run) = Run::over(segment, sum, &weights)? {
            run.run(&wanted, &mut best)?;
        }
    }
    Ok(best.finish())
}

struct Weight<'a> {
    term: &'a Term,
    bm25: Bm25Weight,
    /// Score of a document in which the term occurs once, indexed by field norm (the encoded document length).
    once: [f32; 256],
    /// Maximum score that the term adds to any document.
    most: f64,
}

impl<'a> Weight<'a> {
    fn of(term: &'a Term, sum: &Sum, searcher: &Searcher) -> tantivy::Result<Self> {
        let bm25 = if sum.normalizes_length {
            Bm25Weight::for_terms(searcher, std::slice::from_ref(term))?
        } else {
            let mean_length = SAME_LENGTH as f32;
            Bm25Weight::for_one_term_without_explain(
                searcher.doc_freq(term)?,
                documents(searcher),
                mean_length,
            )
        };
        let once = std::array::from_fn(|norm| bm25.score(norm as u8, 1));
        let most = f64::from(bm25.max_score());
        Ok(Weight { term, bm25, once, most })
    }

    fn score(&self, norm: u8, frequency: u32) -> f64 {
        f64::from(match frequency {
            1 => self.once[usize::from(norm)],
            more => self.bm25.score(norm, more),
        })
    }
}

/// Score sums of [`WINDOW`] consecutive documents.
struct Window {
    start: DocId,
    sums: Box<[f64; WINDOW]>,
    /// One bit per document: 1 if the document has a sum.
    summed: [u64; WINDOW / 64],
}

impl Window {
    fn new() -> Self {
        Window { start: 0, sums: Box::new([0.0; WINDOW]), summed: [0; WINDOW / 64] }
    }

    fn begin(&mut self, start: DocId) {
        self.start = start;
        self.sums.fill(0.0);
        self.summed.fill(0);
    }

    fn place(&self, doc: DocId) -> usize {
        (doc - self.start) as usize
    }
}

struct List<'a> {
    postings: BlockSegmentPostings,
    at: usize,
    weight: &'a Weight<'a>,
}

impl List<'_> {
    /// Returns the next document of the list; `None` at the end.
    fn next(&self) -> Option<DocId> {
        self.postings.docs().get(self.at).copied()
    }

    /// Adds the term's score to the sum of each document of the window that contains the term.
    fn add_all(&mut self, norms: &FieldNormReader, window: &mut Window) {
        self.at = self.postings.seek(window.start);
        loop {
            let docs = &self.postings.docs()[self.at..];
            let inside = docs.partition_point(|doc| window.place(*doc) < WINDOW);
            for (doc, frequency) in docs[..inside].iter().zip(&self.postings.freqs()[self.at..]) {
                let place = window.place(*doc) % WINDOW;
                window.sums[place] += self.weight.score(norms.fieldnorm_id(*doc), *frequency);
                window.summed[place / 64] |= 1 << (place % 64);
            }
            self.at += inside;
            if self.at < BLOCK {
                return;
            }
            self.postings.advance();
            self.at = 0;
        }
    }

    /// Adds the term's score to the sums of the documents at positions `places` of the window, if they contain the
    /// term. The positions must be in ascending order.
    fn add_to(&mut self, norms: &FieldNormReader, places: &[u16], window: &mut Window) {
        for place in places {
            let doc = window.start + DocId::from(*place);
            self.at = self.postings.seek(doc);
            if self.next() == Some(doc)
                && let Some(frequency) = self.postings.freqs().get(self.at)
            {
                window.sums[usize::from(*place)] += self.weight.score(norms.fieldnorm_id(doc), *frequency);
            }
        }
    }
}

struct Run<'a> {
    /// Posting lists, highest maximum score first.
    lists: Vec<List<'a>>,
    /// For each list, the sum of the maximum scores of this list and all later lists. The last element is 0.
    rest: Vec<f64>,
    norms: FieldNormReader,
    documents: usize,
}

impl<'a> Run<'a> {
    /// Opens the posting lists of a segment; `None` if the segment contains none of the terms.
    fn over(segment: &SegmentReader, sum: &Sum, weights: &'a [Weight<'a>]) -> tantivy::Result<Option<Self>> {
        let Some(field) = weights.first().map(|weight| weight.term.field()) else { return Ok(None) };
        let index = segment.inverted_index(field)?;
        let mut lists = Vec::new();
        for weight in weights {
            let postings = index.read_block_postings(weight.term, IndexRecordOption::WithFreqs)?;
            lists.extend(postings.map(|postings| List { postings, at: 0, weight }));
        }
        let mut rest = vec![0.0; lists.len() + 1];
        for (n, list) in lists.iter().enumerate().rev() {
            rest[n] = rest[n + 1] + list.weight.most;
        }
        let norms = match sum.normalizes_length {
            true => segment.get_fieldnorms_reader(field)?,
            false => FieldNormReader::constant(segment.max_doc(), SAME_LENGTH),
        };
        let documents = segment.max_doc() as usize;
        Ok((!lists.is_empty()).then_some(Run { lists, rest, norms, documents }))
    }

    fn run(mut self, wanted: &SelectedDocuments<'_>, best: &mut Best) -> tantivy::Result<()> {
        let mut window = Window::new();
        let mut places = Vec::new();
        let mut passed = 0;
        loop {
            let least = best.least();
            // To reach the top k, a document must contain the term of one of the first lists.
            let first = self.rest.iter().position(|rest| (*rest as f32) < least).unwrap_or(self.lists.len());
            let (first, others) = self.lists.split_at_mut(first);
            let Some(start) = first.iter().filter_map(List::next).min() else { return Ok(()) };
            if std::mem::replace(&mut passed, start + WINDOW as DocId) > start {
                return Err(TantivyError::InternalError("postings are out of order".to_owned()));
            }
            window.begin(start);
            for list in &mut *first {
                list.add_all(&self.norms, &mut window);
            }
            let rest = &self.rest[first.len()..];
            places.clear();
            for (n, word) in window.summed.iter().enumerate() {
                let mut word = *word;
                while word != 0 {
                    let place = n * 64 + word.trailing_zeros() as usize;
                    word &= word - 1;
                    if (window.sums[place] + rest[0]) as f32 >= least && wanted.holds(start + place as DocId)
                    {
                        places.push(place as u16);
                    }
                }
            }
            for (list, rest) in others.iter_mut().zip(&rest[1..]) {
                let postings = list.postings.doc_freq() as usize * WINDOW / self.documents;
                if places.len() * BLOCK < postings * LOOKUPS_PER_BLOCK {
                    list.add_to(&self.norms, &places, &mut window);
                } else {
                    list.add_all(&self.norms, &mut window);
                }
                places.retain(|place| (window.sums[usize::from(*place)] + rest) as f32 >= least);
            }
            for place in &places {
                best.offer(start + DocId::from(*place), window.sums[usize::from(*place)] as f32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
        sum: &Sum,
        k: usize,
        selected: Option<&Selected>,
    ) -> Vec<Vec<(DocId, f32)>> {
        let mut all = Vec::new();
        for (n, segment) in state.searcher.segment_readers().iter().enumerate() {
            let wanted = SelectedDocuments::of(segment, selected.map(|selected| selected.segment(n)));
            let mut sums: BTreeMap<DocId, f64> = BTreeMap::new();
            for term in &sum.terms {
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

        /// Returns a random word. A few words are frequent, and most words are rare.
        fn word(&mut self) -> String {
            let bits = 1 + self.below(11);
            format!("w{}", self.below(1 << bits))
        }

        fn words(&mut self, n: u64) -> String {
            (0..n).map(|_| self.word()).collect::<Vec<_>>().join(" ")
        }
    }

    /// Creates an index of texts with 1 to 60 words. Some segments are larger than a window, others smaller. Some
    /// documents are deleted.
    fn made(root: &std::path::Path) -> Lexical {
        let mut random = Random(11);
        let mut store = Store::open_or_create(root, "test").unwrap();
        for (batch, dialogues) in [2500, 700, 40].into_iter().enumerate() {
            for n in 0..dialogues {
                let mut dialogue = Dialogue::new(DialogueId::new(format!("{batch}-{n}")).unwrap());
                for _ in 0..1 + random.below(4) {
                    let words =
                        [1 + random.below(12), 1 + random.below(60)][usize::from(random.below(10) == 0)];
                    dialogue.push("a", Role::User, random.words(words));
                }
                dialogue.check().unwrap();
                store.put(&Prepared::new(&dialogue).unwrap()).unwrap();
            }
            for _ in 0..20 {
                store
                    .delete(&DialogueId::new(format!("{batch}-{}", random.below(dialogues))).unwrap())
                    .unwrap();
            }
            store.commit(None).unwrap();
            Lexical::update(None, root, &Snapshot::open(root).unwrap(), &|| false, &mut |_| {}).unwrap();
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
        for (kind, side) in Kind::ALL.into_iter().zip(&lexical.sides) {
            let state = side.state().unwrap();
            let selected = lexical.select(&snapshot, &filter, kind).unwrap().unwrap();
            for round in 0..120 {
                let n = [1 + random.below(4), 1 + random.below(30)][round % 2];
                let query = lexical.words(&random.words(n));
                let sum = query.sum.as_ref().unwrap();
                for k in [1, 3, 10, 100, 3000] {
                    for selected in [None, Some(&selected)] {
                        let wanted = reference(state, sum, k, selected);
                        full += usize::from(wanted.iter().map(Vec::len).sum::<usize>() >= k);
                        assert_eq!(
                            best(state, sum, k, selected).unwrap(),
                            wanted,
                            "{k} of {:?}",
                            query.terms()
                        );
                    }
                }
                // Tantivy adds scores in single precision, so compare with a tolerance.
                let theirs = TopDocs::with_limit(10).order_by_score();
                let theirs = state.searcher.search(query.query.as_ref(), &theirs).unwrap();
                let mut ours: Vec<f32> = best(state, sum, 10, None)
                    .unwrap()
                    .into_iter()
                    .flatten()
                    .map(|(_, score)| score)
                    .collect();
                ours.sort_by(|a, b| b.total_cmp(a));
                for ((their, _), our) in theirs.iter().zip(&ours) {
                    assert!((their - our).abs() <= our * 1e-5, "{their} {our}");
                }
            }
        }
        assert!(full > 1000, "{full}");
    }
}
