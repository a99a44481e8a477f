//! Attached interfaces.

/// An attached interface.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Inode of the network namespace that it was attached in; 0 for a free slot.
    pub namespace: u64,
    /// Its index when it was attached.
    pub index: u32,
    /// How it is attached: 0 generic, 1 native.
    pub mode: u32,
    /// Its name when it was attached, padded with zeros.
    pub name: [u8; 16],
}
