//! What an interface does to packets before limiter sees them.

use std::{collections::BTreeMap, io};

use aya::util::online_cpus;

use super::{
    driver,
    finding::{Finding, Verdict},
};
use crate::{
    datapath::{
        bpffs::Pins,
        ethtool::{Device, Queues},
        features::XdpFeatures,
        instance::Attached,
        interface::{Interface, LinkState},
        main_program::takes_pieces,
        mode::Mode,
    },
    error::Error,
    output::number::grouped,
    policy::units::printable,
};

/// Features that are on, and whether they can be switched off.
type Features = BTreeMap<String, bool>;

/// Features that put several packets together, with the option of ethtool(8) that switches them.
const MERGING: [(&str, &str); 2] = [("rx-lro", "lro"), ("rx-gro-hw", "rx-gro-hw")];

/// Features that take VLAN tags off.
const TAGS: [(&str, &str); 2] =
    [("rx-vlan-hw-parse", "rxvlan"), ("rx-vlan-stag-hw-parse", "rx-vlan-stag-hw-parse")];

/// Whose an interface is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner<'a> {
    Ours(&'a Attached),
    NotOurs,
    /// What there is of an instance cannot be read.
    Unknown,
}

/// Checks an interface, given how it is.
pub(super) fn examine(
    pins: &Pins,
    interface: &Interface,
    state: &io::Result<LinkState>,
    owner: Owner<'_>,
) -> Vec<Finding> {
    let name = printable(&interface.name, 16);
    let mut findings = Vec::new();
    if let Err(error) = interface.check_ethernet() {
        findings.push(Finding::failed("link", &error));
    }
    let running = match owner {
        Owner::Ours(attached) => Some(attached.mode),
        Owner::NotOurs | Owner::Unknown => None,
    };
    findings.push(program(interface, state, owner));
    let device = Device::of(interface);
    let driver = device.as_ref().ok().and_then(|device| device.driver().ok());
    let driver =
        driver.map_or_else(|| "a driver without a name".to_owned(), |it| printable(&it, 32));
    let features = XdpFeatures::of(interface);
    findings.push(mode(&name, &driver, running, features));
    if running != Some(Mode::Generic) {
        findings.extend(driver::examine_cost(&name, &driver));
    }
    if let Owner::Ours(attached) = owner
        && attached.mode == Mode::Native
    {
        // An error is told by the check of the main program.
        let pieces = takes_pieces(pins, attached.slot);
        findings.extend(pieces.ok().map(|pieces| mtu(&name, interface.mtu, pieces, features)));
    } else {
        let queues = device.as_ref().ok().and_then(|device| device.queues().ok());
        // Of a driver that takes packets in several pieces, the MTU does not matter.
        let pieces = features.is_some_and(|features| features.pieces);
        let mtu = (!pieces).then_some(interface.mtu);
        findings.extend(driver::examine(&name, &driver, queues, mtu));
    }
    if let Ok(device) = &device {
        if let Ok(features) = device.features() {
            findings.push(merging(&name, &driver, running, &features));
            findings.push(tags(&name, &features));
        }
        if let (Ok(rings), Ok(state)) = (device.rings(), state) {
            findings.push(ring(&name, [rings.size, rings.most], state));
        }
        if let (Ok(has), Ok(cpus)) = (device.queues(), online_cpus()) {
            findings.push(queues(&name, has, cpus.len()));
        }
    }
    match state {
        Ok(state) => findings.push(missed(state)),
        Err(error) => findings.push(Finding::new("missed", Verdict::Warn, error.to_string())),
    }
    findings
}

