//! The budgets of the link's own [control traffic](crate::packet::control), and of what is [not IP](crate::packet::link).

use crate::{
    algorithm::{
        gcra::Gcra,
        policer::{Decision, Policer as _},
    },
    base::{seed::Seed, siphash::SipHash},
    packet::{
        control::{Protocol, is_unspecified},
        headers::Packet,
    },
};

/// Rows that there is room for in [`Budgets`] and in the words of an interface.
pub const ROWS: usize = 16;

/// The row of frames that are [not IP](crate::packet::link::NonIp::Other), behind those of the protocols.
pub const NON_IP_ROW: usize = ROWS - 1;
const _: () = assert!(Protocol::ALL.len() <= NON_IP_ROW);

/// Words for the budgets of sources. A source has the one at [`place`] of it; two sources may share one. One more is of
/// nobody.
pub const SOURCES: u32 = 1 << 12;

/// The word of a source for a protocol; `None` for a DHCP request of a host that has no address yet, of which there may
/// be many at once. All other packets without an address have one word for each protocol: who sends many of them must
/// not use up what the link may send, nor pass for nobody from afar.
#[inline(always)]
pub const fn place(packet: &Packet, protocol: Protocol, seed: Seed) -> Option<u32> {
    let [a, b, c, d] = packet.source.words;
    if matches!(protocol, Protocol::Dhcp) && is_unspecified([a, b, c, d]) {
        return None;
    }
    let hash = SipHash::new(seed.key())
        .word((a as u64) << 32 | b as u64)
        .word((c as u64) << 32 | d as u64)
        .word(protocol as u64)
        .finish();
    Some(hash as u32 % SOURCES)
}

/// What an interface admits of control traffic, and of what is not IP.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budgets {
    /// The protocols that have budgets, by their [`bit`](Protocol::bit). Packets of the others are ordinary. The bit of
    /// [`NON_IP_ROW`] says whether frames that are not IP have one.
    pub protocols: u64,
    /// What each protocol may send.
    pub link: Gcra,
    /// What each source of a protocol may send.
    pub source: Gcra,
    /// What each source may send of a protocol that can be forged [from afar](Protocol::is_far).
    pub far: Gcra,
    /// What is admitted of frames that are not IP.
    pub non_ip: Gcra,
}

impl Budgets {
    /// The bit in [`protocols`](Self::protocols) of frames that are not IP.
    pub const NON_IP: u64 = 1 << NON_IP_ROW;

    /// Whether packets of a protocol have a budget.
    #[inline(always)]
    pub const fn is_on(&self, protocol: Protocol) -> bool {
        self.protocols & protocol.bit() != 0
    }

    /// Whether frames that are not IP have a budget.
    #[inline(always)]
    pub const fn limits_non_ip(&self) -> bool {
        self.protocols & Self::NON_IP != 0
    }

    /// What each source may send of a protocol.
    #[inline(always)]
    pub const fn of_source(&self, protocol: Protocol) -> &Gcra {
        if protocol.is_far() { &self.far } else { &self.source }
    }
}

/// What a packet makes of the word of a budget; `None` if nothing is left of that. A word that no charge can have made, such
/// as one of another rate, becomes that of a budget which was just used up.
#[inline(always)]
pub fn charge(budget: &Gcra, word: u64, now: u64) -> Option<u64> {
    match budget.decide(word, now, 1) {
        Decision::Conform(next) | Decision::Lost(next) => Some(next),
        Decision::Exceed => None,
    }
}
