//! Bans of single sources that the agent pushes: no policy is put in force again.

use super::*;

/// Room for 6,144 pushed blocks.
const ROOM: &str = "attach eth0 --sources 1024 --buckets 32768";

impl Setup<'_> {
    fn pushing(&self) -> Agent {
        let arguments = format!("{} --crowdsec-push", self.arguments());
        Agent::start(self.bench, self.document, &arguments)
    }

    /// Whether packets of a source are dropped as blocked.
    #[track_caller]
    fn is_blocked(&self, source: &str) -> bool {
        let blocked = || self.bench.json("status -j")["reasons"]["penalty"].as_u64().unwrap();
        let before = blocked();
        send(self.bench, source.parse::<IpAddr>().unwrap(), 20);
        let dropped = blocked() - before;
        assert!(dropped == 0 || dropped == 20, "{dropped}");
        dropped == 20
    }

    #[track_caller]
    fn wait_for_pushed(&self, count: usize) {
        self.wait_for_metric(&format!("limiter_crowdsec_pushed {count}"));
    }
}

#[test]
fn a_ban_of_an_address_takes_no_change_of_the_policy() {
    let bench = Bench::new();
    let document = Document::new("allow: [203.0.113.0/24]");
    let mut setup = Setup::new(&bench, &document);
    bench.done(ROOM);
    let hour = &["--duration", "1h"];
    let own = bench.hosts.router_port.address_like([192, 0, 2, 1].into()).to_string();
    let agent = setup.pushing();
    next_of(&agent, "decisions");
    let before = changes(&bench);
    setup.decide("Ip", "192.0.2.5", hour);
    assert_eq!(counts(&next_of(&agent, "decisions")), [1, 1, 0]);
    assert!(setup.is_blocked("192.0.2.5") && !setup.is_blocked("192.0.2.6"));
    for address in ["192.0.2.6", "2001:db8:7::7", "2001:db8:7::8", "203.0.113.5", &own] {
        setup.decide("Ip", address, hour);
    }
    setup.wait_for_metric("limiter_crowdsec_decisions{origin=\"cscli\"} 6");
    setup.wait_for_pushed(3);
    setup.wait_for_metric("limiter_crowdsec_left_out{reason=\"allow\"} 1");
    setup.wait_for_metric("limiter_crowdsec_left_out{reason=\"harm\"} 1");
    assert!(setup.is_blocked("192.0.2.6") && setup.is_blocked("2001:db8:7::99"));
    assert!(!setup.is_blocked("203.0.113.5"));
    setup.forgive("--ip", "192.0.2.6");
    setup.forgive("--ip", "2001:db8:7::7");
    setup.wait_for_pushed(2);
    assert!(!setup.is_blocked("192.0.2.6") && setup.is_blocked("2001:db8:7::99"));
    // A block that a hand pushed of the same source is another one.
    bench.done("penalty add 192.0.2.5 --for 10m --push");
    setup.forgive("--ip", "192.0.2.5");
    setup.forgive("--ip", "2001:db8:7::8");
    setup.wait_for_pushed(0);
    assert!(setup.is_blocked("192.0.2.5") && !setup.is_blocked("2001:db8:7::99"));
    bench.done("penalty del 192.0.2.5 --push");
    assert!(!setup.is_blocked("192.0.2.5"));
    assert_eq!(changes(&bench), before);

    // A range is in the set.
    setup.decide("Range", "198.51.100.0/24", hour);
    setup.wait_for(&["198.51.100.0/24"]);
    // A trial keeps no push waiting.
    let trial =
        Document::new("allow: [203.0.113.0/24]\nlimits: [{name: other, key: source, rate: 7/s}]");
    bench.done(&trial.in_place("policy apply FILE --confirm 10m"));
    setup.decide("Ip", "192.0.2.7", hour);
    setup.decide("Ip", "192.0.2.8", hour);
    setup.wait_for_pushed(2);
    assert!(setup.is_blocked("192.0.2.7"));
    bench.done("policy revert");
    // Who ends a pushed block by hand finds it there again.
    bench.done("penalty del 192.0.2.7");
    let start = Instant::now();
    while !setup.is_blocked("192.0.2.7") {
        assert!(start.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(500));
    }
    agent.end_past_others();

    // What ended while no agent ran ends, and what is there is not pushed again.
    setup.forgive("--ip", "192.0.2.7");
    setup.decide("Ip", "192.0.2.9", hour);
    let before = changes(&bench);
    let agent = setup.pushing();
    assert_eq!(counts(&next_of(&agent, "decisions")), [3, 1, 1]);
    assert!(!setup.is_blocked("192.0.2.7"));
    assert!(setup.is_blocked("192.0.2.8") && setup.is_blocked("192.0.2.9"));
    agent.end_past_others();
    setup.crowdsec.stop();
    let agent = setup.pushing();
    next_of(&agent, "failed");
    setup.wait_for_pushed(2);
    assert!(setup.is_blocked("192.0.2.8") && setup.is_dropped("198.51.100.7"));
    assert_eq!(changes(&bench), before);
    agent.end_past_others();

    // Without the option, all are in the set.
    let agent = setup.agent();
    setup.wait_for(&["192.0.2.8/32", "192.0.2.9/32", "198.51.100.0/24"]);
    setup.wait_for_pushed(0);
    assert!(setup.is_dropped("192.0.2.8") && !setup.is_blocked("192.0.2.8"));
    agent.end_past_others();
}

