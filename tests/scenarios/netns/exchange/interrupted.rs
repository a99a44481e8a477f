//! Exchanges that another process began and did not finish.

use std::{fs, process::Stdio, thread, time::Instant};

use aya::maps::{Array, MapData, ProgramArray};
use limiter_common::abi::{
    build::Build,
    description::Description,
    layout::{LAYOUT_VERSION, map},
};
use limiter_tests::{process::kill, program::typed};
use limiter_userspace::datapath::program::{Clock, Program};
use serde_json::Value;

use super::{
    OTHER, SECOND, assert_within, attached, in_directory, layout, on_pins, pinned_maps, program,
    set_layout,
};
use crate::{
    cli::Document,
    netns::{Net, SMALL, v4},
};

/// What is said of an exchange that cannot be finished.
const INTERRUPTED: &str = "an exchange of table and program was interrupted";

/// An instance whose table was exchanged, and whose old table is there again: nobody has finished it.
struct Interrupted {
    net: Net,
    document: Document,
    /// A main program of the old maps.
    before: Program,
}

impl Interrupted {
    fn new() -> Self {
        Self::after(|_| {})
    }

    /// The same where something was done before the exchange.
    fn after(prepare: impl FnOnce(&Net)) -> Self {
        let (net, document) = attached(SMALL);
        prepare(&net);
        let before = on_pins(&net, |pins| Program::load(pins, false, Clock::Monotonic).unwrap());
        let old = pinned_maps(&net);
        net.run(&format!("attach eth0 {OTHER}"));
        on_pins(&net, |_| {
            for (path, map) in old {
                map.pin(path).unwrap();
            }
        });
        Self { net, document, before }
    }

    /// Has the old table say that the words of its sources are where none can be, so that the kernel refuses each program
    /// that is to carry its state over; or where they are.
    fn break_old(&self, is_broken: bool) {
        let source_words = if is_broken { 1 << 20 } else { Description::OWN.source_words };
        on_pins(&self.net, |pins| {
            let mut layout: Array<MapData, Description> = in_directory(pins, "maps", map::LAYOUT);
            let own = layout.get(&0, 0).unwrap();
            layout.set(0, Description { source_words, ..own }, 0).unwrap();
        });
    }

    /// Has the interfaces run a main program of the old maps, as when the process ended right after the new ones were in use.
    /// Returns the id of the program.
    fn run_old(&mut self) -> u32 {
        let Self { net, before, .. } = self;
        let program = before.xdp().unwrap();
        let id = program.info().unwrap().id();
        on_pins(net, move |pins| {
            let head = pins.directory().join("maps").join(map::HEAD);
            let head = MapData::from_pin(head).unwrap().info().unwrap().id();
            let mut builds: Array<MapData, Build> = typed(pins, map::BUILDS).unwrap();
            builds.set(0, Build { program: id, head, object: 7 }, 0).unwrap();
            let mut programs: ProgramArray<MapData> = typed(pins, map::PROGRAM).unwrap();
            programs.set(0, program.fd().unwrap(), 0).unwrap();
        });
        id
    }

    /// How many maps are pinned in each directory.
    fn pinned(&self) -> [usize; 2] {
        on_pins(&self.net, |pins| {
            let of = |name| fs::read_dir(pins.directory().join(name)).map_or(0, Iterator::count);
            ["maps", "maps2"].map(of)
        })
    }

    /// The packets that pass of a source in a second at 10,000 a second.
    #[track_caller]
    fn assert_limited(&self) {
        let mut senders = [self.net.sender(10_000, self.net.udp(v4(10)))];
        let (sent, arrivals) = self.net.flood(&mut senders, SECOND, |_| {});
        assert_within(arrivals.from(v4(10)).packets, &sent, 1);
    }
}

/// What another process left half done does not keep a command from its work.
#[test]
fn a_change_tells_of_an_exchange_that_cannot_be_finished() {
    let interrupted = Interrupted::new();
    let (net, document) = (&interrupted.net, &interrupted.document);
    interrupted.break_old(true);
    let interrupted_words =
        "an exchange of table and program was interrupted, and finishing it fails: ";
    let again = "the command was done all the same; ";
    let remedy = "`limiter attach IFACE --replace` tries it again";
    let apply = document.in_place("policy apply FILE");
    for command in
        ["limit set source --rate 2kpps", "deny add 203.0.113.7", &apply, "policy confirm"]
    {
        let outcome = net.run(command);
        for said in [interrupted_words, again, remedy] {
            assert!(outcome.stderr.contains(said), "{outcome}");
        }
    }
    let outcome = net.run("-j deny add 203.0.113.8");
    let warning: Value = serde_json::from_str(outcome.stderr.lines().next().unwrap()).unwrap();
    assert!(warning["warning"]["message"].as_str().unwrap().contains(remedy), "{outcome}");
    assert!(net.run("deny list").stdout.contains("203.0.113.7/32"));

    interrupted.break_old(false);
    let outcome = net.run("deny add 203.0.113.9");
    assert!(!outcome.stderr.contains("interrupted"), "{outcome}");
    assert_eq!(interrupted.pinned()[0], 0, "it was finished");
}

