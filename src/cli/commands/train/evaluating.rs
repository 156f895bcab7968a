//! What the model is worth while it learns: with labels where there are some, and always without.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    time::Instant,
};

use super::corpus::Read;
use crate::cli::{Context, args::ReadArgs, commands::bench, watching::Watching};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_corpus::Dialogue;
use turnwise_encoder::{
    DeviceChoice, Network,
    folder::{ModelFolder, PoolingMode},
    open,
    transformer::{Settings, Tokens},
};
use turnwise_eval::{
    halves::Halves,
    label_free::LabelFree,
    rank::{Dense, Items, Pool, Ranker},
    recipe::TaskSpec,
    tasks::{Profile, Task},
};
use turnwise_train::{
    recipe::{DevTask, ObjectiveName, Recipe},
    run::evaluations::{Aside, Evaluation, Measured},
    spool::DiskVec,
    unique::Unique,
};

/// Dialogues, or utterances, that are looked at without labels.
const DIALOGUES: usize = 400;
const UTTERANCES: usize = 2_000;

/// Bytes of a text from which on it is not said twice by chance.
const TELLING: usize = 20;
/// Of so many texts one may be said in the corpus, too.
const SOME: usize = 10;

/// Tasks with labels, by what they were asked for as.
pub(super) type Tasks = Vec<(String, Box<dyn Task>)>;

/// Reads the dev tasks of a recipe; with the hash of their data.
pub(super) fn tasks(recipe: &Recipe, args: &ReadArgs, context: &Context<'_>) -> Result<(Tasks, String)> {
    let mut tasks = Tasks::new();
    let mut hasher = blake3::Hasher::new();
    for dev in &recipe.dev {
        let (task, data) = bench::load::load(&spec(dev)?, Path::new(""), args, recipe.seed, context)?;
        hasher.update(data.hash.as_bytes());
        tasks.push((String::from(dev.clone()), task));
    }
    Ok((tasks, hasher.finalize().to_hex()[..32].to_owned()))
}

/// The dialogues of tasks that are about dialogues.
pub(super) fn dialogues_of(tasks: &Tasks) -> impl Iterator<Item = &Dialogue> {
    tasks.iter().flat_map(|(_, task)| match &task.pool().documents {
        Items::Dialogues(dialogues) => dialogues.as_slice(),
        Items::Texts(_) => &[],
    })
}

/// Texts of tasks that are said in the dialogues, where those are more than chance has: the task, how many, and of how many.
pub(super) fn said_in<'t>(
    tasks: &'t Tasks,
    dialogues: &DiskVec<Dialogue>,
) -> Result<Vec<(&'t str, usize, usize)>> {
    let of = |items: &'t Items| match items {
        Items::Texts(texts) => texts.as_slice(),
        Items::Dialogues(_) => &[],
    };
    let texts_of = |task: &'t dyn Task| -> HashSet<&'t str> {
        let pool = task.pool();
        let all = of(&pool.documents).iter().chain(of(pool.queries()));
        all.map(|text| text.trim()).filter(|text| text.len() >= TELLING).collect()
    };
    let all: Vec<(&str, HashSet<&str>)> =
        tasks.iter().map(|(name, task)| (name.as_str(), texts_of(task.as_ref()))).collect();
    let mut said: Vec<HashSet<&str>> = vec![HashSet::new(); all.len()];
    if all.iter().any(|(_, texts)| !texts.is_empty()) {
        for dialogue in dialogues.iter() {
            for turn in &dialogue?.turns {
                for ((_, texts), said) in all.iter().zip(&mut said) {
                    said.extend(texts.get(turn.text.trim()));
                }
            }
        }
    }
    let counts = all.iter().zip(&said).map(|((name, texts), said)| (*name, said.len(), texts.len()));
    Ok(counts.filter(|(_, said, of)| said * SOME > *of).collect())
}

/// Who tells what a model is worth.
pub(super) struct Witnesses {
    /// With labels.
    pub(super) tasks: Tasks,
    /// Dialogues that are not trained on.
    pub(super) aside: Option<Halves>,
}

/// What a model is measured by.
pub(super) struct Evaluator<'a> {
    witnesses: Witnesses,
    unlabelled: Option<LabelFree>,
    name: &'a str,
    folder: &'a ModelFolder,
    device: DeviceChoice,
    context: &'a Context<'a>,
}

impl<'a> Evaluator<'a> {
    /// With these tasks; draws what is looked at without labels.
    pub(super) fn new(
        recipe: &Recipe,
        (read, room): (&Read, &Path),
        witnesses: Witnesses,
        (name, folder): (&'a str, &'a ModelFolder),
        device: DeviceChoice,
        context: &'a Context<'a>,
    ) -> Result<Self> {
        let unlabelled = LabelFree::new(drawn(recipe, read, room)?, &Watching::new(context.printer))?;
        Ok(Evaluator { witnesses, unlabelled, name, folder, device, context })
    }

