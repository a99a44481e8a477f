//! A word of a map value that a test moves while the program is at it.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _},
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use anyhow::{Context as _, Result};
use aya::maps::MapData;

/// How often a word is moved up by 1 before it begins anew. Otherwise it would often be what it was when the program looked.
const STEPS: u64 = 1_000;

/// A word of an array that can be mapped into memory.
pub struct MovingWord {
    start: NonNull<libc::c_void>,
    length: usize,
    word: usize,
}

// SAFETY: the mapping is of no thread, and its word is read and written by atomic instructions alone.
unsafe impl Sync for MovingWord {}

impl MovingWord {
    /// Maps an array, of which the word is so many bytes from the beginning.
    pub(super) fn new(map: &MapData, offset: usize) -> Result<Self> {
        let length = offset + size_of::<u64>();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let number = map.fd().as_fd().as_raw_fd();
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, number, 0)
        };
        let start = NonNull::new(start).filter(|_| start != libc::MAP_FAILED);
        let start = start.ok_or_else(io::Error::last_os_error).context("cannot map an array")?;
        Ok(Self { start, length, word: offset / size_of::<u64>() })
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: a word of the mapping, which begins at a page.
        unsafe { self.start.cast::<AtomicU64>().add(self.word).as_ref() }
    }

    /// Moves the word on this thread for as long as `work` runs on another one: up from what it was, again and again.
    pub fn move_during<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let before = self.word().load(Ordering::Relaxed);
        thread::scope(|scope| {
            let work = scope.spawn(work);
            while !work.is_finished() {
                for step in 0..STEPS {
                    self.word().store(before + step, Ordering::Relaxed);
                }
            }
            work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for MovingWord {
    fn drop(&mut self) {
        // SAFETY: the mapping that was made, which nothing refers to any more.
        unsafe { libc::munmap(self.start.as_ptr(), self.length) };
    }
}
