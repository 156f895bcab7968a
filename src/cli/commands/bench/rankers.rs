//! Creates rankers by name. A ranker ranks the candidates of a benchmark.

use super::searched::{Indexes, Searched};
use crate::cli::{
    args::{EncoderArgs, SearchRanker, TokenArgs},
    encoders,
    prelude::*,
};
use turnwise_encoder::{
    DialogueMode, DialoguePooling, Encoder, Precision, folder::PoolingMode, statics::TfidfSettings,
};
use turnwise_eval::rank::{
    Bm25, BySelector, Dense, Hybrid, LastPart, Lda, Postprocess, Precomputed, RandomBaseline, Ranker,
    Reranked, Terms, Tfidf, TfidfThenSvd, Tokens,
};
use turnwise_eval::tasks::MemoryTask;
use turnwise_search::{Fusion, Rerank};

const KNOWN: [&str; 12] = [
    "model",
    "selector",
    "maxsim",
    "matching",
    "vectors",
    "bm25",
    "tfidf",
    "tfidf-svd",
    "hybrid",
    "lda",
    "random",
    "search",
];
/// Function that applies a suffix of a model's name to the options of the model.
type Change = fn(&mut Overrides);
/// Suffixes of a model's name, such as `+cls`, with their effects on the options. `+last-N` is parsed separately.
const SUFFIXES: [(&str, Change); 8] = [
    ("center", |o| o.postprocess = Postprocess::Centered),
    ("white", |o| o.postprocess = Postprocess::Whitened),
    ("utterances", |o| o.mode = Some(DialogueMode::Utterances)),
    ("interlocutors", |o| o.pooling = Some(DialoguePooling::Interlocutors)),
    ("first-speaker", |o| o.pooling = Some(DialoguePooling::FirstSpeaker)),
    ("other-speakers", |o| o.pooling = Some(DialoguePooling::OtherSpeakers)),
    ("cls", |o| o.tokens = Some(PoolingMode::Cls)),
    ("mean", |o| o.tokens = Some(PoolingMode::Mean)),
];

/// Options from the suffixes of a model's name. They replace the options of the command line.
#[derive(Default)]
struct Overrides {
    postprocess: Postprocess,
    mode: Option<DialogueMode>,
    pooling: Option<DialoguePooling>,
    tokens: Option<PoolingMode>,
    last_turns: Option<usize>,
    /// All suffixes as one text, such as `+cls+white`.
    suffixes: String,
}

impl Overrides {
    /// Returns a ranker's name without its known suffixes, and the options that the suffixes set.
    ///
    /// An unknown suffix is part of the name, because the name of a model can contain a `+`. Only directly after the
    /// ranker `model` is an unknown suffix an error.
    fn parse(spec: &str) -> Result<(&str, Self)> {
        let (mut name, mut suffixes) = (spec, Vec::new());
        let mut overrides = Overrides::default();
        while let Some((rest, last)) = name.rsplit_once('+') {
            // The suffix had a different spelling in earlier versions.
            let last = if last == "centre" { "center" } else { last };
            let turns = last.strip_prefix("last-").and_then(|n| n.parse().ok()).filter(|n| *n > 0);
            if turns.is_some() {
                overrides.last_turns = turns;
            } else if let Some((_, change)) = SUFFIXES.iter().find(|(name, _)| *name == last) {
                change(&mut overrides);
            } else if rest == "model" {
                let names = SUFFIXES.iter().map(|(name, _)| *name).chain(["last-3"]);
                return Err(Error::unknown_name("model suffix", last, names));
            } else {
                break;
            }
            suffixes.push(last);
            name = rest;
        }
        overrides.suffixes = suffixes.iter().rev().map(|last| format!("+{last}")).collect();
        Ok((name, overrides))
    }
}

/// Options for creating rankers.
pub(super) struct RankerOptions<'a> {
    pub(super) encoder: &'a EncoderArgs,
    pub(super) tokens: &'a TokenArgs,
    /// Number of classes in the data, if known. It is the default number of LDA topics.
    pub(super) classes: Option<usize>,
    /// Task whose dialogues the ranker `search` indexes, if the task allows this ranker.
    pub(super) memory: Option<&'a MemoryTask>,
    /// Seed of rankers that use random numbers.
    pub(super) seed: u64,
}

