//! What the first fragments of datagrams said, for the later ones.

use limiter_common::{
    memory::fragment::{Datagram, follow},
    policy::matching::match_field,
};

use crate::{
    kernel::{atomics::MapWord, clock, maps::FRAGMENTS, scratch::PacketScratch},
    policy::active::settings,
};

/// Notes what the packet says if it is the first fragment of a datagram, or gives it what was noted. Returns 1 if it
/// contradicts an earlier first fragment, otherwise 0.
///
/// The kernel verifies it by itself, as few packets are fragments.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn follow_fragment(epoch: u32) -> u32 {
    let (Some(scratch), Some(settings)) = (PacketScratch::get(), settings(epoch)) else { return 0 };
    let datagram = Datagram::of(&scratch.packet, settings.seed);
    let Some(word) = FRAGMENTS.get_ptr_mut(datagram.place()) else { return 0 };
    // SAFETY: a map value that was just looked up; an aligned word.
    let word = unsafe { MapWord::new(word) };
    let by_source_port = settings.match_fields & match_field::SOURCE_PORT != 0;
    follow(&mut scratch.packet, datagram, &word, clock::now(), by_source_port).into()
}
