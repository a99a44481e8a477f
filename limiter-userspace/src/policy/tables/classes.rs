//! Compiles which limits match which properties of a packet, apart from its source.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use limiter_common::{
    base::address::Address,
    packet::protocol::{TCP, UNKNOWN_PROTOCOL},
    policy::{
        limit::{INTERFACES, KEYED, WIDE},
        matching::{match_field, offset},
    },
};

use super::{
    super::{
        error::PolicyError,
        model::{Count, Match, Policy, TcpFlags, Whom},
    },
    rows::{Row, Rows},
};
use crate::policy::tables::assignment::Assignment;

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// The ports of one kind that a match has.
type Ports = fn(&Match) -> &Vec<RangeInclusive<u16>>;

/// For each value of each property, the set of limits that accept it.
pub(super) struct Classes {
    pub(super) match_fields: u32,
    pub(super) sets: Vec<(u32, Vec<u64>)>,
    pub(super) elsewhere: u64,
    pub(super) destinations: Vec<(u32, Address, u64)>,
}

impl Classes {
    pub(super) fn new(
        policy: &Policy,
        rows: &Rows<'_>,
        held: &Assignment,
    ) -> Result<Self, PolicyError> {
        let mut classes =
            Self { match_fields: 0, sets: Vec::new(), elsewhere: 0, destinations: Vec::new() };
        let flags: Vec<Option<TcpFlags>> = rows.iter().map(flags).collect();
        let opens: Vec<bool> = rows.iter().map(counts_openings).collect();
        let protocols: Vec<Vec<u8>> = rows.iter().map(protocols).collect();
        classes.match_field(rows, match_field::PROTOCOL, offset::PROTOCOL, 256, |at, _, value| {
            let protocols = &protocols[at];
            accept(protocols.is_empty(), || {
                value == u32::from(UNKNOWN_PROTOCOL)
                    || protocols.iter().any(|it| u32::from(*it) == value)
            })
        });
        let end = offset::FLAGS_LATER + 1 - offset::FLAGS;
        classes.match_field(rows, match_field::FLAGS, offset::FLAGS, end, |at, _, value| {
            let TcpFlags { set, clear } = flags[at]?;
            Some(match u8::try_from(value) {
                Ok(bits) => bits & set == set && bits & clear == 0,
                Err(_) => match offset::FLAGS + value {
                    offset::FLAGS_UNKNOWN => true,
                    offset::FLAGS_LATER => !opens[at],
                    _ => false,
                },
            })
        });
        let end = offset::ICMP_UNKNOWN + 1 - offset::ICMP;
        classes.match_field(rows, match_field::ICMP, offset::ICMP, end, |_, it, value| {
            let types = &it.icmp_types;
            let unknown = offset::ICMP + value == offset::ICMP_UNKNOWN;
            accept(types.is_empty(), || unknown || types.iter().any(|it| u32::from(*it) == value))
        });
        classes.match_field(rows, match_field::FRAGMENT, offset::FRAGMENT, 2, |_, it, value| {
            it.fragments.map(|wanted| wanted == (value == 1))
        });
        classes.match_field(
            rows,
            match_field::INTERFACE,
            offset::INTERFACE,
            INTERFACES,
            |_, it, value| {
                let named = || it.interfaces.iter().any(|word| held.means(word, value));
                accept(it.interfaces.is_empty(), named)
            },
        );
        for (match_field, [first, unknown], ports) in [
            (match_field::PORT, [offset::PORT, offset::PORT_UNKNOWN], (|it| &it.ports) as Ports),
            (match_field::SOURCE_PORT, [offset::SOURCE_PORT, offset::SOURCE_PORT_UNKNOWN], |it| {
                &it.source_ports
            }),
        ] {
            classes.match_field(rows, match_field, first, unknown + 1 - first, |_, it, value| {
                let (ports, is_unknown) = (ports(it), first + value == unknown);
                accept(ports.is_empty(), || is_unknown || within(ports, value))
            });
        }
        let end = offset::SOURCE_PORT - offset::LENGTH;
        classes.match_field(rows, match_field::LENGTH, offset::LENGTH, end, |_, it, value| {
            it.length.as_ref().map(|length| within(std::slice::from_ref(length), value))
        });
        classes.destinations(policy, rows)?;
        check(rows, held)?;
        Ok(classes)
    }

