//! What keys do to the screen.

use super::*;

#[test]
fn the_help_tells_the_keys() {
    let mut view = view(false);
    press(&mut view, "?");
    assert_eq!(
        drawn(&view, 80, 24),
        [
            " limiter on gw1  veth0 native  eth1 generic   22:13:20Z  watching 30s, every 1s",
            "",
            " KEY",
            " ↑ ↓ PgUp PgDn Home End  select a source, or a limit",
            " Tab, x                  go to the other table, or to dropped packets",
            " Enter                   look closely at a source; then ↑ ↓: the next one",
            " s S                     sort by dropped/s, passed/s, bytes, packets, address",
            " /                       show only a prefix, or addresses with a part of one",
            " p space                 freeze the picture, and let it go on",
            " d                       deny the source, for a time",
            " a                       allow the source, for a time",
            " m                       switch a limit between monitor and enforce",
            " Esc                     one step back: from a source, a filter, a selection",
            " q Ctrl-C, Ctrl-Z        end, or stop until `fg`; limiting goes on",
            " STATE",
            " ↑ = ↓                   it sends more than a look before, as much, less",
            " source 42%              so much is used of the limit of it that is fullest",
            " over source             no packet of it passes that limit now",
            " monitor: source         the same, but that limit only counts",
            " allowed denied blocked  by a list or a penalty, for so long",
            "",
            " What changes something asks first. Any key closes this.",
            "",
            " ? help  q end    12,345 of 1,048,576 sources  9,876 of 262,144 buckets  164MiB",
        ]
    );
    press(&mut view, "q");
    assert!(!drawn(&view, 80, 24).join("\n").contains("KEY"));
}

#[test]
fn keys_that_do_nothing_are_not_offered() {
    let mut view = view(false);
    view.controls.read_only = true;
    let footer = |view: &View| drawn(view, 120, 30).pop().unwrap();
    press(&mut view, "?");
    let help = drawn(&view, 80, 24).join("\n");
    assert!(help.contains("With --read-only, no key changes anything."), "{help}");
    for key in [" d  ", " a  ", " m  ", "deny the", "between monitor"] {
        assert!(!help.contains(key), "{key}: {help}");
    }
    press(&mut view, "q Down");
    assert!(footer(&view).starts_with(" Enter open  ? help  q end "), "{}", footer(&view));
    press(&mut view, "Tab");
    assert!(footer(&view).starts_with(" Tab sources  ? help  q end "), "{}", footer(&view));
    press(&mut view, "Tab");
    opened(&mut view);
    assert!(footer(&view).starts_with(" Esc back  Tab limits  ? help "), "{}", footer(&view));
    press(&mut view, "Tab");
    assert!(footer(&view).starts_with(" Esc back  Tab source  ? help "), "{}", footer(&view));
}

#[test]
fn a_limit_of_an_open_source_is_selected_and_switched_there() {
    let mut view = view(false);
    opened(&mut view);
    press(&mut view, "m");
    assert!(drawn(&view, 80, 24)[23].starts_with(" error: Select a limit first: Tab,"));
    press(&mut view, "Tab");
    let lines = drawn(&view, 80, 24);
    assert!(lines[11].starts_with(">connection "), "{lines:#?}");
    assert!(
        lines[23].starts_with(" Esc back  m monitor/enforce  Tab source  ? help"),
        "{lines:#?}"
    );
    // The example has no limit `syn` for this source.
    press(&mut view, "Down m");
    let lines = drawn(&view, 80, 24);
    assert!(lines[12].starts_with(">source "), "{lines:#?}");
    assert!(lines[22].starts_with(" monitor limit source: count"), "{lines:#?}");
    let switch = Action::Switch { limit: "source".into(), mode: Mode::Monitor };
    assert_eq!(press(&mut view, "y"), Effect::Act(switch));
    press(&mut view, "Esc");
    assert!(view.opened.is_none());
    assert!(drawn(&view, 80, 24).iter().all(|line| !line.starts_with(">connection")));
}

/// No scan is made for a frozen picture.
#[test]
fn a_frozen_picture_is_sorted_and_filtered_as_it_is() {
    let mut view = view(false);
    assert_eq!(press(&mut view, "p"), Effect::Freeze);
    let missing = view.not_standing();
    let standings = example::standings(&missing);
    view.complete(missing, standings);
    assert!(view.not_standing().is_empty());
    assert_eq!(press(&mut view, "S"), Effect::Nothing);
    let lines = drawn(&view, 80, 24);
    assert!(lines[15].starts_with(" 60 frozen, by address "), "{lines:#?}");
    assert!(lines[16].starts_with(" 203.0.113.1 ") && lines[17].starts_with(" 203.0.113.2 "));
    assert_eq!(press(&mut view, "/203.0.113.5 Enter"), Effect::Nothing);
    let lines = drawn(&view, 80, 24);
    assert!(lines[15].starts_with(" 1 of 60 frozen, by address "), "{lines:#?}");
    assert!(lines[16].starts_with(" 203.0.113.5 ") && lines[17].is_empty(), "{lines:#?}");
    // The filter has dropped no source.
    assert_eq!(press(&mut view, "Esc"), Effect::Nothing);
    assert!(drawn(&view, 80, 24)[15].starts_with(" 60 frozen, by address "));
    assert_eq!(press(&mut view, "s"), Effect::Nothing);
    let lines = drawn(&view, 80, 24);
    assert!(lines[16].contains("203.0.113.1 ") && lines[16].contains("620k"), "{lines:#?}");
    // The age of the picture is then that of the counts of the opened source.
    opened(&mut view);
    view.now += Duration::from_secs(7);
    assert!(drawn(&view, 80, 24)[0].contains("frozen, 7s old"), "{:#?}", drawn(&view, 80, 24));
    press(&mut view, "Esc");
    assert_eq!(press(&mut view, "p"), Effect::Read);
}

