//! The interfaces that limits ask for, by the slots that they have in the datapath.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::model::{Mode, Policy},
    held::Held,
};

impl Policy {
    /// The names of the interfaces that its limits ask for.
    pub fn interfaces(&self) -> BTreeSet<&str> {
        let counted = self.limits.iter().filter(|limit| limit.mode != Mode::Off);
        counted.flat_map(|limit| &limit.matching.interfaces).map(String::as_str).collect()
    }

    /// Those of them that are attached, with their slots.
    pub(super) fn slots(&self, attached: &[(u32, String)]) -> BTreeMap<u32, String> {
        let asked = self.interfaces();
        attached.iter().filter(|(_, name)| asked.contains(name.as_str())).cloned().collect()
    }
}

impl Held {
    /// Whether the tables of a policy, which this was compiled with, mean what the policy says when
    /// these interfaces are attached. No packet comes in by a slot that is free, so whatever it had
    /// in the meantime does no harm.
    pub fn fits(&self, policy: &Policy, attached: &[(u32, String)]) -> bool {
        let slots = policy.slots(attached);
        attached.iter().all(|(slot, _)| slots.get(slot) == self.slots.get(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Context, compile, spec::parse};

    fn policy(limits: &str) -> Policy {
        let text = format!("version: 1\nlimits: [{limits}]");
        parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap()
    }

    fn attached(names: &[(u32, &str)]) -> Vec<(u32, String)> {
        names.iter().map(|(slot, name)| (*slot, (*name).to_owned())).collect()
    }

    fn held(policy: &Policy, interfaces: &[(u32, &str)]) -> Held {
        let context = Context { interfaces: attached(interfaces), ..Context::default() };
        compile(policy, &Held::default(), &context).unwrap().1
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
        // What is compiled next is for those that are attached then.
        let before = held(&wan, &[(0, "wan")]);
        let context = Context { interfaces: attached(&[(1, "wan")]), ..Context::default() };
        let (_, after) = compile(&wan, &before, &context).unwrap();
        assert!(
            after.fits(&wan, &context.interfaces) && !after.fits(&wan, &attached(&[(0, "wan")]))
        );
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
