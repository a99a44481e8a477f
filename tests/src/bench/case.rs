//! What is measured without a wire: policies, frames, and what has to become of them.

use anyhow::Result;
use limiter_common::{
    rate::{Rate, SECOND},
    reason::Reason,
};
use limiter_tests::packet::{Frame, SYN};
use limiter_userspace::{
    datapath::sizes::Sizes,
    policy::{Bucket, Builtin, Policy},
};

/// The prefixes of the longest policy.
const OVERRIDES: u32 = 10_000;
/// The one of them that the measured source is in.
const OWN: u32 = OVERRIDES / 2;

const SOURCE4: [u8; 4] = [10, (OWN >> 8) as u8, OWN as u8, 7];
const TARGET4: [u8; 4] = [198, 51, 100, 1];
const SOURCE6: [u16; 8] = [0x2001, 0xdb8, 0, 1, 0, 0, 0, 7];
const TARGET6: [u16; 8] = [0x2001, 0xdb8, 0, 2, 0, 0, 0, 1];

/// Faster than any CPU runs a program, so nothing is ever over it.
const AMPLE: Bucket = Bucket { rate: Rate::per_second(100_000_000), burst: 1_000_000 };
const SCANT: Bucket = Bucket { rate: Rate { packets: 1, period: 60 * SECOND }, burst: 1 };

/// The policies and sizes that cases need, each an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Observe,
    Source,
    Over,
    OverConnection,
    SynSource,
    ConnectionSource,
    All,
    OneOverride,
    ManyOverrides,
    Spoofed,
    SpoofedDefault,
}

impl Setting {
    /// Each of them.
    pub(crate) const ALL: [Self; 11] = [
        Self::Observe,
        Self::Source,
        Self::Over,
        Self::OverConnection,
        Self::SynSource,
        Self::ConnectionSource,
        Self::All,
        Self::OneOverride,
        Self::ManyOverrides,
        Self::Spoofed,
        Self::SpoofedDefault,
    ];

    /// What its instance has room for.
    pub(crate) fn sizes(self) -> Sizes {
        match self {
            Self::SpoofedDefault => Sizes::default(),
            _ => Sizes { sources: 1 << 16, buckets: 1 << 16, ledgers: 1 << 11, overrides: 1 << 14 },
        }
    }

    /// Its policy.
    pub(crate) fn policy(self) -> Result<Policy> {
        let limits: &[(Builtin, Bucket)] = match self {
            Self::Observe => &[],
            Self::Over => &[(Builtin::Source, SCANT)],
            Self::OverConnection => &[(Builtin::Connection, AMPLE), (Builtin::Source, SCANT)],
            Self::SynSource => &[(Builtin::Syn, AMPLE), (Builtin::Source, AMPLE)],
            Self::ConnectionSource => &[(Builtin::Connection, AMPLE), (Builtin::Source, AMPLE)],
            Self::All => &Builtin::ALL.map(|limit| (limit, AMPLE)),
            _ => &[(Builtin::Source, AMPLE)],
        };
        let mut policy = Policy::default();
        for (limit, bucket) in limits {
            policy.set_default(*limit, *bucket)?;
        }
        let overrides = match self {
            Self::OneOverride => OWN..OWN + 1,
            Self::ManyOverrides => 0..OVERRIDES,
            _ => 0..0,
        };
        for number in overrides {
            // Each has a rate and a burst of its own, hence a profile of its own.
            let more = u64::from(number) + 1;
            let rate = Rate::per_second(AMPLE.rate.packets + 40_000 * more);
            let bucket = Bucket::new(rate, AMPLE.burst + more)?;
            let prefix = format!("10.{}.{}.0/24", number >> 8, number & 0xff);
            policy.set_override(Builtin::Source, prefix.parse()?, bucket)?;
        }
        Ok(policy)
    }
}

/// One way of a frame through the limiter.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Its name for scripts.
    pub(crate) id: &'static str,
    /// Its name for people.
    pub(crate) name: &'static str,
    /// The instance that it is measured on.
    pub(crate) setting: Setting,
    /// The frame.
    pub(crate) frame: Vec<u8>,
    /// Whether each run sees another source.
    pub(crate) spoofed: bool,
    /// The reason that every frame has to be counted under.
    pub(crate) reason: Reason,
    /// The limits that every frame has to be charged to.
    pub(crate) charged: &'static [Builtin],
    /// The limit that has to refuse every frame.
    pub(crate) exceeded: Option<Builtin>,
}

