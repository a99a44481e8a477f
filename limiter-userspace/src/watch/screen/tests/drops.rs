use limiter_common::{
    memory::sample::Sampling,
    packet::{protocol::TCP, reason::Reason},
};

use super::*;
use crate::{
    query::dropped::{
        Dropped,
        tests::{names, sample, syn},
    },
    query::frame::Sketch,
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

/// Of the longest addresses, the source and the port are still seen, and what is less needed is left out.
#[test]
fn a_narrow_screen_shows_the_source_and_the_port_of_a_packet() {
    let mut view = view(false);
    press(&mut view, "x");
    for (source, destination, shown) in [
        ("203.0.113.254", "198.51.100.254", "65535/tcp  203.0.113.254  ssh"),
        ("2001:db8:1234:5678::1", "2001:db8::1", "65535/tcp  2001:db8:1234:5678::1  ssh"),
    ] {
        let [source, destination] = [source, destination].map(|text| text.parse().unwrap());
        let sketch = Sketch::new(source, destination, TCP);
        let frame = Sketch { ports: [65_535; 2], flags: 18, ..sketch }.build().unwrap();
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let packet = Dropped::of(&sample(&frame, Reason::Exceed, 3), &names(), now, 5_000);
        let mut drops = Drops::default();
        drops.record(vec![packet]);
        view.drops = Some(drops);
        let text = drawn(&view, 45, 20).join("\n");
        assert!(text.contains(shown), "{text}");
    }
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
        let packet = match width {
            45 => "22/tcp  192.0.2.7  monitor: ssh  08:00:00",
            _ => "08:00:00  monitor: ssh  192.0.2.7:40000 > 198.51.100.1:22/tcp syn",
        };
        assert!(lines[first].contains(packet), "{text}");
        assert!(!text.contains("SOURCES by"), "{text}");
    }
    assert_eq!(press(&mut view, "Esc"), Effect::Drops);
    view.drops = None;
    let lines = drawn(&view, 80, 24).join("\n");
    assert!(!lines.contains("dropped packets shown"), "{lines}");
}
