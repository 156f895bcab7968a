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
    /// With 1, only items with identical vectors are found.
    #[arg(long, value_name = "COSINE", default_value_t = 0.95)]
    pub(crate) threshold: f32,
    /// Maximum number of groups to show, largest first
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
    /// Maximum number of distinct texts to show per group
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) members: usize,
    /// Compare all pairs, even in large indexes
    ///
    /// By default, all pairs are compared if there are at most 8,192 distinct vectors. With more, each vector is compared
    /// only with its neighbors in the vector graph, which is faster but can miss some pairs.
    #[arg(long)]
    pub(crate) exact: bool,
    /// Only utterances or dialogues that match a filter, such as 'domain=banking and role=user'
    ///
    /// For the syntax of filters, see the end of `turnwise search --help`.
    #[arg(long, value_name = "EXPRESSION", value_parser = parse_value::<Filter>)]
    pub(crate) filter: Option<Filter>,
}

const DUPLICATES: &str = "\
Two texts are in the same group if their similarity reaches the threshold, or if a chain of such pairs connects them. \
Two texts of a group can therefore be less similar than the threshold. Identical texts are printed once, with the \
number of occurrences.";

#[derive(Debug, Args)]
#[command(after_help = CLUSTERS)]
pub(crate) struct ClustersArgs {
    /// Number of clusters [default: chosen by how well the clusters are separated]
    ///
    /// The end of this help describes how it is chosen.
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) k: Option<u32>,
    /// Number of terms to show per cluster
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) top_terms: usize,
    /// Number of dialogues to show per cluster: those nearest to its center
    #[arg(long, alias = "central", value_name = "N", default_value_t = 2)]
    pub(crate) top_dialogues: usize,
    /// Number of dialogues for which to compute coordinates on a 2D map
    ///
    /// The coordinates are part of the JSON output (--format json). If there are more dialogues, a random sample is
    /// used.
    #[arg(long, alias = "map", value_name = "N", default_value_t = 0)]
    pub(crate) map_points: usize,
    /// Only dialogues that match a filter, such as 'domain=banking and turns>2'
    ///
    /// For the syntax of filters, see the end of `turnwise search --help`.
    #[arg(long, value_name = "EXPRESSION", value_parser = parse_value::<Filter>)]
    pub(crate) filter: Option<Filter>,
}

const CLUSTERS: &str = "\
Clusters are computed by k-means on the vectors of the dialogues; a different --seed gives different clusters. Terms are \
ranked by three criteria: their share in the cluster, how much higher this share is than in all dialogues, and their \
rarity.

Without -k, several numbers of clusters, up to the square root of the number of dialogues, are tried on a sample. The \
silhouette measures how well the clusters are separated. The largest number of clusters with a silhouette close to the best \
silhouette is used.";