impl Case {
    fn new(id: &'static str, name: &'static str, setting: Setting, frame: &Frame) -> Self {
        let charged: &[Builtin] = match setting {
            Setting::Observe | Setting::Over | Setting::OverConnection => &[],
            Setting::SynSource => &[Builtin::Syn, Builtin::Source],
            Setting::ConnectionSource => &[Builtin::Connection, Builtin::Source],
            Setting::All => &Builtin::ALL,
            _ => &[Builtin::Source],
        };
        let (reason, exceeded) = match setting {
            Setting::Over | Setting::OverConnection => (Reason::Exceed, Some(Builtin::Source)),
            _ => (Reason::Conform, None),
        };
        let frame = frame.clone().padded().build();
        Self { id, name, setting, frame, spoofed: false, reason, charged, exceeded }
    }

    fn not_ip(self) -> Self {
        Self { reason: Reason::NonIp, charged: &[], ..self }
    }

    fn spoofed(self) -> Self {
        Self { spoofed: true, ..self }
    }
}

/// The case that the others are compared with.
pub(crate) const REFERENCE: &str = "known_source";
/// The case with one override.
pub(crate) const ONE_OVERRIDE: &str = "overrides_1";
/// The case with many.
pub(crate) const MANY_OVERRIDES: &str = "overrides_10000";

/// All cases, in the order of the report.
pub(crate) fn cases() -> Vec<Case> {
    let udp = Frame::udp(SOURCE4, TARGET4, 40_000, 53);
    let udp6 = Frame::udp(SOURCE6, TARGET6, 40_000, 53);
    let tagged = udp.clone().tag(0x88a8, 5).tag(0x8100, 6);
    let syn = Frame::tcp(SOURCE4, TARGET4, 40_000, 443, SYN);
    let arp = Frame::other(0x0806, [0; 28]);
    let case = Case::new;
    vec![
        case("non_ip", "not IP (ARP)", Setting::Source, &arp).not_ip(),
        case("observe", "known source, no limit", Setting::Observe, &udp),
        case(REFERENCE, "known source, one limit", Setting::Source, &udp),
        case("over_limit", "known source, over its limit", Setting::Over, &udp),
        case(
            "over_limit_connection",
            "over its limit, within that of the connection",
            Setting::OverConnection,
            &udp,
        ),
        case("ipv6", "known source, one limit, IPv6", Setting::Source, &udp6),
        case("qinq", "known source, one limit, two VLAN tags", Setting::Source, &tagged),
        case("syn_source", "known source, SYN: syn + source", Setting::SynSource, &syn),
        case("connection_source", "connection + source", Setting::ConnectionSource, &udp),
        case("all_limits", "SYN: connection + syn + source", Setting::All, &syn),
        case(ONE_OVERRIDE, "known source, 1 override", Setting::OneOverride, &udp),
        case(MANY_OVERRIDES, "known source, 10,000 overrides", Setting::ManyOverrides, &udp),
        case("new_source_64k", "new source every packet, room for 64 k", Setting::Spoofed, &udp)
            .spoofed(),
        case(
            "new_source_1m",
            "new source every packet, room for 1 M",
            Setting::SpoofedDefault,
            &udp,
        )
        .spoofed(),
    ]
}

#[cfg(test)]
mod tests {
    use limiter_userspace::policy::{Context, Held, compile};

    use super::*;

    #[test]
    fn every_override_has_a_profile_of_its_own() {
        for (setting, overrides) in [(Setting::OneOverride, 1), (Setting::ManyOverrides, 10_000)] {
            let policy = setting.policy().unwrap();
            let (tables, _) = compile(&policy, &Held::default(), &Context::default()).unwrap();
            assert_eq!(tables.prefixes.len(), overrides);
            assert_eq!(tables.profiles.len(), overrides + 1);
            // None, that of all others, and those of the overrides.
            assert_eq!(tables.meters.len(), overrides + 2);
        }
    }

    #[test]
    fn cases_have_names_of_their_own_and_every_setting_is_used() {
        let cases = cases();
        let mut names: Vec<_> = cases.iter().flat_map(|case| [case.id, case.name]).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 2 * cases.len());
        for setting in Setting::ALL {
            assert!(cases.iter().any(|case| case.setting == setting), "{setting:?}");
        }
    }
}
