//! The conditions of limits on a packet, one field at a time.

use limiter_common::{packet::headers::Packet, policy::matching::match_field};

use super::{decide::applicable, tables::Tables};
use crate::{
    error::Result,
    policy::model::{Count, Limit, Match},
};

/// The fields that limits match on, each with the word for it, in the order in which they are
/// checked and listed.
pub(super) const CONDITIONS: [(u32, &str); 9] = [
    (match_field::PROTOCOL, "protocol"),
    (match_field::PORT, "port"),
    (match_field::SOURCE_PORT, "source port"),
    (match_field::FLAGS, "flags"),
    (match_field::ICMP, "icmp"),
    (match_field::FRAGMENT, "fragment"),
    (match_field::LENGTH, "length"),
    (match_field::INTERFACE, "interface"),
    (match_field::DESTINATION, "destination"),
];

/// For each of the [`CONDITIONS`], the bit set of the limits that accept the packet's field.
pub(super) struct Accepted([u64; CONDITIONS.len()]);

impl Accepted {
    /// Checks the fields that are `given`, constants of [`match_field`] or-ed. Every limit accepts
    /// the other fields.
    pub(super) fn by(
        tables: &Tables<'_>,
        (packet, bytes, slot): (&Packet, u64, u32),
        given: u32,
    ) -> Result<Self> {
        let mut sets = [u64::MAX; CONDITIONS.len()];
        for (set, (match_field, _)) in sets.iter_mut().zip(CONDITIONS) {
            let match_fields = tables.settings.match_fields & match_field & given;
            *set = applicable(tables, packet, bytes, slot, match_fields)?;
        }
        Ok(Self(sets))
    }

    /// The word for the first field that the limit of `bit` does not accept; `None` if it accepts
    /// all.
    pub(super) fn against(&self, bit: u64) -> Option<&'static str> {
        let mut refusing = self.0.iter().zip(CONDITIONS).filter(|(set, _)| *set & bit == 0);
        refusing.next().map(|(_, (_, word))| word)
    }
}

/// The fields that a limit matches on: constants of [`match_field`], or-ed.
pub(super) fn asked(limit: &Limit) -> u32 {
    let Match { protocols, ports, tcp_flags, icmp_types, fragments, length, interfaces, .. } =
        &limit.matching;
    let Match { source_ports, destinations, except_destinations, .. } = &limit.matching;
    let opens = matches!(limit.count, Count::Syns | Count::Connections);
    [
        (match_field::PROTOCOL, !protocols.is_empty()),
        (match_field::PORT, !ports.is_empty()),
        (match_field::SOURCE_PORT, !source_ports.is_empty()),
        (match_field::FLAGS, tcp_flags.is_some() || opens),
        (match_field::ICMP, !icmp_types.is_empty()),
        (match_field::FRAGMENT, fragments.is_some()),
        (match_field::LENGTH, length.is_some()),
        (match_field::INTERFACE, !interfaces.is_empty()),
        (match_field::DESTINATION, !destinations.is_empty() || !except_destinations.is_empty()),
    ]
    .into_iter()
    .filter(|(_, asked)| *asked)
    .fold(0, |match_fields, (match_field, _)| match_fields | match_field)
}

/// The words for fields, in the order of [`CONDITIONS`].
pub(super) fn words(match_fields: u32) -> Vec<&'static str> {
    CONDITIONS
        .iter()
        .filter(|(match_field, _)| match_fields & match_field != 0)
        .map(|(_, word)| *word)
        .collect()
}
