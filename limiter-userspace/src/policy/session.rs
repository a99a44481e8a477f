//! Whether a policy could cut off a connection, such as the one that it is applied over.

use std::net::IpAddr;

use ipnet::IpNet;
use limiter_common::packet::protocol::TCP;

use super::{
    lists::List,
    model::{GlobalMode, Limit, Match, Mode, OverrideWhom, Policy, Whom},
    run_time::{Layered, Phase, decides, phases},
};

/// A TCP connection from somebody to this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// From where.
    pub peer: IpAddr,
    /// From which port, if that is known.
    pub peer_port: Option<u16>,
    /// To which address, if that is known.
    pub host: Option<IpAddr>,
    /// To which port, if that is known.
    pub port: Option<u16>,
}

impl Session {
    /// The connection that `SSH_CONNECTION` tells of: the address and the port of the peer, and those
    /// of the host.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let peer = address(words.next()?)?;
        let peer_port = words.next().and_then(|port| port.parse().ok());
        let host = words.next().and_then(address);
        let port = words.next().and_then(|port| port.parse().ok());
        Some(Self { peer, peer_port, host, port })
    }
}

/// An address as packets carry it: without its zone, and IPv4 as such.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.split_once('%').map_or(text, |(address, _)| address);
    text.parse().ok().map(|address: IpAddr| address.to_canonical())
}

impl Layered<'_> {
    /// Whether packets of a connection could be dropped at `now`, in seconds of Unix time, or after a
    /// while: by a list, or by a limit that is enforced, however much it admits. What allows it for
    /// less than until `end` does not count.
    pub fn could_drop(self, session: &Session, now: u64, end: u64) -> bool {
        if self.spares(session.peer, now, end) {
            return false;
        }
        let stated = self.around(self.policy.source_of(session.peer));
        phases(&stated, now).iter().any(|phase| phase.by.list != List::Allow)
            || self.policy.could_limit(session)
    }

    /// Whether a block that some limit made of the source of a connection could hold under this policy:
    /// as long as there is any limit that blocks, whomever it is about. What allows it for less than
    /// until `end` does not count.
    pub fn could_block(self, session: &Session, now: u64, end: u64) -> bool {
        let blocks = |limit: &Limit| limit.mode == Mode::Enforce && limit.penalty.is_some();
        !self.spares(session.peer, now, end) && self.policy.limits.iter().any(blocks)
    }

    /// Whether nothing is dropped of an address from `now` until `end`, in seconds of Unix time.
    fn spares(self, address: IpAddr, now: u64, end: u64) -> bool {
        let stated = self.around(self.policy.source_of(address));
        let first = phases(&stated, now).first().copied();
        let is_lasting =
            |it: Phase<'_, '_>| it.by.list == List::Allow && it.from <= now && it.until >= end;
        self.policy.mode == GlobalMode::Monitor || first.is_some_and(is_lasting)
    }

    /// The entry of a list that decides about all sources of a prefix at `now`, in words.
    pub fn covering(self, list: List, prefix: IpNet, now: u64) -> Option<String> {
        let stated = self.around(prefix);
        decides(&stated, now).filter(|by| by.list == list).map(ToString::to_string)
    }
}

impl Policy {
    /// The source that an address is counted as.
    pub fn source_of(&self, address: IpAddr) -> IpNet {
        let whole = IpNet::from(address);
        IpNet::new(address, self.key_prefix.length_for(&whole)).map_or(whole, |net| net.trunc())
    }

    /// A prefix, or the source that it is of if that is wider.
    pub fn widened(&self, prefix: IpNet) -> IpNet {
        let narrower = prefix.prefix_len() > self.key_prefix.length_for(&prefix);
        if narrower { self.source_of(prefix.addr()) } else { prefix }
    }

    /// Whether a limit could drop packets of a connection, however much it admits.
    fn could_limit(&self, session: &Session) -> bool {
        self.limits.iter().any(|limit| {
            limit.mode == Mode::Enforce
                // One with a penalty blocks its source for all that it sends.
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

    /// Whether a limit is about a source.
    fn is_from(&self, matching: &Match, peer: IpAddr) -> bool {
        let any = |whoms: &[Whom]| whoms.iter().any(|whom| self.has(whom, peer));
        (matching.sources.is_empty() || any(&matching.sources)) && !any(&matching.except_sources)
    }

    /// Whether some packet of a connection could match, whatever its source. What packets of the same connection differ
    /// in, or comes from elsewhere, is not asked.
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

    /// Whether a limit admits only so much to an address.
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
        own.map_or(!limit.layers.is_empty(), |entry| entry.layers.is_some())
    }

    /// The tenant of an address.
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
