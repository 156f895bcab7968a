//! What a run came to, to be looked at: `curves.svg`, and the same for TensorBoard.

use crate::{
    cli::plots::{Series, legend_within, lines},
    train::run::{evaluations::Evaluation, events::Scalar, metrics::Line},
};

/// The height of a plot with its legend.
const ROW: usize = 352;

/// A picture of plots one below the other.
pub(super) fn picture(steps: &[Line], evaluations: &[Evaluation]) -> String {
    let of = |value: fn(&Line) -> f64| steps.iter().map(|l| (l.step as f64, value(l))).collect();
    let measured = |value: fn(&Evaluation) -> Option<f64>| -> Vec<(f64, f64)> {
        evaluations.iter().filter_map(|e| Some((e.step as f64, value(e)?))).collect()
    };
    let one = |name: &str, points| vec![(name.to_owned(), points)];
    let all: Vec<(Vec<Series>, &str)> = vec![
        (one("loss", of(|l| l.loss)), "loss"),
        (one("learning rate", of(|l| l.learning_rate)), "learning rate"),
        (one("gradient", of(|l| l.gradient)), "length of the gradient"),
        (dev(evaluations), "dev tasks"),
        (one("agreement", measured(|e| e.agreement)), "neighbours by words among those by vectors"),
        (one("alignment", measured(|e| e.alignment)), "alignment"),
        (one("uniformity", measured(|e| e.uniformity)), "uniformity"),
    ];
    let mut drawn = Vec::new();
    for (series, name) in &all {
        if let Some(svg) = lines(series, ("step", name), name, false) {
            let names: Vec<&str> = series.iter().map(|(name, _)| name.as_str()).collect();
            let place = format!("<svg y=\"{}\" height=\"320\" width=\"640\"", drawn.len() * ROW);
            let legend = legend_within(&names, drawn.len() * ROW + 336);
            drawn.push(svg.replacen("<svg", &place, 1) + &legend);
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 {height}\" width=\"640\" height=\"{height}\">\n<style>text \
         {{ font: 11px system-ui, sans-serif; fill: #555 }} .grid {{ stroke: #ddd; fill: none }}</style>\n<rect \
         width=\"640\" height=\"{height}\" fill=\"#fff\"/>\n{}</svg>\n",
        drawn.concat(),
        height = drawn.len() * ROW
    )
}

/// The numbers of the dev tasks, a line each.
fn dev(evaluations: &[Evaluation]) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for evaluation in evaluations {
        for measured in &evaluation.dev {
            let name = format!("{} {}", measured.task, measured.measure);
            let point = (evaluation.step as f64, measured.value);
            match series.iter_mut().find(|(known, _)| *known == name) {
                Some((_, points)) => points.push(point),
                None => series.push((name, vec![point])),
            }
        }
    }
    series
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
