//! The bytes of a packet.

use aya_ebpf::{bindings::xdp_md, helpers::bpf_xdp_get_buff_len, programs::XdpContext};
use limiter_common::packet::frame::Frame;

use crate::kernel::barrier::black_box;

/// The first piece of a packet, which holds its headers.
pub(crate) struct XdpFrame {
    #[cfg_attr(feature = "messages", expect(dead_code, reason = "no frame is read again"))]
    ctx: *mut xdp_md,
    start: usize,
    end: usize,
    total: usize,
}

impl XdpFrame {
    /// Offsets that are read; headers end long before. The verifier wants a constant bound.
    const REACH: usize = 0x7fff;

    /// The frame of a run; `FRAGS` says that it may lie in several pieces.
    #[inline(always)]
    pub(crate) fn new<const FRAGS: bool>(ctx: &XdpContext) -> Self {
        let (start, end) = (ctx.data(), ctx.data_end());
        let total = if FRAGS {
            // SAFETY: the context is the one that the program was called with.
            unsafe { bpf_xdp_get_buff_len(ctx.ctx) as usize }
        } else {
            end - start
        };
        Self { ctx: ctx.ctx, start, end, total }
    }

    /// The frame of a run, of so many bytes in all.
    #[inline(always)]
    pub(crate) fn of(ctx: *mut xdp_md, total: usize) -> Self {
        let frame = XdpContext::new(ctx);
        Self { ctx, start: frame.data(), end: frame.data_end(), total }
    }

    /// The same frame, of so many bytes in all, of which the compiler and the verifier know nothing yet.
    #[cfg(not(feature = "messages"))]
    #[inline(always)]
    fn hide_provenance(&self, total: usize) -> Self {
        Self { ctx: self.ctx, ..Self::of(black_box(self.ctx as usize) as *mut xdp_md, total) }
    }
}

impl Frame for XdpFrame {
    #[inline(always)]
    fn len(&self) -> usize {
        self.end - self.start
    }

    #[inline(always)]
    fn total(&self) -> usize {
        self.total
    }

    #[inline(always)]
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        // What is checked is what is added: of a value that the compiler reads from the stack twice, the
        // verifier of Linux 6.1 does not know that it is the same.
        let offset = black_box(offset);
        if offset > Self::REACH {
            return None;
        }
        // If an earlier read found the offset too large, the verifier of Linux 6.12 follows the impossible branch here, and
        // forgets the bound there.
        let offset = black_box(offset) & Self::REACH;
        // Exactly this form, `start + N > end`, is the one that every kernel's verifier understands.
        let start = self.start + offset;
        if black_box(start + N) > self.end {
            return None;
        }
        // SAFETY: `start..start + N` lies within the packet, as just checked.
        Some(unsafe { load(start) })
    }

    #[inline(always)]
    fn read_at<const AT: usize, const N: usize>(&self) -> Option<[u8; N]> {
        // As above; the offset is a constant, which the verifier knows.
        if black_box(self.start + AT + N) > self.end {
            return None;
        }
        // SAFETY: `AT..AT + N` lies within the packet, as just checked.
        Some(unsafe { load(self.start + AT) })
    }

    /// Debug messages leave no stack for it; the verifier follows more ways then.
    #[cfg(not(feature = "messages"))]
    #[inline(always)]
    fn hide_provenance<R>(&self, read: impl FnOnce(&Self) -> R) -> R {
        read(&self.hide_provenance(self.total))
    }
}

/// Bytes of a packet. They are read by words, so that the compiler need not put the parts of words
/// together that it would have read byte by byte.
///
/// # Safety
/// `start..start + N` lies within the packet.
#[inline(always)]
unsafe fn load<const N: usize>(start: usize) -> [u8; N] {
    let mut bytes = [0; N];
    let (words, rest) = bytes.as_chunks_mut::<4>();
    let mut at = start;
    for word in words {
        // SAFETY: as the caller promises.
        *word = unsafe { (at as *const u32).read_unaligned() }.to_ne_bytes();
        at += 4;
    }
    for byte in rest {
        // SAFETY: as above.
        *byte = unsafe { *(at as *const u8) };
        at += 1;
    }
    bytes
}
