//! The sockets of connections: of those that say that they are done, and of those whose packets are to be proven.
//!
//! When a FIN or a reset comes, nobody knows yet whether the host takes it for true. So the connection
//! is written down by its addresses and ports. Its socket is looked up later, when its place is needed.

use aya_ebpf::{
    bindings::{BPF_F_CURRENT_NETNS, BPF_NOEXIST, bpf_sock_tuple, xdp_md},
    helpers::{bpf_sk_release, bpf_skc_lookup_tcp},
};
use limiter_common::{
    algorithm::concurrent::Socket, base::address::Address, memory::ending::Ending,
    policy::penalty::Evidence,
};

use crate::kernel::{maps::ENDINGS_REF, scratch::PacketScratch};

/// States of a socket, of `include/net/tcp_states.h`.
const TIME_WAIT: u32 = 6;
const LAST_ACK: u32 = 9;
const LISTEN: u32 = 10;
const CLOSING: u32 = 11;

/// Writes down the connection of the packet, whose tag it has, and looks its socket up.
#[inline(always)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a value would be copied to the stack"
)]
pub(crate) fn write_down(ctx: *mut xdp_md, scratch: &mut PacketScratch) -> Socket {
    scratch.ending.note(&scratch.packet);
    // What is there already is the same connection.
    let flags = u64::from(BPF_NOEXIST);
    if let Some(endings) = ENDINGS_REF.get(0) {
        let _: Result<(), i32> = endings.insert(&scratch.tag, &scratch.ending, flags);
    }
    look_up(ctx, &raw mut scratch.ending)
}

/// Looks the socket of a connection up that was written down. Others may have needed the room since, and whoever sends
/// many ends can see to that; so what is not there any more says nothing of the socket.
#[inline(always)]
pub(crate) fn recall(ctx: *mut xdp_md, tag: u32) -> Socket {
    let known = ENDINGS_REF.get(0).and_then(|endings| endings.get_ptr_mut(tag));
    known.map_or(Socket::Unknown, |ending| look_up(ctx, ending))
}

/// Whether this host has a full socket of the connection of the packet, a segment of TCP.
#[inline(always)]
pub(crate) fn is_full(ctx: *mut xdp_md, scratch: &mut PacketScratch) -> bool {
    scratch.ending.note(&scratch.packet);
    state(ctx, &raw mut scratch.ending).is_some_and(Evidence::is_full)
}

#[inline(always)]
fn look_up(ctx: *mut xdp_md, ending: *mut Ending) -> Socket {
    match state(ctx, ending) {
        None | Some(LISTEN) => Socket::None,
        Some(TIME_WAIT | LAST_ACK | CLOSING) => Socket::Left,
        // CLOSE_WAIT too: its owner has not closed it.
        Some(_) => Socket::Held,
    }
}

/// The state of the socket of a connection, of `include/net/tcp_states.h`.
#[inline(always)]
fn state(ctx: *mut xdp_md, ending: *mut Ending) -> Option<u32> {
    // SAFETY: a value of a map, which was looked up in this run of the program.
    let (family, tuple) = unsafe { ((*ending).family, (&raw mut (*ending).tuple)) };
    let bytes = if family == Address::IPV4 { Ending::IPV4 } else { Ending::IPV6 };
    let (tuple, netns) = (tuple.cast::<bpf_sock_tuple>(), BPF_F_CURRENT_NETNS as i64 as u64);
    // SAFETY: the context is the one that the program was called with; the tuple has so many bytes.
    let socket = unsafe { bpf_skc_lookup_tcp(ctx.cast(), tuple, bytes, netns, 0) };
    if socket.is_null() {
        return None;
    }
    // SAFETY: the socket was just found, and is given back once.
    unsafe {
        let state = (&raw const (*socket).state).read_volatile();
        bpf_sk_release(socket.cast());
        Some(state)
    }
}
