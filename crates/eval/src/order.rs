//! Sort order of every ranking: score descending, then id descending, compared byte by byte. This is trec_eval's
//! rule, and other tools therefore see the same ranking.

use std::cmp::Ordering;

/// Compares two (score, id) pairs; the better one comes first. Scores must not be NaN.
pub fn better_first(a: (f32, &str), b: (f32, &str)) -> Ordering {
    // `partial_cmp` treats -0 and 0 as equal, `total_cmp` would not.
    b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal).then_with(|| b.1.as_bytes().cmp(a.1.as_bytes()))
}

/// Returns the rank of each id when ids are sorted in descending order. Comparing these ranks is cheaper than
/// comparing ids when the same documents are ranked many times.
pub fn descending_ranks<S: AsRef<str>>(ids: &[S]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..ids.len() as u32).collect();
    order.sort_unstable_by(|a, b| {
        ids[*b as usize].as_ref().as_bytes().cmp(ids[*a as usize].as_ref().as_bytes())
    });
    let mut ranks = vec![0; ids.len()];
    order.iter().enumerate().for_each(|(rank, n)| ranks[*n as usize] = rank as u32);
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_scores_the_greater_id_comes_first() {
        let mut all = [(0.5, "9"), (0.5, "10"), (1.0, "2"), (0.0, "b"), (-0.0, "a")];
        all.sort_by(|a, b| better_first(*a, *b));
        assert_eq!(all.iter().map(|(_, id)| *id).collect::<Vec<_>>(), ["2", "9", "10", "b", "a"]);
        assert_eq!(descending_ranks(&["9", "10", "2"]), [0, 2, 1]);
    }
}