/// Whether the place of the program is free, or ours.
fn program(interface: &Interface, state: &io::Result<LinkState>, owner: Owner<'_>) -> Finding {
    let program = match state {
        Ok(LinkState { program: None, .. }) => {
            return Finding::ok("xdp", "no program: limiter can be attached");
        }
        Ok(LinkState { program: Some(program), .. }) => *program,
        Err(error) => return Finding::new("xdp", Verdict::Fail, error.to_string()),
    };
    match owner {
        Owner::Ours(_) => Finding::ok("xdp", format!("program {program}, of this instance")),
        Owner::Unknown => {
            let found = format!("program {program}; whose it is cannot be told, see `instance`");
            Finding::new("xdp", Verdict::Note, found)
        }
        Owner::NotOurs => {
            let error =
                Error::ForeignProgram { interface: printable(&interface.name, 16), program };
            let found = format!("program {program}, which is not of this instance");
            Finding { found, ..Finding::failed("xdp", &error) }
        }
    }
}

/// The driver, and how the program runs on it.
fn mode(
    interface: &str,
    driver: &str,
    running: Option<Mode>,
    features: Option<XdpFeatures>,
) -> Finding {
    let has_none = features.is_some_and(|features| !features.native);
    match running {
        None if has_none => Finding::new(
            "mode",
            Verdict::Note,
            format!("{driver} has no native mode; attaching takes generic mode, which is slower"),
        ),
        Some(Mode::Generic) if has_none => Finding::new(
            "mode",
            Verdict::Warn,
            format!(
                "{driver}, generic, as it has no native mode: packets are dropped after the stack took memory for them"
            ),
        )
        .with_remedy(format!(
            "another driver or device; `limiter attach {interface} --mode native` has the words of this one"
        )),
        None => Finding::ok("mode", format!("{driver}; attaching tries native mode first")),
        Some(Mode::Native) => Finding::ok("mode", format!("{driver}, native")),
        Some(Mode::Generic) => Finding::new(
            "mode",
            Verdict::Warn,
            format!("{driver}, generic: packets are dropped after the stack took memory for them"),
        )
        .with_remedy(format!(
            "often large frames (MTU), merged packets or too few queues; `limiter detach {interface}` \
             and `limiter attach {interface} --mode native` tells what the driver minds (the policy goes \
             with the last interface: `limiter policy save` it first)"
        )),
    }
}

/// Whether the MTU can be raised while a program is attached.
fn mtu(interface: &str, mtu: u32, pieces: bool, features: Option<XdpFeatures>) -> Finding {
    const CHECK: &str = "mtu";
    // One page, less what the kernel and the driver have before and after a packet.
    const ONE_PIECE: u32 = 3_500;
    let (is_larger, mtu) = (mtu > ONE_PIECE, grouped(mtu.into()));
    if pieces {
        return Finding::ok(CHECK, format!("{mtu}; it can be raised while attached"));
    }
    let found = match is_larger {
        true => {
            format!("{mtu}; while attached it cannot be raised, as packets have to be in one piece")
        }
        false => format!(
            "{mtu}; while attached it can be raised to about {}, as packets have to be in one piece",
            grouped(ONE_PIECE.into())
        ),
    };
    let finding = Finding::new(CHECK, Verdict::Note, found);
    if features.is_some_and(|features| !features.pieces) {
        return finding;
    }
    finding.with_remedy(format!(
        "for jumbo frames: limiter attach {interface} --replace --mode native-frags; its packets pass unlimited for \
         some milliseconds"
    ))
}

/// Which of these features are on, by their names, and the arguments of ethtool(8) that switch off those
/// that can be.
fn on(of: &[(&str, &str)], features: &Features) -> Option<(String, String)> {
    let on: Vec<_> = of.iter().filter(|(name, _)| features.contains_key(*name)).collect();
    let names: Vec<_> = on.iter().map(|(name, _)| *name).collect();
    let off = on.iter().filter(|(name, _)| features.get(*name) == Some(&true));
    let off: Vec<_> = off.map(|(_, option)| format!("{option} off")).collect();
    (!on.is_empty()).then(|| (names.join(", "), off.join(" ")))
}

