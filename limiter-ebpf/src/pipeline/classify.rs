//! The limits that a packet is about, whatever its source.

use crate::{
    history::handshakes::find_retransmission,
    kernel::scratch::PacketScratch,
    policy::{active::settings, matching::applicable},
};
use limiter_common::{abi::policy::Settings, policy::rest::Rest};

/// Finds the limits that the packet is about under an epoch, whatever its source.
#[inline(always)]
pub(crate) fn classify_packet(scratch: &mut PacketScratch, epoch: u32, settings: &Settings) {
    scratch.classified = epoch.into();
    // Those of all packets, where none asks what a packet is.
    scratch.applicable = settings.default_destination_limits;
    if settings.match_fields != 0 {
        scratch.applicable =
            applicable(&scratch.packet, || scratch.bytes, settings.match_fields, epoch, settings);
    }
    let scratch = scratch.reread();
    if scratch.applicable & settings.connections != 0 {
        find_retransmission(epoch);
    }
    let rest = #[inline(always)]
    |scratch: &PacketScratch| Some(Rest::of(&scratch.packet, settings.rest));
    let _: Option<()> = scratch.reread().find_rest(settings, rest);
}

/// The same once more, where a packet met a change of the policy. The kernel verifies it by itself: the
/// ways through it are none of the rest's business.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn classify_again(epoch: u32) -> u32 {
    if let (Some(scratch), Some(settings)) = (PacketScratch::get(), settings(epoch)) {
        classify_packet(scratch, epoch, settings);
    }
    0
}
