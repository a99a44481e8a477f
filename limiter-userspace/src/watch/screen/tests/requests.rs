//! What limits on requests have left for the source that is open, which the bridge tells.

use super::*;
use crate::bridge::answer::RequestFill;

/// What a bridge tells of a source.
fn fills() -> Vec<RequestFill> {
    let fill = |name: &str, mode: &str, left, wait, refills| RequestFill {
        name: name.to_owned(),
        key: "source".to_owned(),
        mode: mode.to_owned(),
        quota: 120,
        window: 60.0,
        left,
        wait,
        refills,
    };
    vec![
        fill("login", "enforce", 0, Some(11.2), 59.0),
        fill("search (layer 2)", "monitor", 97, Some(0.0), 11.5),
        fill("admin", "drop", 0, None, 0.0),
    ]
}

/// A view of a source of which a bridge tells.
fn view_of_both_floors() -> View {
    let mut view = view(false);
    opened(&mut view);
    let opened = view.opened.as_mut().unwrap();
    opened.details.requests = fills();
    view
}

/// The lines of the table, from its titles to the next empty line.
fn table(lines: &[String]) -> Vec<&str> {
    let lines = lines.iter().map(|line| &**line);
    let lines = lines.skip_while(|line| !line.starts_with(" LIMIT ON REQUESTS"));
    lines.take_while(|line| !line.is_empty()).collect()
}

#[test]
fn an_open_source_shows_both_floors() {
    let view = view_of_both_floors();
    let whole = [
        " LIMIT ON REQUESTS  PER     MODE     AT ONCE  LEFT  PASSES IN  FULL IN",
        " login              source  enforce      120     0        11s      59s",
        " search (layer 2)   source  monitor      120    97                 11s",
        " admin              source  drop         120     0      never",
    ];
    for (width, height) in [(200, 60), (80, 24)] {
        assert_eq!(table(&drawn(&view, width, height)), whole, "{width}x{height}");
    }
    let lines = drawn(&view, 80, 24);
    assert_eq!(lines[14..16], [" a packet now: drop (deny)", ""]);
    assert!(lines[23].starts_with(" Esc back "), "{}", lines[23]);
}

#[test]
fn a_narrow_screen_keeps_what_a_request_waits_for() {
    let view = view_of_both_floors();
    assert_eq!(
        drawn(&view, 45, 20)[15..],
        [
            " a packet now: drop (deny)",
            " LIMIT ON REQUESTS  MODE     LEFT  PASSES IN",
            " login              enforce     0        11s",
            "",
            " Esc back  d deny  a allow  ? help  q end",
        ]
    );
    assert_eq!(
        table(&drawn(&view, 45, 30))[1..],
        [
            " login              enforce     0        11s",
            " search (layer 2)   monitor    97",
            " admin              drop        0      never",
        ]
    );
    // Titles are not alone.
    for height in 10..30 {
        let lines = drawn(&view, 45, height);
        assert_ne!(table(&lines).len(), 1, "{lines:#?}");
    }
}

#[test]
fn a_bridge_that_does_not_answer_leaves_no_table() {
    let mut view = view(false);
    opened(&mut view);
    for (width, height) in [(200, 60), (80, 24), (45, 20)] {
        assert!(table(&drawn(&view, width, height)).is_empty());
    }
}

#[test]
fn both_floors_are_drawn_in_ascii_and_without_colour() {
    let mut view = view_of_both_floors();
    let coloured = drawn(&view, 80, 24);
    view.colour = !view.colour;
    assert_eq!(drawn(&view, 80, 24), coloured);
    view.ascii = true;
    for (width, height) in [(200, 60), (80, 24), (45, 20)] {
        let lines = drawn(&view, width, height);
        assert!(lines.concat().is_ascii() && table(&lines).len() > 1, "{lines:#?}");
    }
}