impl<'a> RankerOptions<'a> {
    /// Returns the name of a ranker's model: its own, or that of the command line, or the default.
    fn model(&self, own: Option<&'a str>) -> &'a str {
        own.or(self.encoder.model.as_deref()).unwrap_or(encoders::DEFAULT_MODEL)
    }
}

/// Creates the named rankers one after the other and passes each to `f`. Only one model is in memory at a time.
pub(super) fn each(
    rankers: &[String],
    options: &RankerOptions<'_>,
    context: &Context<'_>,
    f: &mut dyn FnMut(&dyn Ranker) -> Result<()>,
) -> Result<()> {
    // Report wrong names and missing models before doing any work.
    let kinds =
        rankers.iter().map(|spec| Kind::parse(spec, options.classes)).collect::<Result<Vec<Kind>>>()?;
    kinds.iter().try_for_each(|kind| kind.find(options, context))?;
    let defaults = Overrides::default();
    let searches: Vec<&SearchRanker> = kinds.iter().filter_map(Kind::as_search).collect();
    let indexes = match (searches.is_empty(), options.memory) {
        (true, _) => None,
        (false, Some(task)) => {
            Some(Indexes::new(task, searches.iter().any(|ranker| ranker.needs_model()), options, context)?)
        }
        (false, None) => {
            return Err(Error::input("the ranker `search` works only in `bench memory`")
                .with_hint("the ranker `hybrid` ranks as `turnwise search` does, without an index"));
        }
    };
    for kind in &kinds {
        let seed = options.seed;
        match kind {
            Kind::Bm25(bm25) => f(bm25)?,
            Kind::Tfidf(tfidf) => f(tfidf)?,
            Kind::TfidfSvd(dim, terms) => f(&TfidfThenSvd { dim: *dim, seed, terms: *terms })?,
            Kind::Lda(topics) => f(&Lda::new(*topics, seed))?,
            Kind::Vectors(path) => f(&Precomputed::open(path)?)?,
            Kind::Random => f(&RandomBaseline { seed })?,
            Kind::Model(name, overrides) => {
                let encoder = open(name.as_deref(), options, overrides, context)?;
                f(&dense(encoder.as_ref(), options.encoder, overrides))?;
            }
            Kind::Hybrid(name) => {
                let encoder = open(name.as_deref(), options, &defaults, context)?;
                let dense = dense(encoder.as_ref(), options.encoder, &defaults);
                f(&Hybrid { dense, words: Bm25::default(), fusion: Fusion::default() })?;
            }
            Kind::Reranked(by, name) => {
                let encoder = open(name.as_deref(), options, &defaults, context)?;
                let dense = dense(encoder.as_ref(), options.encoder, &defaults);
                // The number of reranked hits is the default of a search.
                f(&Reranked { dense, by: *by, top: Rerank::default().top })?;
            }
            Kind::Selector(name, history) => {
                let selector = encoders::selector(context, name, options.encoder.device, precision(options))?;
                f(&BySelector { selector: &selector, history: *history })?;
            }
            Kind::Search(ranker) => {
                if let Some(indexes) = &indexes {
                    f(&Searched::new(indexes, ranker))?;
                }
            }
        }
    }
    Ok(())
}

/// Returns a message if a ranker needs a model that is not installed; otherwise `None`.
pub(super) fn missing_model(
    spec: &str,
    options: &RankerOptions<'_>,
    context: &Context<'_>,
) -> Result<Option<String>> {
    let name = match Kind::parse(spec, options.classes)? {
        Kind::Model(name, _) | Kind::Hybrid(name) | Kind::Reranked(_, name) => name,
        Kind::Search(ranker) if ranker.needs_model() => None,
        Kind::Selector(name, _) if !Path::new(&name).is_dir() => Some(name),
        _ => return Ok(None),
    };
    let name = options.model(name.as_deref());
    Ok(match context.model(name) {
        Ok(_) => None,
        Err(_) => Some(format!("its model is not installed: `turnwise model pull {name}`")),
    })
}

enum Kind {
    Bm25(Bm25),
    Tfidf(Tfidf),
    TfidfSvd(usize, Option<Terms>),
    Lda(usize),
    Vectors(PathBuf),
    Random,
    Model(Option<String>, Overrides),
    Hybrid(Option<String>),
    Reranked(Tokens, Option<String>),
    Search(Box<SearchRanker>),
    Selector(String, LastPart),
}

impl Kind {
    /// Returns an error if the model of the ranker does not exist.
    fn find(&self, options: &RankerOptions<'_>, context: &Context<'_>) -> Result<()> {
        match self {
            Kind::Selector(name, _) => encoders::find_selector(context, name).map(|_| ()),
            Kind::Model(name, _) | Kind::Hybrid(name) | Kind::Reranked(_, name) => {
                context.model(options.model(name.as_deref())).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    fn as_search(&self) -> Option<&SearchRanker> {
        match self {
            Kind::Search(ranker) => Some(ranker),
            _ => None,
        }
    }

    fn parse(spec: &str, classes: Option<usize>) -> Result<Self> {
        if let Some(ranker) = SearchRanker::parse(spec)? {
            return Ok(Kind::Search(Box::new(ranker)));
        }
        let (name, rest) = spec.split_once(':').map_or((spec, None), |(name, rest)| (name, Some(rest)));
        let number = |text: Option<&str>, default: usize| match text {
            None => Ok(default),
            Some(text) => text.parse().ok().filter(|n| (2..=4096).contains(n)).ok_or_else(|| {
                Error::input(format!("`{text}` in the ranker `{spec}` must be a number from 2 to 4096"))
                    .with_hint(format!("for example {name}:128"))
            }),
        };
        let terms = || rest.map(str::parse).transpose().map(Option::<Terms>::unwrap_or_default);
        Ok(match name {
            "bm25" => Kind::Bm25(Bm25 { terms: terms()?, ..Bm25::default() }),
            "tfidf" => Kind::Tfidf(Tfidf { terms: terms()? }),
            "tfidf-svd" => {
                let (dim, terms) = rest.map_or((None, None), |rest| match rest.split_once(':') {
                    Some((dim, terms)) => (Some(dim), Some(terms)),
                    None => (Some(rest), None),
                });
                Kind::TfidfSvd(number(dim, TfidfSettings::default().dim)?, terms.map(str::parse).transpose()?)
            }
            "lda" => Kind::Lda(number(rest, classes.unwrap_or(50))?),
            "random" if rest.is_none() => Kind::Random,
            "vectors" => match rest {
                Some(path) => Kind::Vectors(path.into()),
                None => return Err(Error::input("the ranker `vectors` needs a file: vectors:FILE.npy")),
            },
            "selector" => match rest.filter(|rest| !rest.is_empty()) {
                Some(rest) => {
                    let (name, history) = last_part(rest);
                    Kind::Selector(name.to_owned(), history)
                }
                None => {
                    return Err(Error::input("the ranker `selector` needs a folder: selector:DIR")
                        .with_hint("train one with `turnwise train selector`"));
                }
            },
            "hybrid" => Kind::Hybrid(rest.map(str::to_owned)),
            "maxsim" => Kind::Reranked(Tokens::Maxsim, rest.map(str::to_owned)),
            "matching" => Kind::Reranked(Tokens::Matching, rest.map(str::to_owned)),
            _ => {
                let (model, overrides) = Overrides::parse(spec)?;
                match model.split_once(':') {
                    None if model == "model" => Kind::Model(None, overrides),
                    Some(("model", name)) => Kind::Model(Some(name.to_owned()), overrides),
                    _ => return Err(Error::unknown_name("ranker", spec, KNOWN)),
                }
            }
        })
    }
}

/// Returns the name of a selector without the suffixes `+last-N` (turns) and `+last-N-tokens`, and the part of the
/// context that they stand for.
fn last_part(spec: &str) -> (&str, LastPart) {
    let (mut name, mut history) = (spec, LastPart::default());
    while let Some((rest, suffix)) = name.rsplit_once('+') {
        let Some(count) = suffix.strip_prefix("last-") else { break };
        let (count, part) = match count.strip_suffix("-tokens") {
            Some(count) => (count, &mut history.tokens),
            None => (count, &mut history.turns),
        };
        match count.parse().ok().filter(|n| *n > 0) {
            Some(count) => *part = Some(count),
            None => break,
        }
        name = rest;
    }
    (name, history)
}

/// Returns the precision of the models. Benchmarks use f32 by default, to measure the model and not its quantization.
fn precision(args: &RankerOptions<'_>) -> Option<Precision> {
    args.encoder.precision().or(Some(Precision::F32))
}

fn open(
    name: Option<&str>,
    args: &RankerOptions<'_>,
    overrides: &Overrides,
    context: &Context<'_>,
) -> Result<Box<dyn Encoder>> {
    let name = args.model(name);
    let precision = precision(args);
    let precision = if encoders::is_static(context, name)? { None } else { precision };
    let mut tokens = args.tokens.given();
    tokens.pooling = overrides.tokens.or(tokens.pooling);
    encoders::open(context, name, &args.encoder.settings(precision, tokens))
}

fn dense<'e>(encoder: &'e dyn Encoder, args: &EncoderArgs, overrides: &Overrides) -> Dense<'e> {
    let mut options = args.given().into_options();
    options.dialogues.mode = overrides.mode.unwrap_or(options.dialogues.mode);
    options.dialogues.pooling = overrides.pooling.unwrap_or(options.dialogues.pooling);
    let (postprocess, last_turns) = (overrides.postprocess, overrides.last_turns);
    Dense { encoder, options, last_turns, postprocess, otherwise: overrides.suffixes.clone() }
}
