//! The senders and their traffic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::Result;
use limiter_tests::{
    packet::{Frame, SYN, set_source},
    topology::Topology,
    traffic::{Flow, Sender},
};
use limiter_userspace::policy::Builtin;

/// The VLAN number of the tagged flooder.
const VLAN: u16 = 100;
/// The /64 from which one flooder takes its changing addresses.
const NETWORK: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xbad, 0, 0, 0, 0, 0);

/// One of the senders.
pub(crate) struct Actor {
    /// What the sender does, for the report.
    pub(crate) name: &'static str,
    /// The address it sends from, for the report.
    pub(crate) place: String,
    /// The limit that it exceeds; `None` if it stays within all.
    pub(crate) limit: Option<Builtin>,
    /// The name of its source in the output of the limiter.
    pub(crate) source: String,
    /// The prefix that its frames come from.
    prefix: (IpAddr, u8),
}

impl Actor {
    fn new(name: &'static str, address: impl Into<IpAddr>, limit: Option<Builtin>) -> Self {
        let address = address.into();
        let (prefix, source) = match address {
            IpAddr::V4(_) => (32, address.to_string()),
            IpAddr::V6(_) => (64, format!("{address}/64")),
        };
        Self { name, place: source.clone(), limit, source, prefix: (address, prefix) }
    }

    /// Whether a received flow came from this sender.
    pub(crate) fn sent(&self, flow: &Flow) -> bool {
        let (address, length) = self.prefix;
        flow.is_within(address, length)
    }
}

/// Makes the senders on the client of these hosts, each with its traffic.
pub(crate) fn senders(hosts: &Topology) -> Result<Vec<(Actor, Sender)>> {
    let (port, target) = (&hosts.client_port, &hosts.router_port);
    let sender = |per_second, frame: &Frame| {
        let frame = frame.clone().macs(port.mac, target.mac).build();
        Sender::new(&hosts.client.namespace, port, per_second, frame)
    };
    let source = |number| Ipv4Addr::new(198, 18, 0, number);
    let (polite, udp, syn, tagged) = (source(10), source(20), source(30), source(40));
    let polite_frame = Frame::udp(polite, target.v4, 40_000, 53).payload(64);
    let udp_frame = Frame::udp(udp, target.v4, 40_000, 53).payload(18);
    let syn_frame = Frame::tcp(syn, target.v4, 40_000, 443, SYN);
    let hopping_frame = Frame::udp(NETWORK, target.v6, 40_000, 53).payload(18);
    let tagged_frame = Frame::udp(tagged, target.v4, 40_000, 53).payload(18).tag(0x8100, VLAN);

    let (macs, to) = ([port.mac, target.mac], target.v4);
    let change_port = move |number: u64, frame: &mut Vec<u8>| {
        let port = 1024 + (number % 60_000) as u16;
        *frame = Frame::tcp(syn, to, port, 443, SYN).macs(macs[0], macs[1]).build();
    };
    let change_address = |number: u64, frame: &mut Vec<u8>| {
        // Multiplying by an odd number visits all addresses of the /64 in scattered order.
        let host = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let address = Ipv6Addr::from_bits(NETWORK.to_bits() | u128::from(host));
        // Cannot fail: the address is of the frame's family.
        let _ = set_source(frame, address.into());
    };
    let tagged_actor = Actor::new("VLAN flooder", tagged, Some(Builtin::Source));
    let place = format!("{tagged}, VLAN {VLAN}");
    Ok(vec![
        (Actor::new("polite client", polite, None), sender(500, &polite_frame)?),
        (Actor::new("UDP flooder", udp, Some(Builtin::Source)), sender(100_000, &udp_frame)?),
        (
            Actor::new("SYN flooder", syn, Some(Builtin::Syn)),
            sender(20_000, &syn_frame)?.edited(change_port),
        ),
        (
            Actor::new("IPv6 hopper", NETWORK, Some(Builtin::Source)),
            sender(20_000, &hopping_frame)?.edited(change_address),
        ),
        (Actor { place, ..tagged_actor }, sender(20_000, &tagged_frame)?),
    ])
}
