//! Vectors that can be searched.

use std::collections::HashMap;

use crate::{Error, Metric, Result, quantizer::spread};

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
/// which many rows may share. They stay where they are, and are brought to their length whenever they are looked at: a file
/// that is mapped need not fit into memory a second time.
pub struct Points<'a> {
    pub(crate) metric: Metric,
    pub(crate) dim: usize,
    lent: Vec<&'a [f32]>,
    /// Each row with its point.
    rows: Vec<(u32, u32)>,
    /// The last point with a hash.
    seen: HashMap<u64, u32>,
    /// Of each point, the one before it with the same hash.
    before: Vec<u32>,
    scratch: [Vec<f32>; 2],
}

/// No point before.
const NONE: u32 = u32::MAX;

impl<'a> Points<'a> {
    /// No points yet, of this width.
    pub fn new(metric: Metric, dim: usize) -> Result<Self> {
        if dim == 0 || dim > MAX_DIM {
            return Err(Error::input(format!("vectors of {dim} numbers; 1 to {MAX_DIM} are possible")));
        }
        Ok(Points {
            metric,
            dim,
            lent: Vec::new(),
            rows: Vec::new(),
            seen: HashMap::new(),
            before: Vec::new(),
            scratch: Default::default(),
        })
    }

    /// Adds a row's vector. One that is all zeros has no cosine with anything: it is left out, and `false` is given.
    pub fn push(&mut self, row: u32, vector: &'a [f32]) -> Result<bool> {
        let [mut new, mut other] = std::mem::take(&mut self.scratch);
        let usable = prepared(self.metric, self.dim, vector, &mut new);
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
                point = self.lent.len() as u32;
                self.lent.push(vector);
                self.before.push(last);
                self.seen.insert(hash(&new), point);
            }
            self.rows.push((point, row));
        }
        self.scratch = [new, other];
        usable.map_err(|what| Error::input(format!("row {row}: {what}")))
    }

    /// How many different vectors there are.
    pub fn len(&self) -> usize {
        self.lent.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lent.is_empty()
    }

    /// A point's vector, in the form in which it is compared.
    pub(crate) fn prepare(&self, point: u32, out: &mut Vec<f32>) {
        // It was usable when it came.
        let _ = prepared(self.metric, self.dim, self.lent[point as usize], out);
    }

    /// Numbers of the vectors, spread evenly over all of them.
    pub(crate) fn numbers(&self) -> Vec<f32> {
        let (mut vector, mut at) = (Vec::new(), NONE);
        spread(self.len() * self.dim, |number| {
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

    /// The rows in an order of the points: where those of each begin, and where the last end; then all of them.
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
        assert!(points.push(11, &[0.0, 2.0, 0.0]).unwrap());
        assert_eq!(points.len(), 2);
        assert_eq!(points.rows(&[0, 1]), (vec![0, 2, 4], vec![7, 9, 8, 11]));
        assert_eq!(points.rows(&[1, 0]), (vec![0, 2, 4], vec![8, 11, 7, 9]));
        let mut vector = Vec::new();
        points.prepare(0, &mut vector);
        assert_eq!(vector, [0.6, 0.0, 0.8]);
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
