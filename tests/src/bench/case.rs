//! A case measured without a wire: a policy, a frame, and the expected outcome.

use anyhow::Result;
use limiter_common::packet::reason::Reason;
use limiter_tests::packet::{Frame, IPV4};

use super::{
    outcome::Outcome,
    setting::{OWN, Setting},
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

    /// The case with frames that are not IP, and charged to no limit.
    pub(crate) fn not_ip(self) -> Self {
        Self { outcome: Outcome::Each(Reason::NonIp), charged: Vec::new(), ..self }
    }

    /// The case with another reason for passing; frames are charged as before.
    pub(crate) fn passes(self, reason: Reason) -> Self {
        Self { outcome: Outcome::Each(reason), ..self }
    }

    /// The case with frames of a denied source.
    pub(crate) fn denied(self) -> Self {
        Self { outcome: Outcome::Each(Reason::Deny), ..self }
    }

    /// The case with frames of these sources.
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

/// A later fragment from the known source.
pub(crate) fn later_fragment() -> Frame {
    Frame::udp(SOURCE4, TARGET4, 40_000, 53).payload(32).fragment(7, 9, true)
}

/// A frame with the ethertype of IPv4 and no valid IPv4 header.
pub(crate) fn unreadable() -> Frame {
    Frame::other(IPV4, [0; 46])
}

/// Formats a multiple of 1,024 in units of k (2^10) or M (2^20).
pub(crate) fn binary(number: u32) -> String {
    if number < 1 << 20 { format!("{} k", number >> 10) } else { format!("{} M", number >> 20) }
}

/// Like [`binary`]; a number below 1,024 is printed as it is.
pub(crate) fn short(number: u32) -> String {
    if number < 1 << 10 { number.to_string() } else { binary(number) }
}
