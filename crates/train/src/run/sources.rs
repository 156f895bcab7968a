//! Inputs that only some objectives need: teachers (models of dialogue similarity) and hard negatives.

use std::borrow::Cow;

use super::{
    Run,
    corpus::Corpora,
    observer::{self, Progress, RunObserver, Stage},
};
use crate::{
    data::TrainingSet,
    model::Trainable,
    objectives::{Group, HardNegatives, MiningSettings, Sources, TurnLocation},
    teacher::{self, Teacher},
};
use turnwise_core::{
    error::{Error, Result},
    numbers::counted,
    random::Random,
};
use turnwise_corpus::Dialogue;
use turnwise_encoder::{
    DialogueOptions, Encoder, Vectors,
    hub::resolve,
    open,
    statics::{self, TfidfSettings},
    transformer::Settings,
};

/// Maximum number of dialogues per teacher. All pairs are compared, and more dialogues hardly help.
const MAX_DIALOGUES: usize = 8_192;
/// Maximum number of utterances that get hard negatives. Other utterances get random negatives.
const MAX_UTTERANCES: usize = 65_536;
/// Number of topics in the lexical vectors of a teacher.
const TOPICS: usize = 16;
/// Number of dialogues that are encoded per call. A small number lets the run stop quickly after Ctrl-C.
const CHUNK: usize = 64;
/// Hint of the error if the run is interrupted before the first step.
const NOT_TRAINED: Option<&str> = Some("nothing was trained yet");

/// Computes the teachers and the hard negatives, and reports the progress.
pub(super) struct RunSources<'a> {
    pub(super) run: &'a Run<'a>,
    pub(super) data: &'a TrainingSet,
    pub(super) corpora: &'a Corpora,
    pub(super) model: &'a Trainable,
}

impl Sources for RunSources<'_> {
    /// Fits a teacher on each corpus. A teacher combines vectors of the base model with lexical vectors.
    fn teachers(&self) -> Result<Vec<Group>> {
        let Run { recipe, device, models, observer, .. } = *self.run;
        let found = resolve(&recipe.file.model, models)?;
        let settings = Settings { device, ..Settings::default() };
        let encoder = open::open(&found.name, &found.path, &settings)?;
        encoder.notices().iter().for_each(|notice| observer.warn(&format!("{}: {notice}", found.name)));
        observer.detail(&format!("{} from {}: {}", found.name, found.path.display(), encoder.describe()));
        let mut groups = Vec::with_capacity(self.corpora.ends.len());
        let mut begin = 0;
        for (end, path) in self.corpora.ends.iter().zip(&self.corpora.paths) {
            let is_own = |n: &u32| (begin..*end).contains(&self.data.input_index(*n));
            let known: Vec<u32> = (0..self.data.len() as u32).filter(is_own).collect();
            let group = self.group(known, encoder.as_ref());
            groups.push(group.map_err(|e| match e {
                Error::Data { message, hint } => {
                    Error::Data { message: format!("{}: {message}", path.display()), hint }
                }
                other => other,
            })?);
            begin = *end;
        }
        Ok(groups)
    }

    /// Mines hard negatives among the nearest neighbors by the vectors of the base model and by BM25.
    fn hard_negatives(&self, among: Vec<TurnLocation>, max_tokens: usize) -> Result<HardNegatives> {
        let RunSources { run: Run { recipe, observer, .. }, data, model, .. } = *self;
        let mut chosen = among;
        Random::new(recipe.file.seed, 5).shuffle(&mut chosen);
        chosen.truncate(MAX_UTTERANCES);
        observer.progress(&Progress::of(Stage::Mining, 0, chosen.len()));
        let settings = MiningSettings::default();
        let hard = HardNegatives::mine(model, data, &chosen, max_tokens, settings, &mut |done| {
            observer.progress(&Progress::of(Stage::Mining, done, chosen.len()));
            observer::check(*observer, NOT_TRAINED)
        })?;
        observer.note(&format!(
            "hard negatives for {} of {}",
            counted(hard.count() as u64, "text"),
            counted(chosen.len() as u64, "utterance")
        ));
        Ok(hard)
    }
}

impl RunSources<'_> {
    /// Fits a teacher on a sample of the dialogues of one corpus. `known` lists all dialogues of the corpus, as indices
    /// into the training set.
    fn group(&self, mut known: Vec<u32>, encoder: &dyn Encoder) -> Result<Group> {
        let Run { recipe, observer, .. } = *self.run;
        let seed = recipe.file.seed;
        Random::new(seed, 1).shuffle(&mut known);
        known.truncate(MAX_DIALOGUES);
        known.sort_unstable();
        let dialogue = |n: &u32| self.corpora.dialogues.get(self.data.input_index(*n));
        let chosen = known.iter().map(dialogue).collect::<Result<Vec<Cow<'_, Dialogue>>>>()?;
        let chosen: Vec<&Dialogue> = chosen.iter().map(AsRef::as_ref).collect();
        let meaning = encode(encoder, &chosen, Stage::Encoding, observer)?;
        let settings = TfidfSettings { dim: TOPICS, min_documents: 3, seed, ..TfidfSettings::default() };
        let words = statics::fit_tfidf(chosen.iter().map(|d| statics::document(d)), &settings)?;
        let words = encode(&words, &chosen, Stage::FittingWords, observer)?;
        let teacher = Teacher::learn(&meaning, &words, teacher::Settings::default())?;
        observer.note(&format!(
            "fitted a teacher on {}: {:.0}% weight for words, the rest for vectors",
            counted(chosen.len() as u64, "dialogue"),
            100.0 * teacher.word_weight()
        ));
        Ok(Group { teacher, known })
    }
}

fn encode(
    encoder: &dyn Encoder,
    dialogues: &[&Dialogue],
    stage: Stage,
    observer: &dyn RunObserver,
) -> Result<Vectors> {
    let mut all = Vectors::new(encoder.dim());
    observer.progress(&Progress::of(stage, 0, dialogues.len()));
    for chunk in dialogues.chunks(CHUNK) {
        observer::check(observer, NOT_TRAINED)?;
        let encoded = encoder.encode_dialogues(chunk, &DialogueOptions::default())?;
        encoded.vectors.rows().for_each(|row| all.push(row));
        observer.progress(&Progress::of(stage, all.len(), dialogues.len()));
    }
    Ok(all)
}
