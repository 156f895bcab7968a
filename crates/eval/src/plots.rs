//! Plots as inline SVG. The plots need no scripts and no other files.

use std::fmt::Write as _;

use crate::tasks::Map;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
/// Margin on the left for the numbers and the title of the y axis, in pixels.
const LEFT: f64 = 64.0;
const BELOW: f64 = 44.0;
const ABOVE: f64 = 12.0;

/// Returns the n-th color of a palette. Colors with nearby numbers are easy to distinguish. The colors are readable on
/// light and dark pages.
pub fn color(n: usize) -> String {
    // The hue advances by the golden angle, so each hue is far from the previous hues.
    let hue = (n as f64 * 137.508) % 360.0;
    let light = [52, 40, 62][n / 7 % 3];
    format!("hsl({hue:.0} 65% {light}%)")
}

/// Escapes the characters in a text that have a special meaning in HTML.
pub fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Axis of a plot. It maps numbers to positions.
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64> + Clone, logarithmic: bool) -> Self {
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.fold(f64::NEG_INFINITY, f64::max);
        if logarithmic {
            return Axis { low: low.max(1e-9) / 1.3, high: high.max(1e-9) * 1.3, logarithmic };
        }
        let margin = ((high - low) * 0.06).max(1e-6 + high.abs() * 1e-3);
        Axis { low: low - margin, high: high + margin, logarithmic }
    }

    /// Returns the position of a value on the axis, from 0 to 1.
    fn position(&self, value: f64) -> f64 {
        match self.logarithmic {
            true => (value.max(1e-12) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        }
    }

    /// Returns round numbers within the axis, for tick marks.
    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let powers = (self.low.log10().floor() as i32)..=(self.high.log10().ceil() as i32);
            let all = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|first| first * 10f64.powi(power)));
            return all.filter(|tick| (self.low..=self.high).contains(tick)).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|first| first * power).find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        (first..).map(|n| n as f64 * step).take_while(|tick| *tick <= self.high).take(20).collect()
    }
}

