//! The addresses, gateways and networks of this host, as rtnetlink(7) tells them.

use std::net::IpAddr;

use ipnet::IpNet;

use super::netlink::{Extent, ask, attribute};
use crate::{
    error::{Error, Result},
    policy::guard::Host,
};

/// `IFA_ADDRESS`, the address itself but on links with a peer; `IFA_LOCAL`, the address on those.
const IFA: [u16; 2] = [1, 2];
const RTA_DST: u16 = 1;
const RTA_GATEWAY: u16 = 5;
const RTA_MULTIPATH: u16 = 9;
const RTA_VIA: u16 = 18;
/// `RTN_UNICAST`.
const UNICAST: u8 = 1;

/// Reads what this network namespace has of them.
///
/// # Errors
/// What the system says.
pub(crate) fn read() -> Result<Host> {
    let failed = |what: &str| {
        let action = format!("list the {what} of this host");
        move |error| Error::system(action, error)
    };
    // `struct rtgenmsg`, of all families; the bodies that kernels ask for are zeros too.
    let all = |kind| ask(kind, [0_u8; 12], Extent::All);
    let mut host = Host::default();
    let addresses = all(libc::RTM_GETADDR).map_err(failed("addresses"))?;
    addresses.iter().for_each(|message| add_address(&mut host, message));
    let routes = all(libc::RTM_GETROUTE).map_err(failed("routes"))?;
    routes.iter().for_each(|message| add_route(&mut host, message));
    Ok(host)
}

/// Takes in a `struct ifaddrmsg`: family, prefix length, two bytes, and the index; then attributes.
fn add_address(host: &mut Host, message: &[u8]) {
    let (Some(&[family, length, ..]), Some(attributes)) =
        (message.first_chunk::<8>(), message.get(8..))
    else {
        return;
    };
    let [peer, local] = IFA.map(|kind| attribute(attributes, kind).and_then(|it| ip(family, it)));
    let Some(address) = local.or(peer).filter(counts) else { return };
    host.addresses.insert(address);
    add_network(host, peer.unwrap_or(address), length);
}

/// Takes in a `struct rtmsg`: family, lengths of destination and source, TOS, table, protocol, scope, type
/// and flags; then attributes.
fn add_route(host: &mut Host, message: &[u8]) {
    let (Some(&[family, length, _, _, _, _, _, kind, ..]), Some(attributes)) =
        (message.first_chunk::<12>(), message.get(12..))
    else {
        return;
    };
    if kind != UNICAST {
        return;
    }
    let mut gateways = Vec::new();
    add_gateways(family, attributes, &mut gateways);
    // `struct rtnexthop`: its length, two bytes, and the index; then attributes.
    let mut hops = attribute(attributes, RTA_MULTIPATH).unwrap_or_default();
    let is_multipath = !hops.is_empty();
    while let Some(&[low, high, ..]) = hops.first_chunk::<8>() {
        let size = usize::from(u16::from_ne_bytes([low, high]));
        let Some(hop) = hops.get(8..size) else { break };
        add_gateways(family, hop, &mut gateways);
        hops = hops.get(size.next_multiple_of(4)..).unwrap_or_default();
    }
    if gateways.is_empty() && !is_multipath {
        let destination = attribute(attributes, RTA_DST).and_then(|it| ip(family, it));
        if let Some(destination) = destination {
            add_network(host, destination, length);
        }
    }
    host.gateways.extend(gateways.into_iter().filter(counts));
}

fn add_gateways(family: u8, attributes: &[u8], gateways: &mut Vec<IpAddr>) {
    gateways.extend(attribute(attributes, RTA_GATEWAY).and_then(|it| ip(family, it)));
    // Of another family, which comes first.
    if let Some((family, address)) =
        attribute(attributes, RTA_VIA).and_then(<[u8]>::split_first_chunk)
    {
        let family = u16::from_ne_bytes(*family);
        gateways.extend(u8::try_from(family).ok().and_then(|family| ip(family, address)));
    }
}

/// A single address is no network, and the whole of a family is no more than a default route.
fn add_network(host: &mut Host, address: IpAddr, length: u8) {
    let Ok(network) = IpNet::new(address, length) else { return };
    if counts(&address) && length > 0 && length < network.max_prefix_len() {
        host.networks.insert(network.trunc());
    }
}

