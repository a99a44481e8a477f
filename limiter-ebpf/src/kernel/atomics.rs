//! Words of map values, moved by BPF's atomic instructions.

use core::intrinsics::{AtomicOrdering::SeqCst, atomic_cxchg, atomic_xadd};

use aya_ebpf::helpers::bpf_ktime_get_ns;
use limiter_common::{algorithm::binding::Binding, base::word::Word};

/// A word of a map value, and the binding that it is used under.
#[derive(Clone, Copy)]
pub(crate) struct BoundWord {
    word: *mut u64,
    /// The binding of the entry, which must stay `bound`.
    binding: *const u64,
    bound: Binding,
}

impl BoundWord {
    /// # Safety
    /// Both point into a map value that was looked up in this run of the program, and are aligned.
    #[inline(always)]
    pub(crate) const unsafe fn new(word: *mut u64, binding: *const u64, bound: Binding) -> Self {
        Self { word, binding, bound }
    }
}

impl Word for BoundWord {
    #[inline(always)]
    fn load(&self) -> u64 {
        // SAFETY: see `new`.
        unsafe { self.word.read_volatile() }
    }

    #[inline(always)]
    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        // SAFETY: see `new`.
        unsafe { atomic_cxchg::<u64, { SeqCst }, { SeqCst }>(self.word, current, new).0 }
    }

    #[inline(always)]
    fn bound(&self) -> bool {
        // SAFETY: see `new`.
        unsafe { self.binding.read_volatile() == self.bound.0 }
    }
}

/// A word of a map value that no binding is asked for.
#[derive(Clone, Copy)]
pub(crate) struct MapWord(*mut u64);

impl MapWord {
    /// # Safety
    /// It points into a map value that was looked up in this run of the program, and is aligned.
    #[inline(always)]
    pub(crate) const unsafe fn new(word: *mut u64) -> Self {
        Self(word)
    }
}

impl Word for MapWord {
    #[inline(always)]
    fn load(&self) -> u64 {
        // SAFETY: see `new`.
        unsafe { self.0.read_volatile() }
    }

    #[inline(always)]
    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        // SAFETY: see `new`.
        unsafe { atomic_cxchg::<u64, { SeqCst }, { SeqCst }>(self.0, current, new).0 }
    }

    #[inline(always)]
    fn pause(&self) {
        pause();
    }
}

/// Adds to a counter that other CPUs add to.
///
/// # Safety
/// `counter` points into a map value that was looked up in this run of the program, and is aligned.
#[inline(always)]
pub(crate) unsafe fn add(counter: *mut u64, delta: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        atomic_xadd::<u64, u64, { SeqCst }>(counter, delta);
    }
}

/// Lets some tens of nanoseconds pass, which nothing else that a program may do takes.
#[inline(always)]
pub(crate) fn pause() {
    // SAFETY: the helper has no precondition.
    let _: u64 = unsafe { bpf_ktime_get_ns() };
}
