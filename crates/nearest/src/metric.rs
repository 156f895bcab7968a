//! Similarity metrics.

/// Metric that defines how near two vectors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Cosine similarity. Vectors are normalized to length 1. Zero vectors have no direction and are left out.
    Cosine,
    /// Inner product. Vectors with a large norm score high against everything.
    InnerProduct,
    /// Euclidean distance. The score is the negated distance.
    L2,
}

impl Metric {
    pub(crate) const ALL: [Metric; 3] = [Metric::Cosine, Metric::InnerProduct, Metric::L2];
}