    /// Whether there is anything to measure by.
    pub(super) fn is_blind(&self) -> bool {
        self.witnesses.tasks.is_empty() && self.witnesses.aside.is_none() && self.unlabelled.is_none()
    }

    /// Measures the network of a step.
    pub(super) fn evaluate(&self, network: &Network, step: u64) -> Result<Evaluation> {
        // Trained is the mean of tokens, whatever the model did before.
        self.evaluate_as(self.folder, network, (step > 0).then_some(PoolingMode::Mean), step)
    }

    /// Measures a network with what stands before and after it.
    pub(super) fn evaluate_as(
        &self,
        folder: &ModelFolder,
        network: &Network,
        pooling: Option<PoolingMode>,
        step: u64,
    ) -> Result<Evaluation> {
        let started = Instant::now();
        let tokens = Tokens { pooling, ..Tokens::default() };
        let settings = Settings { device: self.device, tokens, ..Settings::default() };
        let encoder = open::open_with(self.name, folder, network, &settings)?;
        let dense = Dense::new(&encoder);
        let watch = Watching::new(self.context.printer);
        let mut dev = Vec::new();
        for (name, task) in &self.witnesses.tasks {
            let scorer = dense.prepare(task.pool(), &watch)?;
            let outcome = task.run(scorer.as_ref(), false, &watch)?;
            // Significance is computed of the number that a task is known by.
            let measured = outcome.values.into_iter().enumerate().map(|(n, v)| Measured {
                task: name.clone(),
                measure: v.measure,
                value: v.value,
                each: if n == 0 { v.each } else { Vec::new() },
            });
            dev.extend(measured);
        }
        let looked = match &self.unlabelled {
            None => None,
            Some(unlabelled) => {
                let scorer = dense.prepare(unlabelled.pool(), &watch)?;
                scorer.vectors().map(|vectors| unlabelled.look(vectors))
            }
        };
        let aside = match &self.witnesses.aside {
            None => None,
            Some(halves) => {
                let scorer = dense.prepare(halves.pool(), &watch)?;
                scorer.vectors().map(|vectors| Aside::of(halves.look(vectors)))
            }
        };
        Ok(Evaluation {
            step,
            layer: false,
            dev,
            aside,
            agreement: looked.map(|l| l.agreement),
            alignment: looked.map(|l| l.alignment),
            uniformity: looked.map(|l| l.uniformity),
            seconds: started.elapsed().as_secs_f64(),
        })
    }
}

fn spec(dev: &DevTask) -> Result<TaskSpec> {
    let data = dev.data.clone();
    Ok(match dev.task.as_str() {
        "sr" => TaskSpec::Sr { data, build: None },
        "dsts" => TaskSpec::Dsts { data, background: None },
        "response" => TaskSpec::Response { data },
        "dialogues" => TaskSpec::Dialogues { data, profile: Profile::Paper },
        other => return Err(Error::unknown_name("task", other, DevTask::KNOWN)),
    })
}

/// What of the corpus is looked at without labels: dialogues where they are trained, else utterances, none twice.
fn drawn(recipe: &Recipe, read: &Read, room: &Path) -> Result<Pool> {
    let mut random = Random::new(recipe.seed, 3);
    let of_dialogues = matches!(
        recipe.objective,
        ObjectiveName::Neighbours | ObjectiveName::Dial2vec | ObjectiveName::Joint
    );
    if of_dialogues {
        let chosen = some(read.dialogues.len(), DIALOGUES, &mut random);
        let dialogues = chosen.into_iter().map(|n| Ok(read.dialogues.get(n)?.into_owned()));
        return Ok(Pool::of(Items::Dialogues(dialogues.collect::<Result<_>>()?)));
    }
    let mut texts = Unique::new(room)?;
    for dialogue in read.dialogues.iter() {
        dialogue?.turns.iter().try_for_each(|turn| texts.push(&turn.text))?;
    }
    // They are counted first, then taken: never all of them are in memory.
    let mut count = 0;
    texts.each(&mut |_| count += 1)?;
    let places = some(count, UTTERANCES, &mut random);
    let wanted: HashMap<usize, usize> = places.into_iter().zip(0..).collect();
    let (mut found, mut number) = (vec![String::new(); wanted.len()], 0);
    texts.each(&mut |text| {
        if let Some(place) = wanted.get(&number) {
            found[*place] = text;
        }
        number += 1;
    })?;
    Ok(Pool::of(Items::Texts(found)))
}

/// So many numbers below a count, drawn one after the other.
fn some(count: usize, most: usize, random: &mut Random) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..count).collect();
    random.shuffle(&mut numbers);
    numbers.truncate(most);
    numbers
}
