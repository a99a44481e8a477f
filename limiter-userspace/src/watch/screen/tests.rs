mod drops;
mod golden;
mod keys;
mod requests;
mod sizes;

use std::time::{Duration, Instant, UNIX_EPOCH};

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::{Frame, Terminal, backend::TestBackend, buffer::Cell, style::Color};

use super::{example, render};
use crate::{
    datapath::monitoring::Monitoring,
    output::limits::LimitRow,
    policy::model::{GlobalMode, Mode},
    watch::{
        action::Action,
        controls::{Drawn, Effect, READING},
        view::View,
    },
};

/// The example after 30 s, with a reading per second.
fn view(colour: bool) -> View {
    let start = Instant::now();
    let first = example::reading(start, Duration::ZERO, true);
    let mut view = View::new(first, Duration::from_secs(1), colour);
    for second in (1..=30).map(Duration::from_secs) {
        view.update(example::reading(start + second, second, true));
    }
    view.host = "gw1".into();
    view.clock = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    view.drew(Drawn { sources: 60, limits: 3, help: [0; 2] });
    stand(&mut view);
    view
}

fn stand(view: &mut View) {
    let shown = view.shown();
    let standings = example::standings(&shown);
    view.stand(shown, standings);
}

/// Presses the keys in a text: `Enter`, `Esc`, `Tab`, `Down`, and single characters.
fn press(view: &mut View, keys: &str) -> Effect {
    let mut effect = Effect::Nothing;
    for word in keys.split(' ') {
        let codes: Vec<KeyCode> = match word {
            "Enter" => vec![KeyCode::Enter],
            "Esc" => vec![KeyCode::Esc],
            "Tab" => vec![KeyCode::Tab],
            "Down" => vec![KeyCode::Down],
            typed => typed.chars().map(KeyCode::Char).collect(),
        };
        for code in codes {
            let now = view.now + READING;
            let event = Event::Key(KeyEvent::new(code, KeyModifiers::NONE));
            effect = view.press(&event, now);
        }
    }
    effect
}

/// Opens the first source, and reads its details for 20 s.
fn opened(view: &mut View) {
    assert_eq!(press(view, "Down Enter"), Effect::Open);
    let source = view.controls.open.unwrap();
    let start = view.now;
    for second in (0..=20).map(Duration::from_secs) {
        view.now = start + second;
        view.open(source, example::details(source, view.now, second + Duration::from_secs(9)));
    }
}

fn terminal(view: &View, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let draw = |frame: &mut Frame<'_>| {
        render(view, frame.area(), frame.buffer_mut());
    };
    terminal.draw(draw).unwrap();
    terminal
}

fn terminal_drew(view: &View, width: u16, height: u16) -> Drawn {
    let mut drew = Drawn::default();
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| drew = render(view, frame.area(), frame.buffer_mut())).unwrap();
    drew
}

fn drawn(view: &View, width: u16, height: u16) -> Vec<String> {
    let terminal = terminal(view, width, height);
    let cells: Vec<_> = terminal.backend().buffer().content().iter().map(Cell::symbol).collect();
    cells.chunks(width.into()).map(|line| line.concat().trim_end().to_owned()).collect()
}

#[test]
fn a_large_terminal_has_the_sources_beside_the_rest() {
    let lines = drawn(&view(false), 200, 60);
    let limits = lines.iter().find(|line| line.contains("CONFORM/S")).unwrap();
    assert!(limits.contains("MODE") && limits.contains("203.0.113."), "{limits}");
    assert!(lines.iter().any(|line| line.contains("INTERFACE") && line.contains("SOURCE")));
    let sources = lines.iter().filter(|line| line.contains("203.0.113.") || line.contains("2001:"));
    assert!(sources.count() > 40, "{lines:#?}");
    let curves = lines.iter().filter(|line| line.ends_with('█') || line.ends_with('▁'));
    assert!(curves.count() > 6, "{lines:#?}");
    assert!(lines[59].ends_with("164MiB"), "{}", lines[59]);
}

#[test]
fn a_small_terminal_keeps_what_matters() {
    assert_eq!(
        drawn(&view(false), 40, 10),
        [
            " limiter  veth0 native  +1     22:13:20Z",
            " passed   48.0kpps █████████  peak 48.0k",
            " dropped  2.48Mpps ▁▂▃▄▅▆▇██  peak 2.48M",
            " LIMIT           RATE   EXCEED/S",
            " syn             50/s        812",
            " source         1kpps      2.48M",
            " connection       off",
            " SOURCE by dropped/s         DROPPED/S",
            " 203.0.113.1                      620k",
            " ↑↓ select  / filter  ? help  q end",
        ]
    );
}

#[test]
fn without_colour_the_same_text_has_none() {
    assert_eq!(drawn(&view(true), 120, 40), drawn(&view(false), 120, 40));
    let coloured = |colour| {
        let terminal = terminal(&view(colour), 120, 40);
        terminal.backend().buffer().content().iter().any(|cell| cell.fg != Color::Reset)
    };
    assert!(coloured(true) && !coloured(false));
}

#[test]
fn without_a_limit_it_says_how_to_set_one() {
    let view = View::new(example::unlimited(Instant::now()), Duration::from_secs(1), false);
    let text = drawn(&view, 80, 24).join("\n");
    assert!(text.contains("Set one: limiter limit set source --rate 1kpps --burst 2k"), "{text}");
    assert!(!text.contains("CONFORM/S"), "{text}");
}

#[test]
fn it_says_when_nothing_is_dropped() {
    for (monitoring, said) in [
        (Monitoring { switch: true, ..Monitoring::default() }, "until: limiter monitor off"),
        (Monitoring { policy: GlobalMode::Monitor, ..Monitoring::default() }, "`mode: monitor`"),
    ] {
        let mut reading = example::reading(Instant::now(), Duration::ZERO, true);
        reading.snapshot.monitoring = monitoring;
        let view = View::new(reading, Duration::from_secs(1), false);
        assert!(drawn(&view, 80, 24)[1].contains(said), "{:#?}", drawn(&view, 80, 24));
    }
}

#[test]
fn without_an_interface_it_says_how_to_attach() {
    let mut reading = example::unlimited(Instant::now());
    reading.snapshot.interfaces.clear();
    let view = View::new(reading, Duration::from_secs(1), false);
    assert!(drawn(&view, 80, 24)[0].contains("limiter attach IFACE"));
}

#[test]
fn sources_that_were_not_scanned_just_now_say_so() {
    let mut view = view(false);
    let start = view.started;
    for second in (31..=36).map(Duration::from_secs) {
        view.update(example::reading(start + second, second, false));
    }
    let text = drawn(&view, 80, 24).join("\n");
    assert!(text.contains("SOURCE by dropped/s (6s ago)"), "{text}");
}

#[test]
fn no_size_is_too_small() {
    every_size(&view(true));
}

fn every_size(view: &View) {
    for width in (0..30).chain([49, 50, 59, 60, 61, 80, 159, 160, 161, 500]) {
        for height in (0..16).chain([19, 20, 21, 30, 45, 200]) {
            drop(terminal(view, width, height));
        }
    }
}
