//! Reading bytes of a frame, wherever it lies.

/// A received frame: bytes that are read by value, with every bound checked.
pub trait Frame {
    /// Bytes of the frame that can be read.
    fn len(&self) -> usize;

    /// Bytes of the whole frame, of which those beyond [`len`](Self::len) lie in other pieces.
    fn total(&self) -> usize {
        self.len()
    }

    /// Whether nothing can be read.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `N` bytes from `offset`; `None` when any of them is beyond the frame.
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;

    /// `N` bytes from `AT`, as [`read`](Self::read) gives them. A constant takes fewer checks.
    fn read_at<const AT: usize, const N: usize>(&self) -> Option<[u8; N]> {
        self.read(AT)
    }

    /// Gives the same frame to a reader that comes after another: in the kernel, one of which the verifier
    /// knows nothing yet, so that it does not follow each way of the first through the second.
    fn hide_provenance<R>(&self, read: impl FnOnce(&Self) -> R) -> R {
        read(self)
    }
}

impl Frame for [u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.get(offset..)?.first_chunk().copied()
    }
}

/// A frame of which the first bytes are at hand.
#[derive(Clone, Copy, Debug)]
pub struct Sighting<'a> {
    /// The bytes that are.
    pub bytes: &'a [u8],
    /// Bytes of the whole frame, from the Ethernet header on.
    pub total: usize,
}

impl<'a> Sighting<'a> {
    /// A frame of which all bytes are at hand.
    pub const fn whole(bytes: &'a [u8]) -> Self {
        Self { bytes, total: bytes.len() }
    }
}

impl Frame for Sighting<'_> {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn total(&self) -> usize {
        self.total
    }

    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.bytes.read(offset)
    }
}
