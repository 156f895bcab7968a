//! What a run came to, to be looked at: `curves.svg`, and the same for TensorBoard.

use crate::{
    cli::plots::{Series, legend_within, lines},
    train::run::{
        evaluations::{Evaluation, main_values},
        events::Scalar,
        learned::Learned,
        metrics::Line,
    },
};

/// The heights of a plot, and of what its colours mean.
const PLOT: usize = 320;
const LEGEND: usize = 28;

/// A plot: its lines, what goes to the right, and what goes up.
struct Plot {
    series: Vec<Series>,
    along: &'static str,
    name: String,
}

/// A picture of plots one below the other; with what was learned for a layer, if one was.
pub(super) fn picture(steps: &[Line], evaluations: &[Evaluation], learned: Option<&Learned>) -> String {
    let along = match (learned.is_some(), steps.is_empty()) {
        (false, _) => "step",
        (true, true) => "0: as it is, 1: with the layer",
        (true, false) => "step; the last one: with the layer",
    };
    let of = |value: fn(&Line) -> f64| -> Vec<(f64, f64)> {
        steps.iter().map(|l| (l.step as f64, value(l))).collect()
    };
    let measured = |value: fn(&Evaluation) -> Option<f64>| -> Vec<(f64, f64)> {
        evaluations.iter().filter_map(|e| Some((e.step as f64, value(e)?))).collect()
    };
    let one = |name: &str, along, points| Plot {
        series: vec![(name.to_owned(), points)],
        along,
        name: name.to_owned(),
    };
    let loss = of(|l| l.loss);
    let series = vec![("smoothed".to_owned(), smoothed(&loss)), ("loss".to_owned(), loss)];
    let mut plots = vec![Plot { series, along: "step", name: "loss".to_owned() }];
    plots.push(one("learning rate", "step", of(|l| l.learning_rate)));
    plots.push(one("length of the gradient", "step", of(|l| l.gradient)));
    plots.extend(learned.map(told));
    plots.extend(dev(evaluations, along));
    plots.push(one("agreement of neighbours with words", along, measured(|e| e.agreement)));
    plots.push(one("alignment", along, measured(|e| e.alignment)));
    plots.push(one("uniformity", along, measured(|e| e.uniformity)));
    let (mut drawn, mut height) = (String::new(), 8);
    for Plot { series, along, name } in &plots {
        let Some(svg) = lines(series, (along, name), name, false) else { continue };
        drawn += &svg.replacen("<svg", &format!("<svg y=\"{height}\" height=\"{PLOT}\" width=\"640\""), 1);
        height += PLOT;
        if series.len() > 1 {
            let names: Vec<&str> = series.iter().map(|(name, _)| name.as_str()).collect();
            drawn += &legend_within(&names, height + LEGEND / 2);
            height += LEGEND;
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 {height}\" width=\"640\" height=\"{height}\">\n<style>text \
         {{ font: 11px system-ui, sans-serif; fill: #555 }} .grid {{ stroke: #ddd; fill: none }}</style>\n<rect \
         width=\"640\" height=\"{height}\" fill=\"#fff\"/>\n{drawn}</svg>\n"
    )
}

/// What the bar shows, too: each step counts a tenth of what is shown after it.
fn smoothed(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut now = points.first().map_or(0.0, |p| p.1);
    let next = |(step, value): &(f64, f64)| {
        now = 0.9 * now + 0.1 * value;
        (*step, now)
    };
    points.iter().map(next).collect()
}

/// What the directions of a layer tell, beside what chance does.
fn told(learned: &Learned) -> Plot {
    let place = |n: usize| (n + 1) as f64;
    let told = learned.told.iter().enumerate().map(|(n, told)| (place(n), *told)).collect();
    let chance = vec![(1.0, learned.by_chance), (learned.told.len().max(2) as f64, learned.by_chance)];
    Plot {
        series: vec![("learned".to_owned(), told), ("chance".to_owned(), chance)],
        along: "direction",
        name: "correlation with what is said around".to_owned(),
    }
}

/// A plot for each dev task, of the number that it is known by.
fn dev(evaluations: &[Evaluation], along: &'static str) -> Vec<Plot> {
    let mut plots: Vec<(&str, Plot)> = Vec::new();
    for evaluation in evaluations {
        for measured in main_values(evaluation) {
            let point = (evaluation.step as f64, measured.value);
            match plots.iter_mut().find(|(task, _)| *task == measured.task) {
                Some((_, plot)) => plot.series[0].1.push(point),
                None => {
                    let (task, path) = measured.task.split_once(':').unwrap_or((&measured.task, ""));
                    let file = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path);
                    let name = format!("{} of {task}:{file}", measured.measure);
                    let series = vec![(name.clone(), vec![point])];
                    plots.push((&measured.task, Plot { series, along, name }));
                }
            }
        }
    }
    plots.into_iter().map(|(_, plot)| plot).collect()
}

/// The same numbers as TensorBoard has them.
pub(super) fn scalars(steps: &[Line], evaluations: &[Evaluation]) -> Vec<Scalar> {
    let of = |name: &str, step: u64, value: f64| Scalar { name: name.to_owned(), step, value };
    let mut all = Vec::new();
    for line in steps {
        all.push(of("train/loss", line.step, line.loss));
        all.push(of("train/learning_rate", line.step, line.learning_rate));
        all.push(of("train/gradient", line.step, line.gradient));
    }
    for evaluation in evaluations {
        for measured in &evaluation.dev {
            let name = format!("dev/{}/{}", measured.task, measured.measure);
            all.push(of(&name, evaluation.step, measured.value));
        }
        let looked = [
            ("agreement", evaluation.agreement),
            ("alignment", evaluation.alignment),
            ("uniformity", evaluation.uniformity),
        ];
        for (name, value) in looked {
            all.extend(value.map(|value| of(&format!("label-free/{name}"), evaluation.step, value)));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::run::evaluations::Measured;

    #[test]
    fn everything_that_was_told_is_drawn_and_written() {
        let step = |step: u64| Line {
            step,
            loss: 2.0 / step as f64,
            learning_rate: 2e-5,
            gradient: 1.0,
            examples: 4,
            tokens: 9,
            seconds: 0.1,
        };
        let evaluation = |step: u64, value| Evaluation {
            step,
            layer: false,
            dev: ["MAP", "MRR"]
                .map(|measure| Measured {
                    task: "sr:a/b/select.txt".to_owned(),
                    measure: measure.to_owned(),
                    value,
                    each: Vec::new(),
                })
                .to_vec(),
            agreement: Some(value),
            alignment: None,
            uniformity: None,
            seconds: 1.0,
        };
        let (steps, evaluations) = ([step(1), step(2)], [evaluation(0, 0.25), evaluation(2, 0.5)]);
        let learned = Learned { told: vec![0.9, 0.4], by_chance: 0.3, ..Learned::default() };
        assert!(picture(&[], &evaluations, Some(&learned)).contains("correlation with what is said around"));
        let picture = picture(&steps, &evaluations, None);
        for part in ["MAP of sr:select.txt", "agreement of neighbours", "2e-5", "smoothed", "learning rate"] {
            assert!(picture.contains(part), "{part}");
        }
        assert!(
            !picture.contains("MRR")
                && !picture.contains("correlation")
                && !picture.contains("uniformity")
                && !picture.contains("NaN")
        );
        let scalars = scalars(&steps, &evaluations);
        assert_eq!(scalars.len(), 2 * 3 + 2 * 3);
        assert!(scalars.iter().any(|s| s.name == "dev/sr:a/b/select.txt/MRR" && s.step == 2));
    }
}
