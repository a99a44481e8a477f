//! Narrow, small and plain terminals.

use std::collections::HashSet;

use super::*;
use crate::watch::{controls::Message, drops::Drops};

#[test]
fn a_narrow_terminal_cuts_no_word() {
    let mut view = view(false);
    assert_eq!(
        drawn(&view, 45, 32)[2..10],
        [
            " passed   48.0kpps",
            "   3.44M packets   ██████████████████████████",
            "   peak 48.0kpps   ██████████████████████████",
            "                   ██████████████████████████",
            " dropped  2.48Mpps",
            "   338M packets      ▂▅▇██▇▅▂            ▂▅▇█",
            "   peak 2.48Mpps   ▃▆████████▆▃        ▃▆████",
            "                   ████████████▇▄▂▁▁▂▄▇██████",
        ]
    );
    opened(&mut view);
    let lines = drawn(&view, 45, 20);
    assert_eq!(
        lines[7..13],
        [
            " deny 203.0.112.0/23, for 9m 01s more: is",
            " dropped here, and no limit is asked",
            " tenant gold",
            "",
            " LIMIT       MODE           USED  PASSES IN",
            " connection  enforce     per key          -",
        ]
    );
    assert_eq!(lines[19], " Esc back  d deny  a allow  ? help  q end");
    press(&mut view, "d Enter");
    assert_eq!(
        drawn(&view, 45, 20)[17..],
        [" deny 203.0.113.1 for 10m 00s: drop all of", " it?", " y does it, any other key not",]
    );
    let unlimited = View::new(example::unlimited(Instant::now()), Duration::from_secs(1), false);
    assert_eq!(
        drawn(&unlimited, 45, 20)[2..8],
        [
            " passed          -",
            " dropped         -",
            "",
            " No limit is set, so every packet passes.",
            " Set one: limiter limit set source --rate",
            " 1kpps --burst 2k",
        ]
    );
}

/// The lines between the header and the footer of the help.
fn help(view: &mut View, width: u16, height: u16) -> Vec<String> {
    view.drew(terminal_drew(view, width, height));
    let lines = drawn(view, width, height);
    lines[2..lines.len() - 2].to_vec()
}

#[test]
fn help_that_is_longer_than_the_screen_scrolls() {
    let mut view = view(false);
    press(&mut view, "?");
    let first = help(&mut view, 45, 20);
    assert_eq!(
        first,
        [
            " KEY",
            " ↑ ↓ PgUp      select a source, or a limit",
            " PgDn Home",
            " End",
            " Tab, x        go to the other table, or to",
            "               dropped packets",
            " Enter         look closely at a source; then",
            "               ↑ ↓: the next one",
            " s S           sort by dropped/s, passed/s,",
            "               bytes, packets, address",
            " /             show only a prefix, or",
            "               addresses with a part of one",
            " p space       freeze the picture, and let it",
            "               go on",
            " d             deny the source, for a time",
            " 1-15 of 34  ↑↓ scroll, other keys close",
        ]
    );
    press(&mut view, "Down");
    assert_eq!(help(&mut view, 45, 20)[..14], first[1..15]);
    // The end is the last screenful, however often it is asked for.
    for _ in 0..40 {
        press(&mut view, "Down");
    }
    let last = help(&mut view, 45, 20);
    assert_eq!(last[15], " 20-34 of 34  ↑↓ scroll, other keys close");
    assert_eq!(
        last[12..15],
        [" allowed       by a list or a penalty, for so", " denied        long", " blocked",]
    );
    press(&mut view, "Esc");
    assert!(!drawn(&view, 45, 20).join("\n").contains("KEY"));
}

#[test]
fn where_the_locale_is_not_utf_8_only_ascii_is_drawn() {
    let mut view = view(false);
    view.ascii = true;
    let lines = drawn(&view, 80, 24);
    assert_eq!(
        lines[2..8],
        [
            " passed   48.0kpps   161Mbit/s  #################  peak 48.0kpps  3.44M packets",
            " dropped  2.48Mpps  1.19Gbit/s  ++::......::++###  peak 2.48Mpps   338M packets",
            "",
            " LIMIT           RATE   BURST   EXCEED/S        EXCEED  CONFORM/S  EXCEED SHARE",
            " syn             50/s      50        812        24,360         50  #####  94.1%",
            " source         1kpps     200      2.48M   337,500,000      48.0k  #####  98.1%",
        ]
    );
    assert!(lines[23].starts_with(" ^v select  / filter  s sort "), "{}", lines[23]);
}

/// A pane of the screen, and what opens it.
pub(super) type Pane = (&'static str, fn(&mut View));

/// All panes.
const PANES: [Pane; 12] = [
    ("all", |_| {}),
    ("help", |view| drop(press(view, "?"))),
    ("source", opened),
    ("limits of a source", |view| {
        opened(view);
        press(view, "Tab Down");
    }),
    ("limits", |view| drop(press(view, "Tab Down"))),
    ("dropped packets", |view| {
        press(view, "x");
        view.drops = Some(drops::some());
    }),
    ("no dropped packets", |view| {
        press(view, "x");
        view.drops = Some(Drops::default());
    }),
    ("filter", |view| drop(press(view, "/ 203.0.113.0/2"))),
    ("frozen", |view| drop(press(view, "p"))),
    ("time", |view| drop(press(view, "Down d"))),
    ("question", |view| drop(press(view, "Down d Enter"))),
    ("failure", |view| {
        let text = "the policy is locked by another process".into();
        view.controls.message = Some(Message { text, failed: true });
    }),
];

/// Every pane on every size of a terminal, in UTF-8 and in ASCII.
#[test]
fn a_pane_fits_the_screen_and_marks_what_it_cuts() {
    for ascii in [false, true] {
        for (pane, open) in PANES {
            let mut view = view(false);
            view.ascii = ascii;
            open(&mut view);
            let words = |text: &str| -> HashSet<String> {
                text.split_whitespace().map(str::to_owned).collect()
            };
            let mut whole = words(&drawn(&view, 500, 200).join("\n"));
            whole.extend(words(&drawn(&view, 90, 200).join("\n")));
            for (width, height) in [(200, 60), (80, 24), (45, 20)] {
                let lines = drawn(&view, width, height);
                let text = lines.join("\n");
                assert!(!ascii || text.is_ascii() && !text.contains("??"), "{pane}: {text}");
                let right = usize::from(width) - usize::from(width >= 60);
                for line in lines.iter().filter(|line| line.chars().count() >= right) {
                    let last = line.split_whitespace().last().unwrap_or_default();
                    let is_whole = whole.contains(last) || whole.contains(&format!("{last}pps"));
                    let is_curve = !last.contains(|at: char| at.is_alphanumeric());
                    let is_marked = last.ends_with(if ascii { '~' } else { '…' });
                    assert!(is_whole || is_curve || is_marked, "{pane}, {last:?}:\n{text}");
                }
                let place = |name: &str| lines.iter().position(|line| line.contains(name));
                if pane == "all" {
                    assert!(place(" syn ") < place(" connection "), "active ones first: {text}");
                }
            }
        }
    }
}
