//! Curves of a run: `curves.svg`, and the same data for TensorBoard.

use super::{
    evaluations::{Evaluation, main_values},
    events::{self, Scalar},
    folder::RunFolder,
    layer::Learned,
    lines::Line,
};
use crate::{
    recipe::{Recipe, ResolvedRecipe},
    trainer::StepResult,
};
use turnwise_core::{error::Result, files};
use turnwise_eval::plots::{Mark, Series, legend_within, lines, plain};

// Heights in pixels.
const TITLE: usize = 44;
const PLOT: usize = 320;
const LEGEND: usize = 28;

/// A label-free measure: the tag for TensorBoard, the title of the plot, and a function that returns the value.
type Measure = (&'static str, &'static str, fn(&Evaluation) -> Option<f64>);
const LABEL_FREE: [Measure; 4] = [
    ("aside", "neighbors shared by halves, held out", |e| e.held_out.as_ref().map(|score| score.value)),
    ("agreement", "agreement of neighbors with words", |e| e.agreement),
    ("alignment", "alignment", |e| e.alignment),
    ("uniformity", "uniformity", |e| e.uniformity),
];

/// Measurements of a run, to draw its curves.
pub(super) struct Curves<'a> {
    pub(super) steps: &'a [Line],
    pub(super) evaluations: &'a [Evaluation],
    /// Statistics of the learned layer, if there is one.
    pub(super) learned: Option<&'a Learned>,
    /// Step of the saved model; `None` until the run ends.
    pub(super) kept: Option<u64>,
}

/// One plot in `curves.svg`.
struct Plot {
    series: Vec<Series>,
    /// Label of the x axis.
    along: &'static str,
    /// Title, which is also the label of the y axis.
    name: String,
    /// True to mark the step of the saved model in the plot.
    is_marked: bool,
}

impl Curves<'_> {
    /// Writes the picture and the TensorBoard file to the folder of the run.
    pub(super) fn write(&self, recipe: &ResolvedRecipe, folder: &RunFolder) -> Result<()> {
        files::replace(&folder.join("curves.svg"), self.picture(recipe).as_bytes())?;
        events::write(&folder.join("tensorboard"), &self.scalars()).map(drop)
    }

    /// Returns the picture as SVG: all plots, below each other.
    fn picture(&self, recipe: &ResolvedRecipe) -> String {
        let Recipe { objective, model, seed, .. } = &recipe.file;
        let plots = self.plots();
        // A run without gradient steps has no step to mark.
        let kept = self.kept.filter(|_| !self.steps.is_empty());
        let mark = kept.map(|step| Mark { at: step as f64, name: format!("kept: step {step}") });
        let corpora: Vec<String> = recipe.file.corpus.iter().map(|path| path.display().to_string()).collect();
        let (mut drawn, mut height) = (String::new(), TITLE);
        for Plot { series, along, name, is_marked } in &plots {
            let mark = mark.as_ref().filter(|_| *is_marked);
            let Some(svg) = lines(series, (along, name), name, mark, false) else { continue };
            drawn +=
                &svg.replacen("<svg", &format!("<svg y=\"{height}\" height=\"{PLOT}\" width=\"640\""), 1);
            height += PLOT;
            if series.len() > 1 {
                let names: Vec<&str> = series.iter().map(|(name, _)| name.as_str()).collect();
                drawn += &legend_within(&names, height + LEGEND / 2);
                height += LEGEND;
            }
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 {height}\" width=\"640\" height=\"{height}\">\n<style>text \
             {{ font: 11px system-ui, sans-serif; fill: #555 }} .title {{ font-size: 15px; fill: #222 }} .grid {{ stroke: #ddd; \
             fill: none }} .mark {{ stroke: #999; stroke-dasharray: 4 3; fill: none }}</style>\n<rect width=\"640\" \
             height=\"{height}\" fill=\"#fff\"/>\n<text class=\"title\" x=\"12\" y=\"20\">{}</text><text x=\"12\" \
             y=\"36\">{}</text>\n{drawn}</svg>\n",
            plain(&cut(&format!("{} from {}, seed {}", objective.name(), model, seed), 80)),
            plain(&cut(&corpora.join(", "), 105)),
        )
    }

    fn plots(&self) -> Vec<Plot> {
        let Curves { steps, evaluations, learned, .. } = *self;
        let along = match (learned.is_some(), steps.is_empty()) {
            (false, _) => "step",
            (true, true) => "0: before, 1: with the layer",
            (true, false) => "step; the last one: with the layer",
        };
        let of_steps = |value: fn(&StepResult) -> f64| -> Vec<(f64, f64)> {
            steps.iter().map(|line| (line.result.step as f64, value(&line.result))).collect()
        };
        let one = |name: &str, along, points, is_marked| Plot {
            series: vec![(name.to_owned(), points)],
            along,
            name: name.to_owned(),
            is_marked,
        };
        let loss = of_steps(|step| step.loss);
        let series = vec![("smoothed".to_owned(), smoothed(&loss)), ("loss".to_owned(), loss)];
        let mut plots = vec![Plot { series, along: "step", name: "loss".to_owned(), is_marked: true }];
        plots.push(one("learning rate", "step", of_steps(|step| step.rate), false));
        plots.push(one("gradient norm", "step", of_steps(|step| step.norm), false));
        plots.extend(learned.map(correlations));
        for (n, (_, title, value)) in LABEL_FREE.iter().enumerate() {
            let points = evaluations.iter().filter_map(|e| Some((e.position() as f64, value(e)?))).collect();
            plots.push(one(title, along, points, true));
            if n == 0 {
                plots.extend(dev(evaluations, along));
            }
        }
        plots
    }

    /// Returns all measurements as TensorBoard scalars.
    fn scalars(&self) -> Vec<Scalar> {
        let of = |name: &str, step: u64, value: f64| Scalar { name: name.to_owned(), step, value };
        let mut all = Vec::new();
        for line in self.steps {
            let StepResult { step, loss, rate, norm, .. } = line.result;
            all.push(of("train/loss", step, loss));
            all.push(of("train/learning_rate", step, rate));
            all.push(of("train/gradient", step, norm));
        }
        for evaluation in self.evaluations {
            for measured in &evaluation.dev {
                let name = format!("dev/{}/{}", measured.task, measured.measure);
                all.push(of(&name, evaluation.position(), measured.value));
            }
            for (name, _, value) in LABEL_FREE {
                let name = format!("label-free/{name}");
                all.extend(value(evaluation).map(|value| of(&name, evaluation.position(), value)));
            }
        }
        all
    }
}