#[test]
fn readings_that_fail_for_long_are_told() {
    let mut view = view(false);
    let start = view.now;
    let at = |milliseconds| start + Duration::from_millis(milliseconds);
    view.fail("it is busy".into(), at(0));
    view.fail("it is busy".into(), at(1_900));
    assert!(drawn(&view, 80, 24)[23].contains("q end"));
    view.fail("it is gone".into(), at(3_200));
    assert_eq!(drawn(&view, 80, 24)[23], " no reading for 3s: it is gone; it is tried again");
    view.late = None;
    assert!(drawn(&view, 80, 24)[23].contains("q end"));
}

#[test]
fn a_frozen_and_filtered_picture_says_so() {
    let mut view = view(false);
    press(&mut view, "Down Down /203.0.113.0/24");
    let asked = drawn(&view, 80, 24);
    assert_eq!(
        asked[21..],
        [
            "",
            " Show which sources? An address, a part of one, or a prefix; nothing for all.",
            " > 203.0.113.0/24_   Enter shows them, Esc leaves it",
        ]
    );
    assert_eq!(press(&mut view, "Enter"), Effect::Search);
    press(&mut view, "Down Down p");
    view.now += Duration::from_secs(12);
    assert_eq!(
        drawn(&view, 80, 24),
        [
            " limiter  veth0 native  +1    frozen, 18s old  filter 203.0.113.0/24  22:13:20Z",
            "",
            " passed   48.0kpps   161Mbit/s  █████████████████  peak 48.0kpps  3.44M packets",
            " dropped  2.48Mpps  1.19Gbit/s  ▆▅▄▃▂▁▁▁▁▂▃▄▅▆▇██  peak 2.48Mpps   338M packets",
            "",
            " LIMIT           RATE   BURST   EXCEED/S        EXCEED  CONFORM/S  EXCEED SHARE",
            " syn             50/s      50        812        24,360         50  ████▊  94.1%",
            " source         1kpps     200      2.48M   337,500,000      48.0k  ████▉  98.1%",
            " connection       off",
            "",
            " REASON                      PACKETS/S       PACKETS      BIT/S       VERDICT",
            " conform                         48.0k     3,440,000       161M        passed",
            " non_ip                              0         1,234          0        passed",
            " exceed                          2.48M   337,524,360      1.19G       dropped",
            "",
            " 60 SOURCES by dropped/s     DROPPED/S   PASSED/S  STATE",
            " 203.0.113.1                      620k        800  = over source",
            ">203.0.113.2                      310k        800  = over source",
            " 2001:db8:1003:feed::/64          207k        800  = over source",
            " 203.0.113.4                      155k        800  = denied 9m 01s",
            " 203.0.113.5                      124k        800  = monitor: source",
            " 2001:db8:1006:feed::/64          103k        800  = allowed",
            "",
            " Enter open  d deny  a allow  p go on  ? help  q end",
        ]
    );
    let narrow = drawn(&view, 60, 12);
    assert!(narrow[0].ends_with("frozen, 18s old  filter 203.0.113.0/24"), "{narrow:#?}");
}

#[test]
fn a_source_that_is_open_has_the_screen() {
    let mut view = view(false);
    opened(&mut view);
    assert_eq!(
        drawn(&view, 80, 24),
        [
            " limiter on gw1  veth0 native  eth1 generic   22:13:20Z  watching 30s, every 1s",
            "",
            " source 203.0.113.1",
            "",
            " passed   1.00kpps  3.36Mbit/s  █████████████████  peak 1.00kpps  29.0k packets",
            " dropped  20.0kpps  9.60Mbit/s  █████████████████  peak 20.0kpps   580k packets",
            "",
            " deny 203.0.112.0/23, for 9m 01s more: is dropped here, and no limit is asked",
            " tenant gold",
            "",
            " LIMIT       MODE     MATCHES                 RATE        USED  LEFT  PASSES IN",
            " connection  enforce  if destination, port  1 kpps     per key     -          -",
            " source      enforce  yes                   1 kpps  200 of 200     0      640us",
            "",
            " a packet now: drop (deny)",
            "",
            " LIMIT       KEY                                          USED  LEFT  PASSES IN",
            " connection  203.0.113.1:4000 > 198.51.100.1:9/udp  120 of 200    80         0s",
            " and 2 more, less full",
            "",
            "",
            "",
            "",
            " Esc back  d deny  a allow  Tab limits  ? help  q end",
        ]
    );
    let wide = drawn(&view, 200, 60).join("\n");
    assert!(wide.contains("PER ") && wide.contains("FULL IN"), "{wide}");
    assert!(wide.contains("peak 20.0kpps in 20s"), "{wide}");
    press(&mut view, "Esc");
    assert!(view.opened.is_none());
    assert!(drawn(&view, 80, 24)[15].starts_with(" SOURCE by"));
}

