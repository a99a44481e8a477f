//! The metrics that monitoring systems read.

use std::{collections::BTreeMap, time::Duration};

use limiter_common::packet::reason::Reason;
use limiter_tests::{packet::Frame, traffic::Sender};

use super::{Bench, Document, SMALL, json::send};

/// The samples of an instance, by `name{label="value",...}` with the labels in order.
type Series = BTreeMap<String, f64>;

/// The samples in JSON.
#[track_caller]
pub(super) fn series(bench: &Bench) -> Series {
    let told = bench.json("metrics -j");
    assert_eq!(told["schema"], "limiter.metrics/1");
    let mut series = Series::new();
    for family in told["metrics"].as_array().unwrap() {
        let name = family["name"].as_str().unwrap();
        assert!(name.starts_with("limiter_"), "{name}");
        assert!(family["help"].as_str().unwrap().ends_with('.'), "{family}");
        assert_eq!(family["type"] == "counter", name.ends_with("_total"), "{name}");
        for one in family["series"].as_array().unwrap() {
            let labels = one["labels"].as_object().unwrap().iter();
            let mut labels: Vec<_> =
                labels.map(|(name, value)| format!("{name}={value}")).collect();
            labels.sort_unstable();
            let labels = match labels.is_empty() {
                true => String::new(),
                false => format!("{{{}}}", labels.join(",")),
            };
            let key = format!("{name}{labels}");
            let before = series.insert(key.clone(), one["value"].as_f64().unwrap());
            assert_eq!(before, None, "twice: {key}");
        }
    }
    series
}

/// The samples in the text format.
#[track_caller]
fn in_text(bench: &Bench) -> Series {
    let text = bench.done("metrics").stdout;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (key, value) = line.rsplit_once(' ').unwrap();
            let Some((name, labels)) = key.split_once('{') else {
                return (key.to_owned(), value.parse().unwrap());
            };
            let mut labels: Vec<&str> = labels.trim_end_matches('}').split(',').collect();
            labels.sort_unstable();
            (format!("{name}{{{}}}", labels.join(",")), value.parse().unwrap())
        })
        .collect()
}