#[test]
fn a_ban_stays_when_sources_became_larger_while_crowdsec_and_the_agent_were_away() {
    let bench = Bench::new();
    let document = Document::new("limits: []");
    let mut setup = Setup::new(&bench, &document);
    bench.done(ROOM);
    setup.decide("Ip", "2001:db8:7:1::7", &["--duration", "1h"]);
    let agent = setup.pushing();
    setup.wait_for_pushed(1);
    assert!(setup.is_blocked("2001:db8:7:1::8") && !setup.is_blocked("2001:db8:7:2::8"));
    agent.end_past_others();
    setup.crowdsec.stop();
    document.write("defaults: {key_prefix: {ipv6: 48}}");
    bench.done(&document.in_place("policy apply FILE"));
    let agent = setup.pushing();
    setup.wait_for_pushed(1);
    assert!(setup.is_blocked("2001:db8:7:2::8"));
    agent.end_past_others();
    document.write("defaults: {key_prefix: {ipv6: 47}}");
    bench.done(&document.in_place("policy apply FILE"));
    let agent = setup.agent();
    setup.wait_for(&["2001:db8:6::/47"]);
    assert!(setup.is_dropped("2001:db8:6::8") && !setup.is_blocked("2001:db8:7:1::8"));
    agent.end_past_others();
}

#[test]
fn thousands_of_decisions_are_pushed_at_once() {
    const COUNT: u32 = 5_000;
    let bench = Bench::new();
    let document = Document::new("limits: []");
    let setup = Setup::new(&bench, &document);
    // Before the agent starts: LAPI leaves some of an import out of an answer that it gives meanwhile.
    setup.import(COUNT, 100_000);
    bench.done(ROOM);
    let before = changes(&bench);
    let agent = setup.pushing();
    assert_eq!(counts(&next_of(&agent, "decisions")), [COUNT.into(), COUNT.into(), 0]);
    setup.wait_for_pushed(COUNT as usize);
    // The document, and the row for pushed blocks.
    let begun = changes(&bench);
    assert!(begun - before <= 2, "{} changes", begun - before);
    assert!(setup.is_blocked("100.0.0.7") && setup.is_blocked("100.0.19.135"));
    assert!(!setup.is_blocked("100.0.19.136"));
    setup.crowdsec.cscli(&["decisions", "delete", "--all"]);
    setup.wait_for_pushed(0);
    assert!(!setup.is_blocked("100.0.0.7") && !setup.is_blocked("100.0.19.135"));
    assert_eq!(changes(&bench), begun);
    agent.end_past_others();
}

#[test]
fn bans_that_find_no_room_are_in_the_set() {
    const COUNT: u32 = 1_000;
    let bench = Bench::new();
    let document = Document::new("limits: []");
    let setup = Setup::new(&bench, &document);
    setup.import(COUNT, 100_000);
    bench.done("attach eth0 --sources 1024 --buckets 1024");
    let agent = setup.pushing();
    let event = next_of(&agent, "decisions");
    assert_eq!(counts(&event), [COUNT.into(), COUNT.into(), 0], "{event}");
    // A tenth of 1,920 records.
    setup.wait_for_pushed(192);
    assert_eq!(setup.denied().as_array().map(Vec::len), Some(COUNT as usize - 192));
    for number in [0, 150, 191, 192, 500, 999_u32] {
        let [_, a, b, c] = number.to_be_bytes();
        let source = format!("100.{a}.{b}.{c}");
        assert!(setup.is_blocked(&source) || setup.is_dropped(&source), "{source}");
    }
    let changed = changes(&bench);
    setup.wait_for_an_answer();
    assert_eq!(changes(&bench), changed, "none moves");
    agent.end_past_others();
}
