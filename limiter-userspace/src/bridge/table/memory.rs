//! The memory that the state lies in.

use std::{
    fs::File,
    io,
    ops::Deref,
    ptr::{self, NonNull},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use limiter_common::{
    algorithm::{concurrent, sliding_log},
    base::{slots::Slots, word::Word},
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Words of state. A clone is of the same words.
#[derive(Clone, Debug)]
pub(super) enum Memory {
    /// Of this process.
    Owned(Arc<[AtomicU64]>),
    /// Of a file.
    Mapped(Arc<Mapping>),
}

impl Memory {
    /// Words that are 0.
    pub(super) fn owned(words: usize) -> Self {
        Self::Owned((0..words).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Deref for Memory {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        match self {
            Self::Owned(words) => words,
            Self::Mapped(mapping) => mapping.words(),
        }
    }
}

/// A file, mapped into memory. The lock on the file ends with it.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<AtomicU64>,
    words: usize,
    /// Has the lock.
    _file: File,
}

// SAFETY: the memory belongs to the mapping, as that of a box would; nothing in it belongs to a thread.
unsafe impl Send for Mapping {}
// SAFETY: what a reference gives are atomics and a file, which any thread may use.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps so many words of a file that is as long.
    ///
    /// # Errors
    /// The error of the system call.
    pub(super) fn new(file: File, words: usize) -> io::Result<Self> {
        let (length, access) = (words * size_of::<AtomicU64>(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: the kernel chooses a place where nothing is mapped yet.
        let start = unsafe { mmap(ptr::null_mut(), length, access, MapFlags::SHARED, &file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, words, _file: file })
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words are mapped there, aligned to a page, until this is dropped. Any bits are a valid word. Whoever
        // else has the file mapped stores atomics or gets what he deserves: it is open to its owner alone, and locked.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this was mapped by `new`, and no reference to it is left.
        let _: rustix::io::Result<()> =
            unsafe { munmap(self.start.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
    }
}

/// The word of a state. Nobody else moves it meanwhile.
#[derive(Clone, Copy)]
pub(in crate::bridge) struct StateWord<'t>(pub(super) &'t AtomicU64);

impl StateWord<'_> {
    /// What it is.
    #[inline]
    pub(in crate::bridge) fn get(self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Word for StateWord<'_> {
    #[inline]
    fn load(&self) -> u64 {
        self.get()
    }

    #[inline]
    fn load_acquire(&self) -> u64 {
        self.get()
    }

    #[inline]
    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        let found = self.get();
        if found == current {
            self.0.store(new, Ordering::Release);
        }
        found
    }
}

/// The slots of a log, or of open requests. Nobody else moves them meanwhile.
#[derive(Clone, Copy)]
pub(in crate::bridge) struct WideSlots<'t>(pub(super) &'t [AtomicU64]);

impl Slots for WideSlots<'_> {
    fn load(&self, place: usize) -> u64 {
        self.0.get(place).map_or(0, |slot| slot.load(Ordering::Relaxed))
    }

    fn store(&self, place: usize, word: u64) {
        if let Some(slot) = self.0.get(place) {
            slot.store(word, Ordering::Release);
        }
    }

    fn compare_exchange(&self, place: usize, current: u64, new: u64) -> u64 {
        let found = self.load(place);
        if found == current {
            self.store(place, new);
        }
        found
    }
}

impl concurrent::Table for WideSlots<'_> {}

impl sliding_log::Log for WideSlots<'_> {}
