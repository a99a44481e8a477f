//! Addresses as requests tell them.

use std::net::IpAddr;

/// The address that a text has, without the zone of one.
pub(in crate::bridge) fn address(text: &str) -> Option<IpAddr> {
    let text = text.split_once('%').map_or(text, |(address, _)| address);
    text.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}
