//! The bytes of a packet.

use aya_ebpf::{helpers::bpf_xdp_get_buff_len, programs::XdpContext};
use limiter_common::frame::Frame;

use crate::barrier::opaque;

/// The first piece of a packet, which holds its headers.
pub(crate) struct XdpFrame {
    start: usize,
    end: usize,
}

impl XdpFrame {
    /// Offsets that are read; headers end long before. The verifier wants a constant bound.
    const REACH: usize = 0x7fff;

    #[inline(always)]
    pub(crate) fn new(ctx: &XdpContext) -> Self {
        Self { start: ctx.data(), end: ctx.data_end() }
    }

    /// Bytes of the whole packet.
    #[inline(always)]
    pub(crate) fn length<const FRAGS: bool>(&self, ctx: &XdpContext) -> u64 {
        if FRAGS {
            // SAFETY: the context is the one that the program was called with.
            unsafe { bpf_xdp_get_buff_len(ctx.ctx) }
        } else {
            (self.end - self.start) as u64
        }
    }
}

impl Frame for XdpFrame {
    #[inline(always)]
    fn len(&self) -> usize {
        self.end - self.start
    }

    #[inline(always)]
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        if offset > Self::REACH {
            return None;
        }
        // Exactly this form, `start + N > end`, is the one that every kernel's verifier understands.
        let start = self.start + offset;
        if opaque(start + N) > self.end {
            return None;
        }
        // SAFETY: `start..start + N` lies within the packet, as just checked, and an array of bytes
        // has no alignment.
        Some(unsafe { *(start as *const [u8; N]) })
    }
}
