//! The stream of decisions of CrowdSec: any bytes are an answer or are told what is wrong with them, and the entries that answers make
//! are in force without harm to this host, and are those of the bans.

#![no_main]

use libfuzzer_sys::fuzz_target;
use limiter_userspace::{
    crowdsec::{
        SET,
        answer::Answer,
        decisions::{Decisions, Pushed},
    },
    policy::{
        Layers, List,
        guard::Host,
        run_time::{Entry, REASON},
    },
};

const NOW: u64 = 1_800_000_000;

fuzz_target!(|text: &[u8]| {
    // A whole answer, and changes since, with a line between them.
    let mut answers = text.splitn(2, |byte| *byte == b'\n');
    let host = Host {
        addresses: ["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()].into(),
        gateways: ["198.51.100.1".parse().unwrap()].into(),
        networks: ["192.0.2.0/24".parse().unwrap()].into(),
    };
    let allow = "203.0.113.0/24".parse().unwrap();
    let mut layers = Layers::default();
    layers.run_time.put(&layers.policy, Entry::new(List::Allow, allow), NOW).unwrap();
    let mut decisions = Decisions::default();
    let mut pushed = Pushed { room: 2, ..Pushed::default() };
    for (is_whole, now) in [(true, NOW), (false, NOW + 10)] {
        let Some(body) = answers.next() else { break };
        let answer = match Answer::read(body) {
            Ok(answer) => answer,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                continue;
            }
        };
        for decision in &answer.made {
            assert!(decision.seconds > 0 && decision.reason.chars().count() <= REASON);
            assert!(!decision.reason.chars().any(char::is_control));
            assert_eq!(decision.prefix.trunc(), decision.prefix);
        }
        decisions.apply(&answer, is_whole, now);
        let plan = decisions.plan(layers.view(), &host, &pushed, now);
        assert_eq!(plan.total, plan.entries.len());
        for entry in &plan.entries {
            assert!(
                !host.addresses.iter().chain(&host.gateways).any(|it| entry.prefix.contains(it))
            );
            assert!(!allow.contains(&entry.prefix) && entry.prefix.prefix_len() > 0);
        }
        assert!(plan.pushed.len() <= 2);
        for source in plan.pushed.keys() {
            assert!(!host.addresses.iter().chain(&host.gateways).any(|it| it == source));
            assert!(!allow.contains(source));
        }
        pushed = Pushed { room: 2 - plan.pushed.len(), ends: plan.pushed };
        let Layers { policy, run_time, .. } = &mut layers;
        run_time.replace(policy, (List::Deny, SET), plan.entries, now).unwrap();
        let again = decisions.plan(layers.view(), &host, &pushed, now);
        assert!(!again.is_change() && again.pushed == pushed.ends, "nothing is left to do");
    }
});
