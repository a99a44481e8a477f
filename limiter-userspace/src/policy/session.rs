//! Whether a policy can drop the packets of a connection, such as the SSH session that it is applied from.

use std::net::IpAddr;

use ipnet::IpNet;
use limiter_common::packet::protocol::TCP;

use super::{
    lists::List,
    model::{GlobalMode, Limit, Match, Mode, OverrideWhom, Policy, Whom},
    run_time::{Layered, Phase, decides, phases},
};

/// A TCP connection from a peer to this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The peer's address.
    pub peer: IpAddr,
    /// The peer's port, if it is known.
    pub peer_port: Option<u16>,
    /// This host's address, if it is known.
    pub host: Option<IpAddr>,
    /// This host's port, if it is known.
    pub port: Option<u16>,
}

impl Session {
    /// Parses the value of `SSH_CONNECTION`: the peer's address and port, then those of this host. `None` if
    /// it does not begin with an address.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let peer = address(words.next()?)?;
        let peer_port = words.next().and_then(|port| port.parse().ok());
        let host = words.next().and_then(address);
        let port = words.next().and_then(|port| port.parse().ok());
        Some(Self { peer, peer_port, host, port })
    }
}

/// Parses an address as packets have it: without a zone, and IPv4-mapped IPv6 as IPv4.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.split_once('%').map_or(text, |(address, _)| address);
    text.parse().ok().map(|address: IpAddr| address.to_canonical())
}

impl Layered<'_> {
    /// Whether packets of a connection can be dropped at `now` or later: by a list, or by an enforced limit,
    /// however high its rate. An `allow` entry protects the connection only if it holds until `end`. Both
    /// times are in seconds of Unix time.
    pub fn could_drop(self, session: &Session, now: u64, end: u64) -> bool {
        if self.spares(session.peer, now, end) {
            return false;
        }
        let stated = self.around(self.policy.source_of(session.peer));
        phases(&stated, now).iter().any(|phase| phase.by.list != List::Allow)
            || self.policy.could_limit(session)
    }

    /// Whether a block of the connection's source can be in force under this policy. Any limit with a penalty
    /// suffices, whatever its match: the block may come from another policy. An `allow` entry protects the
    /// source only if it holds until `end`. Both times are in seconds of Unix time.
    pub fn could_block(self, session: &Session, now: u64, end: u64) -> bool {
        let blocks = |limit: &Limit| limit.mode.drops() && limit.penalty.is_some();
        !self.spares(session.peer, now, end) && self.policy.limits.iter().any(blocks)
    }

    /// Whether no packet of an address is dropped from `now` until `end`, in seconds of Unix time: it is
    /// allowed all the time, or the policy only monitors.
    fn spares(self, address: IpAddr, now: u64, end: u64) -> bool {
        let stated = self.around(self.policy.source_of(address));
        let first = phases(&stated, now).first().copied();
        let is_lasting =
            |it: Phase<'_, '_>| it.by.list == List::Allow && it.from <= now && it.until >= end;
        self.policy.mode == GlobalMode::Monitor || first.is_some_and(is_lasting)
    }

    /// The entry that decides at `now` about all sources within `prefix`, as text, if it is of this list.
    pub fn covering(self, list: List, prefix: IpNet, now: u64) -> Option<String> {
        let stated = self.around(prefix);
        decides(&stated, now).filter(|by| by.list == list).map(ToString::to_string)
    }
}

impl Policy {
    /// The source that an address belongs to, by [`Policy::key_prefix`].
    pub fn source_of(&self, address: IpAddr) -> IpNet {
        let whole = IpNet::from(address);
        IpNet::new(address, self.key_prefix.length_for(&whole)).map_or(whole, |net| net.trunc())
    }

    /// `prefix`, or the source that it is a part of if it is narrower than one.
    pub fn widened(&self, prefix: IpNet) -> IpNet {
        self.key_prefix.widened(prefix)
    }

    /// Whether an enforced limit can drop packets of a connection, however high its rate.
    fn could_limit(&self, session: &Session) -> bool {
        self.limits.iter().any(|limit| {
            limit.mode.drops()
                // A penalty drops all packets of its source, also those that do not match.
                && (limit.penalty.is_some() || self.is_about(&limit.matching, session))
                && self.is_from(&limit.matching, session.peer)
                && self.admits_part(limit, session.peer)
        })
    }

    fn has(&self, whom: &Whom, address: IpAddr) -> bool {
        match whom {
            Whom::Prefix(prefix) => prefix.contains(&address),
            Whom::Set(name) => {
                self.sets.get(name).is_some_and(|set| set.iter().any(|it| it.contains(&address)))
            }
        }
    }

    /// Whether the sources of a match include `peer`.
    fn is_from(&self, matching: &Match, peer: IpAddr) -> bool {
        let any = |whoms: &[Whom]| whoms.iter().any(|whom| self.has(whom, peer));
        (matching.sources.is_empty() || any(&matching.sources)) && !any(&matching.except_sources)
    }

    /// Whether packets of a connection can meet a match, by protocol, host address and host port. Other
    /// conditions (interface, flags, length, fragments) are taken as met: packets of one connection differ in
    /// them. The sources of the match are not checked here.
    fn is_about(&self, matching: &Match, session: &Session) -> bool {
        let any = |whoms: &[Whom], address| whoms.iter().any(|whom| self.has(whom, address));
        let Match { protocols, ports, icmp_types, .. } = matching;
        let to = session.host;
        (protocols.is_empty() || protocols.contains(&TCP))
            && icmp_types.is_empty()
            && session.port.is_none_or(|port| {
                ports.is_empty() || ports.iter().any(|range| range.contains(&port))
            })
            && to.is_none_or(|to| {
                (matching.destinations.is_empty() || any(&matching.destinations, to))
                    && !any(&matching.except_destinations, to)
            })
    }

    /// Whether a limit has a rate for an address: its own override, that of its tenant, or the layers.
    fn admits_part(&self, limit: &Limit, address: IpAddr) -> bool {
        let tenant = self.tenant_of(address);
        if tenant.is_none() && limit.is_of_tenants() {
            return false;
        }
        let longest = limit
            .overrides
            .iter()
            .filter_map(|entry| match entry.whom {
                OverrideWhom::Prefix(prefix) if prefix.contains(&address) => {
                    Some((prefix.prefix_len(), entry))
                }
                _ => None,
            })
            .max_by_key(|(length, _)| *length)
            .map(|(_, entry)| entry);
        let own = longest.or_else(|| {
            let of_tenant = |whom: &OverrideWhom| {
                matches!(whom, OverrideWhom::Tenant(name) if tenant == Some(name))
            };
            limit.overrides.iter().find(|entry| of_tenant(&entry.whom))
        });
        own.map_or(!limit.layers.is_empty() || limit.mode == Mode::Drop, |entry| {
            entry.layers.is_some()
        })
    }

    /// The tenant of an address: the one with the longest prefix around it.
    fn tenant_of(&self, address: IpAddr) -> Option<&String> {
        self.tenants
            .iter()
            .filter_map(|(name, prefixes)| {
                let within = prefixes.iter().filter(|prefix| prefix.contains(&address));
                within.map(IpNet::prefix_len).max().map(|length| (length, name))
            })
            .max_by_key(|(length, _)| *length)
            .map(|(_, name)| name)
    }
}

#[cfg(test)]
mod tests;
