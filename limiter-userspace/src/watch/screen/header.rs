//! The first line of the screen, and the notice that nothing is dropped.

use std::time::{Duration, SystemTime};

use ratatui::{
    layout::{Alignment, Rect},
    text::Line,
    widgets::{Paragraph, Widget},
};

use super::{Page, tables, theme::fitted};
use crate::output::{monitoring, number::duration, timestamp::utc, tone::Tone};

/// Columns that are kept free for the name and an interface.
const LEFT: usize = 24;

/// What is said instead of interfaces where there are none.
const NOT_ATTACHED: &str = "  no interface is attached: limiter attach IFACE";

impl Page<'_> {
    /// Draws the interfaces, the states that keys have set, and the time.
    pub(super) fn header(&mut self) {
        let area = self.take(1);
        let controls = &self.view.controls;
        let (watched, interval) = (duration(self.view.watched()), duration(self.view.interval));
        let frozen =
            controls.frozen.then(|| format!("frozen, {} old", duration(whole(self.view.age()))));
        let filter = controls.filter.as_ref().map(|filter| format!("filter {filter}"));
        let watching = Some(format!("watching {watched}, every {interval}"));
        let clock = Some(time_of_day(self.view.clock));
        let left = match self.view.history.latest().interfaces.is_empty() {
            true => "limiter".len() + NOT_ATTACHED.len(),
            false => LEFT,
        };
        let mut states = Line::default();
        for (tone, part) in [
            (Tone::Strong, frozen),
            (Tone::Strong, filter),
            (Tone::Plain, clock),
            (Tone::Faint, watching),
        ] {
            let Some(part) = part else { continue };
            // The states that keys have set are always shown, the times only if they fit.
            let fits = states.width() + 2 + part.len() + left <= usize::from(area.width);
            if tone == Tone::Strong || fits {
                let gap = if states.spans.is_empty() { "" } else { "  " };
                states.push_span(gap);
                states.push_span(self.theme.span(tone, part));
            }
        }
        let room = usize::from(area.width).saturating_sub(states.width() + 2);
        let width = u16::try_from(room).unwrap_or(u16::MAX);
        let interfaces = self.interfaces(room);
        self.paragraph(Rect { width, ..area }, vec![interfaces]);
        let states = fitted(states, area.width);
        Paragraph::new(states).alignment(Alignment::Right).render(area, self.buffer);
    }

    /// Draws the notice that nothing is dropped, in monitor mode.
    pub(super) fn monitoring(&mut self) {
        if let Some(said) = monitoring::said(self.view.history.latest().monitoring) {
            self.text(Tone::Strong, said);
        }
    }

    /// The names and states of the interfaces that there is room for, at least one.
    fn interfaces(&self, room: usize) -> Line<'static> {
        let mut line = Line::from(self.theme.span(Tone::Strong, "limiter"));
        let interfaces = &self.view.history.latest().interfaces;
        let first = interfaces.first().map_or(0, |it| it.name.len() + tables::state(it).len() + 3);
        // Room for the number of the other ones.
        let first = first + if interfaces.len() > 1 { "  +99".len() } else { 0 };
        let host = &self.view.host;
        if !host.is_empty() && line.width() + 4 + host.len() + first <= room {
            line.push_span(format!(" on {host}"));
        }
        if interfaces.is_empty() {
            line.push_span(NOT_ATTACHED);
        }
        for (place, interface) in interfaces.iter().enumerate() {
            let state = tables::state(interface);
            let more = format!("  +{}", interfaces.len() - place);
            let width = line.width() + 3 + interface.name.len() + state.len();
            let last = place + 1 == interfaces.len();
            if place > 0 && width + if last { 0 } else { more.len() } > room {
                line.push_span(self.theme.span(Tone::Faint, more));
                break;
            }
            line.push_span(format!("  {} ", interface.name));
            line.push_span(self.theme.span(Tone::Faint, state));
        }
        line
    }
}

/// The time of day in UTC, to the second.
fn time_of_day(time: SystemTime) -> String {
    let time = utc(time);
    time.split_once('T').map_or_else(String::new, |(_, time)| time.to_owned())
}

/// Cuts a duration to whole seconds.
const fn whole(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs())
}
