//! Tests of the objective `role-position`.

use super::{more::trainable, *};

#[test]
fn role_position_equals_its_formula() {
    let data = data();
    let model = trainable(0);
    let objective = RolePosition::new(&model, &data, 16, 3).unwrap();
    // Prepare a batch of all turns, because the prototypes are computed from all turns.
    let all = objective.examples(&data).unwrap();
    let mut every: Vec<(TurnLocation, Random)> =
        all.iter().map(|location| (*location, Random::new(1, 1))).collect();
    let whole = objective.prepare(&data, &mut every).unwrap();
    let now = rows(&model.states(&whole.packed, None).unwrap());
    let unit = |row: &[f64]| -> Vec<f64> {
        let length = dot(row, row).sqrt();
        row.iter().map(|v| v / length).collect()
    };
    let vectors: Vec<Vec<f64>> = (0..all.len()).map(|n| unit(&mean(&now[whole.packed.rows(n)]))).collect();
    // The five classes of a role are its positions: first, second, last, second to last, middle. The classes of the
    // second role follow those of the first.
    let of = |location: &TurnLocation| {
        let turns = data.dialogue(location.dialogue).unwrap().len() as u32;
        let at = match location.turn {
            turn @ (0 | 1) => turn,
            turn if turn + 1 == turns => 2,
            turn if turn + 2 == turns => 3,
            _ => 4,
        };
        (5 * (location.turn % 2) + at) as usize
    };
    let middle = mean(&vectors);
    let mut directions = vec![vec![0.0; WIDTH]; 15];
    let mut shares = vec![1.0 / (all.len() as f64 + 15.0); 15];
    for (class, direction) in directions.iter_mut().enumerate() {
        let own: Vec<&Vec<f64>> =
            all.iter().zip(&vectors).filter(|(p, _)| of(p) == class).map(|(_, v)| v).collect();
        shares[class] *= own.len() as f64 + 1.0;
        if !own.is_empty() {
            let from: Vec<f64> = mean(own).iter().zip(&middle).map(|(a, b)| a - b).collect();
            *direction = unit(&from);
        }
    }
    let mut some = examples(&objective, &data, &[0, 3, 7, 12, 20]);
    let prepared = objective.prepare(&data, &mut some).unwrap();
    let (loss, states) = checked(&prepared, &[]);
    let cost = |n: usize| {
        let vector = unit(&mean(&states[prepared.packed.rows(n)]));
        let scores: Vec<f64> =
            directions.iter().zip(&shares).map(|(d, share)| share * (dot(&vector, d) / 0.2).exp()).collect();
        -(scores[of(&some[n].0)] / scores.iter().sum::<f64>()).ln()
    };
    let expected = (0..5).map(cost).sum::<f64>() / 5.0;
    assert!((loss - expected).abs() < 1e-4, "{loss} {expected}");
}
