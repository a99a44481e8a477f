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

use super::theme::Theme;
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
/// The width of the total after a curve.
const TOTAL: u16 = 24;

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
        let numbers = if area.width < 50 { short } else { long };
        let behind = if area.height == 1 && area.width >= 76 { TOTAL } else { 0 };
        let curve = Rect {
            x: area.x + numbers.min(area.width),
            width: area.width.saturating_sub(numbers + behind),
            // Leaves a free row between two curves.
            height: area.height - u16::from(area.height > 2),
            y: area.y + u16::from(area.height > 2),
        };
        let lines = self.numbers(theme, curve.width);
        for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
            buffer.set_line(area.x, y, line, numbers);
        }
        if behind > 0 {
            let text = format!("{:>width$}", self.total_text(), width = usize::from(behind));
            buffer.set_string(area.right() - behind, area.y, text, theme.style(Tone::Faint));
        }
        self.sparkline(curve).style(theme.style(self.tone)).render(curve, buffer);
    }

    fn numbers(&self, theme: Theme, columns: u16) -> [Line<'static>; 3] {
        let packets = self.rate.map_or("-".into(), |rate| format!("{}pps", scaled(rate.packets)));
        let bits = self.rate.map_or("-".into(), |rate| bit_rate(rate.bytes));
        let shown = self.samples.len().min(columns.into());
        let peak = self.samples[..shown].iter().copied().fold(0.0, f64::max);
        let time = self.interval.saturating_mul(u32::try_from(shown).unwrap_or(u32::MAX));
        let peak = format!("         peak {}pps in {}", scaled(peak), duration(time));
        [
            Line::from(vec![
                theme.span(Tone::Strong, format!("{:<8}", self.name)),
                theme.span(self.tone, format!("{packets:>9} ")),
                theme.span(Tone::Plain, format!("{bits:>11}")),
            ]),
            theme.span(Tone::Faint, format!("         {}", self.total_text())).into(),
            theme.span(Tone::Faint, peak).into(),
        ]
    }

    fn total_text(&self) -> String {
        format!("{} packets", grouped(self.total))
    }

    fn sparkline(&self, area: Rect) -> Sparkline<'static> {
        let levels = f64::from(area.height.max(1)) * 8.0;
        let shown = &self.samples[..self.samples.len().min(area.width.into())];
        let peak = shown.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
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
