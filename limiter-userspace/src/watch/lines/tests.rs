use std::time::{Duration, Instant};

use super::*;
use crate::watch::screen::example;

/// The view after readings at these seconds.
fn view(seconds: &[u64]) -> View {
    let start = Instant::now();
    let first = example::reading(start, Duration::ZERO, true);
    let mut view = View::new(first, Duration::from_secs(1), false);
    for second in seconds.iter().copied().map(Duration::from_secs) {
        view.update(example::reading(start + second, second, true));
    }
    view
}

fn printed(views: &[View]) -> String {
    printed_on(None, views)
}

/// What is printed to a pipe, or to a terminal of this width.
fn printed_on(columns: Option<usize>, views: &[View]) -> String {
    let mut written = Vec::new();
    let mut output = Output::new(&mut written, false, false);
    if let Some(columns) = columns {
        output = output.with_columns(columns);
    }
    let mut lines = Lines::default();
    for (view, second) in views.iter().zip(1_700_000_000..) {
        lines.print(&mut output, view, UNIX_EPOCH + Duration::from_secs(second)).unwrap();
    }
    drop(output);
    String::from_utf8(written).unwrap()
}

#[test]
fn a_line_says_what_happened_and_which_limit_refused_most() {
    assert_eq!(
        printed(&[view(&[5]), view(&[5, 6])]),
        "\
TIME                   PASSED/S  DROPPED/S       PASSED      DROPPED  TOP EXCEEDED LIMIT    TOP DROPPED SOURCE
2023-11-14T22:13:20Z      48.0k       455k    161Mbit/s    218Mbit/s  source 454k/s         203.0.113.1 264k/s
2023-11-14T22:13:21Z      48.0k      1.45M    161Mbit/s    694Mbit/s  source 1.44M/s        203.0.113.1 361k/s
"
    );
}

#[test]
fn on_a_terminal_no_line_is_wider_than_it() {
    assert_eq!(
        printed_on(Some(80), &[view(&[5])]),
        "\
TIME        PASSED/S  DROPPED/S  TOP EXCEEDED LIMIT    TOP DROPPED SOURCE
22:13:20Z      48.0k       455k  source 454k/s         203.0.113.1 264k/s
"
    );
    assert_eq!(
        printed_on(Some(45), &[view(&[5])]),
        "\
TIME       DROPPED/S  TOP DROPPED SOURCE
22:13:20Z       455k  203.0.113.1 264k/s
"
    );
    assert_eq!(
        printed_on(Some(60), &[view(&[5])]),
        "\
TIME        PASSED/S  DROPPED/S  TOP DROPPED SOURCE
22:13:20Z      48.0k       455k  203.0.113.1 264k/s
"
    );
    let mut reading = example::reading(Instant::now(), Duration::ZERO, true);
    reading.snapshot.monitoring.switch = true;
    let monitored = View::new(reading, Duration::from_secs(1), false);
    let said = printed_on(Some(45), &[monitored]);
    assert!(said.lines().count() == 4 && said.lines().all(|line| line.len() <= 45), "{said}");
    assert_eq!(printed_on(Some(200), &[view(&[5])]), printed(&[view(&[5])]));
}

#[test]
fn that_nothing_is_dropped_is_said_when_it_begins_and_when_it_is_over() {
    let with = |switch| {
        let mut reading = example::reading(Instant::now(), Duration::ZERO, true);
        reading.snapshot.monitoring.switch = switch;
        View::new(reading, Duration::from_secs(1), false)
    };
    let text = printed(&[with(true), with(true), with(false), with(false)]);
    let first = |line: &str| line.split(' ').next().map(str::to_owned);
    let lines: Vec<_> = text.lines().filter_map(first).collect();
    let time = |second| format!("2023-11-14T22:13:{second}Z");
    let expected = ["Nothing", "TIME", &time(20), &time(21), "Limits", &time(22), &time(23)];
    assert_eq!(lines, expected, "{text}");
}

#[test]
fn where_nothing_happened_no_limit_and_no_source_is_named() {
    let start = Instant::now();
    let second = Duration::from_secs(1);
    let mut view = View::new(example::reading(start, second, true), second, false);
    let mut still = example::reading(start + second, second, true);
    for sighting in still.scan.iter_mut().flat_map(|scan| &mut scan.found) {
        sighting.rates = Some([0.0; 2]);
    }
    view.update(still);
    assert_eq!(
        printed(&[view]),
        "\
TIME                   PASSED/S  DROPPED/S       PASSED      DROPPED  TOP EXCEEDED LIMIT    TOP DROPPED SOURCE
2023-11-14T22:13:20Z          0          0       0bit/s       0bit/s  -                     -
"
    );
}

#[test]
fn the_limit_that_refuses_most_is_named() {
    let flow = |packets| Flow { packets, ..Flow::default() };
    let limit = |name: &str, exceed| LimitRate {
        name: name.to_owned(),
        conform: flow(1e9),
        exceed: flow(exceed),
        monitored: Flow::default(),
        near: Flow::default(),
    };
    assert_eq!(most_exceeded(&[]), "-");
    assert_eq!(most_exceeded(&[limit("a", 0.0), limit("b", 0.0)]), "-");
    let limits = [limit("a", 3.0), limit("b", 1_250.0), limit("c", 0.5)];
    assert_eq!(most_exceeded(&limits), "b 1.25k/s");
}

#[test]
fn readings_that_fail_for_long_are_told_once() {
    let (mut lines, mut view, start) = (Lines::default(), view(&[5]), Instant::now());
    let mut failed_for = |view: &mut View, seconds| {
        view.fail("it is busy".into(), start + Duration::from_secs(seconds));
        lines.late(view)
    };
    assert_eq!(failed_for(&mut view, 0), None);
    let said = "no reading for 2s: it is busy; it is tried again".to_owned();
    assert_eq!(failed_for(&mut view, 2), Some(said));
    assert_eq!(failed_for(&mut view, 60), None);
}
