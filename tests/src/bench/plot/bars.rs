//! A bar chart: horizontal bars, each with a name and a figure.

use super::{
    FAINT, INK,
    svg::{Anchor, Svg},
};

/// Distance from the top of a bar to the top of the next.
const STEP: f64 = 24.0;
const THICKNESS: f64 = 16.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 20.0;
/// Length of the longest bar.
const LENGTH: f64 = 380.0;
/// Width reserved for the figure beside the longest bar.
const FIGURE: f64 = 70.0;
const MARGIN: f64 = 16.0;
/// Width of a character of a name; more than most fonts need.
const CHARACTER: f64 = 7.3;

/// One bar.
pub(crate) struct Bar<'a> {
    /// The text to the left.
    pub(crate) name: &'a str,
    /// The value that its length shows.
    pub(crate) figure: f64,
    /// The value as text.
    pub(crate) label: String,
    pub(crate) colour: &'static str,
}

/// The chart.
pub(crate) struct Bars<'a> {
    pub(crate) title: &'a str,
    /// The line below the title: where the figures were measured.
    pub(crate) caption: &'a str,
    pub(crate) bars: Vec<Bar<'a>>,
}

impl Bars<'_> {
    /// Draws the chart as SVG.
    pub(crate) fn draw(&self) -> String {
        let Self { title, caption, bars } = self;
        let longest = bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or(0);
        let left = MARGIN + CHARACTER * longest as f64 + 8.0;
        let height = TOP + STEP * bars.len() as f64 + BOTTOM;
        let mut svg = Svg::new(title, left + LENGTH + FIGURE, height);
        svg.text([MARGIN, 28.0], Anchor::Start, 17, title);
        svg.text([MARGIN, 48.0], Anchor::Start, 12, caption);
        let most = bars.iter().map(|bar| bar.figure).fold(f64::MIN_POSITIVE, f64::max);
        for (Bar { name, figure, label, colour }, number) in bars.iter().zip(0_u32..) {
            let y = TOP + STEP * f64::from(number);
            let length = LENGTH * (figure / most).clamp(0.0, 1.0);
            let baseline = y + THICKNESS - 3.5;
            svg.text([left - 8.0, baseline], Anchor::End, 13, name);
            svg.line([left, y + STEP - 4.0], [left + LENGTH, y + STEP - 4.0], FAINT);
            svg.rectangle([left, y], [length, THICKNESS], colour);
            svg.text([left + length + 6.0, baseline], Anchor::Start, 13, label);
        }
        svg.line([left, TOP - 6.0], [left, height - BOTTOM], INK);
        svg.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_figure_has_the_longest_bar() {
        let bar = |name, figure: f64| Bar { name, figure, label: figure.to_string(), colour: INK };
        let bars = vec![bar("one", 50.0), bar("another", 100.0), bar("none", f64::NAN)];
        let picture = Bars { title: "Title", caption: "machine", bars }.draw();
        let widths: Vec<_> = picture
            .lines()
            .filter(|line| line.contains("height=\"16\""))
            .filter_map(|line| line.split("width=\"").nth(1)?.split('"').next())
            .collect();
        assert_eq!(widths, ["190", "380", "0"]);
        for text in ["Title", "machine", "one", "another", "50", "100"] {
            assert!(picture.contains(&format!(">{text}</text>")), "{text}");
        }
    }
}
