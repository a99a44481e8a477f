//! What is measured without a wire: policies, frames, and what has to become of them.

use anyhow::Result;
use limiter_common::packet::reason::Reason;
use limiter_tests::packet::{ACK, Frame, IPV4, SYN};

use super::{
    example, flood,
    outcome::Outcome,
    setting::{Keyed, OWN, Setting, Stack},
};

pub(crate) const SOURCE4: [u8; 4] = [10, (OWN >> 8) as u8, OWN as u8, 7];
pub(crate) const TARGET4: [u8; 4] = [198, 51, 100, 1];
pub(crate) const SOURCE6: [u16; 8] = [0x2001, 0xdb8, 0, 1, 0, 0, 0, 7];
pub(crate) const TARGET6: [u16; 8] = [0x2001, 0xdb8, 0, 2, 0, 0, 0, 1];

/// Whom the frames of a case are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sources {
    /// One source.
    One,
    /// One source, which opens another connection of TCP each time.
    NewConnections,
    /// Another one each time.
    MadeUp,
    /// The same over IPv6.
    MadeUp6,
    /// One of so many, a power of two, at random, each of which was seen before.
    Tracked(u32),
}

/// One way of a frame through the limiter.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Its name for scripts.
    pub(crate) id: String,
    /// Its name for people.
    pub(crate) name: String,
    /// The instance that it is measured on.
    pub(crate) setting: Setting,
    /// The frame.
    pub(crate) frame: Vec<u8>,
    /// The sources that its runs see.
    pub(crate) sources: Sources,
    /// The reasons that frames have to be counted under.
    pub(crate) outcome: Outcome,
    /// The limits that every frame has to be charged to which passes.
    pub(crate) charged: Vec<String>,
    /// The limit that has to refuse every frame.
    pub(crate) exceeded: Option<&'static str>,
}

impl Case {
    pub(crate) fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        setting: Setting,
        frame: &Frame,
    ) -> Result<Self> {
        let exceeded = setting.exceeded();
        Ok(Self {
            id: id.into(),
            name: name.into(),
            setting,
            frame: frame.clone().padded().build(),
            sources: Sources::One,
            outcome: Outcome::Each(if exceeded.is_some() {
                Reason::Exceed
            } else {
                Reason::Conform
            }),
            charged: setting.charged()?,
            exceeded,
        })
    }

    fn not_ip(self) -> Self {
        Self { outcome: Outcome::Each(Reason::NonIp), charged: Vec::new(), ..self }
    }

    /// Passes for this reason, charged as any other frame.
    pub(crate) fn passes(self, reason: Reason) -> Self {
        Self { outcome: Outcome::Each(reason), ..self }
    }

    fn denied(self) -> Self {
        Self { outcome: Outcome::Each(Reason::Deny), ..self }
    }

    pub(crate) fn of(self, sources: Sources) -> Self {
        Self { sources, ..self }
    }
}

/// The case that the others are compared with.
pub(crate) const REFERENCE: &str = "known_source";
/// The same of a burst that takes ten seconds to refill.
pub(crate) const DEEP: &str = "known_source_by_tick";
/// The same of one that takes two seconds.
pub(crate) const ORDINARY: &str = "ordinary_source";
/// The same of one that takes less than eight ticks, so that each packet takes the clock.
pub(crate) const ORDINARY_SMALL: &str = "ordinary_source_small";
/// That of a new source with every packet, under a limit with such a burst.
pub(crate) const NEW_SMALL: &str = "new_source_small";
/// The case with one override.
pub(crate) const ONE_OVERRIDE: &str = "overrides_1";
/// The case with many.
pub(crate) const MANY_OVERRIDES: &str = "overrides_10000";
/// That of a new source with every packet, where all that are in the table owe something.
pub(crate) const NEW_OWING: &str = "new_source_owing_64k";

/// The keys of one limit that are not the source.
pub(crate) const KEYS: [Keyed; 4] =
    [Keyed::All, Keyed::Connection, Keyed::Destination, Keyed::Network];