/// Whether packets of an address come from elsewhere: no loopback, link-local or multicast one.
fn counts(address: &IpAddr) -> bool {
    let is_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !is_local && !address.is_loopback() && !address.is_multicast() && !address.is_unspecified()
}

fn ip(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => bytes.first_chunk::<4>().map(|it| IpAddr::from(*it)),
        libc::AF_INET6 => bytes.first_chunk::<16>().map(|it| IpAddr::from(*it)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An attribute, padded.
    fn encoded(kind: u16, payload: &[u8]) -> Vec<u8> {
        let length = 4 + payload.len();
        let mut bytes = [(length as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(payload);
        bytes.resize(length.next_multiple_of(4), 0);
        bytes
    }

    fn route(length: u8, attributes: &[u8]) -> Vec<u8> {
        [&[libc::AF_INET as u8, length, 0, 0, 254, 3, 0, UNICAST, 0, 0, 0, 0], attributes].concat()
    }

    #[test]
    fn routes_give_gateways_and_networks() {
        let mut host = Host::default();
        let gateway = |last| encoded(RTA_GATEWAY, &[192, 0, 2, last]);
        add_route(&mut host, &route(0, &gateway(1)));
        add_route(&mut host, &route(16, &encoded(RTA_DST, &[10, 9, 0, 0])));
        let via =
            [&(libc::AF_INET6 as u16).to_ne_bytes()[..], &[0x20, 1, 0xd, 0xb8], &[0; 11], &[9]];
        add_route(&mut host, &route(8, &encoded(RTA_VIA, &via.concat())));
        let hop = |last| {
            let inner = gateway(last);
            let size = (8 + inner.len()) as u16;
            [&size.to_ne_bytes()[..], &[0, 0, 2, 0, 0, 0], &inner].concat()
        };
        let hops = encoded(RTA_MULTIPATH, &[hop(2), hop(3)].concat());
        add_route(&mut host, &route(0, &hops));
        // The whole of a link without a gateway, a link-local one, and a single address.
        add_route(&mut host, &route(0, &[]));
        add_route(&mut host, &route(16, &encoded(RTA_DST, &[169, 254, 0, 0])));
        add_route(&mut host, &route(32, &encoded(RTA_DST, &[10, 8, 0, 1])));
        let gateways: Vec<String> = host.gateways.iter().map(ToString::to_string).collect();
        assert_eq!(gateways, ["192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::9"]);
        let networks: Vec<String> = host.networks.iter().map(ToString::to_string).collect();
        assert_eq!(networks, ["10.9.0.0/16"]);
    }

    #[test]
    fn addresses_are_the_own_ones() {
        let mut host = Host::default();
        let address = |length: u8, own: [u8; 4], peer: [u8; 4]| {
            let header = [libc::AF_INET as u8, length, 0, 0, 2, 0, 0, 0];
            [&header[..], &encoded(IFA[0], &peer), &encoded(IFA[1], &own)].concat()
        };
        add_address(&mut host, &address(24, [192, 0, 2, 7], [192, 0, 2, 7]));
        add_address(&mut host, &address(32, [10, 0, 0, 1], [10, 0, 0, 2]));
        add_address(&mut host, &address(8, [127, 0, 0, 1], [127, 0, 0, 1]));
        let addresses: Vec<String> = host.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1", "192.0.2.7"]);
        let networks: Vec<String> = host.networks.iter().map(ToString::to_string).collect();
        assert_eq!(networks, ["192.0.2.0/24"]);
    }

    #[test]
    fn broken_answers_are_not_followed() {
        let whole = route(0, &encoded(RTA_MULTIPATH, &[20, 0, 0, 0, 2, 0, 0, 0, 8, 0, 5, 0]));
        for length in 0..whole.len() {
            add_route(&mut Host::default(), &whole[..length]);
            add_address(&mut Host::default(), &whole[..length]);
        }
        let endless = route(0, &encoded(RTA_MULTIPATH, &[0; 16]));
        add_route(&mut Host::default(), &endless);
    }

    #[test]
    fn this_host_can_be_asked() {
        read().unwrap();
    }
}
