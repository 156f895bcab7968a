//! Creates rankers from their names.

use crate::cli::{
    args::{EncoderArgs, TokenArgs},
    encoders,
    prelude::*,
};
use turnwise_encoder::{
    DialogueMode, DialoguePooling, Encoder, Precision, folder::PoolingMode, statics::TfidfSettings,
};
use turnwise_eval::rank::{
    Bm25, Dense, Hybrid, Lda, Postprocess, Precomputed, RandomBaseline, Ranker, Reranked, Terms, Tfidf,
    TfidfThenSvd, Tokens,
};
use turnwise_search::{Fusion, Rerank};

const KNOWN: [&str; 10] =
    ["model", "maxsim", "matching", "vectors", "bm25", "tfidf", "tfidf-svd", "hybrid", "lda", "random"];
/// Function that applies the suffix of a ranker name to the model's options.
type Change = fn(&mut Overrides);
/// Suffixes of a model's name, each with the change of options that it requests.
const SUFFIXES: [(&str, Change); 8] = [
    ("centre", |o| o.postprocess = Postprocess::Centered),
    ("white", |o| o.postprocess = Postprocess::Whitened),
    ("utterances", |o| o.mode = Some(DialogueMode::Utterances)),
    ("interlocutors", |o| o.pooling = Some(DialoguePooling::Interlocutors)),
    ("first-speaker", |o| o.pooling = Some(DialoguePooling::FirstSpeaker)),
    ("other-speakers", |o| o.pooling = Some(DialoguePooling::OtherSpeakers)),
    ("cls", |o| o.tokens = Some(PoolingMode::Cls)),
    ("mean", |o| o.tokens = Some(PoolingMode::Mean)),
];

/// Options of a model that differ from the command line.
#[derive(Default)]
struct Overrides {
    postprocess: Postprocess,
    mode: Option<DialogueMode>,
    pooling: Option<DialoguePooling>,
    tokens: Option<PoolingMode>,
    last_turns: Option<usize>,
    /// The parsed suffixes, for the name of the ranker.
    suffixes: String,
}

impl Overrides {
    /// Splits the known `+` suffixes off a ranker's name. The name of a model may contain a `+` itself.
    fn parse(spec: &str) -> Result<(&str, Self)> {
        let (mut name, mut said) = (spec, Vec::new());
        let mut otherwise = Overrides::default();
        while let Some((rest, last)) = name.rsplit_once('+') {
            let turns = last.strip_prefix("last-").and_then(|n| n.parse().ok()).filter(|n| *n > 0);
            if turns.is_some() {
                otherwise.last_turns = turns;
            } else if let Some((_, change)) = SUFFIXES.iter().find(|(name, _)| *name == last) {
                change(&mut otherwise);
            } else if rest == "model" {
                let names = SUFFIXES.iter().map(|(name, _)| *name).chain(["last-3"]);
                return Err(Error::unknown_name("model suffix", last, names));
            } else {
                break;
            }
            said.push(last);
            name = rest;
        }
        otherwise.suffixes = said.iter().rev().map(|last| format!("+{last}")).collect();
        Ok((name, otherwise))
    }
}

/// Options for creating rankers.
pub(super) struct RankerOptions<'a> {
    pub(super) encoder: &'a EncoderArgs,
    pub(super) tokens: &'a TokenArgs,
    /// Number of classes in the data, if known.
    pub(super) classes: Option<usize>,
    /// Seed of rankers that use random numbers.
    pub(super) seed: u64,
}

