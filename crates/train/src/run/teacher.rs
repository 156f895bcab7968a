//! The teacher of the objective `neighbors`: combines vectors of the base model with lexical vectors.

use std::borrow::Cow;

use super::{
    corpus::Corpora,
    observer::{self, Progress, RunObserver, Stage},
};
use crate::{
    data::TrainingSet,
    objectives::Group,
    recipe::ResolvedRecipe,
    teacher::{self, Teacher},
};
use turnwise_core::{
    error::{Error, Result},
    numbers::counted,
    random::Random,
};
use turnwise_corpus::Dialogue;
use turnwise_encoder::{
    DeviceChoice, DialogueOptions, Encoder, Vectors,
    hub::{Places, resolve},
    open,
    statics::{self, TfidfSettings},
    transformer::Settings,
};

/// Maximum number of dialogues per teacher. They are compared pairwise, and more of them hardly help.
const MOST: usize = 8_192;
/// Number of topics in the lexical vectors.
const TOPICS: usize = 16;
/// Dialogues encoded per call; small, so that Ctrl-C works quickly.
const CHUNK: usize = 64;

/// Fits a teacher on each corpus.
pub(super) fn groups(
    recipe: &ResolvedRecipe,
    data: &TrainingSet,
    corpora: &Corpora,
    (device, models): (DeviceChoice, &Places),
    observer: &dyn RunObserver,
) -> Result<Vec<Group>> {
    let settings = Settings { device, ..Settings::default() };
    let found = resolve(&recipe.model, models)?;
    let encoder = open::open(&found.name, &found.path, &settings)?;
    encoder.notices().iter().for_each(|notice| observer.warn(&format!("{}: {notice}", found.name)));
    observer.detail(&format!("{} from {}: {}", found.name, found.path.display(), encoder.describe()));
    let mut groups = Vec::with_capacity(corpora.ends.len());
    let mut begin = 0;
    for (end, path) in corpora.ends.iter().zip(&recipe.corpus) {
        let own = |n: &u32| (begin..*end).contains(&data.given(*n));
        let known: Vec<u32> = (0..data.len() as u32).filter(own).collect();
        let taught = group(recipe, data, corpora, known, encoder.as_ref(), observer);
        groups.push(taught.map_err(|e| match e {
            Error::Data { message, hint } => {
                Error::Data { message: format!("{}: {message}", path.display()), hint }
            }
            other => other,
        })?);
        begin = *end;
    }
    Ok(groups)
}

/// Selects the dialogues of one corpus and fits their teacher.
fn group(
    recipe: &ResolvedRecipe,
    data: &TrainingSet,
    corpora: &Corpora,
    mut known: Vec<u32>,
    encoder: &dyn Encoder,
    observer: &dyn RunObserver,
) -> Result<Group> {
    Random::new(recipe.seed, 1).shuffle(&mut known);
    known.truncate(MOST);
    known.sort_unstable();
    let dialogue = |n: &u32| corpora.dialogues.get(data.given(*n));
    let chosen = known.iter().map(dialogue).collect::<Result<Vec<Cow<'_, Dialogue>>>>()?;
    let chosen: Vec<&Dialogue> = chosen.iter().map(AsRef::as_ref).collect();
    let meaning = encode(encoder, &chosen, Stage::Encoding, observer)?;
    let settings =
        TfidfSettings { dim: TOPICS, min_documents: 3, seed: recipe.seed, ..TfidfSettings::default() };
    let words = statics::fit_tfidf(chosen.iter().map(|d| statics::document(d)), &settings)?;
    let words = encode(&words, &chosen, Stage::FittingWords, observer)?;
    let teacher = Teacher::learn(&meaning, &words, teacher::Settings::default())?;
    observer.note(&format!(
        "fitted a teacher on {}: {:.0}% weight for words, the rest for vectors",
        counted(chosen.len() as u64, "dialogue"),
        100.0 * teacher.weight()
    ));
    Ok(Group { teacher, known })
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
        observer::check(observer, Some("nothing was trained yet"))?;
        let encoded = encoder.encode_dialogues(chunk, &DialogueOptions::default())?;
        encoded.vectors.rows().for_each(|row| all.push(row));
        observer.progress(&Progress::of(stage, all.len(), dialogues.len()));
    }
    Ok(all)
}