#[test]
fn an_operator_goes_on_beside_a_table_that_cannot_be_carried_over_and_may_let_go_of_it() {
    let interrupted = Interrupted::new();
    let net = &interrupted.net;
    interrupted.break_old(true);
    let running = program(net);
    for command in ["attach lo", "detach lo", "attach eth0"] {
        let outcome = net.run(command);
        assert!(outcome.stderr.contains(INTERRUPTED), "{outcome}");
        assert!(outcome.stderr.contains("--replace` tries it again"), "{outcome}");
    }
    let checked = || {
        let told = net.json("doctor -j");
        let findings = told["findings"].as_array().unwrap();
        findings.iter().find(|it| it["check"] == "exchange").map(|it| it["verdict"].clone())
    };
    assert_eq!(checked(), Some("warn".into()));
    // Another table would take the place of the old one.
    for command in ["attach eth0 --sources 16384", "attach eth0 --new-seed"] {
        let outcome = net.limiter.run(command).outcome().unwrap();
        outcome.assert_exit_code(1).assert_says(&[INTERRUPTED, "--replace` tries it again"]);
    }
    assert_eq!(program(net), running);
    assert!(interrupted.pinned().iter().all(|maps| *maps != 0), "both tables stay");
    interrupted.assert_limited();

    let outcome = net.run("attach eth0 --replace");
    for said in [INTERRUPTED, "the old table was removed", "is forgotten"] {
        assert!(outcome.stderr.contains(said), "{outcome}");
    }
    assert_eq!(interrupted.pinned()[0], 0, "the old table is gone");
    assert_eq!(checked(), None);
    assert_ne!(program(net), running);
    interrupted.assert_limited();
    for command in ["attach eth0", "deny add 203.0.113.9", "attach eth0 --sources 16384"] {
        let outcome = net.run(command);
        assert!(!outcome.stderr.contains("interrupted"), "{outcome}");
    }
    let Interrupted { net, before, .. } = interrupted;
    // It holds the old maps.
    drop(before);
    let footprint = net.footprint();
    net.run("detach --all");
    footprint.assert_gone().unwrap();
}

#[test]
fn an_agent_starts_beside_an_exchange_that_cannot_be_finished() {
    let interrupted = Interrupted::new();
    interrupted.break_old(true);
    let net = &interrupted.net;
    let agent = net.limiter.run("-j agent -i eth0").to(Stdio::piped());
    let mut agent = agent.start().unwrap();
    let (sender, events) = std::sync::mpsc::channel();
    let output = std::io::BufReader::new(agent.stdout.take().unwrap());
    thread::spawn(move || {
        for line in std::io::BufRead::lines(output).map_while(Result::ok) {
            let event: Value = serde_json::from_str(&line).unwrap();
            let _ = sender.send(event);
        }
    });
    let (mut told, begun) = (Vec::new(), Instant::now());
    while told.len() < 3 {
        assert!(begun.elapsed() < 60 * SECOND, "{told:?}");
        told.extend(events.recv_timeout(SECOND));
    }
    let names: Vec<_> = told.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["started", "replaced", "failed"], "{told:?}");
    assert!(told[2]["message"].as_str().unwrap().starts_with(INTERRUPTED), "{told:?}");
    // It is told once, and nothing is loaded again and again.
    let more: Vec<_> = events.recv_timeout(4 * SECOND).into_iter().collect();
    assert!(more.is_empty(), "{more:?}");
    kill(&mut agent);
}

