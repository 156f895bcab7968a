//! Hard negatives: found by the vectors of the model as it is, and by BM25.

use rayon::prelude::*;

use crate::{
    cli::{Context, printer::counted, watching::Watching},
    error::Result,
    eval::rank::{Bm25, Items, Pool, Ranker},
    random::Random,
    train::{
        data::TrainingSet,
        hard::{Hard, Settings},
        model::Trainable,
        objectives::{Place, every_turn},
        recipe::Recipe,
        teacher::near,
    },
};

/// Utterances that they are found for, and among, at most: each is compared with each. For others they are drawn by chance.
const MOST: usize = 8_192;
/// Near ones by words.
const NEAR: usize = 10;

pub(super) fn hard(
    recipe: &Recipe,
    data: &TrainingSet,
    model: &Trainable,
    context: &Context<'_>,
) -> Result<Hard> {
    let mut chosen = every_turn(data);
    Random::new(recipe.seed, 5).shuffle(&mut chosen);
    chosen.truncate(MOST);
    let by_words = by_words(data, &chosen, context)?;
    let hard = Hard::mine(model, data, &chosen, &by_words, recipe.max_tokens, Settings::default())?;
    context.printer.say(format!(
        "hard negatives for {} of {}",
        counted(hard.len() as u64, "utterance"),
        counted(chosen.len() as u64, "utterance")
    ));
    Ok(hard)
}

/// The nearest of each by BM25, of tokens as the model has them: what is near by words in any language.
fn by_words(data: &TrainingSet, chosen: &[Place], context: &Context<'_>) -> Result<Vec<Vec<u32>>> {
    let text = |place: &Place| -> Result<String> {
        Ok(data.said(*place)?.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))
    };
    let pool = Pool::of(Items::Texts(chosen.iter().map(text).collect::<Result<_>>()?));
    let bm25 = Bm25::default();
    let scorer = bm25.prepare(&pool, &Watching::new(context.printer))?;
    let all: Vec<u32> = (0..chosen.len() as u32).collect();
    let of = |own: usize| {
        let mut scores = Vec::new();
        scorer.scores(own, &all, &mut scores)?;
        Ok(near::best(&scores, own, NEAR, 0.0))
    };
    (0..chosen.len()).into_par_iter().map(of).collect()
}