#[test]
fn they_are_what_status_and_the_policy_tell() {
    let bench = Bench::new();
    let document = Document::new(
        "deny: [198.51.100.0/24, {src: 192.0.2.77, until: 2099-01-01T00:00:00Z}]\n\
         limits:\n\
         - {name: source, key: source, rate: 1/min, burst: 20, candidate: {rate: 1/min, burst: 5}}\n\
         - {name: quota, key: all, action: monitor, layers: [{rate: 10/s, burst: 30}, {rate: 90/min, burst: 40}]}",
    );
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    send(&bench, [192, 0, 2, 1], 150);
    bench.hosts.router.ip("link set eth0 down").unwrap();
    let told = series(&bench);
    // No packets come in any more, so repeated queries give the same figures.
    assert_eq!(in_text(&bench), told);
    let of = |key: &str| told.get(key).copied().unwrap_or_else(|| panic!("no {key} in {told:#?}"));

    let status = bench.json("status -j");
    for reason in Reason::ALL {
        let (name, verdict) = (reason.name(), if reason.drops() { "dropped" } else { "passed" });
        let labels = format!(r#"interface="eth0",reason="{name}",verdict="{verdict}""#);
        let packets = of(&format!("limiter_packets_total{{{labels}}}"));
        assert_eq!(Some(packets), status["reasons"][name].as_f64(), "{name}");
    }
    let bytes = |verdict: &str| {
        let verdict = format!(r#"verdict="{verdict}""#);
        let of_it = |key: &&String| key.starts_with("limiter_bytes") && key.contains(&verdict);
        told.keys().filter(of_it).map(|key| of(key)).sum::<f64>()
    };
    let interface = &status["interfaces"][0]["bytes"];
    assert_eq!(Some(bytes("passed")), interface["passed"].as_f64());
    assert_eq!(Some(bytes("dropped")), interface["dropped"].as_f64());

    let limits = status["limits"].as_array().unwrap();
    for (line, limit, layer) in [
        ("source", "source", "1"),
        ("source (candidate)", "source", "candidate"),
        ("quota", "quota", "1"),
        ("quota (layer 2)", "quota", "2"),
    ] {
        let line = limits.iter().find(|it| it["name"] == line).unwrap();
        let candidate = line["name"] == "source (candidate)";
        for result in ["conform", "exceed", "exceed_monitor"] {
            let named = match (result, candidate) {
                ("exceed_monitor", true) => "exceed_candidate",
                _ => result,
            };
            let labels = format!(r#"{{layer="{layer}",limit="{limit}",result="{named}"}}"#);
            let packets = of(&format!("limiter_limit_packets_total{labels}"));
            assert_eq!(Some(packets), line[result].as_f64(), "{limit} {layer} {result}");
            let bytes = of(&format!("limiter_limit_bytes_total{labels}"));
            assert_eq!(Some(bytes), line[format!("{result}_bytes")].as_f64());
        }
        for (unit, member) in [("packets", "near"), ("bytes", "near_bytes")] {
            let labels = format!(r#"{{layer="{layer}",limit="{limit}"}}"#);
            let near = of(&format!("limiter_limit_near_{unit}_total{labels}"));
            assert_eq!(Some(near), line[member].as_f64(), "{limit} {layer} {member}");
        }
    }
    // Of 150 packets, the burst passes, and one packet for part of a token.
    let exceed = of(r#"limiter_limit_packets_total{layer="1",limit="source",result="exceed"}"#);
    assert!((129.0..=130.0).contains(&exceed), "{exceed}");
    // Near packets: the one that leaves a fifth of the burst, those after it, and perhaps that for part of a
    // token.
    let near = |layer: &str, limit: &str| {
        of(&format!(r#"limiter_limit_near_packets_total{{layer="{layer}",limit="{limit}"}}"#))
    };
    assert!((5.0..=6.0).contains(&near("1", "source")), "{}", near("1", "source"));
    assert!((2.0..=3.0).contains(&near("candidate", "source")));
    assert_eq!(near("2", "quota"), 0.0);
    let info = |layer: &str, limit: &str, mode: &str, key: &str| {
        let labels = format!(
            r#"algorithm="token_bucket",count="packets",key="{key}",layer="{layer}",limit="{limit}",mode="{mode}""#
        );
        of(&format!("limiter_limit_info{{{labels}}}"))
    };
    assert_eq!(info("1", "source", "enforce", "source"), 1.0);
    assert_eq!(info("candidate", "source", "monitor", "source"), 1.0);
    assert_eq!(info("2", "quota", "monitor", "all"), 1.0);
    assert_eq!(of(r#"limiter_limit_rate{layer="2",limit="quota"}"#), 1.5);
    assert_eq!(of(r#"limiter_limit_burst{layer="candidate",limit="source"}"#), 5.0);
    assert!(!told.keys().any(|key| key.contains(r#"limit="syn""#)), "it is not set");

    assert_eq!(of(r#"limiter_attached{interface="eth0",mode="native"}"#), 1.0);
    assert_eq!(of(r#"limiter_listed{list="deny"}"#), 2.0);
    assert_eq!(of(r#"limiter_listed{list="allow"}"#), 0.0);
    assert_eq!(of("limiter_blocked_sources"), 0.0);
    assert_eq!(of(r#"limiter_table_capacity{table="sources"}"#), 4096.0);
    let tracked = of(r#"limiter_table_entries{table="sources"}"#);
    assert_eq!(Some(tracked), status["sources"]["tracked"].as_f64());
    // Each source got an entry with its first packet.
    assert_eq!(of(r#"limiter_sources_admitted_total{as="entry"}"#), tracked);
    assert_eq!(of(r#"limiter_sources_admitted_total{as="newcomer"}"#), 0.0);
    let keys = of(r#"limiter_table_entries{table="buckets"}"#);
    assert_eq!(of(r#"limiter_buckets_admitted_total{as="entry"}"#), keys);
    assert_eq!(of(r#"limiter_buckets_admitted_total{as="shared"}"#), 0.0);
    for state in ["idle", "owing"] {
        assert_eq!(of(&format!(r#"limiter_sources_evicted_total{{state="{state}"}}"#)), 0.0);
        assert_eq!(of(&format!(r#"limiter_buckets_evicted_total{{state="{state}"}}"#)), 0.0);
    }
    assert_eq!(Some(of("limiter_memory_bytes")), status["memory_bytes"].as_f64());
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(of(&format!(r#"limiter_build_info{{version="{version}"}}"#)), 1.0);
    assert!(!told.keys().any(|key| key.contains("192.0.2")), "an address: {told:#?}");
}

/// The values of the samples with this name whose labels include `others`, by the label `label`.
#[track_caller]
fn by_label(told: &Series, name: &str, label: &str, others: &str) -> BTreeMap<String, f64> {
    let of_it = told.iter().filter_map(|(key, value)| {
        let labels = key.strip_prefix(name)?.strip_prefix('{')?.strip_suffix('}')?;
        let begin = format!("{label}=\"");
        let own = labels.split(',').find_map(|it| it.strip_prefix(&*begin)?.strip_suffix('"'))?;
        let has_others = others.split(',').all(|other| labels.split(',').any(|it| it == other));
        has_others.then(|| (own.to_owned(), *value))
    });
    of_it.collect()
}

#[test]
fn they_tell_how_full_limits_are() {
    let bench = Bench::new();
    let document = Document::new(
        "limits:\n\
         - {name: source, key: source, rate: 1/min, burst: 20, candidate: {rate: 1/min, burst: 1k}}\n\
         - {name: all, key: all, rate: 1/h, burst: 200, action: monitor}\n\
         - {name: pair, key: [source, destination], rate: 1/h, burst: 200, \
         overrides: [{src: 192.0.2.3, rate: 1/h, burst: 10}]}\n\
         - {name: log, match: {protocol: udp}, key: source, algorithm: sliding_log, rate: 100/h, action: monitor, \
         overrides: [{src: 192.0.2.2, rate: 2/h}]}",
    );
    bench.done(&document.in_place(&format!("attach eth0 {SMALL} --policy FILE")));
    let told = series(&bench);
    for name in ["limiter_limit_sampled_states", "limiter_limit_sampled_refusing_states"] {
        let of_it = told.iter().filter(|(key, _)| key.starts_with(&format!("{name}{{")));
        // A limit with `key: all` has its state from the start.
        let of_it = of_it.filter(|(key, _)| !key.contains(r#"limit="all""#));
        assert!(of_it.clone().count() >= 4 * 5 && of_it.clone().all(|(_, value)| *value == 0.0));
    }
    // One source far exceeds the first limit, two are within it, and one is near it.
    for (last, packets) in [(1, 150), (2, 2), (3, 9), (4, 17)] {
        send(&bench, [192, 0, 2, last], packets);
    }
    bench.hosts.router.ip("link set eth0 down").unwrap();
    let told = series(&bench);
    let used = |limit: &str, layer: &str| {
        let own = format!(r#"limit="{limit}",layer="{layer}""#);
        by_label(&told, "limiter_limit_sampled_states", "used", &own)
    };
    let classes = |counts: [u32; 5]| {
        let names = ["0", "0.5", "0.8", "0.9", "1"].map(str::to_owned);
        BTreeMap::from_iter(names.into_iter().zip(counts.map(f64::from)))
    };
    assert_eq!(used("source", "1"), classes([2, 0, 1, 0, 1]));
    assert_eq!(used("source", "candidate"), classes([4, 0, 0, 0, 0]));
    // Under the override of one source: 9 of 10 used, of which a part is refilled, and 2 of 2.
    assert_eq!(used("pair", "1"), classes([3, 0, 1, 0, 0]));
    assert_eq!(used("log", "1"), classes([3, 0, 0, 0, 1]));
    assert_eq!(used("all", "1").values().sum::<f64>(), 1.0);
    let refusing = |limit: &str| {
        let own = format!(r#"limit="{limit}",layer="1""#);
        by_label(&told, "limiter_limit_sampled_refusing_states", "wait", &own)
    };
    // The next token comes within a minute, after the debt of the packet for part of a token.
    let waits = refusing("source");
    assert_eq!(waits["10"] + waits["60"], 1.0, "{waits:?}");
    assert_eq!(waits.values().sum::<f64>(), 1.0);
    assert_eq!(refusing("pair").values().sum::<f64>(), 0.0);
    for table in ["sources", "buckets", "wide_states"] {
        for name in ["entries", "sampled_entries", "sampled_owing_entries"] {
            let key = format!(r#"limiter_table_{name}{{table="{table}"}}"#);
            let shared = if table == "buckets" { 1.0 } else { 0.0 };
            assert_eq!(told[&key], 4.0 + shared, "{key}");
        }
    }
    assert_eq!(told["limiter_table_sets"], 256.0);
    assert_eq!(told["limiter_table_full_sets"], 0.0);
    assert_eq!(told["limiter_newcomers"], 0.0);
    assert_eq!(told["limiter_policy_epoch"], 1.0);
    bench.done("limit set source --rate 2/min");
    assert_eq!(series(&bench)["limiter_policy_epoch"], 2.0);
}

/// More sources than the table holds, each of which sends one packet.
#[test]
fn they_tell_that_the_table_is_full() {
    let bench = Bench::new();
    bench.done("attach eth0 --sources 1024 --buckets 4096 --overrides 64 --pps 1/min --burst 9");
    let (from, to) = (&bench.hosts.client_port, &bench.hosts.router_port);
    let frame = Frame::udp([198, 51, 100, 1], to.v4, 1, 9);
    let frame = frame.payload(18).macs(from.mac, to.mac).build();
    let mut sender = Sender::new(&bench.hosts.client.namespace, from, 100_000, frame).unwrap();
    // Writes the last two bytes of the IPv4 source in an Ethernet frame. The checksum does not matter here.
    sender = sender.edited(|number, frame| {
        frame[28..30].copy_from_slice(&(number as u16).to_be_bytes());
    });
    sender.send(Duration::from_millis(200), &Default::default()).unwrap();
    bench.hosts.router.ip("link set eth0 down").unwrap();
    let told = series(&bench);
    for verdict in ["passed", "dropped"] {
        let key = format!(r#"limiter_shared_packets_total{{verdict="{verdict}"}}"#);
        assert_eq!(told[&key], 0.0, "{key}");
    }
    assert_eq!(told[r#"limiter_table_entries{table="sources"}"#], 1024.0);
    assert_eq!(told[r#"limiter_table_sampled_entries{table="sources"}"#], 1024.0);
    assert_eq!(told["limiter_table_sets"], 64.0);
    assert_eq!(told["limiter_table_full_sets"], 64.0);
    assert_eq!(told["limiter_newcomers"], 128.0);

    // Each of these sources sends two packets. When every entry owes for two packets, all other sources of a
    // set share a burst for each entry of the set.
    bench.hosts.router.ip("link set eth0 up").unwrap();
    let mut sender = sender.edited(|number, frame| {
        frame[27] = 102;
        frame[28..30].copy_from_slice(&((number / 2) as u16).to_be_bytes());
    });
    sender.send(Duration::from_millis(500), &Default::default()).unwrap();
    bench.hosts.router.ip("link set eth0 down").unwrap();
    let told = series(&bench);
    let [passed, dropped] = ["passed", "dropped"]
        .map(|verdict| told[&format!(r#"limiter_shared_packets_total{{verdict="{verdict}"}}"#)]);
    // Each shared bucket may admit one packet for part of a token.
    let bursts = 64.0 * 16.0 * 9.0;
    assert!((bursts..=bursts + 64.0).contains(&passed), "{passed}");
    assert!(dropped > 100.0, "{dropped}");
    let status = bench.json("status -j");
    assert_eq!(status["shared_packets"].as_f64(), Some(passed + dropped));
    assert_eq!(status["shared_dropped"].as_f64(), Some(dropped));
    // No source with an entry exceeded its burst of 9, so all refusals are of shared entries.
    assert_eq!(status["reasons"]["exceed"].as_f64(), Some(dropped));
}

#[test]
fn they_tell_of_blocks_trials_and_the_switch() {
    let bench = Bench::new();
    let document = Document::new(
        "limits: [{name: source, key: source, rate: 1/min, burst: 2, \
         penalty: {after: 1s, block: 10m, unproven: block}}]",
    );
    bench.done(&format!("attach eth0 {SMALL}"));
    let told = series(&bench);
    for key in [
        "limiter_blocked_sources",
        "limiter_policy_unconfirmed_seconds",
        r#"limiter_monitoring{by="switch"}"#,
        r#"limiter_monitoring{by="policy"}"#,
        r#"limiter_listed{list="penalty"}"#,
    ] {
        assert_eq!(told.get(key), Some(&0.0), "{key}");
    }
    bench.done(&document.in_place("policy apply FILE --confirm 10m"));
    send(&bench, [192, 0, 2, 1], 15_000);
    bench.done("monitor on");
    let told = series(&bench);
    assert_eq!(told["limiter_blocked_sources"], 1.0);
    let left = told["limiter_policy_unconfirmed_seconds"];
    assert!((1.0..600.0).contains(&left), "{left}");
    assert_eq!(told[r#"limiter_monitoring{by="switch"}"#], 1.0);
}

/// An interface that moved to another namespace keeps its name in the metrics, and its successor has the
/// same; their samples are added.
#[test]
fn no_two_series_are_alike() {
    let bench = Bench::new();
    let (router, elsewhere) = (&bench.hosts.router, &bench.hosts.client.namespace);
    let make = |peer| {
        router.ip(&format!("link add limited type veth peer name {peer}")).unwrap();
    };
    make("one");
    bench.done(&format!("attach eth0 limited {SMALL}"));
    router.ip(&format!("link set limited netns {}", elsewhere.path())).unwrap();
    let gone = series(&bench);
    assert_eq!(gone[r#"limiter_attached{interface="limited",mode="native"}"#], 0.0);
    make("two");
    bench.done("attach limited");
    let told = series(&bench);
    assert_eq!(told[r#"limiter_attached{interface="limited",mode="native"}"#], 1.0);
}

/// The textfile collector must not go on reading the previous state.
#[test]
fn nothing_is_attached_where_there_is_no_instance() {
    let bench = Bench::new();
    let nothing = |bench: &Bench| {
        let told = series(bench);
        assert_eq!(in_text(bench), told);
        let attached: Vec<_> =
            told.iter().filter(|(key, _)| key.starts_with("limiter_attached")).collect();
        assert_eq!(attached, [(&"limiter_attached".to_owned(), &0.0)]);
        assert!(told.keys().any(|key| key.starts_with("limiter_build_info")), "{told:?}");
        assert_eq!(told.len(), 2, "{told:?}");
    };
    nothing(&bench);
    bench.done(&format!("attach eth0 {SMALL} --pps 1kpps"));
    let told = series(&bench);
    assert_eq!(told[r#"limiter_attached{interface="eth0",mode="native"}"#], 1.0);
    assert!(!told.contains_key("limiter_attached"), "{told:?}");
    // A user who cannot see the instance gets an error, not "nothing attached".
    let refused = bench.run("metrics").as_nobody().outcome().unwrap();
    refused.assert_exit_code(5);
    assert_eq!(refused.stdout, "", "{refused}");
    bench.done("detach --all");
    nothing(&bench);
}