#[test]
fn a_question_names_what_is_going_to_be_done() {
    let mut source = view(false);
    press(&mut source, "Down d");
    assert_eq!(
        drawn(&source, 80, 24)[22..],
        [" deny 203.0.113.1 for how long? [10m]", " > _   Enter goes on, Esc leaves it"]
    );
    press(&mut source, "1year Enter");
    let fault = drawn(&source, 80, 24).join("\n");
    assert!(fault.contains(" error: ") && fault.contains("> 1year_"), "{fault}");
    press(&mut source, "Esc a Enter");
    assert_eq!(
        drawn(&source, 80, 24)[22..],
        [" allow 203.0.113.1 for 10m 00s: no limit is asked?", " y does it, any other key not",]
    );
    assert_eq!(
        drawn(&source, 40, 12)[9..12],
        [" allow 203.0.113.1 for 10m 00s: no limit", " is asked?", " y does it, any other key not",]
    );
    press(&mut source, "n");
    assert_eq!(drawn(&source, 80, 24)[23], " Nothing was changed.");
    source.controls.tell(Err("the policy is locked".into()));
    assert_eq!(drawn(&source, 80, 24)[23], " error: the policy is locked");

    let mut limit = view(false);
    limit.limits.rows[1].mode = Mode::Monitor;
    press(&mut limit, "Tab Down m");
    let lines = drawn(&limit, 80, 24);
    assert_eq!(
        lines[5..9],
        [
            " LIMIT       MODE         RATE   BURST   EXCEED/S        EXCEED  CONFORM/S",
            " syn         enforce      50/s      50        812        24,360         50",
            ">source      monitor     1kpps     200      2.48M   337,500,000      48.0k",
            " connection  off           off",
        ]
    );
    assert_eq!(
        lines[22..],
        [" enforce limit source: drop what is over it?", " y does it, any other key not"]
    );
}

#[test]
fn each_order_is_named_and_has_its_numbers() {
    let mut view = view(false);
    for title in ["passed/s", "bytes", "packets", "address", "dropped/s"] {
        assert_eq!(press(&mut view, "s"), Effect::Search);
        let line = drawn(&view, 80, 24).remove(15);
        assert!(line.starts_with(&format!(" SOURCE by {title}")), "{line}");
        assert_eq!(line.contains("  BYTES"), title == "bytes", "{line}");
        assert_eq!(line.contains("  PACKETS"), title == "packets", "{line}");
    }
}

#[test]
fn a_limit_with_one_state_for_all_says_how_full_it_is() {
    let mut view = view(false);
    assert!(!drawn(&view, 80, 24)[5].contains("USED"));
    view.limits.rows[0].used = Some(7);
    view.limits.rows[1].used = Some(100);
    assert_eq!(
        drawn(&view, 80, 24)[5..9],
        [
            " LIMIT       USED      RATE   BURST   EXCEED/S        EXCEED  CONFORM/S",
            " syn           7%      50/s      50        812        24,360         50",
            " source      100%     1kpps     200      2.48M   337,500,000      48.0k",
            " connection             off",
        ]
    );
}

#[test]
fn many_limits_leave_room_for_sources() {
    let mut view = view(false);
    let row = |number| LimitRow::off(format!("limit-{number}"));
    view.limits.rows.extend((0..30).map(row));
    let drew = terminal_drew(&view, 80, 24);
    assert!(drew.limits >= 3 && drew.sources >= 4, "{drew:?}");
    view.drew(drew);
    press(&mut view, "Tab");
    for _ in 0..20 {
        press(&mut view, "Down");
    }
    let text = drawn(&view, 80, 24).join("\n");
    assert!(text.contains(">limit-17") && text.contains(" of 33"), "{text}");
}

#[test]
fn no_picture_is_too_large_for_a_screen() {
    for keys in ["?", "/203.0.113", "Down d", "Down d Enter", "Tab m", "p /2001:db8::/32 Enter"] {
        let mut view = view(true);
        press(&mut view, keys);
        every_size(&view);
    }
    let mut view = view(true);
    opened(&mut view);
    every_size(&view);
    view.controls.tell(Err("a long story ".repeat(20)));
    every_size(&view);
}
