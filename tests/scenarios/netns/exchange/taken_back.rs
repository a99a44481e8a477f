//! Exchanges after a policy was taken back, whose half of the tables no packet goes by.

use aya::maps::{HashMap, Map, MapData};
use limiter_common::abi::{
    description::Description,
    layout::{CHUNK, LAYOUT_VERSION, map},
};

use super::{OTHER, SECOND, assert_within, attached, head, layout, on_pins, set_layout};
use crate::{
    cli::Document,
    netns::{Net, SMALL, v4},
};

/// An instance whose last policy was taken back, and in whose place a command began to write the next one.
fn half_written() -> Net {
    let (net, _document) = attached(SMALL);
    let next = Document::new("limits: [{name: next, key: source, rate: 7/s, burst: 9}]");
    net.run(&next.in_place("policy apply FILE --confirm 600s"));
    net.run("policy revert");
    let half = head(&net).epoch as u32 & 1;
    on_pins(&net, |pins| {
        let data = MapData::from_pin(pins.map(map::DOCUMENT)).unwrap();
        let mut document: HashMap<MapData, [u32; 2], [u8; CHUNK]> =
            Map::from_map_data(data).unwrap().try_into().unwrap();
        document.remove(&[half, 0]).unwrap();
    });
    net
}

#[track_caller]
fn assert_limited(net: &Net) {
    let mut senders = [net.sender(10_000, net.udp(v4(10))), net.sender(100, net.udp(v4(11)))];
    let (sent, arrivals) = net.flood(&mut senders, SECOND, |_| {});
    assert_within(arrivals.from(v4(10)).packets, &sent[..1], 1);
    assert_eq!(arrivals.from(v4(11)).packets, 0, "denied");
}

#[test]
fn a_policy_that_is_written_half_keeps_no_table_from_being_exchanged() {
    let net = half_written();
    let said = net.run(&format!("attach eth0 {OTHER}")).stdout;
    assert!(said.contains("There is room for 8,192 sources"), "{said}");
    assert_limited(&net);
    // The next policy takes the half of it.
    net.run("limit set source --rate 1kpps --burst 200");
    net.run("deny add 203.0.113.9");
    assert_limited(&net);
}

#[test]
fn a_policy_that_is_written_half_keeps_no_older_layout_from_being_brought_over() {
    let net = half_written();
    set_layout(&net, Description { layout: LAYOUT_VERSION - 1, buckets: 0, ..layout(&net) });
    let said = net.run("attach eth0").stdout;
    assert!(said.contains("Brought from layout"), "{said}");
    assert_limited(&net);
    net.run("limit set source --rate 1kpps --burst 200");
    assert_limited(&net);
}