    /// Builds the sets of a property, if a limit has a condition on it. `accepts` tells whether the limit of
    /// a row accepts a value; `None` if it has no condition on the property.
    fn match_field(
        &mut self,
        rows: &Rows<'_>,
        match_field: u32,
        first: u32,
        values: u32,
        accepts: impl Fn(usize, &Match, u32) -> Option<bool>,
    ) {
        let asks: Vec<bool> = rows
            .iter()
            .enumerate()
            .map(|(at, row)| accepts(at, &row.limit.matching, 0).is_some())
            .collect();
        if !asks.contains(&true) {
            return;
        }
        let mut sets = vec![u64::MAX; values as usize];
        for (at, row) in rows.iter().enumerate().filter(|(at, _)| asks[*at]) {
            for (set, value) in sets.iter_mut().zip(0..) {
                if accepts(at, &row.limit.matching, value) == Some(false) {
                    *set &= !(1 << at);
                }
            }
        }
        self.match_fields |= match_field;
        self.sets.push((first, sets));
    }

    fn destinations(&mut self, policy: &Policy, rows: &Rows<'_>) -> Result<(), PolicyError> {
        // For each prefix, the limits that name it and those that except it.
        let mut prefixes: BTreeMap<IpNet, [u64; 2]> = BTreeMap::new();
        // As in the profiles, many limits may name the same large set, whose prefixes are processed once.
        let mut asked: BTreeMap<&Whom, [u64; 2]> = BTreeMap::new();
        self.elsewhere = u64::MAX;
        for (at, row) in rows.iter().enumerate() {
            let Match { destinations, except_destinations, .. } = &row.limit.matching;
            if !destinations.is_empty() {
                self.elsewhere &= !(1 << at);
            }
            for (side, whoms) in [destinations, except_destinations].into_iter().enumerate() {
                for whom in whoms {
                    asked.entry(whom).or_default()[side] |= 1 << at;
                }
            }
        }
        for (whom, [named, excepted]) in asked {
            for prefix in policy.prefixes_of(std::slice::from_ref(whom))? {
                let sets = prefixes.entry(prefix).or_default();
                sets[0] |= named;
                sets[1] |= excepted;
            }
        }
        if prefixes.is_empty() {
            if self.elsewhere == u64::MAX {
                return Ok(());
            }
            // Only sets without prefixes are named. These limits accept no destination, so the destination
            // must be looked up.
            prefixes.insert(Ipv4Net::default().into(), [0; 2]);
            prefixes.insert(Ipv6Net::default().into(), [0; 2]);
        }
        self.match_fields |= match_field::DESTINATION;
        // As in the profiles, the prefixes around the present one are a stack.
        let mut around: Vec<(IpNet, [u64; 2])> = Vec::new();
        for (prefix, [named, excepted]) in prefixes {
            while around.pop_if(|(outer, _)| !outer.contains(&prefix)).is_some() {}
            let [outer, barred] = around.last().map_or([self.elsewhere, 0], |(_, sets)| *sets);
            let sets = [outer | named, barred | excepted];
            let bits = Address::FAMILY_BITS + u32::from(prefix.prefix_len());
            self.destinations.push((bits, prefix.addr().into(), sets[0] & !sets[1]));
            around.push((prefix, sets));
        }
        Ok(())
    }
}

/// The result of a condition; `None` if `any` says that there is none.
fn accept(any: bool, accepts: impl FnOnce() -> bool) -> Option<bool> {
    if any { None } else { Some(accepts()) }
}

fn within(ranges: &[RangeInclusive<u16>], value: u32) -> bool {
    u16::try_from(value).is_ok_and(|value| ranges.iter().any(|range| range.contains(&value)))
}

/// The protocols that a row matches: those of its limit, or TCP if it counts open connections.
fn protocols(row: &Row<'_>) -> Vec<u8> {
    let own = &row.limit.matching.protocols;
    if own.is_empty() && row.is_of_connections() { vec![TCP] } else { own.clone() }
}

/// The flags that a row matches: those of its limit, and for a count of SYNs or new connections also SYN
/// without ACK. A row that counts open connections must see all packets of those.
fn flags(row: &Row<'_>) -> Option<TcpFlags> {
    let own = row.limit.matching.tcp_flags;
    if !counts_openings(row) {
        return own;
    }
    let TcpFlags { set, clear } = own.unwrap_or(TcpFlags { set: 0, clear: 0 });
    Some(TcpFlags { set: set | SYN, clear: clear | ACK })
}

