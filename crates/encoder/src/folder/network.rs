//! Reads the tensors of a folder into a [`Network`].

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;

use super::{
    config::{Architecture, Config},
    parameters::{self, Counts, Parameter, ROLES, TURNS},
    weights::{Tensor, Weights},
};
use crate::Network;
use turnwise_core::error::{Error, Result};

/// Location of each parameter in the weight files, with checked shapes.
#[derive(Debug)]
pub struct Layout {
    counts: Counts,
    /// Parameters in the order of [`parameters::list`], with their names in the files.
    places: Vec<(Parameter, String)>,
    /// Notices about unused tensors.
    pub notices: Vec<String>,
}

impl Layout {
    /// Finds every parameter required by the configuration.
    pub fn find(config: &Config, weights: &Weights) -> Result<Self> {
        let names = Names::new(config.architecture, weights)?;
        let rows = |name: &str| {
            let tensor = weights.get(&names.in_file(name))?;
            tensor.dims().first().copied()
        };
        let counts = Counts {
            words: config.words,
            positions: config.positions,
            types: (config.types > 0).then_some(config.types),
            turns: rows(TURNS),
            roles: rows(ROLES),
            layers: config.layers,
        };
        let places: Vec<_> = parameters::list(&config.shape, &counts)
            .into_iter()
            .map(|parameter| {
                let name = names.in_file(&parameter.name);
                weights.expect(&name, &parameter.dims)?;
                Ok((parameter, name))
            })
            .collect::<Result<_>>()?;
        let notices = names.unused(config, &places)?;
        Ok(Layout { counts, places, notices })
    }

    /// Reads the network.
    pub fn read(&self, config: &Config, weights: &Weights) -> Result<Network> {
        let read = self.places.par_iter().map(|(parameter, name)| {
            let numbers = weights.expect(name, &parameter.dims)?.numbers()?;
            Ok((parameter.name.as_str(), numbers))
        });
        let mut read: HashMap<&str, Vec<f32>> = read.collect::<Result<_>>()?;
        parameters::assemble(&config.shape, &self.counts, &mut |name| {
            read.remove(name).ok_or_else(|| Error::Internal(format!("the parameter {name} was not read")))
        })
    }

    /// Returns all parameters with their tensors, in order.
    pub fn tensors<'a>(&'a self, weights: &'a Weights) -> Result<Vec<(&'a Parameter, Tensor<'a>)>> {
        self.places.iter().map(|(p, name)| Ok((p, weights.expect(name, &p.dims)?))).collect()
    }
}

/// Parameter names in the weight files of a model.
struct Names<'a> {
    architecture: Architecture,
    prefix: String,
    /// Maps the canonical name (new names of norms, no prefix) to the name in the file.
    names_in_file: BTreeMap<String, &'a str>,
}

/// Possible prefixes of parameter names, from classes that add a head to the network.
const WRAPPERS: [&str; 10] = [
    "bert",
    "roberta",
    "xlm_roberta",
    "camembert",
    "distilbert",
    "model",
    "auto_model",
    "module",
    "encoder_model",
    "0",
];

impl<'a> Names<'a> {
    fn new(architecture: Architecture, weights: &'a Weights) -> Result<Self> {
        const WORDS: &str = "embeddings.word_embeddings.weight";
        let known = |prefix: &str| {
            prefix.is_empty() || prefix.trim_end_matches('.').split('.').all(|p| WRAPPERS.contains(&p))
        };
        let found: Vec<&str> =
            weights.names().filter_map(|n| n.strip_suffix(WORDS)).filter(|prefix| known(prefix)).collect();
        let prefix = match found[..] {
            [prefix] => prefix.to_owned(),
            // Reported later as a missing tensor, with the most similar name.
            [] => String::new(),
            [first, second, ..] => {
                return Err(Error::data(format!(
                    "the weights contain two networks, with `{first}{WORDS}` and `{second}{WORDS}`"
                ))
                .with_hint("save only the network that encodes texts"));
            }
        };
        let names_in_file = weights.names().filter_map(|name| {
            let bare = name.strip_prefix(prefix.as_str())?;
            Some((
                bare.replace("LayerNorm.gamma", "LayerNorm.weight")
                    .replace("LayerNorm.beta", "LayerNorm.bias"),
                name,
            ))
        });
        Ok(Names { architecture, names_in_file: names_in_file.collect(), prefix })
    }

    /// Returns the name of a parameter in the file, or the expected name if the tensor is missing.
    fn in_file(&self, name: &str) -> String {
        let own = parameters::name_in(self.architecture, name);
        match self.names_in_file.get(&own) {
            Some(names_in_file) => (*names_in_file).to_owned(),
            None => format!("{}{own}", self.prefix),
        }
    }

    /// Checks the unused tensors. Heads and poolers do not affect the hidden states and are ignored. An unknown
    /// tensor in the embeddings or layers is an error, because ignoring the tensor would change the vectors.
    fn unused(&self, config: &Config, used: &[(Parameter, String)]) -> Result<Vec<String>> {
        let used: std::collections::HashSet<&str> = used.iter().map(|(_, name)| name.as_str()).collect();
        let layer = match self.architecture {
            Architecture::DistilBert => "transformer.layer.",
            _ => "encoder.layer.",
        };
        let mut above = 0;
        for (bare, name) in self.names_in_file.iter().filter(|(_, name)| !used.contains(*name)) {
            let inside = ["embeddings.", "encoder.", "transformer."].iter().any(|p| bare.starts_with(p));
            let buffer = ["position_ids", "token_type_ids"].iter().any(|b| bare.ends_with(b));
            let number = bare.strip_prefix(layer).and_then(|r| r.split('.').next()?.parse::<usize>().ok());
            match number {
                Some(number) if number >= config.layers => above = above.max(number + 1),
                _ if inside && !buffer => {
                    return Err(Error::data(format!(
                        "the weights contain `{name}`, which the architecture `{}` does not support",
                        self.architecture.name()
                    ))
                    .with_hint("without this tensor the vectors would be wrong; use a different model"));
                }
                _ => {}
            }
        }
        Ok(match above {
            0 => Vec::new(),
            n => vec![format!(
                "the weights have {n} layers, but config.json has {}; the last ones are ignored",
                config.layers
            )],
        })
    }
}
