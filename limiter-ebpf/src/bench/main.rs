//! Programs for tests and benchmarks: baselines, and load made from one frame.

#![no_builtins]
#![no_std]
#![no_main]
#![expect(clippy::needless_pass_by_value, reason = "the macro hands the context over")]

use aya_ebpf::{
    Global,
    bindings::xdp_action::{XDP_DROP, XDP_PASS, XDP_TX},
    helpers::bpf_get_prandom_u32,
    macros::{map, xdp},
    maps::{Array, PerCpuArray},
    programs::XdpContext,
};
use limiter_ebpf::{bench as parts, pipeline};

/// Which bits of an IPv4 source are made; one of `10.0.0.0/8` has the others, if there are any.
#[unsafe(no_mangle)]
static MADE_BITS: Global<u32> = Global::new(u32::MAX);

/// What of the frame is made: an IPv4 source, or one of the fields below. The verifier removes the code of the others.
#[unsafe(no_mangle)]
static MADE_FIELD: Global<u32> = Global::new(0);
/// The second half of an IPv6 /64, so that each frame has a source of its own.
const SOURCE6: u32 = 1;
/// The source port and the low half of the sequence number of TCP over IPv4.
const SYN: u32 = 2;

/// The source that comes next where they come in turn.
#[map]
static NEXT: PerCpuArray<u32> = PerCpuArray::with_max_entries(1, 0);

/// A word of all CPUs.
#[map]
static SHARED: Array<u64> = Array::with_max_entries(1, 0);

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

/// Only writes what is made: the baseline of `limiter_spoofed`.
#[xdp]
fn nop_spoofed(ctx: XdpContext) -> u32 {
    spoof(&ctx);
    XDP_PASS
}

/// The limiter, each run seeing a random source, or a SYN of its own.
#[xdp]
fn limiter_spoofed(ctx: XdpContext) -> u32 {
    spoof(&ctx);
    pipeline::dispatch::<false>(&ctx)
}

/// The limiter, its runs seeing one IPv4 source after the other.
#[xdp]
fn limiter_in_turn(ctx: XdpContext) -> u32 {
    let Some(next) = NEXT.get_ptr_mut(0) else { return XDP_DROP };
    // SAFETY: an aligned word of a map value, of this CPU alone.
    let number = unsafe {
        let number = next.read();
        next.write(number.wrapping_add(1));
        number
    };
    write(&ctx, number);
    pipeline::dispatch::<false>(&ctx)
}

/// Reads the clock, and nothing else.
#[xdp]
fn part_clock(_: XdpContext) -> u32 {
    parts::clock();
    XDP_PASS
}

/// Makes an atomic addition, and nothing else.
#[xdp]
fn part_add(_: XdpContext) -> u32 {
    let Some(word) = SHARED.get_ptr_mut(0) else { return XDP_DROP };
    // SAFETY: a map value that was just looked up, of one word.
    unsafe { parts::add(word) };
    XDP_PASS
}

/// Reads the headers, and nothing else.
#[xdp]
fn part_parse(ctx: XdpContext) -> u32 {
    parts::parse(&ctx);
    XDP_PASS
}

/// Writes a random number into the field that is made.
#[inline(always)]
fn spoof(ctx: &XdpContext) {
    // SAFETY: the helper has no precondition.
    let number = unsafe { bpf_get_prandom_u32() };
    write(ctx, number);
}

/// Writes this number into the field that is made.
#[inline(always)]
fn write(ctx: &XdpContext, number: u32) {
    const SECOND_HALF: usize = 26;
    const PORT: usize = 34;
    const SEQUENCE: usize = 40;
    let [a, b, c, d] = number.to_be_bytes();
    match MADE_FIELD.load() {
        SOURCE6 => overwrite(ctx, SECOND_HALF, [a, b, c, d]),
        SYN => {
            overwrite(ctx, PORT, [a, b]);
            overwrite(ctx, SEQUENCE, [c, d]);
        }
        _ => write_source(ctx, number),
    }
}

/// Writes these bytes into the frame at this offset. Checksums of transports are not mended: the limiter reads none.
#[inline(always)]
fn overwrite<const LENGTH: usize>(ctx: &XdpContext, offset: usize, bytes: [u8; LENGTH]) {
    let (start, end) = (ctx.data(), ctx.data_end());
    if start + offset + LENGTH > end {
        return;
    }
    // SAFETY: `start + offset..start + offset + LENGTH` lies within the packet, as just checked, and
    // arrays of bytes have no alignment.
    let field = unsafe { &mut *((start + offset) as *mut [u8; LENGTH]) };
    *field = bytes;
}

/// Writes the source address with this number into an untagged IPv4 frame and mends the header checksum
/// (RFC 1624, equation 3).
#[inline(always)]
fn write_source(ctx: &XdpContext, number: u32) {
    const TEN: u32 = 10 << 24;
    const CHECKSUM: usize = 24;
    const SOURCE: usize = 26;
    let (start, end) = (ctx.data(), ctx.data_end());
    if start + SOURCE + 4 > end {
        return;
    }
    let made = MADE_BITS.load();
    let address = (number & made) | (TEN & !made);
    // SAFETY: `start..start + SOURCE + 4` lies within the packet, as just checked, and arrays of
    // bytes have no alignment.
    let (checksum, source) = unsafe {
        (&mut *((start + CHECKSUM) as *mut [u8; 2]), &mut *((start + SOURCE) as *mut [u8; 4]))
    };
    let [a, b, c, d] = address.to_be_bytes();
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
