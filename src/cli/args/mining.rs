//! What an index tells about a corpus without being asked for anything in it.

use clap::Args;

use super::{OneOf, parsed};
use turnwise_corpus::filter::Filter;

#[derive(Debug, Args)]
#[command(after_help = DUPLICATES)]
pub(crate) struct DuplicatesArgs {
    /// What is compared
    #[arg(long, value_enum, value_name = "WHAT", default_value = "utterances")]
    pub(crate) of: OneOf,
    /// The cosine from which two are nearly the same; 1 finds only what is the same to the encoder
    #[arg(long, value_name = "COSINE", default_value_t = 0.95)]
    pub(crate) threshold: f32,
    /// How many groups are shown, the largest first
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
    /// How many different members of a group are shown
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) members: usize,
    /// Compare every pair, whatever it takes; else the graph is asked where there are many
    #[arg(long)]
    pub(crate) exact: bool,
    /// Only utterances or dialogues that fit, such as 'domain=banking and role=user'
    #[arg(long, value_name = "EXPRESSION", value_parser = parsed::<Filter>)]
    pub(crate) filter: Option<Filter>,
}

const DUPLICATES: &str = "\
Two belong to one group if their cosine reaches the threshold, or if a chain of others joins them. Equal texts are one \
member, shown with how often it is there.";

#[derive(Debug, Args)]
#[command(after_help = CLUSTERS)]
pub(crate) struct ClustersArgs {
    /// How many clusters; chosen if not given
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) k: Option<u32>,
    /// How many terms are shown of each cluster
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) top_terms: usize,
    /// How many dialogues are shown of each cluster, those nearest to its centre
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) central: usize,
    /// Give so many dialogues a place on a plane, in the answer for programs (--format json); all, if there are fewer
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) map: usize,
    /// Only dialogues that fit, such as 'domain=banking and turns>2'
    #[arg(long, value_name = "EXPRESSION", value_parser = parsed::<Filter>)]
    pub(crate) filter: Option<Filter>,
}

const CLUSTERS: &str = "\
Clusters are made by k-means over the dialogues' vectors; --seed N makes others. A term counts by the part of a \
cluster's dialogues that have it, by how much more that is than everywhere, and by how seldom it is at all. Without -k, numbers up to the root of \
the number of dialogues are tried on a sample, and the largest is taken that divides nearly as well as the best.";
