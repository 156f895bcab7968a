//! The vectors of a graph, without duplicates, and the metric that compares them.

use std::collections::HashMap;

use crate::{Error, Result, codes::sample_evenly};

/// Maximum number of dimensions. With more dimensions, dot products of 8-bit codes would not be exact in f32.
pub(crate) const MAX_DIM: usize = 1040;

/// Number format of the original vectors in a graph file. Exact scores are computed from these vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VectorFormat {
    /// 32-bit floats.
    #[default]
    F32,
    /// 16-bit floats: half the size, about three significant digits.
    F16,
}

/// Collection of vectors for a graph. A row is the number by which the caller identifies a vector. Equal vectors become
/// one point with several rows. If the metric is the cosine, normalized vectors are compared.
///
/// All vectors have the same number of dimensions, and their numbers are finite. Vectors are borrowed, so vectors in a
/// memory-mapped file are not copied. No normalized vector is stored either; vectors are normalized on each use.
pub struct Points<'a> {
    pub(crate) metric: Metric,
    pub(crate) dim: usize,
    vectors: Vec<&'a [f32]>,
    /// Pairs of a point and one of its rows, in the order of the calls of `push`.
    rows: Vec<(u32, u32)>,
    /// Maps the hash of a vector to the last added point with this hash.
    seen: HashMap<u64, u32>,
    /// For each point, the previous point with the same hash, or [`NONE`].
    before: Vec<u32>,
    scratch: [Vec<f32>; 2],
}

/// Marks the end of a chain in `before`.
const NONE: u32 = u32::MAX;

impl<'a> Points<'a> {
    /// Creates an empty set of vectors with `dim` dimensions. Returns an error unless `dim` is from 1 to 1040.
    pub fn new(metric: Metric, dim: usize) -> Result<Self> {
        if dim == 0 || dim > MAX_DIM {
            return Err(Error::input(format!(
                "vectors have {dim} dimensions; the supported range is 1 to {MAX_DIM}"
            )));
        }
        Ok(Points {
            metric,
            dim,
            vectors: Vec::new(),
            rows: Vec::new(),
            seen: HashMap::new(),
            before: Vec::new(),
            scratch: Default::default(),
        })
    }

    /// Adds the vector of a row and returns `true`. If the metric is the cosine, skips a zero vector and returns
    /// `false`. Returns an error if the number of dimensions is wrong or a number is not finite.
    pub fn push(&mut self, row: u32, vector: &'a [f32]) -> Result<bool> {
        let [mut new, mut other] = std::mem::take(&mut self.scratch);
        let usable = prepare_vector(self.metric, self.dim, vector, &mut new);
        if usable == Ok(true) {
            let last = self.seen.get(&hash(&new)).copied().unwrap_or(NONE);
            let mut point = last;
            while point != NONE {
                self.prepare(point, &mut other);
                if new == other {
                    break;
                }
                point = self.before[point as usize];
            }
            if point == NONE {
                point = self.vectors.len() as u32;
                self.vectors.push(vector);
                self.before.push(last);
                self.seen.insert(hash(&new), point);
            }
            self.rows.push((point, row));
        }
        self.scratch = [new, other];
        usable.map_err(|what| Error::input(format!("row {row}: {what}")))
    }

    /// Returns the number of points, that is, of distinct vectors.
    pub fn len(&self) -> usize {
        self.vectors.len()
    }

    /// Returns whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.vectors.is_empty()
    }

    /// Writes the vector of a point to `out`, normalized if the metric is the cosine.
    pub(crate) fn prepare(&self, point: u32, out: &mut Vec<f32>) {
        // `push` has already checked the vector.
        let _ = prepare_vector(self.metric, self.dim, self.vectors[point as usize], out);
    }

    /// Returns a sample of the vector components, spread evenly over all points.
    pub(crate) fn numbers(&self) -> Vec<f32> {
        let (mut vector, mut at) = (Vec::new(), NONE);
        sample_evenly(self.len() * self.dim, |number| {
            let point = (number / self.dim) as u32;
            if point != at {
                self.prepare(point, &mut vector);
                at = point;
            }
            vector[number % self.dim]
        })
    }

    pub(crate) fn row_count(&self) -> usize {
        self.rows.len()
    }

    /// Returns two lists. The second list contains the rows of all points, grouped by point in the given order. The
    /// first list contains the offset of each group in the second list, and at its end the total number of rows.
    pub(crate) fn rows(&self, order: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let mut place = vec![0u32; order.len()];
        let mut ends = vec![0u32; order.len() + 1];
        for (at, point) in order.iter().enumerate() {
            place[*point as usize] = at as u32;
        }
        for (point, _) in &self.rows {
            ends[place[*point as usize] as usize + 1] += 1;
        }
        for at in 1..ends.len() {
            ends[at] += ends[at - 1];
        }
        let (mut next, mut rows) = (ends.clone(), vec![0; self.rows.len()]);
        for (point, row) in &self.rows {
            let next = &mut next[place[*point as usize] as usize];
            rows[*next as usize] = *row;
            *next += 1;
        }
        (ends, rows)
    }
}

