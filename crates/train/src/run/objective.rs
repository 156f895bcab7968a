//! Creates the training objective of a recipe.

use super::{
    corpus::Corpora,
    observer::{self, Progress, RunObserver, Stage},
    teacher,
};
use crate::{
    data::TrainingSet,
    hard::{Hard, Settings},
    model::Trainable,
    objectives::{
        Auxiliary, Dial2vec, DialogueCse, Keep, Matching, MultiTask, Objective, Places, Relevance,
        ResponseSelection, SimCse, Turns, Words, every_turn,
    },
    recipe::{Aggregation, ObjectiveName, Profile, Recipe},
};
use turnwise_core::{
    error::{Error, Result},
    numbers::counted,
    random::Random,
};
use turnwise_encoder::{DeviceChoice, hub::Places as Models, network::Table};

/// Largest number of utterances that are searched for hard negatives. Other utterances get random negatives.
const MOST: usize = 65_536;

/// Creates the main objective and its additional ones.
pub(super) fn of(
    recipe: &Recipe,
    data: &TrainingSet,
    corpora: &Corpora,
    (model, most_tokens): (&Trainable, usize),
    (device, models): (DeviceChoice, &Models),
    observer: &dyn RunObserver,
) -> Result<Box<dyn Objective>> {
    let made = |recipe: &Recipe| match recipe.objective {
        ObjectiveName::Neighbours => {
            Ok(Box::new(teacher::objective(recipe, data, corpora, (device, models), observer)?)
                as Box<dyn Objective>)
        }
        _ => without_teacher(recipe, data, model, observer),
    };
    let main = made(recipe)?;
    let mut additional = Vec::new();
    for (name, weight) in recipe.beside() {
        let mut own = Recipe::new(name, recipe.model.clone(), recipe.corpus.clone());
        own.seed = recipe.seed;
        if name == ObjectiveName::Dial2vec {
            // As an additional objective it must not dominate the training time.
            (own.batch, own.negatives, own.max_tokens) = (4, Some(4), 160);
        }
        own.fill(model.start().layers.len(), most_tokens);
        additional.push(Auxiliary { objective: made(&own)?, weight, batch: own.batch });
    }
    match additional.is_empty() {
        true => Ok(main),
        false => Ok(Box::new(MultiTask::new(main, additional, data)?)),
    }
}

/// Creates an objective that needs only the data and the model.
fn without_teacher(
    recipe: &Recipe,
    data: &TrainingSet,
    model: &Trainable,
    observer: &dyn RunObserver,
) -> Result<Box<dyn Objective>> {
    let Recipe { temperature, max_tokens, seed, .. } = *recipe;
    Ok(match recipe.objective {
        ObjectiveName::Dialoguecse | ObjectiveName::Joint => {
            let turns = match recipe.aggregation.unwrap_or_default() {
                Aggregation::I1 => Turns::Weighted,
                Aggregation::I2 => Turns::Mean,
            };
            let mut made = DialogueCse::new(turns, model.width(), seed, model.device())?;
            made.context = recipe.context.unwrap_or(made.context);
            made.negatives = recipe.negatives.unwrap_or(made.negatives);
            (made.temperature, made.max_tokens) = (temperature, max_tokens);
            if let Some(count @ 1..) = recipe.hard_negatives {
                made.hard = Some((count, hard_negatives(recipe, data, model, observer)?));
            }
            Box::new(made)
        }
        ObjectiveName::Dial2vec => {
            let mut made = Dial2vec::new(data)?;
            made.window = recipe.window.unwrap_or(made.window);
            made.negatives = recipe.negatives.unwrap_or(made.negatives);
            made.as_coded = recipe.profile == Some(Profile::Code);
            (made.temperature, made.max_tokens) = (temperature, max_tokens);
            let rows = |table: &Option<Table>| table.as_ref().map(|t| t.rows);
            let embeddings = &model.start().embeddings;
            made.tables = (rows(&embeddings.turns), rows(&embeddings.roles));
            Box::new(made)
        }
        ObjectiveName::Simcse => Box::new(SimCse { temperature, max_tokens }),
        name @ (ObjectiveName::Responses | ObjectiveName::SiameseS | ObjectiveName::SiameseM) => {
            let matching = match name {
                ObjectiveName::SiameseS => Matching::Layer,
                ObjectiveName::SiameseM => Matching::Perceptron,
                _ => Matching::Cosine,
            };
            let mut made = ResponseSelection::new(matching, model.width(), seed, model.device())?;
            made.context = recipe.context.unwrap_or(made.context);
            (made.temperature, made.max_tokens) = (temperature, max_tokens);
            Box::new(made)
        }
        ObjectiveName::Places => {
            let mut made = Places::new(model, data, max_tokens, seed)?;
            made.temperature = temperature;
            Box::new(made)
        }
        ObjectiveName::Words => {
            let mut made = Words::new(model, data.mask, seed)?;
            made.max_tokens = max_tokens;
            Box::new(made)
        }
        ObjectiveName::Relevance => {
            let mut made = Relevance::new(model.width(), seed, model.device())?;
            made.context = recipe.context.unwrap_or(made.context);
            made.max_tokens = max_tokens;
            Box::new(made)
        }
        ObjectiveName::Keep => Box::new(Keep::new(model, data, max_tokens, seed)?),
        ObjectiveName::Neighbours => {
            return Err(Error::Internal("the objective needs a teacher".to_owned()));
        }
        ObjectiveName::Surroundings => {
            return Err(Error::Internal("the objective has no steps".to_owned()));
        }
    })
}

/// Mines hard negatives: neighbors found by the vectors of the base model and by BM25.
fn hard_negatives(
    recipe: &Recipe,
    data: &TrainingSet,
    model: &Trainable,
    observer: &dyn RunObserver,
) -> Result<Hard> {
    let mut chosen = every_turn(data);
    Random::new(recipe.seed, 5).shuffle(&mut chosen);
    chosen.truncate(MOST);
    observer.progress(&Progress::of(Stage::Mining, 0, chosen.len()));
    let hard = Hard::mine(model, data, &chosen, recipe.max_tokens, Settings::default(), &mut |done| {
        observer.progress(&Progress::of(Stage::Mining, done, chosen.len()));
        observer::check(observer, Some("nothing was trained yet"))
    })?;
    observer.note(&format!(
        "hard negatives for {} of {}",
        counted(hard.len() as u64, "text"),
        counted(chosen.len() as u64, "utterance")
    ));
    Ok(hard)
}
