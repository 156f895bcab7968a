//! Creates the data sets of all benchmark tasks from the sample dialogues.

use crate::cli::prelude::*;
use crate::{
    cli::{
        args::{BuildCommand, EncoderArgs, InputArgs, LabelArg, ReadArgs, SentencesArgs, TokenArgs},
        commands::bench::build,
    },
    samples,
};
use turnwise_corpus::Dialogue;
use turnwise_eval::{build::CandidateSelection, rank::Terms};

/// Number of sentences in the sets for semantic retrieval.
const SENTENCES: usize = 600;
/// Number of dialogues that the set for response selection is made from.
const RESPONSE_DIALOGUES: usize = 20;
/// Number of sentence pairs to score.
const PAIRS: usize = 120;

/// Folder of the test sets that are created from the samples.
pub(super) struct Sets {
    folder: PathBuf,
}

impl Sets {
    pub(super) fn of(folder: &Path) -> Self {
        Sets { folder: folder.to_owned() }
    }

    /// Returns the path of a file or folder in the folder of the test sets.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).at("create", parent)?;
        }
        std::fs::write(&path, text).at("write", &path)
    }

    /// Creates all test sets with the functions of `turnwise bench build`. Adds failed checks to `wrong`. Returns a
    /// one-line report.
    pub(super) fn make(&self, wrong: &mut Vec<String>, context: &Context<'_>) -> Result<String> {
        for (name, text) in samples::SUPPORT {
            self.write(&format!("dialogues/{name}"), text)?;
        }
        self.write("pairs.tsv", samples::PAIRS)?;
        let all = build::all_dialogues(&[self.path("dialogues")], &ReadArgs::default(), context)?;
        let some: Vec<String> =
            all.iter().step_by(all.len() / RESPONSE_DIALOGUES).map(json).collect::<Result<_>>()?;
        self.write("some.jsonl", &some.join("\n"))?;
        self.known_items(&all)?;
        let sentences = || SentencesArgs {
            path: self.path("dialogues"),
            read: ReadArgs::default(),
            label: LabelArg::Intent,
            sentences: Some(SENTENCES),
        };
        let sr = |name: &str, candidate_selection| BuildCommand::Sr {
            labeled: sentences(),
            output: self.path(name),
            candidate_selection,
            terms: Terms::default(),
        };
        let input = |name: &str| InputArgs { paths: vec![self.path(name)], read: ReadArgs::default() };
        let commands = [
            sr("select.txt", CandidateSelection::Text),
            sr("released.txt", CandidateSelection::Released),
            BuildCommand::Dsts {
                labeled: sentences(),
                output: self.path("to-score.tsv"),
                pair_sources: Some(self.path("to-score.key.tsv")),
                pairs: PAIRS,
                rankers: vec!["bm25".to_owned(), "tfidf".to_owned()],
                encoder: EncoderArgs::default(),
                tokens: TokenArgs::default(),
            },
            BuildCommand::Dialogues {
                input: input("dialogues"),
                output: self.path("dial.jsonl"),
                paper: None,
            },
            BuildCommand::Response {
                input: input("some.jsonl"),
                output: self.path("samples.jsonl"),
                candidates: 10,
                hard_negatives: 0,
                context: 2,
                role: None,
                samples: None,
                strip_names: true,
            },
        ];
        commands.iter().try_for_each(|command| build::run(command, context))?;
        let lines = |name: &str| -> Result<usize> {
            let path = self.path(name);
            Ok(std::fs::read_to_string(&path).at("read", &path)?.lines().count())
        };
        for (name, expected) in
            [("dial.jsonl", all.len()), ("select.txt", SENTENCES), ("to-score.tsv", PAIRS)]
        {
            let found = lines(name)?;
            if found != expected {
                wrong.push(format!("{name} has {found} lines, not {expected}"));
            }
        }
        Ok(format!("{} dialogues, {} sentences, {} samples", all.len(), SENTENCES, lines("samples.jsonl")?))
    }

    /// Writes a test set in BEIR format. A query is the title of a dialogue; its relevant document is that dialogue.
    fn known_items(&self, all: &[Dialogue]) -> Result<()> {
        let (mut corpus, mut queries, mut qrels) =
            (String::new(), String::new(), "query-id\tcorpus-id\tscore\n".to_owned());
        for dialogue in all {
            let Some(title) = &dialogue.title else { continue };
            let id = dialogue.id.as_str();
            let texts: Vec<&str> = dialogue.turns.iter().map(|turn| turn.text.as_str()).collect();
            corpus += &format!("{}\n", serde_json::json!({"_id": id, "title": "", "text": texts.join("\n")}));
            queries += &format!("{}\n", serde_json::json!({"_id": format!("q-{id}"), "text": title}));
            qrels += &format!("q-{id}\t{id}\t1\n");
        }
        self.write("beir/corpus.jsonl", &corpus)?;
        self.write("beir/queries.jsonl", &queries)?;
        self.write("beir/qrels/test.tsv", &qrels)
    }
}

fn json(dialogue: &Dialogue) -> Result<String> {
    serde_json::to_string(dialogue).map_err(|e| Error::Internal(e.to_string()))
}
