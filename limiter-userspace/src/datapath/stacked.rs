//! Interfaces of which one passes its packets on to another.

use super::interface::Interface;
use crate::policy::units::printable;

/// Kinds of devices that take the packets of their ports.
const MASTERS: [&str; 3] = ["bridge", "bond", "team"];

/// Kinds of devices that take some packets of the interface below them.
const UPPERS: [&str; 4] = ["vlan", "macvlan", "ipvlan", "macsec"];

/// The pairs among these interfaces of which the first passes packets on to the second: a port and
/// its bridge, bond or team; an interface and its VLAN. A program on both sees such a packet twice.
pub(crate) fn stacked<'a>(among: &[&'a Interface]) -> Vec<[&'a Interface; 2]> {
    let pairs = among.iter().flat_map(|below| among.iter().map(move |above| [*below, *above]));
    pairs.filter(|[below, above]| passes_on(below, above)).collect()
}

/// What such a pair does, and what to do about it.
pub(crate) fn twice(below: &Interface, above: &Interface) -> (String, String) {
    let [below, above] = [below, above].map(|it| printable(&it.name, 16));
    (
        format!(
            "{below} passes packets on to {above}; both are attached, so those are counted twice"
        ),
        format!("keep one of them: limiter detach {above}"),
    )
}

fn passes_on(below: &Interface, above: &Interface) -> bool {
    let is = |kinds: &[&str]| kinds.contains(&above.device.as_str());
    let is_port = below.master == Some(above.index) && is(&MASTERS);
    is_port || above.lower == Some(below.index) && is(&UPPERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32, device: &str, master: Option<u32>, lower: Option<u32>) -> Interface {
        let it = Interface::find("lo").unwrap();
        Interface { name: format!("if{index}"), index, device: device.into(), master, lower, ..it }
    }

    #[test]
    fn ports_and_vlans_pass_their_packets_on() {
        let all = [
            interface(1, "", Some(2), None),
            interface(2, "bridge", None, None),
            interface(3, "vlan", None, Some(1)),
            // The two ends of a pair, each of which sees other packets.
            interface(4, "veth", None, Some(5)),
            interface(5, "veth", Some(6), Some(4)),
            interface(6, "vrf", None, None),
        ];
        let of = |places: &[usize]| {
            let among: Vec<_> = places.iter().map(|place| &all[*place]).collect();
            stacked(&among).into_iter().map(|pair| pair.map(|it| it.index)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[0, 1, 2, 3, 4, 5]), [[1, 2], [1, 3]]);
        assert_eq!(of(&[1, 2]), [[0_u32; 2]; 0]);
    }
}