/// Replaces `out` with a vector, normalized if the metric is the cosine. Returns `true` if this succeeds. Returns
/// `false` for a zero vector if the metric is the cosine, because a zero vector cannot be normalized. Returns an error
/// message if the length is not `dim` or a number is not finite.
pub(crate) fn prepare_vector(
    metric: Metric,
    dim: usize,
    vector: &[f32],
    out: &mut Vec<f32>,
) -> std::result::Result<bool, String> {
    if vector.len() != dim {
        return Err(format!("the vector has {} dimensions instead of {dim}", vector.len()));
    }
    if let Some(at) = vector.iter().position(|v| !v.is_finite()) {
        return Err(format!("number {} of the vector is {}", at + 1, vector[at]));
    }
    out.clear();
    out.extend_from_slice(vector);
    if metric == Metric::Cosine {
        // The norm is computed in f64, so that the squares of very large and very small numbers do not overflow or
        // underflow.
        let length = vector.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>().sqrt();
        if length == 0.0 {
            return Ok(false);
        }
        // A vector that is already normalized is not changed.
        if (length - 1.0).abs() > 1e-6 {
            out.iter_mut().for_each(|v| *v = (f64::from(*v) / length) as f32);
        }
    }
    // Turns −0 into 0, because equal numbers must have the same hash.
    out.iter_mut().for_each(|v| *v += 0.0);
    Ok(true)
}

fn hash(vector: &[f32]) -> u64 {
    vector.iter().fold(0x9E37_79B9_7F4A_7C15, |hash, v| {
        let mixed = (hash ^ u64::from(v.to_bits())).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ (mixed >> 29)
    })
}

/// Metric that defines how near two vectors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Cosine similarity. Vectors are converted to unit vectors. Zero vectors have no direction and are skipped.
    Cosine,
    /// Inner product. Scores are proportional to the norms of the vectors.
    InnerProduct,
    /// Euclidean distance. The score is the negated distance.
    L2,
}

impl VectorFormat {
    pub(crate) fn bytes(self) -> usize {
        match self {
            VectorFormat::F32 => 4,
            VectorFormat::F16 => 2,
        }
    }
}

impl Metric {
    pub(crate) const ALL: [Metric; 3] = [Metric::Cosine, Metric::InnerProduct, Metric::L2];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_vectors_are_one_point_with_many_rows() {
        let mut points = Points::new(Metric::Cosine, 3).unwrap();
        assert!(points.push(7, &[3.0, 0.0, 4.0]).unwrap());
        assert!(points.push(8, &[0.0, 1.0, 0.0]).unwrap());
        assert!(points.push(9, &[6.0, -0.0, 8.0]).unwrap());
        assert!(!points.push(10, &[0.0; 3]).unwrap());
        assert!(points.push(11, &[0.0, 2.0, 0.0]).unwrap());
        assert_eq!(points.len(), 2);
        assert_eq!(points.rows(&[0, 1]), (vec![0, 2, 4], vec![7, 9, 8, 11]));
        assert_eq!(points.rows(&[1, 0]), (vec![0, 2, 4], vec![8, 11, 7, 9]));
        let mut vector = Vec::new();
        points.prepare(0, &mut vector);
        assert_eq!(vector, [0.6, 0.0, 0.8]);
    }

    #[test]
    fn invalid_vectors_are_errors_with_their_row() {
        let mut points = Points::new(Metric::L2, 2).unwrap();
        assert_eq!(
            points.push(4, &[1.0]).unwrap_err().to_string(),
            "row 4: the vector has 1 dimensions instead of 2"
        );
        let nan = points.push(5, &[1.0, f32::NAN]).unwrap_err().to_string();
        assert_eq!(nan, "row 5: number 2 of the vector is NaN");
        assert!(points.push(6, &[0.0, 0.0]).unwrap(), "zero vectors are allowed for L2");
        assert!(Points::new(Metric::L2, 0).is_err() && Points::new(Metric::L2, MAX_DIM + 1).is_err());
    }
}
