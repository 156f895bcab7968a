//! The teacher of the objective `neighbours`: combines vectors of the base model with lexical vectors.

use std::borrow::Cow;

use super::corpus::Read;
use crate::cli::{Context, encoders, printer::counted, progress::ProgressBar, signals};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_corpus::Dialogue;
use turnwise_encoder::{
    DeviceChoice, DialogueOptions, Encoder, Vectors,
    statics::{self, TfidfSettings},
    transformer::Settings,
};
use turnwise_train::{
    data::TrainingSet,
    objectives::Group,
    recipe::ResolvedRecipe,
    teacher::{self, Teacher},
};

/// Largest number of dialogues per teacher. They are compared pairwise, and more hardly help.
const MOST: usize = 8_192;
/// Number of topics in the lexical vectors.
const TOPICS: usize = 16;
/// Dialogues encoded per call; small, so that Ctrl-C works quickly.
const CHUNK: usize = 64;

/// Fits a teacher on each corpus.
pub(super) fn groups(
    recipe: &ResolvedRecipe,
    data: &TrainingSet,
    read: &Read,
    device: DeviceChoice,
    context: &Context<'_>,
) -> Result<Vec<Group>> {
    let settings = Settings { device, ..Settings::default() };
    let encoder = encoders::open(context, &recipe.model, &settings)?;
    let mut groups = Vec::with_capacity(read.ends.len());
    let mut begin = 0;
    for (end, path) in read.ends.iter().zip(&recipe.corpus) {
        let own = |n: &u32| (begin..*end).contains(&data.given(*n));
        let known: Vec<u32> = (0..data.len() as u32).filter(own).collect();
        let taught = group(recipe, data, read, known, encoder.as_ref(), context);
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
    read: &Read,
    mut known: Vec<u32>,
    encoder: &dyn Encoder,
    context: &Context<'_>,
) -> Result<Group> {
    Random::new(recipe.seed, 1).shuffle(&mut known);
    known.truncate(MOST);
    known.sort_unstable();
    let dialogue = |n: &u32| read.dialogues.get(data.given(*n));
    let chosen = known.iter().map(dialogue).collect::<Result<Vec<Cow<'_, Dialogue>>>>()?;
    let chosen: Vec<&Dialogue> = chosen.iter().map(AsRef::as_ref).collect();
    let meaning = encode(encoder, &chosen, "encoding", context)?;
    let settings =
        TfidfSettings { dim: TOPICS, min_documents: 3, seed: recipe.seed, ..TfidfSettings::default() };
    let words = statics::fit_tfidf(chosen.iter().map(|d| statics::document(d)), &settings)?;
    let words = encode(&words, &chosen, "fitting words", context)?;
    let teacher = Teacher::learn(&meaning, &words, teacher::Settings::default())?;
    context.printer.say(format!(
        "fitted a teacher on {}: {:.0}% weight for words, the rest for vectors",
        counted(chosen.len() as u64, "dialogue"),
        100.0 * teacher.weight()
    ));
    Ok(Group { teacher, known })
}

fn encode(
    encoder: &dyn Encoder,
    dialogues: &[&Dialogue],
    what: &'static str,
    context: &Context<'_>,
) -> Result<Vectors> {
    let mut progress = ProgressBar::new(context.printer, what, "dialogues", Some(dialogues.len() as u64));
    let mut all = Vectors::new(encoder.dim());
    for chunk in dialogues.chunks(CHUNK) {
        if signals::stopped() {
            return Err(Error::Interrupted { hint: Some("nothing was trained yet".to_owned()) });
        }
        let encoded = encoder.encode_dialogues(chunk, &DialogueOptions::default())?;
        encoded.vectors.rows().for_each(|row| all.push(row));
        progress.set(all.len() as u64, all.len() as u64);
    }
    Ok(all)
}
