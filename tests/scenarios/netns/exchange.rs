//! Table and program are exchanged while they limit: for other sizes, and for another layout.

mod agent;
mod interrupted;
mod layouts;
mod switch;
mod taken_back;

use std::{
    fs,
    path::PathBuf,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use aya::maps::{Array, MapData, PerCpuArray};
use limiter_common::{
    abi::{
        description::Description,
        layout::{TALLIES, map, program as name, shared},
        policy::Head,
        state::Bucket,
        table::{ENTRY_PLACES, Source},
    },
    algorithm::{kind::Kind, meter::Meter},
    base::tally::Tally,
    memory::pending::PendingTally,
    policy::limit::{BucketKey, Limit},
};
use limiter_tests::{
    process::kill,
    program::{monotonic, typed},
    sandbox::BPFFS,
    traffic::{Sender, Sent},
};
use limiter_userspace::datapath::{bpffs::Pins, main_program};
use serde_json::Value;

use super::{Net, SMALL, assert_admitted, v4};
use crate::cli::Document;

const SECOND: Duration = Duration::from_secs(1);

/// The options of the other sizes.
const OTHER: &str = "--sources 8192 --buckets 8192 --overrides 64";

/// A document with a limit in the entry of the source, and one in a bucket, both of 1,000 a second.
fn document() -> Document {
    Document::new(
        "deny: [198.18.0.11]
limits:
  - {name: source, key: source, rate: 1k pps, burst: 200, match: {protocol: udp, ports: 9}}
  - {name: prefix, key: source/31, rate: 1k pps, burst: 200, match: {protocol: udp, ports: 10}}",
    )
}

fn attached(options: &str) -> (Net, Document) {
    let (net, document) = (Net::new(), document());
    net.run(&document.in_place(&format!("attach eth0 {options} --policy FILE")));
    (net, document)
}

/// Works on the pins of the router.
pub(super) fn on_pins<T: Send>(net: &Net, work: impl FnOnce(&Pins) -> T + Send) -> T {
    let router = &net.hosts.router;
    let pins = Pins::new(format!("{BPFFS}/limiter"));
    router.sandbox.inside(&router.namespace, || work(&pins)).unwrap()
}

/// What the maps in use say of their layout.
fn layout(net: &Net) -> Description {
    on_pins(net, |pins| {
        let layout: Array<MapData, Description> = typed(pins, map::LAYOUT).unwrap();
        layout.get(&0, 0).unwrap()
    })
}

/// Has the maps in use say that they are of another layout.
fn set_layout(net: &Net, description: Description) {
    on_pins(net, |pins| {
        let mut layout: Array<MapData, Description> = typed(pins, map::LAYOUT).unwrap();
        layout.set(0, description, 0).unwrap();
        let mut heads: Array<MapData, Head> = typed(pins, map::HEAD).unwrap();
        let head = heads.get(&0, 0).unwrap();
        let epoch = u64::from(description.layout) << 32 | head.epoch & 0xffff_ffff;
        heads.set(0, Head { epoch, ..head }, 0).unwrap();
    });
}

/// The head of the maps in use.
fn head(net: &Net) -> Head {
    on_pins(net, |pins| {
        let heads: Array<MapData, Head> = typed(pins, map::HEAD).unwrap();
        heads.get(&0, 0).unwrap()
    })
}

/// The id of the main program, which the dispatcher on the router's `eth0` calls.
pub(super) fn program(net: &Net) -> Option<u32> {
    let link = net.hosts.router.ip_json(&["link", "show", "dev", "eth0"]).unwrap();
    assert_eq!(link[0]["xdp"]["prog"]["name"], name::DISPATCH, "{link}");
    on_pins(net, |pins| main_program::held(pins, false).unwrap())
}

/// Asserts that a limit of 1,000 a second, with a burst of 200, admitted no more of what was sent than it may. A packet
/// that is under way on the other CPU when program or policy are exchanged is charged to what was carried over already.
#[track_caller]
fn assert_within(passed: u64, sent: &[Sent], exchanges: u64) {
    let start = sent.iter().map(|sent| sent.start).min().unwrap();
    let end = sent.iter().map(|sent| sent.start + sent.time).max().unwrap();
    let most = 200 + (end - start).as_millis() as u64 + 2 + exchanges;
    // That it is a limit, and not a wall, is asserted elsewhere: here the machine verifies programs.
    assert!((most / 2..=most).contains(&passed), "{passed} of {most} passed; {sent:?}");
}

/// One source sends by two CPUs; others by a limit with a key of its own, denied, and blocked.
#[test]
fn no_packet_more_passes_while_tables_are_exchanged() {
    let (net, _document) = attached(SMALL);
    net.run("penalty add 198.18.0.12 --for 1h");
    net.run("allow add 198.18.0.13 --for 1h");
    let to = |source, port| {
        let to = net.hosts.router_port.address_like(source);
        limiter_tests::packet::Frame::udp(source, to, 40_000, port).payload(18)
    };
    let frames = [(10, 9), (10, 9), (20, 10), (11, 9), (12, 9), (13, 9)];
    let rates = [10_000, 10_000, 10_000, 1_000, 1_000, 1_000];
    let mut senders: Vec<_> = frames
        .iter()
        .zip(rates)
        .map(|((from, port), rate)| net.sender(rate, to(v4(*from).into(), *port)))
        .collect();
    let mut programs = Vec::new();
    let (sent, arrivals) = net.flood(&mut senders, 240 * SECOND, |stop| {
        for _ in 0..2 {
            for change in [OTHER, "--new-seed", SMALL] {
                let said = net.run(&format!("attach eth0 {change}")).stdout;
                assert!(
                    said.contains("There is room for") && said.contains("carried over"),
                    "{said}"
                );
                programs.push(program(&net));
            }
        }
        stop.stop();
    });
    programs.dedup();
    assert_eq!(programs.len(), 6, "each time another program: {programs:?}");
    let passed = |number| arrivals.from(v4(number)).packets;
    assert_within(passed(10), &sent[..2], 6);
    assert_within(passed(20), &sent[2..3], 6);
    assert_eq!((passed(11), passed(12)), (0, 0), "denied, blocked");
    assert_eq!(passed(13), sent[5].packets, "allowed");
    // Nothing that was counted is lost.
    let both = sent[0].packets + sent[1].packets;
    assert_eq!(net.counted("198.18.0.10"), (passed(10), both - passed(10)));
}

/// The first limit by another key has the buckets made. Sources on two CPUs, and all by a limit with `key: all`, owe what they
/// owed.
#[test]
fn no_packet_more_passes_while_buckets_are_made() {
    let net = Net::new();
    let document = Document::new(
        "limits:
  - {name: source, key: source, rate: 1k pps, burst: 200, match: {protocol: udp, ports: 9}}
  - {name: all, key: all, rate: 1k pps, burst: 200, match: {protocol: udp, ports: 10}}",
    );
    net.run(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    let to = |number, port| {
        let to = net.hosts.router_port.address_like(v4(number).into());
        limiter_tests::packet::Frame::udp(v4(number), to, 40_000, port).payload(18)
    };
    let mut senders =
        [(10, 9), (20, 10), (21, 10)].map(|(from, port)| net.sender(10_000, to(from, port)));
    let (sent, arrivals) = net.flood(&mut senders, 240 * SECOND, |stop| {
        thread::sleep(SECOND / 2);
        let said = net.run("limit add c --match udp:11 --per connection --rate 1/h").stdout;
        assert!(said.contains("made room for the change first"), "{said}");
        thread::sleep(SECOND / 2);
        stop.stop();
    });
    let passed = |number| arrivals.from(v4(number)).packets;
    assert_within(passed(10), &sent[..1], 1);
    assert_within(passed(20) + passed(21), &sent[1..], 1);
}

#[test]
fn an_exchange_that_is_killed_at_any_moment_leaves_one_whole_instance() {
    let (net, _document) = attached(SMALL);
    let begun = Instant::now();
    net.run(&format!("attach eth0 {OTHER}"));
    let takes = begun.elapsed();
    let mut senders = [net.sender(20_000, net.udp(v4(10))), net.sender(100, net.udp(v4(11)))];
    let rates = |number: u64| format!("limit set source --src 203.0.113.{number}/32 --rate 7/s");
    let (sent, arrivals) = net.flood(&mut senders, 240 * SECOND, |stop| {
        for number in 0..12_u64 {
            let sizes = if number % 2 == 0 { SMALL } else { OTHER };
            let attach = format!("attach eth0 {sizes}");
            let mut child = net.limiter.run(&attach).to(Stdio::null()).start().unwrap();
            // The moments are spread over the time that it takes, and a little more.
            thread::sleep(takes * (number * 7 % 12) as u32 / 10);
            kill(&mut child);
            assert!(program(&net).is_some());
            // What is there can be looked at, and changed.
            assert_eq!(net.json("status -j")["interfaces"][0]["name"], "eth0");
            net.run(&rates(number));
            let limits = net.json("limit list -j")["limits"].take();
            let source = limits.as_array().unwrap().iter().find(|it| it["name"] == "source");
            let overrides = source.unwrap()["overrides"].as_array().unwrap().len();
            assert_eq!(overrides as u64, number + 1, "no change is lost");
        }
        stop.stop();
    });
    let (passed, most) = (arrivals.from(v4(10)).packets, sent[0].admitted(1e3, 200));
    assert!(passed <= most + 2, "{passed} passed of {most}; {sent:?}");
    assert_eq!(arrivals.from(v4(11)).packets, 0, "who is denied passed");
    // What is left half done is ended by the next command, and nothing stays of it.
    net.run("attach eth0 --replace");
    let left = [map::HEAD, map::SOURCES].map(|name| {
        on_pins(&net, |pins| {
            let directory = pins.directory();
            ["maps", "maps2"].map(|maps| directory.join(maps).join(name).exists())
        })
    });
    assert!(left.iter().all(|sides| sides[0] != sides[1]), "{left:?}");
    let footprint = net.footprint();
    net.run("detach --all");
    footprint.assert_gone().unwrap();
}

#[test]
fn an_exchange_that_fails_leaves_what_runs() {
    let (net, _document) = attached(SMALL);
    for number in 0..3 {
        net.run(&format!("limit set source --src 203.0.113.{number}/32 --rate {}/s", number + 7));
    }
    let (before, status) = (program(&net), net.json("status -j"));
    let maps =
        || on_pins(&net, |pins| (pins.maps(), fs::read_dir(pins.directory()).unwrap().count()));
    let place = maps();
    let mut senders = [net.sender(10_000, net.udp(v4(10)))];
    let (sent, arrivals) = net.flood(&mut senders, 60 * SECOND, |stop| {
        // The policy does not fit.
        let outcome = net.limiter.run("attach eth0 --overrides 1").outcome().unwrap();
        outcome.assert_exit_code(3).assert_says(&["--overrides"]);
        // The kernel refuses the program: the old table says that its words are where none can be.
        let own = layout(&net);
        set_layout(&net, Description { source_words: 1 << 20, ..own });
        let outcome = net.limiter.run(&format!("attach eth0 {OTHER}")).outcome().unwrap();
        outcome.assert_exit_code(1).assert_says(&["refuses the program"]);
        set_layout(&net, own);
        stop.stop();
    });
    assert_admitted("meanwhile", arrivals.from(v4(10)).packets, &sent[0], 1e3, 200);
    assert_eq!((program(&net), maps().0), (before, place.0));
    let capacity = |status: &Value| status["table"]["sources"].clone();
    assert_eq!(capacity(&net.json("status -j")), capacity(&status));
    net.run("limit set source --rate 2kpps");
}

/// The maps in use, with their pins.
fn pinned_maps(net: &Net) -> Vec<(PathBuf, MapData)> {
    on_pins(net, |pins| {
        let open = |entry: fs::DirEntry| (entry.path(), MapData::from_pin(entry.path()).unwrap());
        fs::read_dir(pins.maps()).unwrap().map(|entry| open(entry.unwrap())).collect()
    })
}

/// A map that is pinned in a directory of maps.
fn in_directory<T: aya::Pod>(pins: &Pins, directory: &str, name: &str) -> Array<MapData, T> {
    let data = MapData::from_pin(pins.directory().join(directory).join(name)).unwrap();
    aya::maps::Map::from_map_data(data).unwrap().try_into().unwrap()
}

/// The first entry that is somebody's, with its number.
fn first<T: aya::Pod>(map: &Array<MapData, T>, is_used: impl Fn(&T) -> bool) -> (u32, T) {
    let mut entries = (0..).zip(map.iter().map(Result::unwrap));
    entries.find(|(_, entry)| is_used(entry)).unwrap()
}

/// A table that was left behind by a process which was killed has later times of a source and of a key than the table in
/// use.
#[test]
fn what_is_left_is_carried_over_and_the_later_time_holds() {
    const MORE: u64 = 10_000_000_000;
    let net = Net::new();
    let policy = "limits: [{name: source, key: source, rate: 1/s, burst: 20}, \
                           {name: prefix, key: source/31, rate: 1/s, burst: 20}]";
    let document = Document::new(policy);
    net.run(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    let send = |number| {
        let mut senders = [net.sender(1_000, net.udp(v4(number)))];
        net.flood(&mut senders, SECOND / 10, |_| {}).1.from(v4(number)).packets
    };
    let passed = send(10);
    // Part of a token is enough for a packet.
    assert!([20, 21].contains(&passed), "{passed}");
    // An IP version that does not exist.
    let (from, to) = (&net.hosts.client_port, &net.hosts.router_port);
    let mut unreadable = net.udp(v4(11)).macs(from.mac, to.mac).build();
    unreadable[14] = 0x55;
    let sender = Sender::new(&net.hosts.client.namespace, from, 1_000, unreadable).unwrap();
    net.flood(&mut [sender], SECOND / 10, |_| {});
    let old = pinned_maps(&net);
    net.run(&format!("attach eth0 {OTHER}"));
    let is_source = |source: &Source| source.address.family != 0;
    let is_bucket = |bucket: &Bucket| bucket.key.limit_id != 0;
    let words = |pins: &Pins| {
        let (_, source) = first(&typed(pins, map::SOURCES).unwrap(), is_source);
        let (_, bucket) = first(&typed(pins, map::BUCKETS).unwrap(), is_bucket);
        (source.words, bucket.word)
    };
    let now = on_pins(&net, words);
    let unreadable = |directory| {
        on_pins(&net, |pins| {
            let sources: Array<MapData, Source> = in_directory(pins, directory, map::SOURCES);
            sources.get(&shared::UNREADABLE, 0).unwrap().settled()
        })
    };
    let carried = unreadable("maps2");
    assert!(carried.passed.packets >= 20 && carried.dropped.packets >= 50, "{carried:?}");
    on_pins(&net, |pins| {
        for (path, map) in old {
            map.pin(path).unwrap();
        }
        let mut sources = in_directory(pins, "maps", map::SOURCES);
        let (number, mut source) = first(&sources, is_source);
        let place = source.words.iter().position(|word| *word != 0).expect("a limit of the entry");
        source.words[place] += MORE;
        sources.set(number, source, 0).unwrap();
        let mut buckets = in_directory(pins, "maps", map::BUCKETS);
        let (number, mut bucket) = first(&buckets, is_bucket);
        bucket.word += MORE;
        buckets.set(number, bucket, 0).unwrap();
        let mut entry = sources.get(&shared::UNREADABLE, 0).unwrap();
        let [passed, dropped] = [3, 7].map(|packets| Tally { packets, bytes: 0 });
        entry = Source { pending: PendingTally::of(&passed).0, dropped, ..entry };
        entry.words[place] += MORE;
        sources.set(shared::UNREADABLE, entry, 0).unwrap();
        let overflow = shared::overflow(3);
        let dropped = Tally { packets: 11, bytes: 0 };
        let entry = Source { dropped, ..sources.get(&overflow, 0).unwrap() };
        sources.set(overflow, entry, 0).unwrap();
    });
    // What is counted goes back at no time.
    let shared_packets = || net.json("status -j")["shared_packets"].as_u64();
    assert_eq!(shared_packets(), Some(11));
    net.run("attach eth0 --replace");
    assert_eq!(shared_packets(), Some(11));
    let after = on_pins(&net, words);
    let later = |at: usize| after.0[at].wrapping_sub(now.0[at]);
    assert_eq!((0..ENTRY_PLACES).map(later).max(), Some(MORE), "{now:?} {after:?}");
    assert_eq!(after.1 - now.1, MORE);
    let merged = unreadable("maps2");
    let more = |at: usize| merged.words[at].wrapping_sub(carried.words[at]);
    assert_eq!((0..ENTRY_PLACES).map(more).max(), Some(MORE), "{carried:?} {merged:?}");
    assert_eq!(merged.passed.packets, carried.passed.packets + 3);
    assert_eq!(merged.dropped.packets, carried.dropped.packets + 7);
    let left = on_pins(&net, |pins| pins.directory().join("maps").join(map::HEAD).exists());
    assert!(!left, "the old table is gone");
}

/// A log that keys share is found by a number of its limit, which another limit has when that is gone.
#[test]
fn what_keys_share_stays_with_the_limit_that_is_there() {
    let net = Net::new();
    let document = Document::new(
        "limits: [{name: log, key: destination, algorithm: sliding_log, limit: 5, window: 1h}]",
    );
    net.run(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    let old: Vec<_> = on_pins(&net, |pins| {
        let open = |entry: fs::DirEntry| (entry.path(), MapData::from_pin(entry.path()).unwrap());
        fs::read_dir(pins.maps()).unwrap().map(|entry| open(entry.unwrap())).collect()
    });
    net.run(&format!("attach eth0 {OTHER}"));
    on_pins(&net, |pins| {
        for (path, map) in old {
            map.pin(path).unwrap();
        }
        let limits: Array<_, Limit> = typed(pins, map::LIMITS).unwrap();
        let (_, limit) =
            first(&limits, |limit: &Limit| u64::from(limit.kind) == Kind::SlidingLog.number());
        let meters: Array<_, Meter> = typed(pins, map::METERS).unwrap();
        let (_, meter) = first(&meters, |meter: &Meter| meter.kind == Kind::SlidingLog.number());
        let put = |directory, limit_id| {
            let mut buckets = in_directory(pins, directory, map::BUCKETS);
            let number = buckets.len() - TALLIES + limit.tally;
            let word = 1 << 56 | monotonic();
            let bucket = Bucket { binding: 0, word, key: BucketKey::shared(limit_id) };
            buckets.set(number, bucket, 0).unwrap();
            let mut measures = in_directory(pins, directory, map::MEASURES);
            measures.set(number, meter.measure(), 0).unwrap();
        };
        put("maps", limit.limit_id + 1_000);
        put("maps2", limit.limit_id);
    });
    net.run("attach eth0 --replace");
    on_pins(&net, |pins| {
        let shared = |bucket: &Bucket| bucket.key.limit_id != 0;
        let (_, bucket) = first(&typed(pins, map::BUCKETS).unwrap(), shared);
        let limits: Array<_, Limit> = typed(pins, map::LIMITS).unwrap();
        let (_, limit) =
            first(&limits, |limit: &Limit| u64::from(limit.kind) == Kind::SlidingLog.number());
        assert!(bucket.key == BucketKey::shared(limit.limit_id));
    });
    let left = on_pins(&net, |pins| pins.directory().join("maps").join(map::HEAD).exists());
    assert!(!left, "the old table is gone");
}

/// A policy that finds no room in the maps gets larger ones.
#[test]
fn an_apply_that_needs_other_maps_exchanges_them_under_traffic() {
    let (net, _document) = attached(SMALL);
    let overrides: Vec<_> = (1..=200)
        .map(|number| format!("{{src: 203.0.113.{number}, rate: {}/s}}", number + 5))
        .collect();
    let document = Document::new(&format!(
        "deny: [198.18.0.11]
limits:
  - name: source
    key: source
    rate: 1k pps
    burst: 200
    match: {{protocol: udp, ports: 9}}
    overrides: [{}]",
        overrides.join(", ")
    ));
    let mut senders = [net.sender(10_000, net.udp(v4(10))), net.sender(10_000, net.udp(v4(10)))];
    let (sent, arrivals) = net.flood(&mut senders, 60 * SECOND, |stop| {
        let said = net.run(&document.in_place("policy apply --dry-run FILE")).stdout;
        assert!(
            said.contains("Applying it would make the tables larger first, and keep all state"),
            "{said}"
        );
        let said = net.run(&document.in_place("policy apply FILE")).stdout;
        assert!(said.contains("Made room for this policy"), "{said}");
        stop.stop();
    });
    // One exchange, and one swap of the policy.
    assert_within(arrivals.from(v4(10)).packets, &sent, 2);
    let limits = net.json("limit list -j")["limits"].take();
    let source = limits.as_array().unwrap().iter().find(|it| it["name"] == "source").unwrap();
    assert_eq!(source["overrides"].as_array().unwrap().len(), 200);
}

/// Whoever has the directories of an instance may pin any map there. Of a per-CPU map the kernel writes a value for each
/// CPU, where there is room for one.
#[test]
fn a_head_that_is_another_map_is_not_read() {
    let (net, _document) = attached(SMALL);
    on_pins(&net, |pins| {
        let head = pins.maps().join(map::HEAD);
        fs::remove_file(&head).unwrap();
        let map: PerCpuArray<MapData, Head> = PerCpuArray::create(1, 0).unwrap();
        map.pin(head).unwrap();
    });
    for command in ["status", "deny add 192.0.2.1", "attach eth0"] {
        let outcome = net.limiter.run(command).outcome().unwrap();
        outcome.assert_exit_code(1).assert_says(&["HEAD", "no array of one value"]);
    }
    net.run("detach --all");
}

#[test]
fn a_policy_that_waits_to_be_confirmed_and_the_monitor_switch_stay() {
    let (net, _document) = attached(SMALL);
    net.run("monitor on");
    let other = Document::new("limits: [{name: source, key: source, rate: 7/s, burst: 9}]");
    net.run(&other.in_place("policy apply FILE --confirm 10m"));
    net.run(&format!("attach eth0 {OTHER}"));
    let rate = || {
        let limits = net.json("limit list -j")["limits"].take();
        let source = limits.as_array().unwrap().iter().find(|it| it["name"] == "source").unwrap();
        source["rate_per_second"].as_u64().unwrap()
    };
    assert_eq!(rate(), 7);
    assert_eq!(net.json("monitor -j")["mode"], "monitor");
    let outcome = net.limiter.run("limit set source --rate 9/s").outcome().unwrap();
    outcome.assert_exit_code(6);
    // The one before is in force again, in the new tables too.
    net.run("policy revert");
    net.run("monitor off");
    assert_eq!(rate(), 1_000);
    let mut senders = [net.sender(10_000, net.udp(v4(10))), net.sender(100, net.udp(v4(11)))];
    let (sent, arrivals) = net.flood(&mut senders, SECOND / 2, |_| {});
    assert_within(arrivals.from(v4(10)).packets, &sent[..1], 0);
    assert_eq!(arrivals.from(v4(11)).packets, 0, "denied by the policy before");
}
