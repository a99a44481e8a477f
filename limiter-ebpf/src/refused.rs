//! The sources that this CPU refuses for a moment, without looking for their entries.

use limiter_common::{address::Address, refused::Refused};

use crate::{
    clock,
    entry::{self, SourceEntry},
    maps::REFUSED,
};

/// The place of a source among those that this CPU refuses.
pub(crate) struct Place(&'static mut Refused);

/// The limit that refused a packet.
pub(crate) struct Refusing {
    pub(crate) bit: u64,
    pub(crate) tally: u32,
    /// The limits of the profile.
    pub(crate) limits: u64,
    /// For how long it will, in nanoseconds.
    pub(crate) wait: u64,
}

impl Place {
    #[inline(always)]
    pub(crate) fn of(source: &Address) -> Option<Self> {
        let refused = REFUSED.get_ptr_mut(Refused::slot(source))?;
        // SAFETY: a map value of this CPU, on which no other packet is decided before this one: XDP
        // runs with bottom halves disabled. All zeros, which it is at first, is a valid value.
        Some(Self(unsafe { &mut *refused }))
    }

    /// Whether a packet is dropped because its source is refused; it is counted then, but for the
    /// tally of the limit, which is given.
    #[inline(always)]
    pub(crate) fn refuses(
        &mut self,
        source: &Address,
        epoch: u32,
        applicable: u64,
        bytes: u64,
    ) -> Option<u32> {
        let refused = &mut *self.0;
        // What has ended costs no reading of the clock.
        if refused.until == 0 || !refused.concerns(source, epoch, applicable) {
            return None;
        }
        if !refused.holds(clock::now()) {
            refused.until = 0;
            return None;
        }
        refused.dropped.packets += 1;
        refused.dropped.bytes += bytes;
        Some(refused.tally)
    }

    /// Remembers that a limit refused a packet at `now`.
    #[inline(never)]
    pub(crate) fn remember(
        &mut self,
        source: &Address,
        entry: &SourceEntry,
        refusing: &Refusing,
        now: u64,
    ) {
        let refused = &mut *self.0;
        // Sources that share a place would fight for it at each packet.
        if refused.holds(now) {
            return;
        }
        if refused.dropped.packets != 0 {
            let dropped = refused.dropped;
            entry::account(&refused.source, true, dropped.packets, dropped.bytes);
            // Who reads meanwhile must not find the tally of one source under another.
            // SAFETY: fields of a value that is borrowed here.
            unsafe {
                (&raw mut refused.dropped.packets).write_volatile(0);
                (&raw mut refused.dropped.bytes).write_volatile(0);
            }
        }
        refused.source = *source;
        refused.epoch = entry.binding.epoch();
        refused.limits = refusing.limits;
        refused.bit = refusing.bit;
        refused.tally = refusing.tally;
        refused.hold(now, refusing.wait);
    }
}
