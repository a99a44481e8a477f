//! What drivers ask of an interface before they take a program, and what attaching does to it.
//!
//! The kernel does not tell these rules before it refuses. They are as the drivers of Linux 6.x have
//! them.

use super::finding::{Finding, Verdict};
use crate::{datapath::ethtool::Queues, output::number::grouped};

const CHECK: &str = "driver";

/// The rules of a driver, for native mode.
struct Rules {
    driver: &'static str,
    /// The channels of ethtool(8) of which at most half may be in use: the others are for packets that a
    /// program sends. Empty if there is no such rule.
    half_of: &'static [&'static str],
    /// The largest MTU for packets in one piece, in bytes; `None` if it is not known.
    most_mtu: Option<u32>,
    /// What attaching does to the link, if it interrupts it.
    interrupts: Option<&'static str>,
    /// What else has to be known before, and what to do about it.
    before: Option<[&'static str; 2]>,
    /// What native mode costs, and what to do about it.
    cost: Option<[&'static str; 2]>,
}

const NONE: Rules =
    Rules { driver: "", half_of: &[], most_mtu: None, interrupts: None, before: None, cost: None };

const RULES: [Rules; 8] = [
    Rules { driver: "ena", half_of: &["combined"], most_mtu: Some(3_498), ..NONE },
    // A buffer of 2 KiB, less an Ethernet header and two bytes of padding.
    Rules { driver: "gve", half_of: &["rx", "tx"], most_mtu: Some(2_032), ..NONE },
    Rules {
        // Since Linux 5.13, the oldest that limiter works on, queues are shared where there are too few.
        driver: "virtio_net",
        most_mtu: Some(3_506),
        before: Some([
            "attaching fails if the host merges packets and the guest cannot switch that off",
            "if attaching says so: ethtool -K IFACE rx-gro-hw off, or on the host guest_tso4=off and guest_tso6=off",
        ]),
        ..NONE
    },
    Rules {
        driver: "ixgbe",
        most_mtu: Some(3_050),
        interrupts: Some("takes the link down for up to 20 s"),
        ..NONE
    },
    Rules { driver: "ixgbevf", interrupts: Some("takes the link down for some seconds"), ..NONE },
    Rules { driver: "mlx5_core", interrupts: Some("interrupts traffic for a moment"), ..NONE },
    Rules {
        driver: "hv_netvsc",
        before: Some([
            "attaching fails while LRO is on; the program follows to the virtual function",
            "ethtool -K IFACE lro off",
        ]),
        ..NONE
    },
    Rules {
        driver: "veth",
        cost: Some([
            "native mode ends segmentation offload, and bulk TCP takes 3 to 10 times the CPU",
            "to keep it: limiter detach IFACE; limiter attach IFACE --mode generic (the policy goes with the last interface: \
             `limiter policy save` it first)",
        ]),
        ..NONE
    },
];

fn rules(driver: &str) -> Option<&'static Rules> {
    RULES.iter().find(|rules| rules.driver == driver)
}

/// What attaching in native mode does to the link of an interface with this driver, if it
/// interrupts it.
pub(crate) fn interruption(driver: &str) -> Option<&'static str> {
    rules(driver)?.interrupts
}

/// What native mode costs with this driver, and what to do about it.
pub(crate) fn cost(driver: &str) -> Option<[&'static str; 2]> {
    rules(driver)?.cost
}

/// Tells what native mode costs with this driver.
pub(super) fn examine_cost(interface: &str, driver: &str) -> Option<Finding> {
    let [found, remedy] = cost(driver)?;
    let finding = Finding::new(CHECK, Verdict::Note, format!("{driver}: {found}"));
    Some(finding.with_remedy(remedy.replace("IFACE", interface)))
}

