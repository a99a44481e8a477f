//! Resolves the interfaces that limits and budgets of control traffic name to slots of the datapath.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{
    interfaces::{Port, select},
    model::{Mode, Policy},
};
use crate::policy::tables::assignment::Assignment;

impl Policy {
    /// The words for interfaces in the limits that are not off, and in the budgets of control traffic.
    pub fn interfaces(&self) -> BTreeSet<&str> {
        let counted = self.limits.iter().filter(|limit| limit.mode != Mode::Off);
        let limited = counted.flat_map(|limit| &limit.matching.interfaces);
        let budgeted = self.control.overrides.iter().flat_map(|one| &one.interfaces);
        limited.chain(budgeted).map(String::as_str).collect()
    }

    /// For each slot, the words that stand for its interface. If an interface is not in this network
    /// namespace, only its recorded name is known; the words that stood for it in `before` still do.
    pub(super) fn slots(
        &self,
        attached: &[Port],
        before: &BTreeMap<u32, String>,
    ) -> BTreeMap<u32, String> {
        let mut slots: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
        for word in self.interfaces() {
            let was = |port: &&Port| {
                let words = before.get(&port.slot).filter(|_| !port.is_here());
                words.is_some_and(|words| has(words, word))
            };
            let still = attached.iter().filter(was);
            for port in select(word, attached).into_iter().chain(still) {
                slots.entry(port.slot).or_default().insert(word);
            }
        }
        let join = |words: BTreeSet<&str>| words.into_iter().collect::<Vec<_>>().join(" ");
        slots.into_iter().map(|(slot, words)| (slot, join(words))).collect()
    }
}

/// Whether a word is one of `words`, which are separated by spaces.
fn has(words: &str, word: &str) -> bool {
    words.split(' ').any(|it| it == word)
}

impl Assignment {
    /// Whether a word stands for the interface in a slot.
    pub(in crate::policy) fn means(&self, word: &str, slot: u32) -> bool {
        self.slots.get(&slot).is_some_and(|words| has(words, word))
    }

    /// Whether the tables that were compiled with this assignment still say what the policy says if these
    /// interfaces are attached. Free slots do not matter: no packet comes in by one.
    pub fn fits(&self, policy: &Policy, attached: &[Port]) -> bool {
        let slots = policy.slots(attached, &self.slots);
        attached.iter().all(|port| slots.get(&port.slot) == self.slots.get(&port.slot))
    }

    /// The words of a policy that stand for none of these interfaces.
    pub fn absent(&self, policy: &Policy, attached: &[Port]) -> Vec<String> {
        let slots = policy.slots(attached, &self.slots);
        let is_absent = |word: &&str| slots.values().all(|words| !has(words, word));
        policy.interfaces().into_iter().filter(is_absent).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use limiter_common::policy::matching::offset;

    use super::*;
    use crate::policy::{Context, compile, document::parse};

    fn policy(limits: &str) -> Policy {
        let text = format!("version: 1\nlimits: [{limits}]");
        parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap()
    }

    fn attached(names: &[(u32, &str)]) -> Vec<Port> {
        names.iter().map(|(slot, name)| Port::new(*slot, name, slot + 10)).collect()
    }

    fn held(policy: &Policy, interfaces: &[(u32, &str)]) -> Assignment {
        let context = Context { interfaces: attached(interfaces), ..Context::default() };
        compile(policy, &Assignment::default(), &context).unwrap().1
    }

    #[test]
    fn tables_are_for_the_interfaces_that_have_the_slots() {
        let wan = policy("{name: some, match: {interface: wan}, key: source, rate: 1/s}");
        for (compiled, now, fits) in [
            (&[][..], &[][..], true),
            (&[], &[(0, "lan")], true),
            (&[], &[(0, "wan")], false),
            (&[(0, "wan")], &[(0, "wan")], true),
            (&[(0, "wan")], &[(0, "wan"), (1, "lan")], true),
            (&[(0, "wan")], &[], true),
            (&[(0, "wan")], &[(0, "lan")], false),
            (&[(0, "wan")], &[(0, "lan"), (1, "wan")], false),
            (&[(0, "wan")], &[(1, "wan")], false),
            (&[(0, "lan"), (1, "wan")], &[(0, "dmz"), (1, "wan")], true),
        ] {
            assert_eq!(held(&wan, compiled).fits(&wan, &attached(now)), fits, "{now:?}");
        }
        // The next compilation is for the interfaces that are attached then.
        let before = held(&wan, &[(0, "wan")]);
        let context = Context { interfaces: attached(&[(1, "wan")]), ..Context::default() };
        let (_, after) = compile(&wan, &before, &context).unwrap();
        assert!(
            after.fits(&wan, &context.interfaces) && !after.fits(&wan, &attached(&[(0, "wan")]))
        );
    }

    #[test]
    fn a_limit_is_about_an_interface_by_whatever_means_it() {
        let called = |index, alternatives: &[&str]| Port {
            alternatives: alternatives.iter().map(|name| (*name).to_owned()).collect(),
            ..Port::new(0, "eth0", index)
        };
        let port = called(3, &["enp175s0f1np1-uplink-a"]);
        for (word, means) in [
            ("eth0", true),
            ("enp175s0f1np1-uplink-a", true),
            ("'enp175*'", true),
            ("if3", true),
            ("if4", false),
            ("'veth*'", false),
        ] {
            let limit =
                format!("{{name: some, match: {{interface: {word}}}, key: source, rate: 1/s}}");
            let policy = policy(&limit);
            let context = Context { interfaces: vec![port.clone()], ..Context::default() };
            let (tables, held) = compile(&policy, &Assignment::default(), &context).unwrap();
            assert_eq!(held.means(word.trim_matches('\''), 0), means, "{word}");
            assert_eq!(held.absent(&policy, &context.interfaces).is_empty(), means, "{word}");
            let (first, sets) = &tables.classes[0];
            assert_eq!((*first, sets[0] != sets[1]), (offset::INTERFACE, means), "{word}");
            // The tables fit until a name changes.
            assert!(held.fits(&policy, &context.interfaces));
            let other = vec![called(5, &["wan"])];
            assert_eq!(held.fits(&policy, &other), !means || word == "eth0", "{word}");
            // From another network namespace, the other names cannot be seen: what was resolved before still
            // applies.
            let away = Context { interfaces: vec![Port::new(0, "eth0", 0)], ..Context::default() };
            assert!(held.fits(&policy, &away.interfaces), "{word}");
            let (_, after) = compile(&policy, &held, &away).unwrap();
            assert_eq!(after.means(word.trim_matches('\''), 0), means, "{word}");
        }
    }

    #[test]
    fn only_limits_that_count_ask_for_interfaces() {
        for (limits, asked) in [
            ("{name: a, key: source, rate: 1/s}", &[][..]),
            ("{name: a, key: interface, rate: 1/s}", &[]),
            ("{name: a, match: {interface: wan}, key: source, rate: 1/s, action: off}", &[]),
            (
                "{name: a, match: {interface: [wan, lan]}, key: source, rate: 1/s}, \
                 {name: b, match: {interface: [wan]}, key: all, rate: 1/s, action: monitor}",
                &["lan", "wan"],
            ),
        ] {
            let policy = policy(limits);
            assert_eq!(policy.interfaces().into_iter().collect::<Vec<_>>(), asked, "{limits}");
            let elsewhere = attached(&[(0, "wan"), (1, "lan")]);
            assert_eq!(held(&policy, &[]).fits(&policy, &elsewhere), asked.is_empty(), "{limits}");
        }
    }
}