/// Whether the row counts packets that open a connection.
fn counts_openings(row: &Row<'_>) -> bool {
    matches!(row.limit.count, Count::Syns | Count::Connections) && !row.is_of_connections()
}

/// Checks that no packet can match more keyed rows than the datapath evaluates, or more rows with wide state.
/// Rows that drop everything at once are none of them. Keyed rows include those of the source for which its entry has no word left.
fn check(rows: &Rows<'_>, held: &Assignment) -> Result<(), PolicyError> {
    let by_key = |row: &&Row<'_>| {
        let is_keyed = held.get(&row.identity()).is_some_and(|place| place.word.is_none());
        is_keyed && !row.drops_at_once()
    };
    let keyed: Vec<&Row<'_>> = rows.iter().filter(by_key).collect();
    let wide: Vec<&Row<'_>> = rows.iter().filter(|row| row.is_wide()).collect();
    for (rows, most, what) in [
        (keyed, KEYED, "that are not kept per source"),
        (wide, WIDE, "by `sliding_log` or `concurrent`"),
    ] {
        if rows.len() > most
            && let Some((kind, limits)) = together(&rows).find(|(_, limits)| limits.len() > most)
        {
            let limits = limits.into_iter().map(Row::name).collect();
            return Err(PolicyError::TooManyAtOnce {
                packet: kind.to_string(),
                limits,
                most,
                what,
            });
        }
    }
    Ok(())
}

/// A kind of packets.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    /// The protocol; `None` for one that no limit names.
    protocol: Option<u8>,
    /// The destination port; `None` for no port, or for one that no limit names.
    port: Option<u16>,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Some(protocol) => write!(formatter, "protocol {protocol}")?,
            None => formatter.write_str("any protocol")?,
        }
        match self.port {
            Some(port) => write!(formatter, ", port {port}"),
            None => Ok(()),
        }
    }
}

/// For each kind of packets, the rows that can match a packet of it. Only protocols and ports are
/// distinguished, so the result may have rows that never match together. More rows can match a packet whose
/// port or protocol is hidden; the datapath then evaluates the first ones.
pub(super) fn together<'r, 'a>(
    rows: &[&'r Row<'a>],
) -> impl Iterator<Item = (Kind, Vec<&'r Row<'a>>)> {
    let mut protocols: Vec<Option<u8>> = vec![None];
    let mut ports: Vec<Option<u16>> = vec![None];
    for row in rows {
        protocols.extend(row.limit.matching.protocols.iter().copied().map(Some));
        ports.extend(row.limit.matching.ports.iter().map(|range| Some(*range.start())));
    }
    protocols.sort_unstable();
    protocols.dedup();
    ports.sort_unstable();
    ports.dedup();
    let kinds = protocols.into_iter().flat_map(move |protocol| {
        let ports = ports.clone().into_iter();
        ports.map(move |port| Kind { protocol, port })
    });
    kinds.map(|kind| (kind, rows.iter().copied().filter(|row| can_be_about(row, kind)).collect()))
}

/// Whether a row can match a packet of a kind.
fn can_be_about(row: &Row<'_>, Kind { protocol, port }: Kind) -> bool {
    let it = &row.limit.matching;
    // A packet of an unknown protocol has no port, and may be of any protocol.
    let fits = protocol.map_or(port.is_none(), |protocol| it.protocols.contains(&protocol));
    (it.protocols.is_empty() || fits)
        && (it.ports.is_empty() || port.is_some_and(|port| within(&it.ports, u32::from(port))))
}

impl Policy {
    /// The prefixes that sets and prefixes stand for.
    ///
    /// # Errors
    /// [`PolicyError::Undefined`] for a set that does not exist.
    pub(crate) fn prefixes_of(&self, whom: &[Whom]) -> Result<Vec<IpNet>, PolicyError> {
        let mut prefixes = Vec::new();
        for whom in whom {
            match whom {
                Whom::Prefix(prefix) => prefixes.push(*prefix),
                Whom::Set(name) => prefixes.extend(self.sets.get(name).ok_or_else(|| {
                    PolicyError::Undefined { what: "set", name: super::super::units::quoted(name) }
                })?),
            }
        }
        Ok(prefixes)
    }
}
