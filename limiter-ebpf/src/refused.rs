//! The sources that this CPU refuses for a moment, without looking for their entries.

use limiter_common::{address::Address, refused::Refused};

use crate::{clock, datapath::settings, entry, maps::REFUSED, subject::Subject};

/// The place of a source among those that this CPU refuses.
pub(crate) struct Place(&'static mut Refused);

/// The limit that refused a packet, if other packets of its source need not be looked at for a while.
#[derive(Clone, Copy)]
pub(crate) struct Refusing {
    /// 0 if they do.
    pub(crate) bit: u64,
    /// The limits of the profile.
    pub(crate) limits: u64,
    /// For how long it will refuse them, in nanoseconds.
    pub(crate) wait: u64,
    pub(crate) tally: u32,
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
}

/// Remembers that a limit refused the subject.
///
/// It is called when that is decided: there is no stack for both at once.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn remember_refusal() -> u32 {
    let Some(subject) = Subject::get() else { return 0 };
    let (Some(Place(refused)), Some(settings)) =
        (Place::of(&subject.source), settings(subject.binding.epoch()))
    else {
        return 0;
    };
    // Sources that share a place would fight for it at each packet.
    if refused.holds(subject.time.now) {
        return 0;
    }
    if refused.dropped.packets != 0 {
        entry::account(subject, &refused.source, settings, true, &refused.dropped);
        // Who reads meanwhile must not find the tally of one source under another.
        // SAFETY: fields of a value that is borrowed here.
        unsafe {
            (&raw mut refused.dropped.packets).write_volatile(0);
            (&raw mut refused.dropped.bytes).write_volatile(0);
        }
    }
    let refusing = &subject.refusing;
    refused.source = subject.source;
    refused.epoch = subject.binding.epoch();
    refused.limits = refusing.limits;
    refused.bit = refusing.bit;
    refused.tally = refusing.tally;
    refused.hold(subject.time.now, refusing.wait);
    if subject.refused < refused.until {
        subject.refused = refused.until;
    }
    0
}
