//! A small SVG writer with the shapes that plots need.
//!
//! The same shapes give the same text. Text is kept as text. The background is white, so that the plot is
//! readable on pages of any colour.

use super::INK;

/// The position of a text relative to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    /// The text begins at the point.
    Start,
    /// The text is centred on the point.
    Middle,
    /// The text ends at the point.
    End,
}

/// A picture in progress. Lengths are in pixels, from the upper left corner.
pub(crate) struct Svg {
    text: String,
}

impl Svg {
    /// An empty picture of this size, in pixels.
    pub(crate) fn new(title: &str, width: f64, height: f64) -> Self {
        let (title, width, height) = (escaped(title), number(width), number(height));
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\" font-family=\"sans-serif\">\n\
             <title>{title}</title>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        Self { text }
    }

    /// A filled rectangle.
    pub(crate) fn rectangle(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], fill: &str) {
        let [x, y, width, height] = [x, y, width, height].map(number);
        self.push(&format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"/>"
        ));
    }

    /// A thin line.
    pub(crate) fn line(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], stroke: &str) {
        let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(number);
        self.push(&format!(
            "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"{stroke}\"/>"
        ));
    }

    /// A thick line through points; `dashes` is the dash pattern, or empty.
    pub(crate) fn path(&mut self, points: &[[f64; 2]], stroke: &str, dashes: &str) {
        let points: Vec<_> =
            points.iter().map(|[x, y]| format!("{},{}", number(*x), number(*y))).collect();
        let points = points.join(" ");
        let dashes = match dashes {
            "" => String::new(),
            dashes => format!(" stroke-dasharray=\"{dashes}\""),
        };
        self.push(&format!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{stroke}\" \
             stroke-width=\"2.5\"{dashes}/>"
        ));
    }

    /// A dot.
    pub(crate) fn dot(&mut self, [x, y]: [f64; 2], fill: &str) {
        let [x, y] = [x, y].map(number);
        self.push(&format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"4\" fill=\"{fill}\"/>"));
    }

    /// A line of text with its baseline at the point.
    pub(crate) fn text(&mut self, [x, y]: [f64; 2], anchor: Anchor, size: u32, text: &str) {
        let [x, y] = [x, y].map(number);
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.push(&format!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" font-size=\"{size}\" \
             fill=\"{INK}\">{text}</text>"
        ));
    }

    /// Ends the picture and returns its text.
    pub(crate) fn finish(mut self) -> String {
        self.push("</svg>");
        self.text
    }

    fn push(&mut self, element: &str) {
        self.text.push_str(element);
        self.text.push('\n');
    }
}

/// Formats a length with at most one decimal. A value that is not finite becomes 0.
fn number(value: f64) -> String {
    let value = if value.is_finite() { value } else { 0.0 };
    let text = format!("{value:.1}");
    match text.strip_suffix(".0").unwrap_or(&text) {
        "-0" => "0".to_owned(),
        text => text.to_owned(),
    }
}

/// Escapes the characters that have a meaning in XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_become_elements_in_their_order() {
        let mut svg = Svg::new("a < b & \"c\"", 100.0, 50.5);
        svg.rectangle([1.0, 2.04], [3.25, 4.0], "#0072b2");
        svg.line([0.0, -0.01], [f64::NAN, 9.99], "#222222");
        svg.path(&[[1.0, 2.0], [3.0, 4.5]], "#d55e00", "");
        svg.path(&[[1.0, 2.0]], "#d55e00", "9 5");
        svg.dot([7.0, 8.0], "#d55e00");
        svg.text([5.0, 6.0], Anchor::End, 13, "1 > 0");
        let expected = "\
<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100\" height=\"50.5\" viewBox=\"0 0 100 50.5\" \
role=\"img\" font-family=\"sans-serif\">
<title>a &lt; b &amp; &quot;c&quot;</title>
<rect width=\"100\" height=\"50.5\" fill=\"#ffffff\"/>
<rect x=\"1\" y=\"2\" width=\"3.2\" height=\"4\" fill=\"#0072b2\"/>
<line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"10\" stroke=\"#222222\"/>
<polyline points=\"1,2 3,4.5\" fill=\"none\" stroke=\"#d55e00\" stroke-width=\"2.5\"/>
<polyline points=\"1,2\" fill=\"none\" stroke=\"#d55e00\" stroke-width=\"2.5\" \
stroke-dasharray=\"9 5\"/>
<circle cx=\"7\" cy=\"8\" r=\"4\" fill=\"#d55e00\"/>
<text x=\"5\" y=\"6\" text-anchor=\"end\" font-size=\"13\" fill=\"#222222\">1 &gt; 0</text>
</svg>
";
        assert_eq!(svg.finish(), expected);
    }
}
