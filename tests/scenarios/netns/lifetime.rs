//! Enforcement continues whatever happens to processes, policies, programs and interfaces.

use std::{
    fs,
    io::{self, BufRead as _, BufReader},
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use limiter_tests::{
    held::{Answer, Call, Held},
    process::{kill, signal},
    topology::{Port, lay_wire},
};

use limiter_userspace::datapath::bpffs::Pins;

use crate::cli::Document;

use super::{Net, assert_admitted, exchange::on_pins, v4};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn killing_every_process_changes_nothing() {
    let net = Net::attached("--pps 1kpps --burst 200");
    let mut watches: Vec<_> = ["watch --lines", "watch -j", "watch -i 50ms"]
        .map(|watch| net.limiter.run(watch).to(Stdio::null()).start().unwrap())
        .into();
    let mut senders = [net.sender(20_000, net.udp(v4(10)))];
    let (sent, arrivals) = net.flood(&mut senders, 2 * SECOND, |_| {
        thread::sleep(SECOND / 2);
        watches.iter_mut().for_each(kill);
        assert!(net.hosts.router.sandbox.processes().unwrap().is_empty());
    });
    assert_admitted("after kill", arrivals.from(v4(10)).packets, &sent[0], 1e3, 200);
    let passed = arrivals.from(v4(10)).packets;
    assert_eq!(net.counted("198.18.0.10"), (passed, sent[0].packets - passed));
}

#[test]
fn commands_that_are_killed_leave_the_old_policy_or_the_new_one() {
    let net = Net::attached("--pps 1kpps --burst 200");
    let mut before = net.json("limit list -j")["limits"].take();
    let mut senders = [net.sender(20_000, net.udp(v4(10)))];
    let (sent, arrivals) = net.flood(&mut senders, 60 * SECOND, |stop| {
        for number in 0..25_u64 {
            let set = format!("limit set source --src 203.0.113.{number}/32 --rate 7/s");
            let mut child = net.limiter.run(&set).to(Stdio::null()).start().unwrap();
            thread::sleep(Duration::from_millis(number));
            kill(&mut child);
            let after = net.json("limit list -j")["limits"].take();
            let overrides = |limits: &serde_json::Value| {
                let source = limits.as_array().unwrap().iter().find(|l| l["name"] == "source");
                let source = source.unwrap();
                assert_eq!(
                    (&source["rate_per_second"], &source["burst"]),
                    (&1_000.into(), &200.into())
                );
                source["overrides"].as_array().unwrap().len()
            };
            assert!([0, 1].contains(&(overrides(&after) - overrides(&before))), "{after}");
            before = after;
        }
        stop.stop();
    });
    assert_admitted("meanwhile", arrivals.from(v4(10)).packets, &sent[0], 1e3, 200);
    // Neither a lock nor a partial policy blocks the next command.
    net.run("limit set source --rate 2kpps --burst 100");
    let mut senders = [net.sender(20_000, net.udp(v4(11)))];
    let (sent, arrivals) = net.flood(&mut senders, SECOND, |_| {});
    assert_admitted("afterwards", arrivals.from(v4(11)).packets, &sent[0], 2e3, 100);
}

/// An agent is killed at any moment of its start, of adopting an instance, and of applying a document.
#[test]
fn an_agent_that_is_killed_200_times_lets_no_packet_through_unlimited() {
    let net = Net::new();
    let policy = |rate: u64| {
        let of = |name, rate| format!("name: {name}, key: source, rate: {rate}/s, burst: 200");
        let other = of("other", rate);
        format!(
            "deny: [198.18.0.11]\nlimits: [{{{}}}, {{{other}, match: {{protocol: icmp}}}}]",
            of("source", 1_000)
        )
    };
    let document = Document::new(&policy(1));
    let start = |stdout| {
        let agent = document.in_place("agent -i eth0 --policy FILE");
        net.limiter.run(&agent).to(stdout).start().unwrap()
    };
    let begin = Instant::now();
    let mut first = start(Stdio::piped());
    // Killed before it tells of it, it may leave nothing attached: its link is attached before it is pinned.
    let mut told = BufReader::new(first.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(told.any(|line| line.contains("attached")), "it ended");
    // The time that a start takes here, within the limits of the test.
    let moments = begin.elapsed().clamp(SECOND / 2, SECOND * 3 / 2);
    kill(&mut first);
    let rate = || {
        let limits = net.json("limit list -j")["limits"].take();
        let other = limits.as_array().unwrap().iter().find(|limit| limit["name"] == "other");
        other.unwrap()["rate_per_second"].as_u64().unwrap()
    };
    // Some agents are awaited by what they have done, not by time. Attempts are counted, so that a pause of
    // the machine does not matter.
    let wait_for = |agent: &mut Child, what: &str, has_come: &dyn Fn() -> bool| {
        for _ in 0..2_000 {
            if has_come() {
                return;
            }
            thread::sleep(SECOND / 100);
        }
        kill(agent);
        let said = io::read_to_string(agent.stderr.take().unwrap()).unwrap();
        panic!("{what} at 2000 looks; the agent said: {said}");
    };
    let mut senders = [net.sender(20_000, net.udp(v4(10))), net.sender(100, net.udp(v4(11)))];
    let (mut programs, mut rates) = (Vec::new(), Vec::new());
    let (sent, arrivals) = net.flood(&mut senders, 600 * SECOND, |stop| {
        for number in 1..=200_u64 {
            if number % 10 == 0 {
                document.write(&policy(number));
            }
            let before = program(&net);
            let mut child = start(Stdio::null());
            match number % 20 {
                0 => wait_for(&mut child, "it does not take over", &|| program(&net) != before),
                10 => wait_for(&mut child, "it does not apply", &|| rate() == number),
                // The others are killed at different moments.
                _ => thread::sleep(moments * (number * 7_919 % 10_000) as u32 / 10_000),
            }
            kill(&mut child);
            programs.push(program(&net));
            rates.push(rate());
        }
        stop.stop();
    });
    // Loading programs stops the sender. In the remaining time, the limit admits at least nine tenths of its
    // rate.
    let (passed, most) = (arrivals.from(v4(10)).packets, sent[0].admitted(1e3, 200));
    let least = (900.0 * sent[0].busy().as_secs_f64()) as u64;
    assert!((least..=most + 2).contains(&passed), "{passed} passed of {least} to {most}; {sent:?}");
    assert_eq!(arrivals.from(v4(11)).packets, 0, "who is denied passed");
    programs.dedup();
    rates.dedup();
    assert!(programs.len() >= 10 && rates.len() >= 10, "{} programs, {rates:?}", programs.len());
    // What killed agents left behind blocks no command, and is removed with the instance.
    let left = net.footprint();
    net.run("limit set source --rate 2kpps --burst 100");
    net.run("detach --all");
    left.assert_gone().unwrap();
}

#[test]
fn replacing_the_program_lets_no_packet_through_unlimited() {
    let net = Net::attached("--pps 1kpps --burst 200");
    let mut senders = [net.sender(30_000, net.udp(v4(10)))];
    let mut programs = Vec::new();
    let (sent, arrivals) = net.flood(&mut senders, 60 * SECOND, |stop| {
        for _ in 0..20 {
            let outcome = net.run("attach eth0 --replace");
            assert!(outcome.stdout.contains("replaced"), "{outcome}");
            programs.push(program(&net));
        }
        stop.stop();
    });
    programs.dedup();
    assert_eq!(programs.len(), 20, "each time another program: {programs:?}");
    let passed = arrivals.from(v4(10)).packets;
    assert_admitted("20 replacements", passed, &sent[0], 1e3, 200);
    assert_eq!(net.counted("198.18.0.10"), (passed, sent[0].packets - passed));
}

/// Puts the programs for packets in several pieces in the place of others, which takes another link.
const AGAIN: &str = "attach eth0 --replace --mode native-frags";

/// The command that does so, held when the link before is detached, and the new one is not there yet.
fn between_the_links(net: &Net) -> Held {
    let mut held = net.limiter.run(AGAIN).held_at(Call::LINK_CREATE).unwrap();
    // To load a program, it asks the kernel before what links it knows.
    while program(net).is_some() {
        held.answer(Answer::GoOn).unwrap();
    }
    held
}

/// Asserts that the policy with which `eth0` was attached is in force.
#[track_caller]
fn assert_policy_stays(net: &Net) {
    assert_eq!(net.json("limit show source -j")["rate_per_second"], 1_000);
    let mut senders = [net.sender(20_000, net.udp(v4(10)))];
    let (sent, arrivals) = net.flood(&mut senders, SECOND, |_| {});
    assert_admitted("afterwards", arrivals.from(v4(10)).packets, &sent[0], 1e3, 200);
}

#[test]
fn an_instance_stays_if_a_command_is_killed_between_two_links() {
    let net = Net::attached("--pps 1kpps --burst 200");
    drop(between_the_links(&net));
    net.run("attach eth0");
    assert_policy_stays(&net);
    let footprint = net.footprint();
    net.run("detach eth0");
    footprint.assert_gone().unwrap();
}

#[test]
fn a_command_does_not_end_between_two_links_because_it_is_asked_to() {
    let net = Net::attached("--pps 1kpps --burst 200");
    let held = between_the_links(&net);
    signal(held.process(), libc::SIGTERM);
    let error = held.finish(Answer::GoOn).unwrap_err().to_string();
    assert!(error.contains("was ended by a signal"), "{error}");
    assert_policy_stays(&net);
}

#[test]
fn an_instance_stays_if_an_interface_cannot_be_attached_again() {
    let net = Net::attached("--pps 1kpps --burst 200");
    let outcome = between_the_links(&net).finish(Answer::Fail(libc::ENOSPC)).unwrap();
    outcome.assert_exit_code(1).assert_says(&["eth0 is detached", "limiter attach eth0"]);
    net.run("attach eth0");
    assert_policy_stays(&net);
}

#[test]
fn an_interface_stays_attached_if_its_dispatcher_cannot_be_pinned() {
    let net = Net::attached("--pps 1kpps --burst 200");
    let obstacle = |pins: &Pins| pins.directory().join("programs/0-new");
    on_pins(&net, |pins| fs::create_dir(obstacle(pins)).unwrap());
    let outcome = net.limiter.run(AGAIN).outcome().unwrap();
    outcome.assert_exit_code(1).assert_says(&["programs/0"]);
    assert_policy_stays(&net);
    on_pins(&net, |pins| fs::remove_dir(obstacle(pins)).unwrap());
    net.run("attach eth0 --replace");
    assert_policy_stays(&net);
}

/// The id of the XDP program on `eth0` of the router.
fn program(net: &Net) -> Option<u64> {
    let link = net.hosts.router.ip_json(&["link", "show", "dev", "eth0"]).unwrap();
    link[0]["xdp"]["prog"]["id"].as_u64()
}

#[test]
fn a_change_of_policy_gives_no_source_a_fresh_burst() {
    let net = Net::attached("--pps 1kpps --burst 200");
    let mut senders = [net.sender(20_000, net.udp(v4(10)))];
    let (sent, arrivals) = net.flood(&mut senders, 60 * SECOND, |stop| {
        for number in 0..20 {
            net.run(&format!("limit set source --src 203.0.113.{number}/32 --rate 9/s"));
            net.run(&format!("limit set syn --rate {}/s", number + 1));
        }
        stop.stop();
    });
    assert_admitted("40 changes", arrivals.from(v4(10)).packets, &sent[0], 1e3, 200);
}

#[test]
fn a_new_rate_holds_from_when_it_is_set() {
    let net = Net::attached("--pps 1kpps --burst 200");
    let mut senders = [net.sender(30_000, net.udp(v4(10)))];
    let mut set = [Instant::now(); 2];
    let (sent, arrivals) = net.flood(&mut senders, 3 * SECOND, |_| {
        thread::sleep(SECOND);
        set[0] = Instant::now();
        net.run("limit set source --rate 4kpps --burst 200");
        set[1] = Instant::now();
    });
    // The rate changed at some moment while the command ran.
    let [most, least] = set.map(|moment| {
        let before = moment - sent[0].start;
        let after = sent[0].time.saturating_sub(before);
        200.0 + 1e3 * before.as_secs_f64() + 4e3 * after.as_secs_f64()
    });
    let (most, least) = (most + 1.0, least * 0.99 - 4e3 * sent[0].paused.as_secs_f64());
    let passed = arrivals.from(v4(10)).packets as f64;
    assert!((least..=most).contains(&passed), "{passed} of {least:.1} to {most:.1}");
}

#[test]
fn detaching_leaves_nothing() {
    let net = Net::attached("--pps 1kpps --burst 200");
    let footprint = net.footprint();
    let mut senders = [net.sender(5_000, net.udp(v4(10)))];
    net.flood(&mut senders, SECOND / 5, |_| {});
    assert!(program(&net).is_some());
    net.run("detach eth0");
    assert_eq!(program(&net), None);
    footprint.assert_gone().unwrap();
    let (sent, arrivals) = net.flood(&mut senders, SECOND / 5, |_| {});
    assert_eq!(arrivals.from(v4(10)).packets, sent[0].packets, "all passes afterwards");
}

#[test]
fn an_interface_that_is_deleted_while_attached_can_be_forgotten() {
    let net = Net::attached("--pps 1kpps --burst 200");
    let footprint = net.footprint();
    net.hosts.router.ip("link delete dev eth0\n").unwrap();
    let status = net.json("status -j");
    assert_eq!(status["interfaces"][0]["name"], "eth0");
    assert_eq!(status["interfaces"][0]["present"], false);
    net.run("limit set source --rate 2kpps --burst 100");

    // A new interface with the same name is another interface.
    let (client, router) = (&net.hosts.client, &net.hosts.router);
    let (from, to): (Port, Port) = lay_wire(1, (client, "eth1"), (router, "eth0")).unwrap();
    net.run("attach eth0");
    let frame = super::port_frame(net.udp(v4(10)), &from, &to);
    let sender = limiter_tests::traffic::Sender::new(&client.namespace, &from, 10_000, frame);
    let receiver = limiter_tests::traffic::Receiver::start(&router.namespace, &to).unwrap();
    let sent = super::send(&mut [sender.unwrap()], SECOND, |_| {});
    let arrivals = receiver.finish().unwrap();
    assert_admitted("the new interface", arrivals.from(v4(10)).packets, &sent[0], 2e3, 100);

    net.run("detach --all");
    footprint.assert_gone().unwrap();
}