/// The numbers of sources that are tracked, from which they come at random.
pub(crate) const TRACKED: [u32; 6] = [1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22];
/// Those of a short run.
pub(crate) const FEW_TRACKED: [u32; 3] = [1 << 10, 1 << 16, 1 << 20];

/// A fragment that is not the first of its datagram, of the known source.
pub(crate) fn later_fragment() -> Frame {
    Frame::udp(SOURCE4, TARGET4, 40_000, 53).payload(32).fragment(7, 9, true)
}

/// A frame that says it is IPv4, and is not.
pub(crate) fn unreadable() -> Frame {
    Frame::other(IPV4, [0; 46])
}

/// All cases, in the order of the report, with these numbers of sources that are tracked.
pub(crate) fn cases(tracked: &[u32]) -> Result<Vec<Case>> {
    let udp = Frame::udp(SOURCE4, TARGET4, 40_000, 53);
    let udp6 = Frame::udp(SOURCE6, TARGET6, 40_000, 53);
    let tagged = udp.clone().tag(0x88a8, 5).tag(0x8100, 6);
    let syn = Frame::tcp(SOURCE4, TARGET4, 40_000, 443, SYN);
    let ack = Frame::tcp(SOURCE4, TARGET4, 40_000, 443, ACK);
    let later = later_fragment();
    let unreadable = unreadable();
    let arp = Frame::other(0x0806, [0; 28]);
    let case = |id: &str, name: &str, setting, frame| Case::new(id, name, setting, frame);
    let mut cases = vec![
        case("non_ip", "not IP (ARP)", Setting::Source, &arp)?.not_ip(),
        case("observe", "known source, no limit", Setting::Observe, &udp)?,
        case(REFERENCE, "known source, one limit", Setting::Source, &udp)?,
        case(DEEP, "known source, one limit of 10 s, by the tick", Setting::Deep, &udp)?,
        case(ORDINARY, "known source, well under a large limit", Setting::Ordinary, &udp)?,
        case(ORDINARY_SMALL, "known source, within a burst of 999", Setting::Small, &udp)?,
        case("over_limit", "known source, over a limit of 1/min", Setting::Over, &udp)?,
        case(
            "over_limit_often",
            "known source, over a limit of 1,000/s",
            Setting::OverOften,
            &udp,
        )?,
        case(
            "over_limit_connection",
            "over its limit, within that of the connection",
            Setting::OverConnection,
            &udp,
        )?,
        case("denied", "known source, denied", Setting::Denied, &udp)?.denied(),
        case("ipv6", "known source, one limit, IPv6", Setting::Source, &udp6)?,
        case("ipv6_small", "IPv6, within a burst of 999", Setting::Small, &udp6)?,
        case("ipv6_over_limit", "IPv6, over a limit of 1/min", Setting::Over, &udp6)?,
        case("qinq", "known source, one limit, two VLAN tags", Setting::Source, &tagged)?,
        case("syn_source", "known source, SYN: syn + source", Setting::SynSource, &syn)?,
        case("connection_source", "connection + source", Setting::ConnectionSource, &udp)?,
        case(
            "later_fragment",
            "known source, one limit, a later fragment",
            Setting::Source,
            &later,
        )?
        .passes(Reason::Fragment),
        case("unreadable", "source that cannot be read, one limit", Setting::Source, &unreadable)?
            .passes(Reason::Unreadable),
        case("all_limits", "SYN: connection + syn + source", Setting::All, &syn)?,
    ];
    for key in KEYS {
        let (id, name) =
            (format!("key_{}", key.name()), format!("known, one limit, key: {}", key.document()));
        cases.push(Case::new(id, name, Setting::Keyed(key), &udp)?);
    }
    for number in [2, 4, 8] {
        let (id, name) = (format!("limits_{number}"), format!("{number} limits of the source"));
        cases.push(Case::new(id, name, Setting::Limits(number), &udp)?);
    }
    for stack in Stack::ALL {
        let (id, name) = (
            format!("stacked_{}", stack.name()),
            format!("{} limits {} on one packet, new ports each", stack.limits(), stack.name()),
        );
        let case = Case::new(id, name, Setting::Stacked(stack), &syn)?.of(Sources::NewConnections);
        // Places of open connections are given to new ones while others are left.
        let outcome = match stack {
            Stack::Concurrent => Outcome::Most(&[Reason::Exceed, Reason::Conform], &[]),
            Stack::SlidingLog | Stack::Buckets => case.outcome,
        };
        cases.push(Case { outcome, ..case });
    }
    for number in [16, 64] {
        let (id, name) =
            (format!("scoped_{number}"), format!("one limit that is about it, of {number}"));
        cases.push(Case::new(id, name, Setting::Scoped(number), &udp)?);
    }
    for setting in Setting::algorithms() {
        // Connections are those of TCP.
        let (id, name) = (setting.directory(), format!("one limit, {}", setting.directory()));
        cases.push(Case::new(id, name, setting, &ack)?);
    }
    for (number, name) in [
        (1, "known source, 1 override"),
        (100, "known source, 100 overrides"),
        (10_000, "known source, 10,000 overrides"),
        (100_000, "known source, 100,000 overrides"),
    ] {
        cases.push(Case::new(
            format!("overrides_{number}"),
            name,
            Setting::Overrides(number),
            &udp,
        )?);
    }
    for (id, name, setting) in [
        ("new_source_64k", "new source every packet, room for 64 k", Setting::Spoofed),
        ("new_source_1m", "new source every packet, room for 1 M", Setting::SpoofedDefault),
        (
            NEW_SMALL,
            "new source every packet, a burst of 999, room for 64 k",
            Setting::SpoofedSmall,
        ),
        (
            "new_source_penalty",
            "new source every packet, penalty, room for 64 k",
            Setting::SpoofedPenalty,
        ),
        (NEW_OWING, "new source every packet, all owe, room for 64 k", Setting::SpoofedOwing),
        (
            "new_source_owing_1m",
            "new source every packet, all owe, room for 1 M",
            Setting::SpoofedOwingDefault,
        ),
    ] {
        cases.push(case(id, name, setting, &udp)?.of(Sources::MadeUp));
    }
    let (id, name) = ("new_source_denied", "new source every packet, denied, room for 64 k");
    cases.push(case(id, name, Setting::Denied, &udp)?.denied().of(Sources::MadeUp));
    let (id, name) =
        ("new_source_syn", "new source every packet, SYN: syn + source, room for 64 k");
    cases.push(case(id, name, Setting::SpoofedSyns, &syn)?.of(Sources::MadeUp));
    let (id, name) = ("new_syn", "known source, a new SYN every packet, count: connections");
    cases.push(case(id, name, Setting::NewSyn, &syn)?.of(Sources::NewConnections));
    let (id, name) = ("new_source_connection", "new source every packet, SYN, room for 64 k");
    cases.push(case(id, name, Setting::SpoofedConnections, &syn)?.of(Sources::MadeUp));
    for number in tracked {
        let short = binary(*number);
        let (id, name) = (short.replace(' ', ""), format!("{short} known sources at random"));
        let case = Case::new(format!("tracked_{id}"), name, Setting::Tracked(*number), &udp)?;
        cases.push(case.of(Sources::Tracked(*number)));
    }
    cases.extend(flood::cases()?);
    cases.extend(example::cases()?);
    Ok(cases)
}

/// A number that is a multiple of 1,024, in such thousands or millions.
pub(crate) fn binary(number: u32) -> String {
    if number < 1 << 20 { format!("{} k", number >> 10) } else { format!("{} M", number >> 20) }
}

/// The same, or a number below 1,024 as it is.
pub(crate) fn short(number: u32) -> String {
    if number < 1 << 10 { number.to_string() } else { binary(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_have_names_of_their_own() {
        let cases = cases(&TRACKED).unwrap();
        let mut names: Vec<_> = cases.iter().flat_map(|case| [&case.id, &case.name]).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 2 * cases.len());
        for id in [REFERENCE, ONE_OVERRIDE, MANY_OVERRIDES, "tracked_64k", "tracked_4M"] {
            assert!(cases.iter().any(|case| case.id == id), "{id}");
        }
    }
}