/// Whether the device makes one packet of several.
fn merging(interface: &str, driver: &str, running: Option<Mode>, features: &Features) -> Finding {
    let Some((names, off)) = on(&MERGING, features) else {
        return Finding::ok("merging", "the device merges no packets");
    };
    let finding = match running {
        // It has its host send them one by one, and goes on saying that it does not.
        Some(Mode::Native) if driver == "virtio_net" => {
            return Finding::ok("merging", format!("{names}: not while a program is attached"));
        }
        None => Finding::new(
            "merging",
            Verdict::Note,
            format!("{names}: merges packets, unless attaching switches that off"),
        ),
        Some(_) => Finding::new(
            "merging",
            Verdict::Warn,
            format!("{names}: several packets may be seen and counted as one"),
        ),
    };
    switched(finding, "ethtool -K", interface, &off)
}

fn tags(interface: &str, features: &Features) -> Finding {
    let Some((names, off)) = on(&TAGS, features) else {
        return Finding::ok("tags", "VLAN tags are seen");
    };
    let found =
        format!("{names}: a VLAN tag may be taken off before, and its bytes are not counted");
    let finding = Finding::new("tags", Verdict::Note, found);
    switched(finding, "if bytes have to include tags: ethtool -K", interface, &off)
}

/// The finding with the command that switches features off, if there is one.
fn switched(finding: Finding, command: &str, interface: &str, off: &str) -> Finding {
    if off.is_empty() {
        finding
    } else {
        finding.with_remedy(format!("{command} {interface} {off}"))
    }
}

/// The receive ring: how long it is, and how long it could be.
fn ring(interface: &str, [size, most]: [u32; 2], state: &LinkState) -> Finding {
    let found = format!("{} of {} descriptors", grouped(size.into()), grouped(most.into()));
    if size >= most {
        return Finding::ok("ring", found);
    }
    // A short ring is what keeps packets in the cache; it is too short when packets are lost.
    let verdict = if state.missed == 0 { Verdict::Ok } else { Verdict::Warn };
    let finding = Finding::new("ring", verdict, found);
    match verdict {
        Verdict::Warn => finding.with_remedy(format!("ethtool -G {interface} rx {most}")),
        _ => finding,
    }
}

/// What was lost before limiter could see it.
fn missed(state: &LinkState) -> Finding {
    let LinkState { received, missed, .. } = *state;
    let received = grouped(received);
    match missed {
        0 => Finding::ok("missed", format!("none beside {received} packets, as the driver counts")),
        missed => Finding::new(
            "missed",
            Verdict::Warn,
            format!(
                "{} packets beside {received}, since the start: no limit saw them",
                grouped(missed)
            ),
        )
        .with_remedy("more receive queues, on more CPUs; limits in native mode; a longer ring"),
    }
}

