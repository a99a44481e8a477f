//! The cases measured without a wire: a policy, a frame, and the expected outcome.

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

/// The sources of the frames of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sources {
    /// One source.
    One,
    /// One source, which opens another TCP connection with each frame.
    NewConnections,
    /// A new IPv4 source for every frame.
    MadeUp,
    /// A new IPv6 source for every frame.
    MadeUp6,
    /// A random one of so many sources, a power of two, all of which have an entry.
    Tracked(u32),
}

/// One path of a frame through the limiter.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The id in JSON and for `--only`.
    pub(crate) id: String,
    /// The name in the report.
    pub(crate) name: String,
    /// The policy and table sizes of its instance.
    pub(crate) setting: Setting,
    /// The frame.
    pub(crate) frame: Vec<u8>,
    /// The sources that the program sees.
    pub(crate) sources: Sources,
    /// The reasons under which frames have to be counted.
    pub(crate) outcome: Outcome,
    /// The limits to which every passed frame has to be charged.
    pub(crate) charged: Vec<String>,
    /// The limit that has to refuse every frame; `None` if frames pass.
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

    /// The case with another reason for passing; frames are charged as before.
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

/// The id of the case to which all others are compared.
pub(crate) const REFERENCE: &str = "known_source";
/// A known source under a burst that takes ten seconds to refill.
pub(crate) const DEEP: &str = "known_source_by_tick";
/// A known source under a burst that takes two seconds to refill.
pub(crate) const ORDINARY: &str = "ordinary_source";
/// A known source under a burst that refills in less than eight ticks, so that each packet reads the clock.
pub(crate) const ORDINARY_SMALL: &str = "ordinary_source_small";
/// A new source for every packet, under a burst of that size.
pub(crate) const NEW_SMALL: &str = "new_source_small";
/// The case with one override.
pub(crate) const ONE_OVERRIDE: &str = "overrides_1";
/// The case with 10,000 overrides.
pub(crate) const MANY_OVERRIDES: &str = "overrides_10000";
/// A new source for every packet, in a table whose entries all owe.
pub(crate) const NEW_OWING: &str = "new_source_owing_64k";

/// The measured keys other than the source.
pub(crate) const KEYS: [Keyed; 4] =
    [Keyed::All, Keyed::Connection, Keyed::Destination, Keyed::Network];

/// The measured numbers of tracked sources.
pub(crate) const TRACKED: [u32; 6] = [1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22];
/// The numbers of tracked sources in a quick run.
pub(crate) const FEW_TRACKED: [u32; 3] = [1 << 10, 1 << 16, 1 << 20];

/// A later fragment from the known source.
pub(crate) fn later_fragment() -> Frame {
    Frame::udp(SOURCE4, TARGET4, 40_000, 53).payload(32).fragment(7, 9, true)
}

/// A frame with the ethertype of IPv4 and no valid IPv4 header.
pub(crate) fn unreadable() -> Frame {
    Frame::other(IPV4, [0; 46])
}

/// Returns all cases in the order of the report, with these numbers of tracked sources.
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
        // A new connection gets a slot only when another one has expired.
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
        // Limits on connections apply to TCP only.
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

/// Formats a multiple of 1,024 in units of k (2^10) or M (2^20).
pub(crate) fn binary(number: u32) -> String {
    if number < 1 << 20 { format!("{} k", number >> 10) } else { format!("{} M", number >> 20) }
}

/// Like [`binary`]; a number below 1,024 is printed as it is.
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
