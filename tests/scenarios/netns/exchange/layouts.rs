//! Instances that another version made, with another layout.

use std::{fs, process::Stdio, thread, time::Instant};

use aya::{
    maps::{Array, HashMap, MapData},
    programs::links::{FdLink, PinnedLink},
};
use limiter_common::{
    abi::{
        description::{Description, SHARED},
        layout::{LAYOUT_VERSION, map},
        state::{OffenceKey, OffenceRecord},
        table::FurtherLimits,
    },
    memory::offence::LINES,
    policy::penalty::Offence,
};
use limiter_tests::{
    older::{self, Source29},
    packet::Frame,
    process::kill,
    program::typed,
};
use limiter_userspace::datapath::program::{Clock, Program};
use serde_json::Value;

use super::{SECOND, assert_within, attached, layout, on_pins, program, set_layout};
use crate::{
    cli::Document,
    netns::{Net, SMALL, assert_admitted, v4},
};

/// The maps that layout 25 brought.
const NEW: [&str; 5] =
    [map::PROGRAM, map::PROGRAM_FRAGS, map::PACKET_SLOT, map::UNLOADED, map::BUILDS];

/// One whose entries have a field more, and so other offsets.
#[test]
fn an_older_layout_is_brought_over_by_what_it_says_of_itself() {
    let net = Net::new();
    let policy = "limits: [{name: source, key: source, rate: 1/h, burst: 20}]";
    let document = Document::new(policy);
    net.run(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    net.run("deny add 198.18.0.11");
    net.run("monitor on");
    net.run("monitor off");
    let send = |number| {
        let mut senders = [net.sender(1_000, net.udp(v4(number)))];
        net.flood(&mut senders, SECOND / 10, |_| {}).1.from(v4(number)).packets
    };
    let passed = send(10);
    // Part of a token is enough for a packet.
    assert!([20, 21].contains(&passed), "{passed}");
    // As an older version would have made them: a word before each entry.
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Older {
        word: u64,
        source: Source29,
    }
    // SAFETY: integers alone, without padding.
    #[expect(unsafe_code, reason = "a value of a map")]
    unsafe impl aya::Pod for Older {}
    on_pins(&net, |pins| {
        older::replace_sources(pins, |source| Older {
            word: u64::MAX,
            source: Source29::of(source, 0, 0),
        })
        .unwrap();
    });
    let mut older = Source29::describe(layout(&net), size_of::<u64>() as u32);
    let of_bits = ["SYN_DEDUP", "CACHE"];
    for (version, (name, _)) in older.shared.iter_mut().zip(SHARED) {
        *version -= u32::from(of_bits.contains(&name));
    }
    set_layout(&net, older);
    // Nothing but attaching touches it.
    for command in ["status", "limit set source --rate 9/s", "deny add 203.0.113.9"] {
        let outcome = net.limiter.run(command).outcome().unwrap();
        outcome.assert_exit_code(1).assert_says(&["older layout", "limiter attach IFACE"]);
    }
    let said = net.run("attach eth0").stdout;
    assert!(said.contains("Brought from layout") && said.contains("1 debt was carried"), "{said}");
    assert!(said.contains("not carried over: SYN_DEDUP, CACHE."), "{said}");
    assert_eq!((send(10), send(11)), (0, 0));
    assert_eq!(net.counted("198.18.0.10").0, passed);
    // Its policy has one limit of a source.
    on_pins(&net, |pins| {
        let further: Array<MapData, FurtherLimits> = typed(pins, map::FURTHER_LIMITS).unwrap();
        assert_eq!(further.len(), 1);
    });
    net.run("limit set source --rate 9/s");
}

/// Layout 24 had all maps from the beginning, and no arrays to find them by.
#[test]
fn logs_and_blocks_of_a_layout_without_optional_maps_are_kept() {
    let net = Net::new();
    let document = Document::new(
        "limits:
  - {name: log, key: source, algorithm: sliding_log, limit: 5, window: 1h, match: {protocol: udp, ports: 9}}
  - name: guard
    key: source
    rate: 1/h
    match: {protocol: udp, ports: 10}
    penalty: {after: 100ms, block: 1h, unproven: block}",
    );
    net.run(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    let send = |port, number| {
        let to = net.hosts.router_port.address_like(v4(number).into());
        let frame = Frame::udp(v4(number), to, 40_000, port).payload(18);
        let mut senders = [net.sender(100, frame)];
        net.flood(&mut senders, SECOND / 5, |_| {}).1.from(v4(number)).packets
    };
    assert_eq!((send(9, 10), send(9, 10)), (5, 0));
    send(10, 11);
    let blocked = || net.json("penalty list -j")["entries"].as_array().unwrap().len();
    assert_eq!(blocked(), 1);
    let own = layout(&net);
    set_layout(&net, Description { layout: LAYOUT_VERSION - 1, wide_states: 0, buckets: 0, ..own });
    on_pins(&net, |pins| {
        for name in
            [map::WIDE_STATE_REF, map::ENDINGS_REF, map::OFFENCES_REF, map::REFUSED_SYNS_REF]
        {
            fs::remove_file(pins.map(name)).unwrap();
        }
    });
    let said = net.run("attach eth0").stdout;
    assert!(said.contains("Brought from layout"), "{said}");
    assert_eq!((send(9, 10), send(9, 12)), (0, 5));
    assert_eq!(blocked(), 1);
    assert_eq!(send(9, 11), 0);
}

#[test]
fn a_newer_layout_is_left_alone() {
    let (net, _document) = attached(SMALL);
    let own = layout(&net);
    set_layout(&net, Description { layout: LAYOUT_VERSION + 1, rules: own.rules + 1, ..own });
    let before = program(&net);
    for command in
        ["attach eth0", "attach eth0 --sources 8192", "status", "limit set source --rate 9/s"]
    {
        let outcome = net.limiter.run(command).outcome().unwrap();
        outcome.assert_exit_code(1).assert_says(&["newer", "limiter detach --all"]);
    }
    assert_eq!(program(&net), before);
    // Its programs go by the epoch alone.
    let mut senders = [net.sender(10_000, net.udp(v4(10)))];
    let (sent, arrivals) = net.flood(&mut senders, SECOND / 2, |_| {});
    let passed = arrivals.from(v4(10)).packets;
    assert!((200..=sent[0].admitted(1e3, 200) + 2).contains(&passed), "{passed}, {sent:?}");
    net.run("detach --all");
}

/// Makes it an instance of layout 24, which had a full program for each link, and no arrays of programs.
pub(super) fn be_without_dispatchers(net: &Net) {
    on_pins(net, |pins| {
        let mut full = Program::load(pins, false, Clock::Monotonic).unwrap();
        let xdp = full.xdp().unwrap();
        let link = PinnedLink::from_pin(pins.link(0)).unwrap();
        let link = xdp.attach_to_link(FdLink::from(link).try_into().unwrap()).unwrap();
        let pin = pins.directory().join("programs/0");
        fs::remove_file(&pin).unwrap();
        xdp.pin(&pin).unwrap();
        // The link is pinned, and stays.
        drop(xdp.take_link(link).unwrap());
        for name in NEW {
            fs::remove_file(pins.map(name)).unwrap();
        }
    });
    let mut older = Description { layout: 24, buckets: 0, ..layout(net) };
    for (shared, (name, _)) in older.shared.iter_mut().zip(SHARED) {
        if NEW.contains(&name) {
            *shared = 0;
        }
    }
    set_layout(net, older);
}

#[test]
fn links_of_a_version_without_dispatchers_get_one_under_traffic() {
    let (net, _document) = attached(SMALL);
    be_without_dispatchers(&net);
    let mut senders = [net.sender(10_000, net.udp(v4(10))), net.sender(100, net.udp(v4(11)))];
    let (sent, arrivals) = net.flood(&mut senders, 60 * SECOND, |stop| {
        let said = net.run("attach eth0").stdout;
        assert!(said.contains("Brought from layout 24"), "{said}");
        assert!(!said.contains("begun anew"), "maps that are new are no loss: {said}");
        stop.stop();
    });
    assert_within(arrivals.from(v4(10)).packets, &sent[..1], 1);
    assert_eq!(arrivals.from(v4(11)).packets, 0, "denied");
    assert!(program(&net).is_some());
    let status = net.json("status -j");
    assert_eq!(status["reasons"]["unloaded"], 0, "{status}");
    // Counts of the older version stay.
    assert!(net.counted("198.18.0.10").1 > 0 && status["reasons"]["deny"].as_u64() > Some(0));
    let footprint = net.footprint();
    net.run("detach --all");
    footprint.assert_gone().unwrap();
}

/// A package that is upgraded starts the agent anew.
#[test]
fn an_agent_brings_an_older_layout_over_when_it_starts() {
    let (net, _document) = attached(SMALL);
    let own = layout(&net);
    set_layout(&net, Description { layout: LAYOUT_VERSION - 1, buckets: 0, ..own });
    let mut senders = [net.sender(10_000, net.udp(v4(10)))];
    let before = program(&net);
    let (sent, arrivals) = net.flood(&mut senders, 60 * SECOND, |stop| {
        let mut agent = net.limiter.run("-j agent -i eth0").to(Stdio::null()).start().unwrap();
        let begun = Instant::now();
        while layout(&net) != own || program(&net) == before {
            assert!(begun.elapsed() < 60 * SECOND, "it is still of the older layout");
            thread::sleep(SECOND / 50);
        }
        kill(&mut agent);
        stop.stop();
    });
    assert_admitted("meanwhile", arrivals.from(v4(10)).packets, &sent[0], 1e3, 200);
    net.run("attach eth0");
}

/// Layout 26 kept offences in an LRU hash map by source and limit.
#[test]
fn blocks_of_a_layout_with_a_hash_of_offences_are_kept() {
    let net = Net::new();
    let document = Document::new(
        "limits: [{name: guard, key: source, rate: 1/h, penalty: {after: 100ms, block: 1h, unproven: block}}]",
    );
    net.run(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    let send = |number| {
        let mut senders = [net.sender(100, net.udp(v4(number)))];
        net.flood(&mut senders, SECOND / 5, |_| {}).1.from(v4(number)).packets
    };
    let blocked = || net.json("penalty list -j")["entries"].as_array().unwrap().clone();
    send(10);
    send(11);
    let before = blocked();
    assert_eq!(before.len(), 2);
    on_pins(&net, |pins| {
        let now: Array<MapData, OffenceRecord> = typed(pins, map::OFFENCES).unwrap();
        let mut older = HashMap::<MapData, OffenceKey, Offence>::create(4_096, 0).unwrap();
        for (line, record) in (0..).zip(now.iter()) {
            let OffenceRecord { key, offence } = record.unwrap();
            if !u32::is_multiple_of(line, LINES) && key != OffenceKey::default() {
                older.insert(key, offence, 0).unwrap();
            }
        }
        let path = pins.map(map::OFFENCES);
        fs::remove_file(&path).unwrap();
        older.pin(&path).unwrap();
        fs::remove_file(pins.map(map::OFFENCES_REF)).unwrap();
    });
    let mut older = Description { layout: LAYOUT_VERSION - 1, buckets: 0, ..layout(&net) };
    for (shared, (name, _)) in older.shared.iter_mut().zip(SHARED) {
        if name == map::OFFENCES {
            *shared = 1;
        }
    }
    set_layout(&net, older);
    let said = net.run("attach eth0").stdout;
    assert!(said.contains("Brought from layout") && !said.contains("begun anew"), "{said}");
    let names = |blocked: &[Value]| blocked.iter().map(|it| it["src"].clone()).collect::<Vec<_>>();
    let mut after = names(&blocked());
    after.sort_by_key(Value::to_string);
    let mut expected = names(&before);
    expected.sort_by_key(Value::to_string);
    assert_eq!(after, expected);
    assert_eq!((send(10), send(11)), (0, 0));
    net.run("penalty del 198.18.0.10");
    assert_eq!(names(&blocked()).len(), 1);
    assert!(send(12) > 0, "another source");
}
