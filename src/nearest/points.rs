//! Vectors that can be searched.

use std::collections::{HashMap, hash_map::Entry};

use crate::{Error, Metric, Result};

/// The widest vector. Products of wider rows of codes would no longer be exact in f32.
pub(crate) const MAX_DIM: usize = 1040;

/// How the vectors themselves lie in a frozen file, for exact scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Originals {
    /// As they are.
    #[default]
    F32,
    /// In half the bytes, with about three digits.
    F16,
}

/// Vectors that can be searched: of one width, finite, of length 1 if the metric is the cosine. Equal ones are one point,
/// which many rows may share.
pub struct Points {
    pub(crate) metric: Metric,
    pub(crate) dim: usize,
    /// One after the other.
    pub(crate) vectors: Vec<f32>,
    /// The rows of each point.
    pub(crate) rows: Vec<Vec<u32>>,
    /// Points by the hash of their vector.
    seen: HashMap<u64, Vec<u32>>,
    scratch: Vec<f32>,
}

impl Points {
    /// No points yet, of this width.
    pub fn new(metric: Metric, dim: usize) -> Result<Self> {
        if dim == 0 || dim > MAX_DIM {
            return Err(Error::Input(format!("vectors of {dim} numbers; 1 to {MAX_DIM} are possible")));
        }
        Ok(Points {
            metric,
            dim,
            vectors: Vec::new(),
            rows: Vec::new(),
            seen: HashMap::new(),
            scratch: Vec::new(),
        })
    }

    /// Adds a row's vector. One that is all zeros has no cosine with anything: it is left out, and `false` is given.
    pub fn push(&mut self, row: u32, vector: &[f32]) -> Result<bool> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let usable = prepared(self.metric, self.dim, vector, &mut scratch);
        if usable == Ok(true) {
            self.enter(row, &scratch);
        }
        self.scratch = scratch;
        usable.map_err(|what| Error::Input(format!("row {row}: {what}")))
    }

    fn enter(&mut self, row: u32, vector: &[f32]) {
        let candidates = match self.seen.entry(hash(vector)) {
            Entry::Occupied(candidates) => candidates.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(Vec::new()),
        };
        let at = |point: u32| point as usize * self.dim..(point as usize + 1) * self.dim;
        match candidates.iter().find(|point| self.vectors[at(**point)] == *vector) {
            Some(point) => self.rows[*point as usize].push(row),
            None => {
                candidates.push(self.rows.len() as u32);
                self.vectors.extend_from_slice(vector);
                self.rows.push(vec![row]);
            }
        }
    }

    /// How many different vectors there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn vector(&self, point: usize) -> &[f32] {
        &self.vectors[point * self.dim..(point + 1) * self.dim]
    }
}

/// Brings a vector into the form in which it is compared. `false`: it has no direction, which the cosine needs.
pub(crate) fn prepared(
    metric: Metric,
    dim: usize,
    vector: &[f32],
    out: &mut Vec<f32>,
) -> std::result::Result<bool, String> {
    if vector.len() != dim {
        return Err(format!("a vector of {} numbers among vectors of {dim}", vector.len()));
    }
    if let Some(at) = vector.iter().position(|v| !v.is_finite()) {
        return Err(format!("number {} of the vector is {}", at + 1, vector[at]));
    }
    out.clear();
    out.extend_from_slice(vector);
    if metric == Metric::Cosine {
        // In 64 bits, so that neither large nor small numbers leave the range.
        let length = vector.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>().sqrt();
        if length == 0.0 {
            return Ok(false);
        }
        // What has length 1 already is kept to the bit.
        if (length - 1.0).abs() > 1e-6 {
            out.iter_mut().for_each(|v| *v = (f64::from(*v) / length) as f32);
        }
    }
    // −0 and 0 are equal and must hash alike.
    out.iter_mut().for_each(|v| *v += 0.0);
    Ok(true)
}

fn hash(vector: &[f32]) -> u64 {
    vector.iter().fold(0x9E37_79B9_7F4A_7C15, |hash, v| {
        let mixed = (hash ^ u64::from(v.to_bits())).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ (mixed >> 29)
    })
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
        assert_eq!((points.len(), &points.rows[0], &points.rows[1]), (2, &vec![7, 9], &vec![8]));
        assert_eq!(points.vector(0), [0.6, 0.0, 0.8]);
    }

    #[test]
    fn what_is_no_vector_is_refused_with_its_row() {
        let mut points = Points::new(Metric::L2, 2).unwrap();
        assert_eq!(
            points.push(4, &[1.0]).unwrap_err().to_string(),
            "row 4: a vector of 1 numbers among vectors of 2"
        );
        let nan = points.push(5, &[1.0, f32::NAN]).unwrap_err().to_string();
        assert_eq!(nan, "row 5: number 2 of the vector is NaN");
        assert!(points.push(6, &[0.0, 0.0]).unwrap(), "zeros are a place as good as any");
        assert!(Points::new(Metric::L2, 0).is_err() && Points::new(Metric::L2, MAX_DIM + 1).is_err());
    }
}
