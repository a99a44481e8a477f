//! A picture of the screen of `limiter watch`, as SVG.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, Result};
use vt100::{Cell, Color, Parser, Screen};

/// The size of the terminal.
pub(crate) const ROWS: u16 = 30;
/// The size of the terminal.
pub(crate) const COLUMNS: u16 = 100;

/// The width of a cell, in pixels.
const WIDTH: f32 = 8.4;
/// The height of a cell, in pixels.
const HEIGHT: f32 = 18.0;
/// The space around the screen, in pixels.
const MARGIN: f32 = 12.0;

const BACKGROUND: &str = "#16191f";
const PLAIN: &str = "#d5d9e0";
const GREEN: &str = "#7fd08a";
const RED: &str = "#f47c7c";

/// What a terminal receives to leave the screen that a program drew.
const LEAVE: &[u8] = b"\x1b[?1049l";

/// Draws the last screen in the output of a terminal into a file.
pub(crate) fn draw(received: &[u8], file: &Path) -> Result<()> {
    let end = received.windows(LEAVE.len()).rposition(|bytes| bytes == LEAVE);
    let mut parser = Parser::new(ROWS, COLUMNS, 0);
    parser.process(&received[..end.context("limiter watch drew no screen")?]);
    fs::write(file, svg(parser.screen()))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// The look of a cell. Neighbours that look alike are drawn as one text.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    colour: &'static str,
    is_bold: bool,
    is_faint: bool,
    is_inverse: bool,
}

impl Look {
    fn of(cell: &Cell) -> Self {
        let colour = match cell.fgcolor() {
            Color::Idx(1 | 9) => RED,
            Color::Idx(2 | 10) => GREEN,
            _ => PLAIN,
        };
        let (is_bold, is_faint, is_inverse) = (cell.bold(), cell.dim(), cell.inverse());
        Self { colour, is_bold, is_faint, is_inverse }
    }
}

fn svg(screen: &Screen) -> String {
    let (rows, columns) = screen.size();
    let width = f32::from(columns).mul_add(WIDTH, 2.0 * MARGIN);
    let height = f32::from(rows).mul_add(HEIGHT, 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" \
         font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n"
    );
    for row in 0..rows {
        for (start, text, look) in runs(screen, row, columns) {
            draw_run(&mut svg, row, start, &text, look);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// The texts of a row that look alike, each with its first column. Two blanks end a text, so that columns stand below
/// each other in any font.
fn runs(screen: &Screen, row: u16, columns: u16) -> Vec<(u16, String, Look)> {
    let mut runs: Vec<(u16, String, Look)> = Vec::new();
    for column in 0..columns {
        let Some(cell) = screen.cell(row, column).filter(|cell| !cell.is_wide_continuation())
        else {
            continue;
        };
        let (look, contents) = (Look::of(cell), cell.contents());
        let contents = if contents.is_empty() { " " } else { contents };
        match runs.last_mut() {
            Some((_, text, of)) if *of == look && (look.is_inverse || !text.ends_with("  ")) => {
                text.push_str(contents);
            }
            _ => runs.push((column, contents.to_owned(), look)),
        }
    }
    runs
}

fn draw_run(svg: &mut String, row: u16, start: u16, text: &str, look: Look) {
    let (mut text, mut start) = (text, start);
    if !look.is_inverse {
        start += (text.len() - text.trim_start().len()) as u16;
        text = text.trim();
    }
    if text.is_empty() {
        return;
    }
    let cells = text.chars().count() as f32;
    let (x, top) =
        (f32::from(start).mul_add(WIDTH, MARGIN), f32::from(row).mul_add(HEIGHT, MARGIN));
    let length = cells * WIDTH;
    let mut colour = look.colour;
    // Writing to a string does not fail.
    if look.is_inverse {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{length:.1}\" height=\"{HEIGHT}\" fill=\"{colour}\"/>"
        );
        colour = BACKGROUND;
    }
    let bold = if look.is_bold { " font-weight=\"bold\"" } else { "" };
    let faint = if look.is_faint { " opacity=\"0.6\"" } else { "" };
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{:.1}\" textLength=\"{length:.1}\" xml:space=\"preserve\" fill=\"{colour}\"{bold}{faint}>{escaped}</text>",
        top + 13.5
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_alike_is_one_text_in_its_place() {
        let mut parser = Parser::new(2, 20, 0);
        parser.process(b"a<b \x1b[31mred\x1b[0m\r\n\x1b[7m sel \x1b[0m");
        let svg = svg(parser.screen());
        assert!(svg.contains(">a&lt;b</text>"), "{svg}");
        assert!(svg.contains(&format!("x=\"45.6\" y=\"25.5\" textLength=\"25.2\" xml:space=\"preserve\" fill=\"{RED}\">red</text>")), "{svg}");
        assert!(svg.contains(&format!("fill=\"{BACKGROUND}\"> sel </text>")), "{svg}");
    }
}
