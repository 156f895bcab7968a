//! Hard negatives: neighbors found by the vectors of the base model and by BM25.

use crate::cli::{Context, printer::counted, progress::ProgressBar, signals};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_train::{
    data::TrainingSet,
    model::Trainable,
    objectives::{HardNegatives, MiningSettings, every_turn},
};

/// Largest number of utterances searched for and among. Other utterances get random negatives.
const MOST: usize = 65_536;

pub(super) fn hard(
    seed: u64,
    max_tokens: usize,
    data: &TrainingSet,
    model: &Trainable,
    context: &Context<'_>,
) -> Result<HardNegatives> {
    let mut chosen = every_turn(data);
    Random::new(seed, 5).shuffle(&mut chosen);
    chosen.truncate(MOST);
    let mut progress =
        ProgressBar::new(context.printer, "mining hard negatives", "texts", Some(chosen.len() as u64));
    let hard =
        HardNegatives::mine(model, data, &chosen, max_tokens, MiningSettings::default(), &mut |done| {
            progress.set(done as u64, done as u64);
            match signals::stopped() {
                true => Err(Error::Interrupted { hint: Some("nothing was trained yet".to_owned()) }),
                false => Ok(()),
            }
        })?;
    drop(progress);
    context.printer.say(format!(
        "hard negatives for {} of {}",
        counted(hard.len() as u64, "text"),
        counted(chosen.len() as u64, "utterance")
    ));
    Ok(hard)
}

#[cfg(test)]
mod tests {
    use turnwise_core::random::Random;
    use turnwise_eval::rank::{Bm25, Items, Pool, Ranker};
    use turnwise_train::neighbors::words;

    #[test]
    fn near_by_words_is_near_by_bm25() {
        let mut random = Random::new(3, 0);
        let texts: Vec<Vec<u32>> = (0..200)
            .map(|_| {
                (0..1 + random.below(9)).map(|_| random.below(60).min(random.below(60)) as u32).collect()
            })
            .collect();
        let text = |ids: &Vec<u32>| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        let pool = Pool::of(Items::Texts(texts.iter().map(text).collect()));
        let bm25 = Bm25::default();
        let scorer = bm25.prepare(&pool, &()).unwrap();
        let all: Vec<u32> = (0..200).collect();
        for (own, found) in words::nearest(&texts, 10).into_iter().enumerate() {
            let mut scores = Vec::new();
            scorer.scores(own, &all, &mut scores).unwrap();
            let mut expected: Vec<u32> =
                all.iter().copied().filter(|n| *n as usize != own && scores[*n as usize] > 0.0).collect();
            expected.sort_by(|a, b| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b)));
            expected.truncate(10);
            assert_eq!(found, expected, "{own}");
        }
    }
}
