//! Compiles the budgets of the link's own control traffic, and of frames that are not IP.

use std::collections::BTreeSet;

use limiter_common::{
    algorithm::gcra::Gcra,
    packet::control::Protocol,
    policy::{control::Budgets, limit::INTERFACES},
};

use super::{
    error::PolicyError,
    model::{Allowance, Match, Mode, Policy},
};

/// The [`bit`](Protocol::bit)s of all protocols.
pub(super) fn all() -> u64 {
    bits(|_| true)
}

/// The [`bit`](Protocol::bit)s of the protocols with this name; OSPF and DHCP have two each.
pub(super) fn bits_of(name: &str) -> u64 {
    bits(|protocol| protocol.name() == name)
}

fn bits(wanted: impl Fn(Protocol) -> bool) -> u64 {
    let wanted = Protocol::ALL.into_iter().filter(|protocol| wanted(*protocol));
    wanted.fold(0, |bits, protocol| bits | protocol.bit())
}

/// The names of the protocols, each once.
pub(super) fn names() -> Vec<&'static str> {
    let mut seen = BTreeSet::new();
    Protocol::ALL.into_iter().map(Protocol::name).filter(|name| seen.insert(*name)).collect()
}

/// The bits of the protocols that a match names: by a protocol number that is used for nothing else, by a
/// type of ICMPv6, or by a single port.
fn named(matching: &Match) -> u64 {
    let Match { protocols, ports, icmp_types, .. } = matching;
    let has_type = |types: &[u8]| icmp_types.iter().any(|kind| types.contains(kind));
    let has_port = |wanted: &[u16]| {
        ports.iter().any(|range| range.start() == range.end() && wanted.contains(range.start()))
    };
    let names = |protocol: Protocol| match protocol {
        Protocol::Ndp => protocols.contains(&58) && has_type(&[133, 134, 135, 136, 137]),
        Protocol::Mld => protocols.contains(&58) && has_type(&[130, 131, 132, 143]),
        Protocol::Igmp => protocols.contains(&2),
        Protocol::Vrrp => protocols.contains(&112),
        Protocol::Ospf | Protocol::OspfFar => protocols.contains(&89),
        Protocol::Bfd => protocols.contains(&17) && has_port(&[3784]),
        Protocol::Dhcp | Protocol::DhcpFar => {
            protocols.contains(&17) && has_port(&[67, 68, 546, 547])
        }
    };
    bits(names)
}

impl Policy {
    /// The budgets of each slot. `means` tells whether a word stands for the interface in a slot.
    ///
    /// # Errors
    /// An error of [`Allowance::meter`] for a budget.
    pub(super) fn control_budgets(
        &self,
        means: impl Fn(&str, u32) -> bool,
    ) -> Result<Vec<Budgets>, PolicyError> {
        (0..INTERFACES).map(|slot| self.control_budgets_of(|word| means(word, slot))).collect()
    }

