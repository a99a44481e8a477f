//! What the main program of an instance is.

/// The main program in an array, as the process that put it there wrote it down. It holds if the kernel says that the array
/// has the program with this id.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Build {
    /// The id that the kernel gave the program.
    pub program: u32,
    /// The id of the map [`HEAD`](crate::abi::layout::map::HEAD) that it decides by.
    pub head: u32,
    /// A hash of the object file that it is of.
    pub object: u64,
}
