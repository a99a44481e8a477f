//! The dispatcher: what the link of an interface runs.
//!
//! All interfaces have one main program, so it cannot know the slot of an interface as a constant. Each link has a dispatcher
//! instead, which tells the main program the slot and calls it. Another main program takes effect for all interfaces by one
//! store into the array.
//!
//! It subtracts no pointers, so that a process without CAP_PERFMON can load it.

use aya_ebpf::{
    bindings::xdp_action::XDP_PASS, helpers::bpf_xdp_get_buff_len, programs::XdpContext,
};
use limiter_common::base::tally;

use crate::kernel::maps::{PACKET_SLOT, PROGRAM, PROGRAM_FRAGS, SLOT, TELLS_LENGTH, UNLOADED};

/// Has the main program decide about a frame; `FRAGS` says that it may lie in several pieces. Without that program the frame
/// passes.
#[inline(always)]
pub fn dispatch<const FRAGS: bool>(ctx: &XdpContext) -> u32 {
    let slot = SLOT.load();
    if let Some(place) = PACKET_SLOT.get_ptr_mut(0) {
        // SAFETY: a map value of this CPU, which no other packet writes before this one is decided: XDP runs with bottom
        // halves disabled.
        unsafe { *place = slot };
        // The index is a constant: the kernel then compiles the call as a jump.
        // SAFETY: nothing here has to be dropped. The context is the one that the program was called with.
        unsafe { if FRAGS { &PROGRAM_FRAGS } else { &PROGRAM }.tail_call(ctx, 0) };
    }
    if let Some(unloaded) = UNLOADED.get_ptr_mut(slot) {
        let bytes = match TELLS_LENGTH.load() {
            0 => 0,
            // SAFETY: as above.
            _ => unsafe { bpf_xdp_get_buff_len(ctx.ctx) },
        };
        // SAFETY: as above.
        tally::add(unsafe { &mut *unloaded }, bytes);
    }
    XDP_PASS
}
