//! The source that is open.

use std::time::Duration;

use super::{Page, totals::Traffic};
use crate::{
    output::{
        explanation, limits::LimitRow, monitoring, number::grouped, source, table::Table,
        tone::Tone, verdict,
    },
    watch::{
        controls::Focus,
        opened::{Details, Opened},
    },
};

impl Page<'_> {
    /// Draws the details of a source.
    pub(super) fn source(&mut self, opened: &Opened) {
        let Details { report, explanation, requests } = &opened.details;
        self.text(Tone::Strong, &format!("source {}", report.name()));
        if let Some(said) = monitoring::said(report.monitoring) {
            self.text(Tone::Strong, said);
        }
        self.gap();
        let traffic = traffic(opened, self.view.interval);
        let area = self.take(usize::from(2 * self.curve));
        traffic.render(self.theme, area, self.buffer);
        self.gap();
        let facts = explanation::facts(explanation);
        for fact in &facts {
            self.text(Tone::Plain, fact);
        }
        if !facts.is_empty() {
            self.gap();
        }
        if explanation.limits.is_empty() {
            self.text(Tone::Plain, "No limit is set.");
        } else {
            let controls = &self.view.controls;
            let limit =
                controls.limit(self.view.choice()).filter(|_| controls.focus == Focus::Limits);
            let place =
                |row: &LimitRow| explanation.limits.iter().position(|(it, _)| it.name == row.name);
            self.selectable(&explanation::limits(explanation), limit.and_then(place));
        }
        if let Some(ruling) = &explanation.verdict {
            self.gap();
            let said = format!("a packet now: {}", verdict::line(ruling));
            self.text(verdict::tone(ruling), &said);
        }
        // Titles without a row say nothing.
        if !requests.is_empty() && self.rest.height >= 2 {
            if self.rest.height > 2 {
                self.gap();
            }
            self.table(&source::request_fills(requests));
        }
        if !report.states.is_empty() && self.rest.height > 3 {
            self.gap();
            self.states(&source::states(report), report.total);
        }
    }

    /// Draws the fullest states of keyed limits, as many as there is room for.
    fn states(&mut self, table: &Table, total: usize) {
        let lines = self.theme.table(table, self.rest.width);
        let room = usize::from(self.rest.height);
        let shown = lines.len().saturating_sub(1).min(room.saturating_sub(2));
        self.lines(lines.into_iter().take(shown + 1).collect());
        if total > shown {
            self.text(
                Tone::Faint,
                &format!("and {} more, less full", grouped((total - shown) as u64)),
            );
        }
    }
}

fn traffic(opened: &Opened, interval: Duration) -> Traffic {
    let report = &opened.details.report;
    let samples: Vec<_> = opened.samples().collect();
    Traffic {
        rates: samples.first().copied(),
        totals: [report.passed.packets, report.dropped.packets],
        samples,
        interval,
    }
}
