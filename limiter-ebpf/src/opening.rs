//! The SYNs that were admitted as new connections, so that their repetitions are told from others.

use core::intrinsics::{AtomicOrdering::SeqCst, atomic_cxchg};

use aya_ebpf::bindings::BPF_NOEXIST;
use limiter_common::opening::{self, Opening};

use crate::{clock, datapath::settings, maps::OPENINGS, subject::Subject};

/// Finds out which connection the subject opens and whether it repeats a SYN that was admitted, and
/// takes the limits that this was charged to from those that the packet is about.
///
/// A packet is found to be a repetition once, however often it is decided about. That is used up
/// whatever becomes of the packet: also of the SYNs that a client sends, those that are lost are.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn recall_opening(epoch: u32) -> u32 {
    let (Some(subject), Some(settings)) = (Subject::get(), settings(epoch)) else { return 0 };
    if subject.opening == 0 {
        subject.opened.charged = 0;
        subject.opening = opening::key(&subject.packet, settings.seed).unwrap_or(0);
        if subject.opening != 0 {
            recall(subject);
        }
    }
    if subject.opened.charged != 0 {
        // The bits of another policy are of other limits.
        let charged = if subject.opened.epoch == u64::from(epoch) {
            subject.opened.charged
        } else {
            settings.connections
        };
        subject.applicable &= !charged;
    }
    0
}

#[inline(always)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a value would be copied to the stack"
)]
fn recall(subject: &mut Subject) {
    let Some(known) = OPENINGS.get_ptr_mut(&subject.opening) else { return };
    // SAFETY: a map value that was just looked up; its fields are aligned words.
    let (word, epoch, charged) = unsafe {
        (
            &raw mut (*known).word,
            (&raw const (*known).epoch).read_volatile(),
            (&raw const (*known).charged).read_volatile(),
        )
    };
    // SAFETY: as above.
    let seen = unsafe { word.read_volatile() };
    if let Some(next) = Opening(seen).repeated(clock::now()) {
        // SAFETY: as above.
        let found = unsafe { atomic_cxchg::<u64, { SeqCst }, { SeqCst }>(word, seen, next.0).0 };
        // Of several at once one is, so that there are never more than there may be.
        if found == seen {
            subject.opened.word = next.0;
            subject.opened.epoch = epoch;
            subject.opened.charged = charged;
        }
    }
}

/// Remembers the connection that the subject opens, and that it was charged to these limits.
#[unsafe(no_mangle)]
#[inline(never)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a value would be copied to the stack"
)]
pub(crate) extern "C" fn remember_opening(charged: u64) -> u32 {
    let Some(subject) = Subject::get() else { return 0 };
    if subject.opening == 0 {
        return 0;
    }
    let repeats = subject.opened.charged != 0;
    if !repeats {
        subject.opened.word = Opening::new(subject.time.now).0;
        subject.opened.epoch = u64::from(subject.binding.epoch());
    }
    subject.opened.charged |= charged;
    let opened = &subject.opened;
    if let Some(known) = OPENINGS.get_ptr_mut(&subject.opening) {
        // An update of what is there would evict another from a full map.
        // SAFETY: a map value that was just looked up; its fields are aligned words. What CPUs make of
        // it that are here at once is what one of them makes of it, or counts a SYN more.
        unsafe {
            if !repeats {
                (&raw mut (*known).word).write_volatile(opened.word);
                (&raw mut (*known).epoch).write_volatile(opened.epoch);
            }
            // What repeats a SYN that other limits were charged with keeps its time.
            (&raw mut (*known).charged).write_volatile(opened.charged);
        }
        return 0;
    }
    // What another CPU made first is as good.
    let _: Result<(), i32> = OPENINGS.insert(&subject.opening, opened, u64::from(BPF_NOEXIST));
    0
}
