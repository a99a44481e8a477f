//! The SYNs that were admitted as new connections, so that their repetitions are told from others.

use core::intrinsics::{AtomicOrdering::SeqCst, atomic_cxchg};

use aya_ebpf::bindings::BPF_NOEXIST;
use limiter_common::memory::handshake::{self, Handshake};

use crate::{
    kernel::{clock, maps::SYN_DEDUP, scratch::PacketScratch},
    policy::active::settings,
};

/// Finds out which connection the packet opens and whether it repeats a SYN that was admitted, and
/// takes the limits that this was charged to from those that the packet is about.
///
/// A packet is found to be a repetition once, however often it is decided about. That is used up
/// whatever becomes of the packet: also of the SYNs that a client sends, those that are lost are.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn find_retransmission(epoch: u32) -> u32 {
    let (Some(scratch), Some(settings)) = (PacketScratch::get(), settings(epoch)) else { return 0 };
    if scratch.handshake_key == 0 {
        scratch.handshake.charged = 0;
        scratch.handshake_key = handshake::key(&scratch.packet, settings.seed).unwrap_or(0);
        if scratch.handshake_key != 0 {
            recall(scratch);
        }
    }
    if scratch.handshake.charged != 0 {
        // The bits of another policy are of other limits.
        let charged = if scratch.handshake.epoch == u64::from(epoch) {
            scratch.handshake.charged
        } else {
            settings.connections
        };
        scratch.applicable &= !charged;
    }
    0
}

#[inline(always)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a value would be copied to the stack"
)]
fn recall(scratch: &mut PacketScratch) {
    let Some(known) = SYN_DEDUP.get_ptr_mut(&scratch.handshake_key) else { return };
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
    if let Some(next) = Handshake(seen).repeated(clock::now()) {
        // SAFETY: as above.
        let found = unsafe { atomic_cxchg::<u64, { SeqCst }, { SeqCst }>(word, seen, next.0).0 };
        // Of several at once one is, so that there are never more than there may be.
        if found == seen {
            scratch.handshake.word = next.0;
            scratch.handshake.epoch = epoch;
            scratch.handshake.charged = charged;
        }
    }
}

/// Remembers the connection that the packet opens, and that it was charged to these limits.
#[unsafe(no_mangle)]
#[inline(never)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a value would be copied to the stack"
)]
pub(crate) extern "C" fn record_syn(charged: u64) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    if scratch.handshake_key == 0 {
        return 0;
    }
    let repeats = scratch.handshake.charged != 0;
    if !repeats {
        scratch.handshake.word = Handshake::new(scratch.time.now).0;
        scratch.handshake.epoch = u64::from(scratch.binding.epoch());
    }
    scratch.handshake.charged |= charged;
    let handshake = &scratch.handshake;
    if let Some(known) = SYN_DEDUP.get_ptr_mut(&scratch.handshake_key) {
        // An update of what is there would evict another from a full map.
        // SAFETY: a map value that was just looked up; its fields are aligned words. What CPUs make of
        // it that are here at once is what one of them makes of it, or counts a SYN more.
        unsafe {
            if !repeats {
                (&raw mut (*known).word).write_volatile(handshake.word);
                (&raw mut (*known).epoch).write_volatile(handshake.epoch);
            }
            // What repeats a SYN that other limits were charged with keeps its time.
            (&raw mut (*known).charged).write_volatile(handshake.charged);
        }
        return 0;
    }
    // What another CPU made first is as good.
    let _: Result<(), i32> =
        SYN_DEDUP.insert(&scratch.handshake_key, handshake, u64::from(BPF_NOEXIST));
    0
}
