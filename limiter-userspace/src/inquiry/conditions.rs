//! What the limits ask of a packet, one thing at a time.

use limiter_common::{class::section, packet::Packet};

use super::{decide::applicable, tables::Tables};
use crate::{
    error::Result,
    policy::model::{Count, Limit, Match},
};

/// The things that are asked, with a word for each, in the order in which they are told.
pub(super) const CONDITIONS: [(u32, &str); 8] = [
    (section::PROTOCOL, "protocol"),
    (section::PORT, "port"),
    (section::FLAGS, "flags"),
    (section::ICMP, "icmp"),
    (section::FRAGMENT, "fragment"),
    (section::LENGTH, "length"),
    (section::INTERFACE, "interface"),
    (section::DESTINATION, "destination"),
];

/// The limits that accept each thing of a packet, by its place in [`CONDITIONS`], as bits.
pub(super) struct Accepted([u64; CONDITIONS.len()]);

impl Accepted {
    /// Looks at each thing of a packet that is `given`; the others are accepted.
    pub(super) fn by(
        tables: &Tables<'_>,
        (packet, bytes, slot): (&Packet, u64, u32),
        given: u32,
    ) -> Result<Self> {
        let mut sets = [u64::MAX; CONDITIONS.len()];
        for (set, (section, _)) in sets.iter_mut().zip(CONDITIONS) {
            let sections = tables.settings.sections & section & given;
            *set = applicable(tables, packet, bytes, slot, sections)?;
        }
        Ok(Self(sets))
    }

    /// The first thing that a limit does not accept.
    pub(super) fn against(&self, bit: u64) -> Option<&'static str> {
        let mut refusing = self.0.iter().zip(CONDITIONS).filter(|(set, _)| *set & bit == 0);
        refusing.next().map(|(_, (_, word))| word)
    }
}

/// The things of a packet that a limit asks about.
pub(super) fn asked(limit: &Limit) -> u32 {
    let Match { protocols, ports, tcp_flags, icmp_types, fragments, length, interfaces, .. } =
        &limit.matching;
    let Match { destinations, except_destinations, .. } = &limit.matching;
    let opens = matches!(limit.count, Count::Syns | Count::Connections);
    [
        (section::PROTOCOL, !protocols.is_empty()),
        (section::PORT, !ports.is_empty()),
        (section::FLAGS, tcp_flags.is_some() || opens),
        (section::ICMP, !icmp_types.is_empty()),
        (section::FRAGMENT, fragments.is_some()),
        (section::LENGTH, length.is_some()),
        (section::INTERFACE, !interfaces.is_empty()),
        (section::DESTINATION, !destinations.is_empty() || !except_destinations.is_empty()),
    ]
    .into_iter()
    .filter(|(_, asked)| *asked)
    .fold(0, |sections, (section, _)| sections | section)
}

/// The words for things.
pub(super) fn words(sections: u32) -> Vec<&'static str> {
    CONDITIONS
        .iter()
        .filter(|(section, _)| sections & section != 0)
        .map(|(_, word)| *word)
        .collect()
}
