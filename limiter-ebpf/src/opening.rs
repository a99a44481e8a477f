//! The SYNs that were admitted as new connections, so that their repetitions are told from others.

use core::intrinsics::{AtomicOrdering::SeqCst, atomic_cxchg};

use aya_ebpf::bindings::BPF_NOEXIST;
use limiter_common::opening::Opening;

use crate::{clock, maps::OPENINGS, subject::Subject};

/// Notes which connection the subject opens, and takes the limits in `connections` from those that
/// it is about if it repeats a SYN that was admitted.
///
/// The repetition is used up whatever becomes of it: of clients too, those that are lost are so.
#[unsafe(no_mangle)]
#[inline(never)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a value would be copied to the stack"
)]
pub(crate) extern "C" fn recall_opening(connections: u64, seed: u32) -> u32 {
    let Some(subject) = Subject::get() else { return 0 };
    subject.opening = Opening::key(&subject.packet, seed).unwrap_or(0);
    if subject.opening == 0 {
        return 0;
    }
    let Some(word) = OPENINGS.get_ptr_mut(&subject.opening) else { return 0 };
    // SAFETY: an aligned map value that was just looked up.
    let seen = unsafe { word.read_volatile() };
    if let Some(next) = Opening(seen).repeated(clock::now()) {
        // SAFETY: as above.
        let found = unsafe { atomic_cxchg::<u64, { SeqCst }, { SeqCst }>(word, seen, next.0).0 };
        // One of several at once counts, so that there are never more than there may be.
        if found == seen {
            subject.applicable &= !connections;
        }
    }
    0
}

/// Remembers the connection that the subject opens.
#[unsafe(no_mangle)]
#[inline(never)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a value would be copied to the stack"
)]
pub(crate) extern "C" fn remember_opening() -> u32 {
    let Some(subject) = Subject::get() else { return 0 };
    if subject.opening == 0 {
        return 0;
    }
    let Opening(opening) = Opening::new(subject.now);
    if let Some(word) = OPENINGS.get_ptr_mut(&subject.opening) {
        // An update of what is there would evict another from a full map.
        // SAFETY: an aligned map value that was just looked up.
        unsafe { word.write_volatile(opening) };
    } else {
        // What another CPU made first is as good.
        let _: Result<(), i32> =
            OPENINGS.insert(&subject.opening, &opening, u64::from(BPF_NOEXIST));
    }
    0
}
