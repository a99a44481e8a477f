//! Packets and bytes.

/// Packets and bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tally {
    /// Packets.
    pub packets: u64,
    /// Bytes, from the Ethernet header on.
    pub bytes: u64,
}

impl Tally {
    /// The sum of both.
    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self {
            packets: self.packets.wrapping_add(more.packets),
            bytes: self.bytes.wrapping_add(more.bytes),
        }
    }
}

/// Adds a packet to a tally of this CPU.
#[inline(always)]
pub const fn add(tally: &mut Tally, bytes: u64) {
    tally.packets = tally.packets.wrapping_add(1);
    tally.bytes = tally.bytes.wrapping_add(bytes);
}
