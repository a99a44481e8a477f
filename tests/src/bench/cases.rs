//! All cases that are measured without a wire.

use anyhow::Result;
use limiter_common::packet::reason::Reason;
use limiter_tests::packet::{ACK, Frame, SYN};

use super::{
    case::{
        Case, DEEP, NEW_OWING, NEW_SMALL, ORDINARY, ORDINARY_SMALL, REFERENCE, SOURCE4, SOURCE6,
        Sources, TARGET4, TARGET6, binary, later_fragment, unreadable,
    },
    example, flood,
    outcome::Outcome,
    setting::{Keyed, Setting, Stack},
};

/// The measured keys other than the source.
pub(crate) const KEYS: [Keyed; 4] =
    [Keyed::All, Keyed::Connection, Keyed::Destination, Keyed::Network];

/// The measured numbers of tracked sources.
pub(crate) const TRACKED: [u32; 6] = [1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22];
/// The numbers of tracked sources in a quick run.
pub(crate) const FEW_TRACKED: [u32; 3] = [1 << 10, 1 << 16, 1 << 20];

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
        case(
            "over_connection",
            "within its limit, over that of the connection",
            Setting::OverSource,
            &udp,
        )?,
        case("denied", "known source, denied", Setting::Denied { ends: false }, &udp)?.denied(),
        case(
            "denied_for",
            "known source, denied for an hour",
            Setting::Denied { ends: true },
            &udp,
        )?
        .denied(),
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
    cases.push(case(id, name, Setting::Denied { ends: false }, &udp)?.denied().of(Sources::MadeUp));
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

#[cfg(test)]
mod tests {
    use super::{
        super::case::{MANY_OVERRIDES, ONE_OVERRIDE},
        *,
    };

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
