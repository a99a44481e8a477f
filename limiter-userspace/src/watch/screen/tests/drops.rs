use limiter_common::{memory::sample::Sampling, packet::reason::Reason};

use super::*;
use crate::{
    query::dropped::{
        Dropped,
        tests::{names, sample, syn},
    },
    watch::drops::Drops,
};

fn dropped(reason: Reason, tally: u32) -> Dropped {
    let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    Dropped::of(&sample(&syn(), reason, tally), &names(), now, 5_000)
}

/// Packets that limit `ssh` dropped, one that a list did, and one that only would be dropped.
pub(super) fn some() -> Drops {
    let mut drops = Drops::default();
    let mut packets = vec![dropped(Reason::Exceed, 3); 300];
    packets.push(dropped(Reason::Deny, Sampling::NO_LIMIT));
    packets.push(dropped(Reason::Monitor, 3));
    drops.record(packets);
    drops
}

#[test]
fn dropped_packets_take_the_place_of_the_tables_while_they_are_shown() {
    let mut view = view(false);
    assert_eq!(press(&mut view, "x"), Effect::Drops);
    view.drops = Some(Drops::default());
    let lines = drawn(&view, 80, 24).join("\n");
    assert!(lines.contains("0 dropped packets shown; x closes this"), "{lines}");
    assert!(lines.contains("Nothing was dropped since then."), "{lines}");

    view.drops = Some(some());
    for (width, height) in [(200, 60), (80, 24), (45, 20)] {
        let lines = drawn(&view, width, height);
        let text = lines.join("\n");
        assert!(text.contains("302 dropped packets shown"), "{text}");
        assert!(text.contains("limits     ssh 99.6%, deny 0.3%"), "{text}");
        assert!(text.contains("sources    192.0.2.7 100.0%"), "{text}");
        let first = lines.iter().position(|line| line.contains("monitor: ssh")).unwrap();
        assert!(lines[first + 1].contains("deny"), "the latest first: {text}");
        assert!(lines[first].contains("08:00:00") && lines[first].contains("192.0.2.7:"), "{text}");
        assert!(!text.contains("SOURCES by"), "{text}");
    }
    assert_eq!(press(&mut view, "Esc"), Effect::Drops);
    view.drops = None;
    let lines = drawn(&view, 80, 24).join("\n");
    assert!(!lines.contains("dropped packets shown"), "{lines}");
}