/// Checks an interface that is not attached in native mode against the rules of its driver. Without
/// an MTU, that is not checked.
pub(super) fn examine(
    interface: &str,
    driver: &str,
    queues: Option<Queues>,
    mtu: Option<u32>,
) -> Vec<Finding> {
    let Some(rules) = rules(driver) else { return Vec::new() };
    let mut findings = Vec::new();
    if let Some(Queues { number, most }) = queues.filter(|_| !rules.half_of.is_empty())
        && number > most / 2
    {
        let found = format!(
            "{driver}: native mode takes at most half of the queues; {} of {} are in use",
            grouped(number.into()),
            grouped(most.into())
        );
        let remedy = match most / 2 {
            0 => "there is no half of one queue: take a machine with more CPUs, or generic mode"
                .into(),
            half => {
                let of = |channels| format!(" {channels} {half}");
                format!(
                    "ethtool -L {interface}{}",
                    rules.half_of.iter().map(of).collect::<String>()
                )
            }
        };
        findings.push(Finding::new(CHECK, Verdict::Warn, found).with_remedy(remedy));
    }
    if let (Some(most), Some(mtu)) = (rules.most_mtu, mtu)
        && mtu > most
    {
        let found = format!(
            "{driver}: the MTU is {}; native mode takes at most {}, but where it has packets in several pieces",
            grouped(mtu.into()),
            grouped(most.into())
        );
        let remedy =
            format!("if attaching takes generic mode: ip link set dev {interface} mtu {most}");
        findings.push(Finding::new(CHECK, Verdict::Warn, found).with_remedy(remedy));
    }
    if let Some(interrupts) = rules.interrupts {
        let found = format!("{driver}: attaching {interrupts}; replacing a program does not");
        findings.push(Finding::new(CHECK, Verdict::Note, found));
    }
    if let Some([found, remedy]) = rules.before {
        let finding = Finding::new(CHECK, Verdict::Note, format!("{driver}: {found}"));
        findings.push(finding.with_remedy(remedy.replace("IFACE", interface)));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(driver: &str, queues: Option<[u32; 2]>, mtu: u32) -> Vec<(Verdict, String, String)> {
        let queues = queues.map(|[number, most]| Queues { number, most });
        let findings = examine("eth0", driver, queues, Some(mtu));
        let of = |it: Finding| (it.verdict, it.found, it.remedy.unwrap_or_default());
        findings.into_iter().map(of).collect()
    }

    #[test]
    fn what_native_mode_costs_is_told_with_the_way_out() {
        let note = examine_cost("eth0", "veth").unwrap();
        assert_eq!(note.verdict, Verdict::Note);
        assert!(note.found.contains("ends segmentation offload"), "{note:?}");
        assert!(note.remedy.unwrap().contains("limiter attach eth0 --mode generic"));
        assert_eq!(examine_cost("eth0", "ena"), None);
    }

    #[test]
    fn half_of_the_queues_are_left_for_what_a_program_sends() {
        let ena = told("ena", Some([8, 8]), 1_500);
        assert_eq!(ena.len(), 1);
        assert_eq!(ena[0].0, Verdict::Warn);
        assert!(ena[0].1.contains("8 of 8 are in use"), "{ena:?}");
        assert_eq!(ena[0].2, "ethtool -L eth0 combined 4");
        assert!(told("ena", Some([4, 8]), 1_500).is_empty());
        assert!(told("ena", None, 1_500).is_empty());
        let gve = told("gve", Some([1, 1]), 1_460);
        assert!(gve.len() == 1 && gve[0].2.contains("more CPUs"), "{gve:?}");
        let gve = told("gve", Some([9, 16]), 1_460);
        assert!(gve.len() == 1 && gve[0].1.contains("9 of 16 are in use"), "{gve:?}");
        assert_eq!((gve[0].0, gve[0].2.as_str()), (Verdict::Warn, "ethtool -L eth0 rx 8 tx 8"));
        assert!(told("gve", Some([8, 16]), 1_460).is_empty());
        // All kernels that limiter works on share the queues of this one.
        let virtio = told("virtio_net", Some([8, 8]), 1_500);
        assert!(virtio.len() == 1 && virtio[0].0 == Verdict::Note, "{virtio:?}");
        assert!(virtio[0].2.contains("ethtool -K eth0 rx-gro-hw off"), "{virtio:?}");
    }

    #[test]
    fn a_large_mtu_is_told_with_the_largest_that_is_taken() {
        let ena = told("ena", Some([4, 8]), 9_001);
        assert!(ena[0].1.contains("9,001") && ena[0].1.contains("at most 3,498"), "{ena:?}");
        assert!(ena[0].2.ends_with("ip link set dev eth0 mtu 3498"), "{ena:?}");
        for (driver, most) in
            [("ena", 3_498), ("gve", 2_032), ("virtio_net", 3_506), ("ixgbe", 3_050)]
        {
            let larger = &told(driver, None, most + 1)[0];
            let words = format!("at most {}", grouped(most.into()));
            assert!(larger.0 == Verdict::Warn && larger.1.contains(&words), "{larger:?}");
            assert!(larger.2.ends_with(&format!("ip link set dev eth0 mtu {most}")), "{larger:?}");
            assert!(!told(driver, None, most).iter().any(|it| it.0 == Verdict::Warn), "{driver}");
        }
        assert!(examine("eth0", "ena", None, None).is_empty());
    }

    #[test]
    fn what_attaching_does_to_the_link_is_told_before() {
        assert_eq!(interruption("ixgbe"), Some("takes the link down for up to 20 s"));
        assert_eq!((interruption("ice"), interruption("veth")), (None, None));
        let note = &told("mlx5_core", None, 1_500)[0];
        assert!(note.0 == Verdict::Note && note.1.contains("interrupts traffic"), "{note:?}");
        assert_eq!(told("hv_netvsc", None, 1_500)[0].2, "ethtool -K eth0 lro off");
        assert!(told("e1000e", Some([1, 1]), 9_000).is_empty());
    }
}