/// Shortens a line to at most `most` characters, and marks the cut with an ellipsis.
fn cut(line: &str, most: usize) -> String {
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// Returns the last component of a path.
fn short(path: &str) -> String {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path).to_owned()
}

/// Returns the exponential moving average of the values, as in the progress bar. Each new value has the weight 0.1.
fn smoothed(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut now = points.first().map_or(0.0, |p| p.1);
    let next = |(step, value): &(f64, f64)| {
        now = 0.9 * now + 0.1 * value;
        (*step, now)
    };
    points.iter().map(next).collect()
}

/// Returns a plot of the canonical correlations of the layer, with the random baseline.
fn correlations(learned: &Learned) -> Plot {
    let Learned { correlations, baseline, .. } = learned;
    let values = correlations.iter().enumerate().map(|(n, value)| ((n + 1) as f64, *value)).collect();
    let chance = vec![(1.0, *baseline), (correlations.len().max(2) as f64, *baseline)];
    Plot {
        series: vec![("learned".to_owned(), values), ("chance".to_owned(), chance)],
        along: "direction",
        name: "correlation with the context".to_owned(),
        is_marked: false,
    }
}

/// Returns one plot per dev task, with the main measure of the task.
fn dev(evaluations: &[Evaluation], along: &'static str) -> Vec<Plot> {
    let mut plots: Vec<(&str, Plot)> = Vec::new();
    for evaluation in evaluations {
        for measured in main_values(evaluation) {
            let point = (evaluation.position() as f64, measured.value);
            match plots.iter_mut().find(|(task, _)| *task == measured.task) {
                Some((_, plot)) => plot.series[0].1.push(point),
                None => {
                    let (task, path) = measured.task.split_once(':').unwrap_or((&measured.task, ""));
                    let name = format!("{} of {task}:{}", measured.measure, short(path));
                    let series = vec![(name.clone(), vec![point])];
                    plots.push((&measured.task, Plot { series, along, name, is_marked: true }));
                }
            }
        }
    }
    plots.into_iter().map(|(_, plot)| plot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{recipe::ObjectiveName, run::evaluations::Measured};

    #[test]
    fn all_measurements_are_drawn_and_written() {
        let step = |step: u64| Line {
            result: StepResult {
                step,
                loss: 2.0 / step as f64,
                rate: 2e-5,
                norm: 1.0,
                examples: 4,
                tokens: 9,
            },
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
            held_out: None,
            agreement: Some(value),
            alignment: None,
            uniformity: None,
            seconds: 1.0,
        };
        let (steps, evaluations) = ([step(1), step(2)], [evaluation(0, 0.25), evaluation(2, 0.5)]);
        let learned = Learned { correlations: vec![0.9, 0.4], baseline: 0.3, ..Learned::default() };
        let recipe = Recipe::new(ObjectiveName::Responses, "a/base".to_owned(), vec!["x/chats".into()]);
        let recipe = recipe.resolve(6, 256).unwrap();
        let layer = Curves { steps: &[], evaluations: &evaluations, learned: Some(&learned), kept: Some(0) };
        let picture = layer.picture(&recipe);
        assert!(picture.contains("correlation with the context") && !picture.contains("kept"));
        let curves = Curves { steps: &steps, evaluations: &evaluations, learned: None, kept: Some(2) };
        let picture = curves.picture(&recipe);
        for part in [
            "responses from a/base, seed 0",
            "x/chats",
            "kept: step 2",
            "MAP of sr:select.txt",
            "agreement of neighbors",
            "2e-5",
            "smoothed",
            "learning rate",
        ] {
            assert!(picture.contains(part), "{part}");
        }
        assert!(
            !picture.contains("MRR")
                && !picture.contains("correlation")
                && !picture.contains("uniformity")
                && !picture.contains("NaN")
        );
        let scalars = curves.scalars();
        assert_eq!(scalars.len(), 2 * 3 + 2 * 3);
        assert!(scalars.iter().any(|s| s.name == "dev/sr:a/b/select.txt/MRR" && s.step == 2));
    }
}
