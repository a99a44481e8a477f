//! Curves over a logarithmic axis.

use super::{
    FAINT, INK,
    svg::{Anchor, Svg},
};

const WIDTH: f64 = 720.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = WIDTH - 40.0;
/// Height of the plot itself, from its top to the axis.
const HEIGHT: f64 = 300.0;
/// Top of the names of the curves, and the distance between them.
const NAMES: f64 = 76.0;
const STEP: f64 = 20.0;
const BOTTOM: f64 = 60.0;
/// Grid lines above the axis.
const LINES: u32 = 5;

/// One curve.
pub(crate) struct Curve {
    pub(crate) name: &'static str,
    pub(crate) colour: &'static str,
    /// The dash pattern of SVG; empty for a solid line.
    pub(crate) dashes: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A labelled place on the axis; the value is above 0.
pub(crate) struct Tick {
    pub(crate) at: f64,
    pub(crate) label: String,
}

/// A plot with curves.
pub(crate) struct Curves<'a> {
    /// The title, with the unit of the vertical axis.
    pub(crate) title: &'a str,
    /// The line below the title: where the figures were measured.
    pub(crate) caption: &'a str,
    /// The label of the horizontal axis.
    pub(crate) below: &'a str,
    /// The least value at the upper edge.
    pub(crate) least_top: f64,
    /// The labelled places on the axis, in ascending order.
    pub(crate) ticks: Vec<Tick>,
    pub(crate) curves: Vec<Curve>,
}

impl Curves<'_> {
    /// Draws the plot as SVG.
    pub(crate) fn draw(&self) -> String {
        let top = NAMES + STEP * self.curves.len() as f64;
        let axis = top + HEIGHT;
        let most = round_up(
            self.points().map(|(_, y)| y).filter(|y| y.is_finite()).fold(self.least_top, f64::max),
        );
        let place = |x: f64, y: f64| [self.across(x), axis - HEIGHT * (y / most).clamp(0.0, 1.0)];

        let mut svg = Svg::new(self.title, WIDTH, axis + BOTTOM);
        svg.text([16.0, 28.0], Anchor::Start, 17, self.title);
        svg.text([16.0, 48.0], Anchor::Start, 12, self.caption);
        for number in 0..=LINES {
            let value = most * f64::from(number) / f64::from(LINES);
            let [_, y] = place(1.0, value);
            svg.line([LEFT, y], [RIGHT, y], if number == 0 { INK } else { FAINT });
            // Rounded, because multiples of a tenth are not exact in binary.
            let label = format!("{}", (value * 1e6).round() / 1e6);
            svg.text([LEFT - 8.0, y + 4.5], Anchor::End, 13, &label);
        }
        for Tick { at, label } in &self.ticks {
            let x = self.across(*at);
            svg.line([x, axis], [x, axis + 5.0], INK);
            svg.text([x, axis + 21.0], Anchor::Middle, 13, label);
        }
        svg.text([f64::midpoint(LEFT, RIGHT), axis + 45.0], Anchor::Middle, 13, self.below);
        for (Curve { name, colour, dashes, points }, number) in self.curves.iter().zip(0_u32..) {
            let y = NAMES + STEP * f64::from(number) - 4.0;
            svg.path(&[[LEFT, y], [LEFT + 36.0, y]], colour, dashes);
            svg.text([LEFT + 44.0, y + 4.5], Anchor::Start, 13, name);
            let points: Vec<_> = points.iter().map(|(x, y)| place(*x, *y)).collect();
            svg.path(&points, colour, dashes);
            points.iter().for_each(|point| svg.dot(*point, colour));
        }
        svg.finish()
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.curves.iter().flat_map(|curve| curve.points.iter().copied())
    }

    /// The horizontal position of a value. The first and last tick are a little inside the plot.
    fn across(&self, x: f64) -> f64 {
        const INDENT: f64 = 24.0;
        let ends = (self.ticks.first(), self.ticks.last());
        let (Some(first), Some(last)) = ends else { return LEFT + INDENT };
        let octaves = (last.at / first.at).log2().max(1.0);
        let share = ((x / first.at).log2() / octaves).clamp(0.0, 1.0);
        LEFT + INDENT + (RIGHT - LEFT - 2.0 * INDENT) * share
    }
}

/// The smallest round number not below `value`. A fifth of it has at most two significant digits, so the grid
/// lines have short labels.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let unit = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.map(|step| step * unit).into_iter().find(|top| *top >= value).unwrap_or(10.0 * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upper_edge_is_a_round_number() {
        for (value, expected) in
            [(0.0, 1.0), (100.0, 100.0), (101.0, 150.0), (734.0, 800.0), (0.31, 0.4), (9.9, 10.0)]
        {
            assert!((round_up(value) - expected).abs() < 1e-9, "{value}: {}", round_up(value));
        }
    }

    #[test]
    fn the_axis_is_logarithmic() {
        let tick = |at: f64| Tick { at, label: at.to_string() };
        let curve = |points| Curve { name: "it", colour: INK, dashes: "", points };
        let curves = Curves {
            title: "Title",
            caption: "machine",
            below: "times",
            least_top: 100.0,
            ticks: vec![tick(1.0), tick(4.0), tick(16.0)],
            curves: vec![curve(vec![(1.0, 0.0), (4.0, 50.0), (16.0, 100.0)])],
        };
        let picture = curves.draw();
        assert!(picture.contains("points=\"94,396 375,246 656,96\""), "{picture}");
        for text in ["Title", "machine", "times", "it", "4", "16", "0", "20", "100"] {
            assert!(picture.contains(&format!(">{text}</text>")), "{text}");
        }
        let empty = Curves { ticks: vec![], curves: vec![], ..curves };
        assert!(empty.draw().ends_with("</svg>\n"));
    }
}
