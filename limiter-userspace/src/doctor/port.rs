//! What an interface does to packets before limiter sees them.

use std::{collections::BTreeSet, thread};

use super::{Finding, Verdict};
use crate::{
    datapath::{
        ethtool::Device,
        instance::Attached,
        interface::{Interface, Reception},
        mode::Mode,
    },
    error::Error,
    output::number::grouped,
    policy::units::printable,
};

/// Features that put several packets together, with the option of ethtool(8) that switches them.
const MERGING: [(&str, &str); 2] = [("rx-lro", "lro"), ("rx-gro-hw", "rx-gro-hw")];

/// Features that take VLAN tags off.
const TAGS: [(&str, &str); 2] =
    [("rx-vlan-hw-parse", "rxvlan"), ("rx-vlan-stag-hw-parse", "rx-vlan-stag-hw-parse")];

/// Checks an interface, which is attached so, if it is.
pub(super) fn examine(interface: &Interface, ours: Option<&Attached>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Err(error) = interface.check_ethernet() {
        let finding = Finding::new("link", Verdict::Fail, error.to_string());
        findings.push(Finding { remedy: error.remedy(), ..finding });
    }
    findings.push(program(interface, ours));
    let device = Device::of(interface);
    let driver = device.as_ref().ok().and_then(|device| device.driver().ok());
    findings.push(mode(driver.as_deref(), ours));
    let reception = interface.reception();
    if let Ok(device) = &device {
        if let Ok(features) = device.features() {
            findings.push(merging(&interface.name, &features));
            findings.push(tags(&interface.name, &features));
        }
        if let (Ok(rings), Ok(reception)) = (device.rings(), &reception) {
            findings.push(ring(&interface.name, [rings.size, rings.most], reception));
        }
    }
    if let Ok(reception) = reception {
        findings.push(missed(&reception));
        let cpus = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        findings.push(queues(&interface.name, &reception, cpus));
    }
    findings
}

/// Whether the place of the program is free, or ours.
fn program(interface: &Interface, ours: Option<&Attached>) -> Finding {
    match (interface.program(), ours) {
        (None, _) => Finding::ok("xdp", "no program: limiter can be attached"),
        (Some(id), Some(_)) => Finding::ok("xdp", format!("program {id}, of this instance")),
        (Some(program), None) => {
            let error = Error::ForeignProgram { interface: interface.name.clone(), program };
            let found = format!("program {program}, which is not of this instance");
            let finding = Finding::new("xdp", Verdict::Fail, found);
            Finding { remedy: error.remedy(), ..finding }
        }
    }
}

/// The driver, and how the program runs on it.
fn mode(driver: Option<&str>, ours: Option<&Attached>) -> Finding {
    let driver =
        driver.map_or_else(|| "a driver without a name".to_owned(), |it| printable(it, 32));
    match ours.map(|ours| ours.mode) {
        None => Finding::ok("mode", format!("{driver}; attaching tries native mode first")),
        Some(Mode::Native) => Finding::ok("mode", format!("{driver}, native")),
        Some(Mode::Generic) => Finding::new(
            "mode",
            Verdict::Warn,
            format!("{driver}, generic: packets are dropped after the stack took memory for them"),
        )
        .with_remedy(
            "`limiter attach IFACE --mode native --replace` tells why the driver refuses; often large \
             frames (MTU), merged packets (LRO) or too few queues",
        ),
    }
}

/// Which of these features are on: by their names, and as arguments of ethtool(8).
fn on(of: &[(&str, &str)], features: &BTreeSet<String>) -> Option<(String, String)> {
    let on: Vec<_> = of.iter().filter(|(name, _)| features.contains(*name)).collect();
    let names: Vec<_> = on.iter().map(|(name, _)| *name).collect();
    let off: Vec<_> = on.iter().map(|(_, option)| format!("{option} off")).collect();
    (!on.is_empty()).then(|| (names.join(", "), off.join(" ")))
}

fn merging(interface: &str, features: &BTreeSet<String>) -> Finding {
    match on(&MERGING, features) {
        None => Finding::ok("merging", "packets are seen one by one"),
        Some((names, off)) => Finding::new(
            "merging",
            Verdict::Warn,
            format!("{names}: several packets may be seen and counted as one"),
        )
        .with_remedy(format!("ethtool -K {interface} {off}")),
    }
}

