//! The programs that `limiter attach` loads.

#![no_builtins]
#![no_std]
#![no_main]
#![expect(clippy::needless_pass_by_value, reason = "the macro hands the context over")]

use aya_ebpf::{macros::xdp, programs::XdpContext};
use limiter_ebpf::{
    pipeline,
    table::{pushes, sweep},
};

/// What the links of interfaces run whose drivers hand over packets in one piece.
#[xdp]
fn limiter_link(ctx: XdpContext) -> u32 {
    pipeline::dispatch::<false>(&ctx)
}

/// What the links of interfaces run whose packets may lie in several pieces.
#[xdp(frags)]
fn limiter_link_f(ctx: XdpContext) -> u32 {
    pipeline::dispatch::<true>(&ctx)
}

/// The main program, for packets in one piece.
///
/// Inlined into what the macro makes of it, as a call takes of the stack, of which nothing is left.
#[xdp]
#[inline(always)]
fn limiter(ctx: XdpContext) -> u32 {
    pipeline::run::<false>(&ctx)
}

/// The same for packets that may lie in several pieces; headers are in the first. Inlined as well.
#[xdp(frags)]
#[inline(always)]
fn limiter_frags(ctx: XdpContext) -> u32 {
    pipeline::run::<true>(&ctx)
}

/// Carries state over from old tables. No interface runs it.
#[xdp]
#[inline(always)]
fn limiter_carry(ctx: XdpContext) -> u32 {
    sweep::run(&ctx)
}

/// Blocks a source, or ends that. No interface runs it.
#[xdp]
#[inline(always)]
fn limiter_push(ctx: XdpContext) -> u32 {
    pushes::run(&ctx)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The kernel reads the licence from here; some helpers ask for one that is compatible with the GPL.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