/// Formats a tick label, for example `20k`, `0.5` or `2e-5`.
fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 1e6 => format!("{}M", value / 1e6),
        large if large >= 1e3 => format!("{}k", value / 1e3),
        small if small > 0.0 && small < 1e-3 => {
            // Ticks are multiples of a round step, so all digits after the third are rounding errors.
            let text = format!("{value:.2e}");
            let (number, power) = text.split_once('e').unwrap_or((&text, "0"));
            format!("{}e{power}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => {
            let text = format!("{value:.4}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

/// Returns the start of an SVG image with the axes, their titles (`names`) and ticks. The caller appends the data and
/// `</svg>`.
fn frame(x: &Axis, y: &Axis, names: (&str, &str), about: &str) -> String {
    let mut svg = format!(
        "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
        plain(about)
    );
    for tick in x.ticks() {
        let (at, _) = to_pixels(x, y, (tick, y.low));
        let _ = writeln!(
            svg,
            "<path d=\"M{at:.1} {ABOVE}V{:.1}\" class=\"grid\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - BELOW,
            HEIGHT - BELOW + 16.0,
            short(tick)
        );
    }
    for tick in y.ticks() {
        let (_, at) = to_pixels(x, y, (x.low, tick));
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{WIDTH}\" class=\"grid\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            short(tick)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text><text x=\"14\" y=\"{:.1}\" text-anchor=\"middle\" \
         transform=\"rotate(-90 14 {:.1})\">{}</text>",
        f64::midpoint(LEFT, WIDTH),
        HEIGHT - 8.0,
        plain(names.0),
        (HEIGHT - BELOW) / 2.0,
        (HEIGHT - BELOW) / 2.0,
        plain(names.1)
    );
    svg
}

/// Returns the pixel coordinates of a point.
fn to_pixels(x: &Axis, y: &Axis, (of_x, of_y): (f64, f64)) -> (f64, f64) {
    let across = LEFT + x.position(of_x) * (WIDTH - LEFT - 8.0);
    let down = ABOVE + (1.0 - y.position(of_y)) * (HEIGHT - BELOW - ABOVE);
    (across, down)
}

/// Returns an HTML legend that shows each name with its [`color`].
pub fn legend<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let chips: String = names
        .enumerate()
        .map(|(n, name)| format!("<span><svg viewBox=\"0 0 2 2\" aria-hidden=\"true\"><circle cx=\"1\" cy=\"1\" r=\"1\" fill=\"{}\"/></svg>{}</span>", color(n), plain(name)))
        .collect();
    format!("<p class=\"legend\">{chips}</p>\n")
}

/// Returns the SVG elements of a legend inside an image. `at` is the y coordinate of the text.
pub fn legend_within(names: &[&str], at: usize) -> String {
    let share = (WIDTH - LEFT) / names.len().max(1) as f64;
    let chips = names.iter().enumerate().map(|(n, name)| {
        let x = LEFT + n as f64 * share;
        format!(
            "<rect x=\"{x:.0}\" y=\"{}\" width=\"9\" height=\"9\" fill=\"{}\"/><text x=\"{:.0}\" y=\"{}\">{}</text>\n",
            at - 9,
            color(n),
            x + 13.0,
            at,
            plain(name)
        )
    });
    chips.collect()
}

/// Name of a line in a plot, and its points as (x, y).
pub type Series = (String, Vec<(f64, f64)>);

/// Returns an SVG plot with a line for each series and a logarithmic y axis, followed by an HTML legend. Returns an
/// empty string if there are no points.
pub fn curves(series: &[Series], names: (&str, &str), about: &str) -> String {
    match lines(series, names, about, None, true) {
        Some(svg) => svg + &legend(series.iter().map(|(name, _)| name.as_str())),
        None => String::new(),
    }
}

/// Labeled position on the x axis, drawn as a vertical line.
pub struct Mark {
    /// Position on the x axis.
    pub at: f64,
    /// Label of the position.
    pub name: String,
}

/// Returns an SVG plot with a line for each series. `names` are the titles of the axes. If `logarithmic` is true, the y
/// axis is logarithmic. Returns `None` if there are no points.
pub fn lines(
    series: &[Series],
    names: (&str, &str),
    about: &str,
    mark: Option<&Mark>,
    logarithmic: bool,
) -> Option<String> {
    let points = || series.iter().flat_map(|(_, points)| points.iter().copied());
    points().next()?;
    let (x, y) = (Axis::of(points().map(|p| p.0), false), Axis::of(points().map(|p| p.1), logarithmic));
    let mut svg = frame(&x, &y, names, about);
    if let Some(Mark { at, name }) = mark {
        let (at, _) = to_pixels(&x, &y, (*at, y.low));
        let (label_x, anchor) = label_position(at, 5.0);
        let _ = writeln!(
            svg,
            "<path d=\"M{at:.1} {ABOVE}V{:.1}\" class=\"mark\"/><text x=\"{label_x:.1}\" y=\"{:.1}\" \
             text-anchor=\"{anchor}\">{}</text>",
            HEIGHT - BELOW,
            ABOVE + 10.0,
            plain(name)
        );
    }
    for (n, (name, points)) in series.iter().enumerate() {
        let spots: Vec<(f64, f64)> = points.iter().map(|point| to_pixels(&x, &y, *point)).collect();
        let path: Vec<String> = spots.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>",
            path.join(" "),
            color(n)
        );
        // If there are many points, draw no dots, because they would cover the line.
        let dots = if points.len() > 30 { 0 } else { points.len() };
        for ((x, y), (of_x, of_y)) in spots.iter().zip(points).take(dots) {
            let of_y = if logarithmic { format!("{of_y:.0}") } else { format!("{of_y:.4}") };
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{}\"><title>{}: {of_x:.4}, {of_y}</title></circle>",
                color(n),
                plain(name)
            );
        }
    }
    Some(svg + "</svg>\n")
}

