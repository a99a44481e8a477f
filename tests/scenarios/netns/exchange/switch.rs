//! The monitor switch is thrown while a table is exchanged.

use limiter_tests::held::{Answer, Call};

use super::{OTHER, attached, head, layouts::be_without_dispatchers};
use crate::netns::{Net, SMALL};

/// Whether the switch is on, by what the maps in use say.
fn is_on(net: &Net) -> bool {
    net.json("monitor -j")["switch"].as_bool().unwrap()
}

/// The command has opened the maps that are not in use any more when it stores the word.
#[test]
fn a_switch_that_is_thrown_in_the_table_before_is_thrown_in_the_next_one_too() {
    let (net, _document) = attached(SMALL);
    net.run("monitor on");
    for (command, before, options) in [("off", true, OTHER), ("on", false, SMALL)] {
        assert_eq!(is_on(&net), before);
        let held = net.limiter.run(&format!("monitor {command}"));
        let held = held.held_at(Call::MAP_TO_WRITE).unwrap();
        net.run(&format!("attach eth0 {options}"));
        let outcome = held.finish(Answer::GoOn).unwrap();
        outcome.assert_exit_code(0);
        assert!(outcome.stdout.starts_with(&format!("monitor: {command}")), "{outcome}");
        assert_eq!(is_on(&net), !before, "{outcome}");
    }
}

/// The new maps are in use by then, and are removed when the link does not take its dispatcher.
#[test]
fn a_switch_that_is_thrown_in_a_table_that_is_given_up_stays() {
    let (net, _document) = attached(SMALL);
    be_without_dispatchers(&net);
    for (command, now) in [("on", true), ("off", false)] {
        let held = net.limiter.run("attach eth0").held_at(Call::LINK_UPDATE).unwrap();
        net.run(&format!("monitor {command}"));
        let outcome = held.finish(Answer::Fail(libc::EINVAL)).unwrap();
        outcome.assert_exit_code(1).assert_says(&["replace the program of a link"]);
        let said = net.limiter.run("limit list").outcome().unwrap();
        said.assert_exit_code(1).assert_says(&["older layout"]);
        assert_eq!(head(&net).monitor != 0, now);
    }
    net.run("attach eth0");
    assert!(!is_on(&net));
}
