//! What a packet says of itself: at constant offsets where it is plain, by the parser otherwise.
//!
//! Of a plain packet only that is read which the policy asks for. What asks for more reads all headers then, see
//! [`read_all`].

use aya_ebpf::bindings::xdp_md;
use limiter_common::{
    packet::{
        control,
        frame::Frame as _,
        link::{self, Link, NonIp},
        parse::parse_by,
        plain::{self, V4, V6, Version},
        reason::Reason,
    },
    policy::{matching::match_field, rest::Rest},
    table::set::Place,
};

use crate::{
    kernel::{frame::XdpFrame, key::SourceKey, scratch::PacketScratch},
    policy::{
        active::ActivePolicy,
        matching::{applicable, by_port},
        verdict::Verdict,
    },
};

/// Finds out the source of a plain packet, and which limits it is about. Whether it is plain, and nothing else takes all of
/// its headers.
#[inline(always)]
pub(super) fn read_plain(
    frame: &XdpFrame,
    scratch: &mut PacketScratch,
    policy: &ActivePolicy,
) -> bool {
    if policy.settings.match_fields & match_field::DESTINATION != 0 {
        return false;
    }
    let read = match plain::ether_type(frame) {
        Some(V4::ETHER_TYPE) => read_plain_as::<V4>(frame, scratch, policy),
        Some(V6::ETHER_TYPE) => read_plain_as::<V6>(frame, scratch, policy),
        _ => None,
    };
    read.is_some()
}

/// The same of a version of IP.
#[inline(always)]
fn read_plain_as<V: Version>(
    frame: &XdpFrame,
    scratch: &mut PacketScratch,
    policy: &ActivePolicy,
) -> Option<()> {
    let ActivePolicy { epoch, settings, .. } = *policy;
    let (source, protocol) = plain::source::<V, _>(frame, &settings.mask)?;
    scratch.write_key(SourceKey::of(&source));
    // Before the limits are looked up: there is no room on the stack to keep the source. Here, as little is to be hashed of IPv4.
    scratch.place = Place::of(&source, settings.table_seed, settings.sets);
    // The compiler need not think of destinations.
    let match_fields = settings.match_fields & !match_field::DESTINATION;
    let limits = if match_fields == 0 {
        settings.default_destination_limits
    } else if match_fields == match_field::PORT {
        // Most policies that ask about anything ask about ports alone.
        by_port(plain::port::<V, _>(frame)?, epoch, settings)
    } else {
        let packet = plain::without_addresses::<V, _>(frame, protocol, frame.total())?;
        applicable(&packet, || scratch.bytes, match_fields, epoch, settings)
    };
    // Whether its connection is a new one is found out by all headers.
    if limits & settings.connections != 0 {
        return None;
    }
    scratch.applicable = limits;
    let rest = #[inline(always)]
    |_: &PacketScratch| Rest::of_plain::<V, _>(frame, protocol, settings.rest);
    scratch.find_rest(settings, rest)?;
    (scratch.classified, scratch.conform) = (epoch.into(), Verdict::new(Reason::Conform).0);
    Some(())
}

/// A frame that is of a protocol of the link itself, see [`NonIp`].
pub(super) const LINK_PROTOCOL: u32 = 0;
/// Any other frame that is not IP.
pub(super) const OTHER: u32 = 1;
/// A packet that is [looked at early](super::control::decide_early).
pub(super) const UNUSUAL: u32 = 2;
/// Any other packet.
pub(super) const USUAL: u32 = 3;

/// Reads all headers, and tells what the frame is. It is verified by itself: what is on its stack is gone when the packet
/// is decided.
#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn read_all(ctx: *mut xdp_md) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return LINK_PROTOCOL };
    let frame = XdpFrame::of(ctx, scratch.bytes as usize);
    (scratch.is_read, scratch.handshake_key) = (1, 0);
    let parsed = parse_by(
        &frame,
        &mut scratch.packet,
        #[inline(always)]
        |_| Link(read_link(ctx)),
    );
    match parsed {
        Ok(conform) => scratch.conform = conform.index() as u64,
        Err(NonIp::LinkProtocol) => return LINK_PROTOCOL,
        Err(NonIp::Other) => return OTHER,
    }
    // What the parser found out is read back: its ways are no longer told apart.
    let scratch = scratch.reread();
    let unusual = scratch.conform == Reason::TooDeep.index() as u64
        || scratch.packet.fragment.0 != 0
        || control::may_be(&scratch.packet);
    if unusual { UNUSUAL } else { USUAL }
}

/// Reads the link headers, and gives them as a [`Link`]. It is verified by itself: what is behind them is then followed
/// once, and not for each number of tags and labels.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn read_link(ctx: *mut xdp_md) -> u64 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    link::read(&XdpFrame::of(ctx, scratch.bytes as usize)).0
}