    fn control_budgets_of(&self, means: impl Fn(&str) -> bool) -> Result<Budgets, PolicyError> {
        let of = |words: &[String]| words.iter().any(|word| means(word));
        let own = self.control.overrides.iter().find(|one| of(&one.interfaces));
        let budgets = own.map_or(&self.control.budgets, |own| &own.budgets);
        let limits = self.limits.iter().filter(|limit| limit.mode != Mode::Off);
        let here = limits
            .map(|limit| &limit.matching)
            .filter(|matching| matching.interfaces.is_empty() || of(&matching.interfaces));
        let ordinary = here.fold(budgets.ordinary, |bits, matching| bits | named(matching));
        let bucket =
            |allowance: Allowance| -> Result<Gcra, PolicyError> { Ok(allowance.meter(1)?.gcra) };
        let (bit, non_ip) = match self.non_ip {
            Some(budget) => (Budgets::NON_IP, bucket(budget)?),
            None => (0, Gcra::default()),
        };
        Ok(Budgets {
            protocols: all() & !ordinary | bit,
            link: bucket(budgets.budget)?,
            source: bucket(budgets.per_source)?,
            far: bucket(budgets.far)?,
            non_ip,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::document::parse;

    fn policy(text: &str) -> Policy {
        let text = format!("version: 1\n{text}");
        parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap()
    }

    fn ordinary(policy: &Policy, interface: &str) -> Vec<&'static str> {
        let budgets = policy.control_budgets_of(|word| word == interface).unwrap();
        let mut names: Vec<_> = Protocol::ALL
            .into_iter()
            .filter(|protocol| !budgets.is_on(*protocol))
            .map(Protocol::name)
            .collect();
        names.dedup();
        names
    }

    #[test]
    fn a_limit_that_names_a_protocol_makes_its_packets_ordinary() {
        for (matching, names) in [
            ("{protocol: icmpv6}", &[][..]),
            ("{protocol: [icmp, icmpv6], icmp_type: [echo-request]}", &[]),
            ("{protocol: icmpv6, icmp_type: [neighbor-solicitation]}", &["ndp"]),
            ("{protocol: icmpv6, icmp_type: [130, 135]}", &["ndp", "mld"]),
            ("{protocol: igmp}", &["igmp"]),
            ("{protocol: [vrrp, 89]}", &["vrrp", "ospf", "ospf"]),
            ("{protocol: udp}", &[]),
            ("{protocol: udp, ports: 1-1024}", &[]),
            ("{protocol: tcp, ports: 67}", &[]),
            ("{protocol: udp, ports: [53, 3784]}", &["bfd"]),
            ("{protocol: udp, ports: 547, interface: wan}", &["dhcp", "dhcp"]),
        ] {
            let text = |action| {
                format!("limits: [{{name: it, match: {matching}, key: source, rate: 1/s{action}}}]")
            };
            let mut expected = names.to_vec();
            expected.dedup();
            // OSPF and DHCP have two bits each, which are not next to each other.
            let found = ordinary(&policy(&text("")), "wan");
            assert_eq!(
                found.iter().collect::<BTreeSet<_>>(),
                expected.iter().collect(),
                "{matching}"
            );
            assert_eq!(ordinary(&policy(&text(", action: off")), "wan"), [""; 0], "{matching}");
        }
        let one = "{name: it, match: {protocol: vrrp, interface: wan}, key: source, rate: 1/s}";
        assert_eq!(ordinary(&policy(&format!("limits: [{one}]")), "lan"), [""; 0]);
    }

    #[test]
    fn what_is_not_ip_has_a_budget_where_the_policy_says_so() {
        for (text, burst) in [
            ("", None),
            ("control: off", None),
            ("non_ip: {rate: 100/s, burst: 7}", Some(7)),
            ("control: off\nnon_ip: {rate: 1000/s, burst: 64}", Some(64)),
        ] {
            for budgets in policy(text).control_budgets(|_, _| false).unwrap() {
                let found = budgets.limits_non_ip().then(|| budgets.non_ip.left(0));
                assert_eq!(found, burst, "{text}");
            }
        }
    }

    #[test]
    fn interfaces_have_budgets_of_their_own() {
        let policy = policy(
            "control: {budget: {rate: 100/s, burst: 7}, ordinary: ospf, \
             overrides: [{interface: [wan, dmz], ordinary: all}, \
             {interface: lan, per_source: {rate: 3/s, burst: 3}}]}",
        );
        let budgets =
            policy.control_budgets(|word, slot| [(0, "wan"), (2, "lan")].contains(&(slot, word)));
        let [wan, other, lan, ..] = budgets.unwrap()[..] else { unreachable!() };
        assert_eq!(wan.protocols, 0);
        assert_eq!(other.protocols, all() & !bits_of("ospf"));
        assert_eq!([other.link, lan.link].map(|budget| budget.left(0)), [7, 7]);
        assert_eq!([other.source, lan.source].map(|budget| budget.left(0)), [1_000, 3]);
        assert_eq!(lan.protocols, other.protocols);
        assert_eq!(policy.interfaces().into_iter().collect::<Vec<_>>(), ["dmz", "lan", "wan"]);
    }
}