/// Returns the x coordinate and the text anchor of a label at the distance `away` from `x`, on the side with more
/// space.
fn label_position(x: f64, away: f64) -> (f64, &'static str) {
    if x > WIDTH / 2.0 { (x - away, "end") } else { (x + away, "start") }
}

/// Returns an SVG plot with a labeled dot for each (label, x, y) in `dots`. Returns an empty string if there are no
/// dots.
pub fn scatter(dots: &[(String, f64, f64)], names: (&str, &str), about: &str) -> String {
    if dots.is_empty() {
        return String::new();
    }
    let (x, y) = (Axis::of(dots.iter().map(|d| d.1), false), Axis::of(dots.iter().map(|d| d.2), false));
    let mut svg = frame(&x, &y, names, about);
    for (n, (name, of_x, of_y)) in dots.iter().enumerate() {
        let (x, y) = to_pixels(&x, &y, (*of_x, *of_y));
        let (label_x, anchor) = label_position(x, 9.0);
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{0}\"><title>{1}: {of_x:.3}, {of_y:.3}</title></circle>\
             <text x=\"{label_x:.1}\" y=\"{2:.1}\" text-anchor=\"{anchor}\">{1}</text>",
            color(n),
            plain(name),
            y + 4.0
        );
    }
    svg + "</svg>\n"
}

/// Returns an SVG image of a map, with a dot for each dialogue in the color of its domain.
pub fn map(map: &Map, about: &str) -> String {
    const SIDE: f64 = 420.0;
    let mut svg = format!(
        "<svg class=\"map\" viewBox=\"0 0 {SIDE} {SIDE}\" role=\"img\" aria-label=\"{}\">\n",
        plain(about)
    );
    for ((point, label), id) in map.points.iter().zip(&map.labels).zip(&map.ids) {
        let at = |v: f32| 8.0 + (f64::from(v) + 1.0) / 2.0 * (SIDE - 16.0);
        let name = map.names.get(*label).map_or("", String::as_str);
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{}\"><title>{} {}</title></circle>",
            at(point[0]),
            at(point[1]),
            color(*label),
            plain(name),
            plain(id)
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_axis() {
        let axis = Axis::of([0.0, 1.0].into_iter(), false);
        let ticks = axis.ticks();
        assert_eq!(ticks.iter().map(|m| short(*m)).collect::<Vec<_>>(), ["0", "0.5", "1"]);
        let axis = Axis::of([900.0, 40_000.0].into_iter(), true);
        assert_eq!(
            axis.ticks().iter().map(|m| short(*m)).collect::<Vec<_>>(),
            ["1k", "2k", "5k", "10k", "20k", "50k"]
        );
        assert_eq!([0.0, 2e-5, 1.25e-4, -3e-5, 0.02].map(short), ["0", "2e-5", "1.25e-4", "-3e-5", "0.02"]);
        // An axis is also valid if there is only one value.
        let one = Axis::of([3.0].into_iter(), false);
        assert!((0.0..=1.0).contains(&one.position(3.0)) && !one.ticks().is_empty());
    }

    #[test]
    fn points_are_inside_the_picture() {
        let x = Axis::of([0.5, 1.0].into_iter(), false);
        let y = Axis::of([10.0, 1e5].into_iter(), true);
        for point in [(0.5, 10.0), (1.0, 1e5), (0.7, 500.0)] {
            let (across, down) = to_pixels(&x, &y, point);
            assert!((LEFT..=WIDTH).contains(&across) && (0.0..=HEIGHT - BELOW).contains(&down));
        }
        let drawn = curves(&[("a <b>".to_owned(), vec![(0.9, 100.0), (0.99, 50.0)])], ("x", "y"), "about");
        assert!(drawn.contains("a &lt;b&gt;") && !drawn.contains("<b>") && drawn.ends_with("</p>\n"));
        assert_eq!(curves(&[], ("x", "y"), ""), "");
        assert_eq!(scatter(&[], ("x", "y"), ""), "");
    }
}
