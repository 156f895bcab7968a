//! What near means.

/// What near means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// The cosine of the angle. Vectors are brought to length 1; one that is all zeros has no direction and is refused.
    Cosine,
    /// The inner product. Long vectors are near to much.
    InnerProduct,
    /// The Euclidean distance; its score is the negated distance.
    L2,
}

impl Metric {
    pub(crate) const ALL: [Metric; 3] = [Metric::Cosine, Metric::InnerProduct, Metric::L2];
}