/// Creates the named rankers one by one. A model is only loaded while it ranks.
pub(super) fn each(
    rankers: &[String],
    asked: &RankerOptions<'_>,
    context: &Context<'_>,
    f: &mut dyn FnMut(&dyn Ranker) -> Result<()>,
) -> Result<()> {
    // Report wrong names before doing any work.
    let kinds = rankers.iter().map(|spec| Kind::parse(spec, asked.classes)).collect::<Result<Vec<Kind>>>()?;
    let usual = Overrides::default();
    for kind in kinds {
        let seed = asked.seed;
        match kind {
            Kind::Bm25(bm25) => f(&bm25)?,
            Kind::Tfidf(tfidf) => f(&tfidf)?,
            Kind::TfidfSvd(dim, terms) => f(&TfidfThenSvd { dim, seed, terms })?,
            Kind::Lda(topics) => f(&Lda::new(topics, seed))?,
            Kind::Vectors(path) => f(&Precomputed::open(&path)?)?,
            Kind::Random => f(&RandomBaseline { seed })?,
            Kind::Model(name, otherwise) => {
                let encoder = open(name.as_deref(), asked, &otherwise, context)?;
                f(&dense(encoder.as_ref(), asked.encoder, &otherwise))?;
            }
            Kind::Hybrid(name) => {
                let encoder = open(name.as_deref(), asked, &usual, context)?;
                let dense = dense(encoder.as_ref(), asked.encoder, &usual);
                f(&Hybrid { dense, words: Bm25::default(), fusion: Fusion::default() })?;
            }
            Kind::Again(by, name) => {
                let encoder = open(name.as_deref(), asked, &usual, context)?;
                let dense = dense(encoder.as_ref(), asked.encoder, &usual);
                // Same number of reranked hits as the default of a search.
                f(&Reranked { dense, by, top: Rerank::default().top })?;
            }
        }
    }
    Ok(())
}

/// Returns the reason why a ranker cannot run if its model is not installed; otherwise `None`.
pub(super) fn missing_model(
    spec: &str,
    asked: &RankerOptions<'_>,
    context: &Context<'_>,
) -> Result<Option<String>> {
    let name = match Kind::parse(spec, asked.classes)? {
        Kind::Model(name, _) | Kind::Hybrid(name) | Kind::Again(_, name) => name,
        _ => return Ok(None),
    };
    let name = name.as_deref().or(asked.encoder.model.as_deref()).unwrap_or(encoders::DEFAULT_MODEL);
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
    Again(Tokens, Option<String>),
}

impl Kind {
    fn parse(spec: &str, classes: Option<usize>) -> Result<Self> {
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
            "hybrid" => Kind::Hybrid(rest.map(str::to_owned)),
            "maxsim" => Kind::Again(Tokens::Maxsim, rest.map(str::to_owned)),
            "matching" => Kind::Again(Tokens::Matching, rest.map(str::to_owned)),
            _ => {
                let (model, otherwise) = Overrides::parse(spec)?;
                match model.split_once(':') {
                    None if model == "model" => Kind::Model(None, otherwise),
                    Some(("model", name)) => Kind::Model(Some(name.to_owned()), otherwise),
                    _ => return Err(Error::unknown_name("ranker", spec, KNOWN)),
                }
            }
        })
    }
}

fn open(
    name: Option<&str>,
    args: &RankerOptions<'_>,
    otherwise: &Overrides,
    context: &Context<'_>,
) -> Result<Box<dyn Encoder>> {
    let name = name.or(args.encoder.model.as_deref()).unwrap_or(encoders::DEFAULT_MODEL);
    // Benchmarks use f32 by default, to measure the model and not its quantization.
    let precision = args.encoder.precision().unwrap_or(Precision::F32);
    let precision = if encoders::is_static(context, name)? { None } else { Some(precision) };
    let mut tokens = args.tokens.given();
    tokens.pooling = otherwise.tokens.or(tokens.pooling);
    encoders::open(context, name, &args.encoder.settings(precision, tokens))
}

fn dense<'e>(encoder: &'e dyn Encoder, args: &EncoderArgs, otherwise: &Overrides) -> Dense<'e> {
    let mut options = args.given().into_options();
    options.dialogues.mode = otherwise.mode.unwrap_or(options.dialogues.mode);
    options.dialogues.pooling = otherwise.pooling.unwrap_or(options.dialogues.pooling);
    let (postprocess, last_turns) = (otherwise.postprocess, otherwise.last_turns);
    Dense { encoder, options, last_turns, postprocess, otherwise: otherwise.suffixes.clone() }
}