/// How many CPUs can share the work.
fn queues(interface: &str, has: Queues, cpus: usize) -> Finding {
    let Queues { number, most } = has;
    let found = format!("{number} of at most {most} receive queues, for {cpus} CPUs");
    let wanted = most.min(u32::try_from(cpus).unwrap_or(u32::MAX));
    if number > 1 || cpus == 1 {
        Finding::ok("queues", found)
    } else if wanted > number {
        Finding::new("queues", Verdict::Note, format!("{found}: one CPU does all the work"))
            .with_remedy(format!("ethtool -L {interface} combined {wanted}"))
    } else {
        Finding::new("queues", Verdict::Note, format!("{found}: one CPU does all the work"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(names: &[(&str, bool)]) -> Features {
        names.iter().map(|(name, switchable)| ((*name).to_owned(), *switchable)).collect()
    }

    fn state(received: u64, missed: u64) -> LinkState {
        LinkState { is_up: true, program: None, received, missed }
    }

    #[test]
    fn what_merges_packets_is_told_with_how_to_switch_it_off() {
        let of = |running, driver, names| merging("eth0", driver, running, &features(names));
        let finding = of(Some(Mode::Native), "ice", &[("rx-gro", true)]);
        assert_eq!((finding.verdict, finding.remedy), (Verdict::Ok, None));
        let both: &[(&str, bool)] = &[("rx-lro", true), ("rx-gro-hw", true)];
        let finding = of(Some(Mode::Native), "ice", both);
        assert_eq!(finding.verdict, Verdict::Warn);
        assert_eq!(finding.remedy.unwrap(), "ethtool -K eth0 lro off rx-gro-hw off");
        assert!(finding.found.starts_with("rx-lro, rx-gro-hw: "), "{}", finding.found);
        assert_eq!(of(None, "ice", both).verdict, Verdict::Note);
        let fixed = of(Some(Mode::Generic), "ice", &[("rx-lro", false)]);
        assert_eq!((fixed.verdict, fixed.remedy), (Verdict::Warn, None), "it cannot be switched");
        assert_eq!(of(Some(Mode::Native), "virtio_net", both).verdict, Verdict::Ok);
    }

    #[test]
    fn a_short_ring_is_no_fault_until_packets_are_lost() {
        let of = |missed| state(1_000_000, missed);
        assert_eq!(ring("eth0", [4096, 4096], &of(7)).verdict, Verdict::Ok);
        assert_eq!(ring("eth0", [256, 4096], &of(0)).verdict, Verdict::Ok);
        let finding = ring("eth0", [256, 4096], &of(7));
        assert_eq!(finding.verdict, Verdict::Warn);
        assert_eq!(finding.found, "256 of 4,096 descriptors");
        assert_eq!(finding.remedy.unwrap(), "ethtool -G eth0 rx 4096");
    }

    #[test]
    fn lost_packets_are_counted_beside_those_that_came_in() {
        let of = |missed| super::missed(&state(1_000_000, missed));
        assert_eq!(of(0).found, "none beside 1,000,000 packets, as the driver counts");
        let finding = of(2_500);
        assert_eq!(finding.verdict, Verdict::Warn);
        assert_eq!(
            finding.found,
            "2,500 packets beside 1,000,000, since the start: no limit saw them"
        );
    }

    #[test]
    fn packets_in_one_piece_bound_the_mtu() {
        let note = mtu("eth0", 1_500, false, None);
        assert_eq!(note.verdict, Verdict::Note);
        assert!(note.found.starts_with("1,500; while attached "), "{note:?}");
        assert!(note.remedy.unwrap().contains("attach eth0 --replace --mode native-frags;"));
        assert_eq!(mtu("eth0", 9_000, true, None).verdict, Verdict::Ok);
        let without = Some(XdpFeatures { native: true, pieces: false });
        assert_eq!(mtu("eth0", 1_500, false, without).remedy, None, "the driver has no such mode");
    }

    #[test]
    fn a_driver_without_native_mode_is_told_before() {
        let of = |running, native| {
            let features = Some(XdpFeatures { native, pieces: false });
            mode("eth0", "e1000e", running, features)
        };
        assert_eq!(of(None, true).verdict, Verdict::Ok);
        let note = of(None, false);
        assert!(note.verdict == Verdict::Note && note.found.contains("has no native mode"));
        let running = of(Some(Mode::Generic), false);
        assert_eq!(running.verdict, Verdict::Warn);
        assert!(running.found.contains("has no native mode"), "{running:?}");
        assert!(of(Some(Mode::Generic), true).remedy.is_some());
    }

    #[test]
    fn one_queue_for_several_cpus_is_noted() {
        let of = |number, most, cpus| queues("eth0", Queues { number, most }, cpus);
        assert_eq!(of(1, 1, 1).verdict, Verdict::Ok);
        assert_eq!(of(8, 8, 8).verdict, Verdict::Ok);
        let finding = of(1, 16, 8);
        assert_eq!(finding.verdict, Verdict::Note);
        assert_eq!(finding.remedy.unwrap(), "ethtool -L eth0 combined 8");
        let finding = of(1, 1, 8);
        assert_eq!((finding.verdict, finding.remedy), (Verdict::Note, None));
    }
}