/// The process ended after the new maps were in use, and before their main program was.
#[test]
fn an_exchange_whose_main_program_runs_nowhere_is_undone() {
    let mut interrupted = Interrupted::new();
    let old = interrupted.run_old();
    interrupted.break_old(true);
    // The switch takes no lock, and was thrown in the maps that no packet goes by.
    interrupted.net.run("monitor on");
    let outcome = interrupted.net.run("deny add 198.18.0.20");
    for said in [INTERRUPTED, "and was undone: ", "the command was done all the same; "] {
        assert!(outcome.stderr.contains(said), "{outcome}");
    }
    let net = &interrupted.net;
    assert_eq!(interrupted.pinned()[1], 0, "the new table is gone");
    assert_eq!(program(net), Some(old));
    assert_eq!(net.json("monitor -j")["mode"], "monitor");
    net.run("monitor off");
    // What was changed is in the table by which packets go.
    let mut senders = [net.sender(100, net.udp(v4(20)))];
    assert_eq!(net.flood(&mut senders, SECOND / 2, |_| {}).1.from(v4(20)).packets, 0);
    interrupted.assert_limited();
    interrupted.break_old(false);
    let said = net.run(&format!("attach eth0 {OTHER}")).stdout;
    assert!(said.contains("There is room for 8,192 sources"), "{said}");
    interrupted.assert_limited();
}

/// A newer version that was ended there, and the older one that was installed again.
#[test]
fn an_exchange_to_a_newer_layout_that_no_packet_goes_by_is_undone() {
    let mut interrupted = Interrupted::new();
    let own = layout(&interrupted.net);
    let newer = Description { layout: LAYOUT_VERSION + 1, rules: own.rules + 1, ..own };
    set_layout(&interrupted.net, newer);
    // While packets go by the newer maps, they are left alone.
    let outcome = interrupted.net.limiter.run("attach eth0").outcome().unwrap();
    outcome.assert_exit_code(1).assert_says(&["newer", "limiter detach --all"]);
    assert!(interrupted.pinned().iter().all(|maps| *maps != 0));

    interrupted.run_old();
    let outcome = interrupted.net.run("attach eth0");
    for said in [INTERRUPTED, "newer than this version knows", "and was undone"] {
        assert!(outcome.stderr.contains(said) || said.starts_with("newer"), "{outcome}");
    }
    assert_eq!(interrupted.pinned()[1], 0, "the new table is gone");
    interrupted.assert_limited();
    interrupted.net.run("limit set source --rate 2kpps");
}

/// A change that a command made in the new maps is not thrown away.
#[test]
fn an_exchange_is_not_undone_after_a_change() {
    let mut interrupted = Interrupted::new();
    interrupted.break_old(true);
    interrupted.net.run("deny add 198.18.0.20");
    let old = interrupted.run_old();
    let outcome = interrupted.net.run("deny add 203.0.113.7");
    assert!(outcome.stderr.contains("finishing it fails"), "{outcome}");
    assert!(interrupted.pinned().iter().all(|maps| *maps != 0));
    let outcome = interrupted.net.run("attach eth0 --replace");
    assert!(outcome.stderr.contains("the old table was removed"), "{outcome}");
    assert_ne!(program(&interrupted.net), Some(old));
    let listed = interrupted.net.run("deny list").stdout;
    assert!(["198.18.0.20/32", "203.0.113.7/32"].iter().all(|it| listed.contains(it)), "{listed}");
    interrupted.assert_limited();
}

/// A policy that was confirmed there has the epoch that it had, and would be taken back in the old maps.
#[test]
fn an_exchange_is_not_undone_after_a_policy_was_confirmed() {
    let next = Document::new("limits: [{name: source, key: source, rate: 2k pps, burst: 200}]");
    let apply = next.in_place("policy apply FILE --confirm 600s");
    let mut interrupted = Interrupted::after(|net| drop(net.run(&apply)));
    interrupted.break_old(true);
    interrupted.net.run("policy confirm");
    interrupted.run_old();
    let outcome = interrupted.net.run("attach eth0");
    assert!(outcome.stderr.contains(INTERRUPTED), "{outcome}");
    assert!(!outcome.stderr.contains("was undone"), "{outcome}");
    assert!(interrupted.pinned().iter().all(|maps| *maps != 0), "both tables stay");
    let status = interrupted.net.run("status").stdout;
    assert!(!status.contains("confirm"), "it stays confirmed: {status}");
}

/// This version has no program that carries the state of one older layout over to another one.
#[test]
fn what_an_older_version_had_not_carried_over_is_told_to_be_forgotten() {
    let interrupted = Interrupted::new();
    let net = &interrupted.net;
    set_layout(net, Description { layout: LAYOUT_VERSION - 1, buckets: 0, ..layout(net) });
    // Only who brings the instance to this version removes it.
    let outcome = net.limiter.run("deny add 203.0.113.9").outcome().unwrap();
    outcome.assert_exit_code(1).assert_says(&["older layout"]);
    assert!(interrupted.pinned().iter().all(|maps| *maps != 0));
    let said = net.run("attach eth0").stdout;
    for part in
        ["Brought from layout", "which was interrupted, had not carried over yet is forgotten"]
    {
        assert!(said.contains(part), "{said}");
    }
    interrupted.assert_limited();
}
