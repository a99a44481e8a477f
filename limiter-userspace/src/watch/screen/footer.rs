//! The last lines of the screen: a question, a message, or the keys.

use ratatui::{layout::Rect, text::Line};

use super::Page;
use crate::{
    output::{
        number::{grouped, memory},
        status::Tables,
        tone::Tone,
    },
    query::source::source_name,
    watch::{
        controls::{Asking, DEFAULT_TIME, Focus, Line as Typed, Message},
        view::Late,
    },
};

impl Page<'_> {
    pub(super) fn footer(&mut self) {
        let controls = &self.view.controls;
        match (&controls.asking, &controls.message) {
            (Asking::Filter(line), _) => {
                let question =
                    "Show which sources? An address, a part of one, or a prefix; nothing for all.";
                self.ask(question, line, "Enter shows them, Esc leaves it");
            }
            (Asking::Time { list, source, line }, _) => {
                let question = format!(
                    "{} {} for how long? [{DEFAULT_TIME}]",
                    list.name(),
                    source_name(*source)
                );
                self.ask(&question, line, "Enter goes on, Esc leaves it");
            }
            (Asking::Confirm { action, .. }, _) => {
                let question = format!("{}?", action.described());
                let keys =
                    Line::from(self.theme.span(Tone::Strong, "y does it, any other key not"));
                self.bottom(Tone::Strong, &question, Some(keys));
            }
            (Asking::Nothing | Asking::Help { .. }, Some(Message { text, failed })) => {
                let tone = if *failed { Tone::Dropped } else { Tone::Strong };
                let text = if *failed { format!("error: {text}") } else { text.clone() };
                self.bottom(tone, &text, None);
            }
            (Asking::Nothing | Asking::Help { .. }, None)
                if let Some(said) = self.view.late.as_ref().and_then(Late::said) =>
            {
                self.bottom(Tone::Dropped, &said, None);
            }
            (Asking::Nothing | Asking::Help { .. }, None) if self.rest.height >= 8 => self.keys(),
            (Asking::Nothing | Asking::Help { .. }, None) => {}
        }
    }

    /// Draws a question, or the fault of the answer, and the answer so far.
    fn ask(&mut self, question: &str, typed: &Typed, keys: &str) {
        let mut line = Line::from(self.theme.span(Tone::Strong, format!("> {}_", typed.text())));
        line.push_span(self.theme.span(Tone::Faint, format!("   {keys}")));
        match &typed.fault {
            Some(fault) => self.bottom(Tone::Dropped, &format!("error: {fault}"), Some(line)),
            None => self.bottom(Tone::Strong, question, Some(line)),
        }
    }

    /// Draws a text in the last lines, wrapped to the width, and a line below it.
    fn bottom(&mut self, tone: Tone, text: &str, below: Option<Line<'static>>) {
        let mut lines = self.theme.wrapped(tone, text, self.rest.width);
        lines.extend(below);
        let all = u16::try_from(lines.len()).unwrap_or(u16::MAX).min(self.rest.height);
        let area = Rect { y: self.rest.bottom() - all, height: all, ..self.rest };
        self.rest.height -= (all + u16::from(self.roomy)).min(self.rest.height);
        self.paragraph(area, lines);
    }

    /// Draws the keys that are useful now, and how full the tables are.
    fn keys(&mut self) {
        let area = Rect { y: self.rest.bottom() - 1, height: 1, ..self.rest };
        self.rest.height -= 1 + u16::from(self.roomy);
        let controls = &self.view.controls;
        let choice = self.view.choice();
        let (put, switch) = if controls.read_only {
            (&[][..], &[][..])
        } else {
            (&["d deny", "a allow"][..], &["m monitor/enforce"][..])
        };
        let here: [&[&str]; 3] = match (controls.open.is_some(), controls.focus) {
            _ if matches!(controls.asking, Asking::Help { .. }) => [&[]; 3],
            (true, Focus::Sources) => [&["Esc back"], put, &["Tab limits"]],
            (true, Focus::Limits) => [&["Esc back"], switch, &["Tab source"]],
            (false, Focus::Limits) => [switch, &["Tab sources"], &[]],
            _ if controls.source(choice).is_some() => [&["Enter open"], put, &[]],
            _ => [&["↑↓ select", "/ filter", "s sort"], &[], &[]],
        };
        let frozen = controls.frozen.then_some("p go on");
        let keys = here.concat().into_iter().chain(frozen);
        let keys = fitting(keys.collect(), &["? help", "q end"], area.width.into());
        let left = Line::from(self.theme.span(Tone::Faint, keys));
        let Tables { sources, buckets, memory_bytes, .. } = self.view.tables;
        let mut right = String::new();
        for part in [
            format!("{} of {} sources", grouped(sources.tracked), grouped(sources.capacity)),
            format!("  {} of {} buckets", grouped(buckets.tracked), grouped(buckets.capacity)),
            format!("  {}", memory(memory_bytes)),
        ] {
            if left.width() + 2 + right.len() + part.len() > usize::from(area.width) {
                break;
            }
            right += &part;
        }
        self.ends(area, left, self.theme.span(Tone::Faint, right).into());
    }
}

/// Joins the words for keys. Where they do not fit in `width` columns, the last ones of `keys` are
/// left out; `always` stay.
fn fitting(mut keys: Vec<&str>, always: &[&str], width: usize) -> String {
    loop {
        let text = [&keys[..], always].concat().join("  ");
        if text.chars().count() <= width || keys.pop().is_none() {
            return text;
        }
    }
}
