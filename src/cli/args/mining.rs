//! Arguments of `turnwise duplicates` and `turnwise clusters`.

use clap::Args;

use super::{UnitArg, parse_value};
use turnwise_corpus::filter::Filter;

#[derive(Debug, Args)]
#[command(after_help = DUPLICATES)]
pub(crate) struct DuplicatesArgs {
    /// What to compare
    #[arg(long, value_enum, value_name = "UNIT", default_value = "utterances")]
    pub(crate) of: UnitArg,
    /// Minimum cosine similarity of near-duplicates
    ///
    /// With 1, only texts with identical vectors are found.
    #[arg(long, value_name = "COSINE", default_value_t = 0.95)]
    pub(crate) threshold: f32,
    /// Maximum number of groups to show, largest first
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
    /// Maximum number of distinct members to show per group
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) members: usize,
    /// Compare all pairs
    ///
    /// By default, large indexes use the vector graph, which is faster and can miss some pairs.
    #[arg(long)]
    pub(crate) exact: bool,
    /// Only utterances or dialogues that match a filter, such as 'domain=banking and role=user'
    #[arg(long, value_name = "EXPRESSION", value_parser = parse_value::<Filter>)]
    pub(crate) filter: Option<Filter>,
}

const DUPLICATES: &str = "\
A group is a connected component: two members either reach the threshold themselves or are connected by a chain of \
members that do. Identical texts count as one member, printed with the number of occurrences.";

#[derive(Debug, Args)]
#[command(after_help = CLUSTERS)]
pub(crate) struct ClustersArgs {
    /// Number of clusters [default: chosen automatically]
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) k: Option<u32>,
    /// Number of terms to show per cluster
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) top_terms: usize,
    /// Number of dialogues to show per cluster, those nearest to its center
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) central: usize,
    /// Number of dialogues to place on a 2D map
    ///
    /// The coordinates are part of the JSON output (--format json).
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) map: usize,
    /// Only dialogues that match a filter, such as 'domain=banking and turns>2'
    #[arg(long, value_name = "EXPRESSION", value_parser = parse_value::<Filter>)]
    pub(crate) filter: Option<Filter>,
}

const CLUSTERS: &str = "\
Clusters are computed by k-means on the vectors of the dialogues; a different --seed gives different clusters. Terms are \
ranked by their share in the cluster, by how much higher it is than in all dialogues, and by their rarity. Without -k, \
several numbers of clusters, up to the square root of the number of dialogues, are tried on a sample. The largest number \
that separates clusters nearly as well as the best one is used.";
