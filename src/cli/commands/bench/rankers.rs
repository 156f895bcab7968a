//! From what is typed to who ranks.

use std::path::PathBuf;

use crate::cli::{
    Context,
    args::{EncoderArgs, TokenArgs},
    encoders,
};
use turnwise_core::error::{Error, Result};
use turnwise_encoder::{
    DialogueMode, DialoguePooling, Encoder, Precision, folder::PoolingMode, statics::TfidfSettings,
};
use turnwise_eval::rank::{
    Bm25, Dense, Given, Hybrid, Lda, RandomBaseline, Ranker, Reranked, Spread, Terms, Tfidf, TfidfThenSvd,
    Tokens,
};
use turnwise_search::{Fusion, Rerank};

const KNOWN: [&str; 10] =
    ["model", "maxsim", "matching", "vectors", "bm25", "tfidf", "tfidf-svd", "hybrid", "lda", "random"];
/// A change of how a model is asked.
type Change = fn(&mut Otherwise);
/// What may stand behind a model's name, and what it changes.
const OTHERWISE: [(&str, Change); 8] = [
    ("centre", |o| o.spread = Spread::Centred),
    ("white", |o| o.spread = Spread::Whitened),
    ("utterances", |o| o.mode = Some(DialogueMode::Utterances)),
    ("interlocutors", |o| o.pooling = Some(DialoguePooling::Interlocutors)),
    ("first-speaker", |o| o.pooling = Some(DialoguePooling::FirstSpeaker)),
    ("other-speakers", |o| o.pooling = Some(DialoguePooling::OtherSpeakers)),
    ("cls", |o| o.tokens = Some(PoolingMode::Cls)),
    ("mean", |o| o.tokens = Some(PoolingMode::Mean)),
];

/// What a ranker asks of its model otherwise than the arguments do.
#[derive(Default)]
struct Otherwise {
    spread: Spread,
    mode: Option<DialogueMode>,
    pooling: Option<DialoguePooling>,
    tokens: Option<PoolingMode>,
    last_turns: Option<usize>,
    /// In words.
    said: String,
}

impl Otherwise {
    /// Takes what is known behind `+` off the end of a ranker's name. A model's own name may have a `+`.
    fn parse(spec: &str) -> Result<(&str, Self)> {
        let (mut name, mut said) = (spec, Vec::new());
        let mut otherwise = Otherwise::default();
        while let Some((rest, last)) = name.rsplit_once('+') {
            let turns = last.strip_prefix("last-").and_then(|n| n.parse().ok()).filter(|n| *n > 0);
            if turns.is_some() {
                otherwise.last_turns = turns;
            } else if let Some((_, change)) = OTHERWISE.iter().find(|(name, _)| *name == last) {
                change(&mut otherwise);
            } else if rest == "model" {
                let names = OTHERWISE.iter().map(|(name, _)| *name).chain(["last-3"]);
                return Err(Error::unknown_name("change of a model", last, names));
            } else {
                break;
            }
            said.push(last);
            name = rest;
        }
        otherwise.said = said.iter().rev().map(|last| format!("+{last}")).collect();
        Ok((name, otherwise))
    }
}

/// How rankers are asked for.
pub(super) struct Asked<'a> {
    pub(super) encoder: &'a EncoderArgs,
    pub(super) tokens: &'a TokenArgs,
    /// How many classes things are sorted into, where that is known.
    pub(super) classes: Option<usize>,
    /// Of what draws by chance.
    pub(super) seed: u64,
}

/// Gives each ranker that was asked for. A model is open only as long as it ranks.
pub(super) fn each(
    rankers: &[String],
    asked: &Asked<'_>,
    context: &Context<'_>,
    f: &mut dyn FnMut(&dyn Ranker) -> Result<()>,
) -> Result<()> {
    // What is wrong with a name is told before anything is done.
    let kinds = rankers.iter().map(|spec| Kind::parse(spec, asked.classes)).collect::<Result<Vec<Kind>>>()?;
    let usual = Otherwise::default();
    for kind in kinds {
        let seed = asked.seed;
        match kind {
            Kind::Bm25(bm25) => f(&bm25)?,
            Kind::Tfidf(tfidf) => f(&tfidf)?,
            Kind::TfidfSvd(dim, terms) => f(&TfidfThenSvd { dim, seed, terms })?,
            Kind::Lda(topics) => f(&Lda::new(topics, seed))?,
            Kind::Vectors(path) => f(&Given::open(&path)?)?,
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
                // As many as a search ranks again unasked.
                f(&Reranked { dense, by, top: Rerank::default().top })?;
            }
        }
    }
    Ok(())
}

/// Why a ranker cannot be asked: its model is not here.
pub(super) fn absent(spec: &str, asked: &Asked<'_>, context: &Context<'_>) -> Result<Option<String>> {
    let name = match Kind::parse(spec, asked.classes)? {
        Kind::Model(name, _) | Kind::Hybrid(name) | Kind::Again(_, name) => name,
        _ => return Ok(None),
    };
    let name = name.as_deref().or(asked.encoder.model.as_deref()).unwrap_or(encoders::DEFAULT_MODEL);
    Ok(match context.model(name) {
        Ok(_) => None,
        Err(_) => Some(format!("its model is not here: `turnwise model pull {name}`")),
    })
}

enum Kind {
    Bm25(Bm25),
    Tfidf(Tfidf),
    TfidfSvd(usize, Option<Terms>),
    Lda(usize),
    Vectors(PathBuf),
    Random,
    Model(Option<String>, Otherwise),
    Hybrid(Option<String>),
    Again(Tokens, Option<String>),
}

impl Kind {
    fn parse(spec: &str, classes: Option<usize>) -> Result<Self> {
        let (name, rest) = spec.split_once(':').map_or((spec, None), |(name, rest)| (name, Some(rest)));
        let number = |text: Option<&str>, default: usize| match text {
            None => Ok(default),
            Some(text) => text.parse().ok().filter(|n| (2..=4096).contains(n)).ok_or_else(|| Error::Input {
                message: format!("`{text}` in the ranker `{spec}` is no number from 2 to 4096"),
                hint: Some(format!("for example {name}:128")),
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
                let (model, otherwise) = Otherwise::parse(spec)?;
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
    args: &Asked<'_>,
    otherwise: &Otherwise,
    context: &Context<'_>,
) -> Result<Box<dyn Encoder>> {
    let name = name.or(args.encoder.model.as_deref()).unwrap_or(encoders::DEFAULT_MODEL);
    // A benchmark is of the model, not of a way to compute it faster.
    let precision = args.encoder.precision().unwrap_or(Precision::F32);
    let precision = if encoders::is_static(context, name)? { None } else { Some(precision) };
    let mut tokens = args.tokens.given();
    tokens.pooling = otherwise.tokens.or(tokens.pooling);
    encoders::open(context, name, &args.encoder.settings(precision, tokens))
}

fn dense<'e>(encoder: &'e dyn Encoder, args: &EncoderArgs, otherwise: &Otherwise) -> Dense<'e> {
    let mut options = args.given().into_options();
    options.dialogues.mode = otherwise.mode.unwrap_or(options.dialogues.mode);
    options.dialogues.pooling = otherwise.pooling.unwrap_or(options.dialogues.pooling);
    let (spread, last_turns) = (otherwise.spread, otherwise.last_turns);
    Dense { encoder, options, last_turns, spread, otherwise: otherwise.said.clone() }
}
