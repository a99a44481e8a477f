//! Programs for tests and benchmarks: baselines, and load made from one frame.

#![no_std]
#![no_main]
#![expect(clippy::needless_pass_by_value, reason = "the macro hands the context over")]

use aya_ebpf::{
    bindings::xdp_action::{XDP_DROP, XDP_PASS, XDP_TX},
    helpers::bpf_get_prandom_u32,
    macros::xdp,
    programs::XdpContext,
};
use limiter_ebpf::datapath;

/// Does nothing: what a run of any program costs.
#[xdp]
fn nop(_: XdpContext) -> u32 {
    XDP_PASS
}

/// Drops everything: the least that any limiter can cost.
#[xdp]
fn drop(_: XdpContext) -> u32 {
    XDP_DROP
}

/// Sends the frame out of the interface that it seems to come from.
#[xdp]
fn send(_: XdpContext) -> u32 {
    XDP_TX
}

/// The same with a random IPv4 source.
#[xdp]
fn send_spoofed(ctx: XdpContext) -> u32 {
    spoof(&ctx);
    XDP_TX
}

/// Only writes a random IPv4 source: the baseline of `limiter_spoofed`.
#[xdp]
fn nop_spoofed(ctx: XdpContext) -> u32 {
    spoof(&ctx);
    XDP_PASS
}

/// The limiter, each run seeing a new IPv4 source.
#[xdp]
fn limiter_spoofed(ctx: XdpContext) -> u32 {
    spoof(&ctx);
    datapath::run::<false>(&ctx)
}

/// Writes a random source address into an untagged IPv4 frame and mends the header checksum
/// (RFC 1624, equation 3).
#[inline(always)]
fn spoof(ctx: &XdpContext) {
    const CHECKSUM: usize = 24;
    const SOURCE: usize = 26;
    let (start, end) = (ctx.data(), ctx.data_end());
    if start + SOURCE + 4 > end {
        return;
    }
    // SAFETY: the helper has no precondition.
    let random = unsafe { bpf_get_prandom_u32() };
    // SAFETY: `start..start + SOURCE + 4` lies within the packet, as just checked, and arrays of
    // bytes have no alignment.
    let (checksum, source) = unsafe {
        (&mut *((start + CHECKSUM) as *mut [u8; 2]), &mut *((start + SOURCE) as *mut [u8; 4]))
    };
    let [a, b, c, d] = random.to_ne_bytes();
    let new = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
    let old =
        [u16::from_be_bytes([source[0], source[1]]), u16::from_be_bytes([source[2], source[3]])];
    let mut sum = u32::from(!u16::from_be_bytes(*checksum));
    for word in [!old[0], !old[1], new[0], new[1]] {
        sum += u32::from(word);
    }
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    *checksum = (!(sum as u16)).to_be_bytes();
    *source = [a, b, c, d];
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