fn tags(interface: &str, features: &BTreeSet<String>) -> Finding {
    match on(&TAGS, features) {
        None => Finding::ok("tags", "VLAN tags are seen"),
        Some((names, off)) => Finding::new(
            "tags",
            Verdict::Note,
            format!("{names}: a VLAN tag may be taken off before, and its bytes are not counted"),
        )
        .with_remedy(format!("if bytes have to include tags: ethtool -K {interface} {off}")),
    }
}

/// The receive ring: how long it is, and how long it could be.
fn ring(interface: &str, [size, most]: [u32; 2], reception: &Reception) -> Finding {
    let found = format!("{} of {} descriptors", grouped(size.into()), grouped(most.into()));
    if size >= most {
        return Finding::ok("ring", found);
    }
    // A short ring is what keeps packets in the cache; it is too short when packets are lost.
    let verdict = if reception.missed == 0 { Verdict::Ok } else { Verdict::Warn };
    let finding = Finding::new("ring", verdict, found);
    match verdict {
        Verdict::Warn => finding.with_remedy(format!("ethtool -G {interface} rx {most}")),
        _ => finding,
    }
}

/// What was lost before limiter could see it.
fn missed(reception: &Reception) -> Finding {
    let Reception { received, missed, .. } = *reception;
    let received = grouped(received);
    match missed {
        0 => Finding::ok("missed", format!("none of {received} packets")),
        missed => Finding::new(
            "missed",
            Verdict::Warn,
            format!("{} packets beside {received}: no limit saw them", grouped(missed)),
        )
        .with_remedy("more receive queues, on more CPUs; limits in native mode; a longer ring"),
    }
}

/// How many CPUs can share the work.
fn queues(interface: &str, reception: &Reception, cpus: usize) -> Finding {
    let found =
        format!("{} of {cpus} CPUs have a receive queue", reception.queues.min(cpus as u32));
    if reception.queues > 1 || cpus == 1 {
        Finding::ok("queues", found)
    } else {
        Finding::new("queues", Verdict::Note, format!("{found}: one does all the work in a flood"))
            .with_remedy(format!(
                "`ethtool -l {interface}` tells how many there can be, `ethtool -L` sets it"
            ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_merges_packets_is_told_with_how_to_switch_it_off() {
        let finding = merging("eth0", &features(&["rx-gro", "tx-checksumming"]));
        assert_eq!((finding.verdict, finding.remedy), (Verdict::Ok, None));
        let finding = merging("eth0", &features(&["rx-lro", "rx-gro-hw"]));
        assert_eq!(finding.verdict, Verdict::Warn);
        assert_eq!(finding.remedy.unwrap(), "ethtool -K eth0 lro off rx-gro-hw off");
        assert!(finding.found.starts_with("rx-lro, rx-gro-hw: "), "{}", finding.found);
    }

    #[test]
    fn a_short_ring_is_no_fault_until_packets_are_lost() {
        let of = |missed| Reception { is_up: true, queues: 4, received: 1_000_000, missed };
        assert_eq!(ring("eth0", [4096, 4096], &of(7)).verdict, Verdict::Ok);
        assert_eq!(ring("eth0", [256, 4096], &of(0)).verdict, Verdict::Ok);
        let finding = ring("eth0", [256, 4096], &of(7));
        assert_eq!(finding.verdict, Verdict::Warn);
        assert_eq!(finding.found, "256 of 4,096 descriptors");
        assert_eq!(finding.remedy.unwrap(), "ethtool -G eth0 rx 4096");
    }

    #[test]
    fn lost_packets_are_counted_beside_those_that_came_in() {
        let of = |missed| missed_of(1_000_000, missed);
        assert_eq!(of(0).found, "none of 1,000,000 packets");
        let finding = of(2_500);
        assert_eq!(finding.verdict, Verdict::Warn);
        assert_eq!(finding.found, "2,500 packets beside 1,000,000: no limit saw them");
    }

    fn missed_of(received: u64, missed: u64) -> Finding {
        super::missed(&Reception { is_up: true, queues: 1, received, missed })
    }

    #[test]
    fn one_queue_for_several_cpus_is_noted() {
        let of = |queues, cpus| queues_of(queues, cpus).verdict;
        assert_eq!(of(1, 1), Verdict::Ok);
        assert_eq!(of(8, 8), Verdict::Ok);
        assert_eq!(of(1, 8), Verdict::Note);
        assert_eq!(queues_of(16, 8).found, "8 of 8 CPUs have a receive queue");
    }

    fn queues_of(queues: u32, cpus: usize) -> Finding {
        let reception = Reception { is_up: true, queues, received: 0, missed: 0 };
        super::queues("eth0", &reception, cpus)
    }
}
