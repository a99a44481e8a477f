//! What an agent does where programs and maps cannot be made, which takes long: it does not try each second.

use std::{
    fs, thread,
    time::{Duration, Instant, SystemTime},
};

use limiter_common::abi::{description::Description, layout::LAYOUT_VERSION};
use limiter_tests::held::{Answer, Call};

use super::{SECOND, attached, layout, on_pins, set_layout};
use crate::{
    cli::{Document, agent::Agent},
    netns::{Net, SMALL},
};

/// Longer than two looks of an agent, and shorter than the least time between two tries.
const SHORT: Duration = Duration::from_secs(3);

/// Starts an agent that sees to `eth0`.
fn agent(net: &Net, options: &str) -> Agent {
    Agent::of(net.limiter.run(&format!("-j agent -i eth0 {options}")))
}

/// When maps were pinned or unpinned last in the directory that is not in use.
fn changed(net: &Net) -> SystemTime {
    on_pins(net, |pins| {
        let directory = pins.directory().join("maps2");
        fs::metadata(directory).unwrap().modified().unwrap()
    })
}

/// Asserts that no maps are made for a while.
#[track_caller]
fn assert_no_exchange(net: &Net) {
    let before = changed(net);
    thread::sleep(SHORT);
    assert_eq!(changed(net), before);
}

/// The old table says that its words are where none can be, so that the kernel refuses each program for it.
fn broken(of: Description) -> Description {
    Description { source_words: 1 << 20, ..of }
}

#[test]
fn an_upgrade_that_fails_is_not_tried_again_each_second() {
    let (net, _document) = attached(SMALL);
    let older = Description { layout: LAYOUT_VERSION - 1, buckets: 0, ..layout(&net) };
    set_layout(&net, broken(older));
    let agent = agent(&net, "");
    let told = [agent.expect("failed"), agent.expect("failed")];
    let is_refusal = |it: &serde_json::Value| it.to_string().contains("refuses the program");
    assert!(told.iter().any(is_refusal), "{told:?}");
    assert_no_exchange(&net);
    set_layout(&net, older);
    // Whoever knows that the cause is gone does not have to wait.
    agent.signal(libc::SIGHUP);
    agent.expect("upgraded");
    agent.end_past_others();
}

#[test]
fn room_that_cannot_be_made_is_not_tried_again_each_second() {
    let (net, _document) = attached(SMALL);
    let own = layout(&net);
    set_layout(&net, broken(own));
    let policy = |rate: u64| {
        let overrides: Vec<_> = (1..=200)
            .map(|number| format!("{{src: 203.0.113.{number}, rate: {}/s}}", number + rate))
            .collect();
        let overrides = overrides.join(", ");
        format!("limits: [{{name: source, key: source, rate: 1k pps, overrides: [{overrides}]}}]")
    };
    let document = Document::new(&policy(5));
    let agent = agent(&net, &document.in_place("--policy FILE"));
    agent.expect("replaced");
    let told = agent.expect("failed");
    assert!(told["message"].as_str().unwrap().contains("refuses the program"), "{told}");
    assert_no_exchange(&net);
    set_layout(&net, own);
    document.write(&policy(6));
    agent.expect("applied");
    agent.end_past_others();
}

#[test]
fn an_interface_whose_programs_cannot_be_replaced_keeps_no_other_from_it() {
    let (net, _document) = attached(SMALL);
    net.run("attach lo");
    let program = |interface: &str| {
        let link = net.hosts.router.ip_json(&["link", "show", "dev", interface]).unwrap();
        link[0]["xdp"]["prog"]["id"].as_u64().unwrap()
    };
    let before = ["eth0", "lo"].map(program);
    // The dispatcher of `eth0` cannot be pinned.
    let obstacle = |change: fn(&std::path::Path) -> std::io::Result<()>| {
        on_pins(&net, |pins| change(&pins.directory().join("programs/0-new")).unwrap());
    };
    obstacle(|path| fs::create_dir(path));
    let agent = agent(&net, "-i lo");
    assert_eq!(agent.expect("replaced")["interface"], "lo");
    let told = agent.expect("failed");
    assert!(told["message"].as_str().unwrap().starts_with("eth0: "), "{told}");
    let after = ["eth0", "lo"].map(program);
    assert!(before[0] != after[0] && before[1] != after[1], "{before:?} {after:?}");
    thread::sleep(SHORT);
    assert_eq!(["eth0", "lo"].map(program), after, "it was tried again");
    obstacle(|path| fs::remove_dir(path));
    agent.signal(libc::SIGHUP);
    assert_eq!(agent.expect("replaced")["interface"], "eth0");
    agent.end_past_others();
}

/// Each try loads the main program, where no other interface has it.
#[test]
fn an_interface_that_takes_no_program_is_not_tried_again_each_second() {
    let net = Net::new();
    let mut agent = net.limiter.run("agent -i eth0").held_at(Call::LINK_CREATE).unwrap();
    let (begun, mut longest) = (Instant::now(), Duration::ZERO);
    while begun.elapsed() < 6 * SECOND {
        let answered = Instant::now();
        agent.answer(Answer::Fail(libc::ENOSPC)).unwrap();
        longest = longest.max(answered.elapsed());
    }
    assert!(longest > 4 * SECOND, "{longest:?}");
}
