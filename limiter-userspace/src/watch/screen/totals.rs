//! The passed and the dropped traffic, in numbers and as curves.

use std::time::Duration;

use limiter_common::{
    base::tally::Tally,
    packet::reason::{REASONS, Reason},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::Line,
    widgets::{RenderDirection, Sparkline, Widget},
};

use super::{
    sources::large,
    theme::{Theme, fitted},
};
use crate::{
    output::{
        number::{bit_rate, duration, grouped, scaled},
        tone::Tone,
    },
    watch::{
        history::{Flow, Split},
        view::View,
    },
};

/// The width of the numbers before a curve: name and packets, or those and bits.
const NUMBERS: [u16; 2] = [18, 31];
/// The widths of what is after a curve of one row: its peak, that and the rounded total, that and
/// the exact total.
const BEHIND: [u16; 3] = [12, 30, 39];

/// The traffic to draw, in two curves.
pub(super) struct Traffic {
    /// The latest rates; `None` before the second reading.
    pub(super) rates: Option<Split>,
    /// All packets that passed and that were dropped.
    pub(super) totals: [u64; 2],
    /// The rates of earlier readings, the latest first.
    pub(super) samples: Vec<Split>,
    /// The time between two samples.
    pub(super) interval: Duration,
}

/// The curve of passed or of dropped traffic.
struct Curve {
    name: &'static str,
    tone: Tone,
    rate: Option<Flow>,
    total: u64,
    samples: Vec<f64>,
    interval: Duration,
}

impl Traffic {
    /// The traffic of all interfaces.
    pub(super) fn of_all(view: &View) -> Self {
        let reasons = &view.history.latest().reasons;
        Self {
            rates: view.history.rates().map(|rates| rates.total),
            totals: [false, true].map(|drops| total(reasons, drops)),
            samples: view.history.samples().collect(),
            interval: view.interval,
        }
    }

    /// Draws both curves, one above the other, each in half of the area.
    pub(super) fn render(&self, theme: Theme, area: Rect, buffer: &mut Buffer) {
        let rows = area.height / 2;
        let passed = Rect { height: rows, ..area };
        let dropped = Rect { y: area.y + rows, height: rows, ..area };
        self.curve("passed", Tone::Passed, |split| split.passed, self.totals[0])
            .render(theme, passed, buffer);
        self.curve("dropped", Tone::Dropped, |split| split.dropped, self.totals[1])
            .render(theme, dropped, buffer);
    }

    fn curve(
        &self,
        name: &'static str,
        tone: Tone,
        side: impl Fn(Split) -> Flow,
        total: u64,
    ) -> Curve {
        let rate = self.rates.map(&side);
        let samples = self.samples.iter().map(|split| side(*split).packets).collect();
        Curve { name, tone, rate, total, samples, interval: self.interval }
    }
}

impl Curve {
    fn render(&self, theme: Theme, area: Rect, buffer: &mut Buffer) {
        let [short, long] = NUMBERS;
        let narrow = area.width < 50;
        let numbers = if narrow { short } else { long };
        let [short, rounded, exact] = BEHIND;
        let behind = match area.width {
            _ if area.height != 1 => 0,
            100.. => exact,
            76..100 => rounded,
            38..76 => short,
            _ => 0,
        };
        let curve = Rect {
            x: area.x + numbers.min(area.width),
            width: area.width.saturating_sub(numbers + behind),
            // Leaves a free row between two curves.
            height: area.height - u16::from(area.height > 2),
            y: area.y + u16::from(area.height > 2),
        };
        let lines = self.numbers(theme, curve.width, narrow);
        for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
            buffer.set_line(area.x, y, &fitted(line.clone(), numbers), numbers);
        }
        if behind > 0 && !self.samples.is_empty() {
            let peak = format!("peak {}", scaled(self.peak(curve.width).0));
            let text = match behind {
                _ if behind == exact => format!("{peak}pps{:>24}", self.total_text()),
                _ if behind == rounded => format!("{peak}pps{:>7} packets", large(self.total)),
                _ => peak,
            };
            let text = format!("{text:>width$}", width = usize::from(behind));
            buffer.set_string(area.right() - behind, area.y, text, theme.style(Tone::Faint));
        }
        self.sparkline(curve).style(theme.style(self.tone)).render(curve, buffer);
    }

    fn numbers(&self, theme: Theme, columns: u16, narrow: bool) -> [Line<'static>; 3] {
        let packets = self.rate.map_or("-".into(), |rate| format!("{}pps", scaled(rate.packets)));
        let bits = self.rate.map_or("-".into(), |rate| bit_rate(rate.bytes));
        let (peak, shown) = self.peak(columns);
        let time = self.interval.saturating_mul(u32::try_from(shown).unwrap_or(u32::MAX));
        let peak = format!("peak {}pps", scaled(peak));
        // The columns for the numbers are 18 on a narrow screen, and 31 on others.
        let below = if narrow {
            [format!("  {} packets", large(self.total)), format!("  {peak}")]
        } else {
            let peak = format!("{peak} in {}", duration(time));
            [self.total_text(), peak].map(|text| format!("       {text}"))
        };
        let [total, peak] = below.map(|text| theme.span(Tone::Faint, text).into());
        let mut first = Line::from(vec![
            theme.span(Tone::Strong, format!("{:<8}", self.name)),
            theme.span(self.tone, format!("{packets:>9} ")),
        ]);
        if !narrow {
            first.push_span(theme.span(Tone::Plain, format!("{bits:>11}")));
        }
        [first, total, peak]
    }

    /// The highest rate in a curve of this many columns, and how many samples the curve has. The
    /// curve is scaled to that rate.
    fn peak(&self, columns: u16) -> (f64, usize) {
        let shown = self.samples.len().min(columns.into());
        (self.samples[..shown].iter().copied().fold(0.0, f64::max), shown)
    }

    fn total_text(&self) -> String {
        format!("{} packets", grouped(self.total))
    }

    fn sparkline(&self, area: Rect) -> Sparkline<'static> {
        let levels = f64::from(area.height.max(1)) * 8.0;
        let (peak, shown) = self.peak(area.width);
        let (peak, shown) = (peak.max(f64::MIN_POSITIVE), &self.samples[..shown]);
        Sparkline::default()
            .direction(RenderDirection::RightToLeft)
            .data(shown.iter().map(|value| level(value / peak * levels)).collect::<Vec<_>>())
            .max(level(levels))
    }
}

/// The height of a bar in eighths of a row, rounded up so that any traffic is visible.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 8 per row")]
fn level(value: f64) -> u64 {
    value.ceil() as u64
}

fn total(reasons: &[Tally; REASONS], drops: bool) -> u64 {
    let of_this_side = Reason::ALL.into_iter().filter(|reason| reason.drops() == drops);
    of_this_side.map(|reason| reasons[reason.index()].packets).sum()
}
