//! The monitor switch is thrown while a table is exchanged.

use limiter_tests::held::{Answer, Call};

use super::{OTHER, attached};
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
