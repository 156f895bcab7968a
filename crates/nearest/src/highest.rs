//! Selection of the highest scores.

/// Returns the indices of the `count` highest scores above a threshold, the highest first.
///
/// The index `own` is excluded. Ties are in ascending order of the index.
pub fn highest(scores: &[f32], own: usize, count: usize, above: f32) -> Vec<u32> {
    let mut indices: Vec<u32> =
        (0..scores.len() as u32).filter(|n| *n as usize != own && scores[*n as usize] > above).collect();
    let better = |a: &u32, b: &u32| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b));
    if indices.len() > count {
        indices.select_nth_unstable_by(count, better);
        indices.truncate(count);
    }
    indices.sort_unstable_by(better);
    indices
}
