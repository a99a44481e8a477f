//! Words of map values, moved by BPF's atomic instructions, and the order in which they are loaded and stored.
//!
//! On x86-64 every load is an acquire and every store is a release. So [`load_acquire`] and [`StoreWord::store_release`] are the plain
//! instructions that [`Word::load`] and [`StoreWord::store`] are, and cost nothing.
//!
//! A build for arm64 would have to change three things here:
//!
//! * [`load_acquire`]: BPF has `BPF_LOAD_ACQ`, which needs Linux 6.15 and version 4 of the instruction set. Without it, the
//!   address of the next load can be made to depend on the word: `next + (black_box(word) & 0)`.
//! * [`StoreWord::store_release`]: `BPF_STORE_REL` needs the same. Without it, an exchange of the word (`BPF_XCHG`) is a full barrier.
//! * A compare-and-exchange that fails: on CPUs without LSE (before ARMv8.1), the kernel makes a load without order
//!   of it. The word has to be loaded again, by [`load_acquire`].

use core::intrinsics::{AtomicOrdering::SeqCst, atomic_cxchg, atomic_xadd};

use aya_ebpf::helpers::bpf_ktime_get_ns;
use limiter_common::{
    algorithm::binding::Binding,
    base::word::{self, StoreWord, Word},
};

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
    fn load_acquire(&self) -> u64 {
        // SAFETY: see `new`.
        unsafe { load_acquire(self.0) }
    }

    #[inline(always)]
    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        // SAFETY: see `new`.
        unsafe { atomic_cxchg::<u64, { SeqCst }, { SeqCst }>(self.0, current, new).0 }
    }

    #[inline(always)]
    fn back_off(&self, tries: u32) {
        if tries != 0 {
            wait_before(tries);
        }
    }
}

impl StoreWord for MapWord {
    #[inline(always)]
    fn store(&self, word: u64) {
        // SAFETY: see `new`.
        unsafe { self.0.write_volatile(word) };
    }

    #[inline(always)]
    fn store_release(&self, word: u64) {
        self.store(word);
    }
}

/// A word of a map value, and the binding that it is used under.
#[derive(Clone, Copy)]
pub(crate) struct BoundWord {
    word: MapWord,
    /// The binding of the entry, which must stay `bound`.
    binding: *const u64,
    bound: Binding,
}

impl BoundWord {
    /// # Safety
    /// Both point into a map value that was looked up in this run of the program, and are aligned.
    #[inline(always)]
    pub(crate) const unsafe fn new(word: *mut u64, binding: *const u64, bound: Binding) -> Self {
        Self { word: MapWord(word), binding, bound }
    }

    /// The same word, of which no binding is asked.
    #[inline(always)]
    pub(crate) const fn unbound(&self) -> MapWord {
        self.word
    }
}

impl Word for BoundWord {
    #[inline(always)]
    fn load(&self) -> u64 {
        self.word.load()
    }

    #[inline(always)]
    fn load_acquire(&self) -> u64 {
        self.word.load_acquire()
    }

    #[inline(always)]
    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        self.word.compare_exchange(current, new)
    }

    #[inline(always)]
    fn bound(&self) -> bool {
        // SAFETY: see `new`.
        unsafe { self.binding.read_volatile() == self.bound.0 }
    }

    #[inline(always)]
    fn back_off(&self, tries: u32) {
        self.word.back_off(tries);
    }
}

/// Loads a word before all that this CPU loads and stores later; see [`Word::load_acquire`].
///
/// # Safety
/// `word` points into a map value that was looked up in this run of the program, and is aligned.
#[inline(always)]
pub(crate) unsafe fn load_acquire(word: *const u64) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { word.read_volatile() }
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

/// Waits before a try, as [`word::wait`] says.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn wait_before(tries: u32) -> u32 {
    // SAFETY: the helper has no precondition.
    let until = unsafe { bpf_ktime_get_ns() } + word::wait(tries);
    // `bpf_loop` would need Linux 5.17.
    for _ in 0..READINGS {
        if wait_until(until) != 0 {
            break;
        }
    }
    0
}

/// How often the clock is read in each of the two loops. Where a reading takes less than 40 ns, they end before the longest wait does.
const READINGS: u32 = 64;

/// Waits until a time, in nanoseconds, or for so many readings of the clock. Returns 1 if the time has come.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn wait_until(until: u64) -> u32 {
    for _ in 0..READINGS {
        // SAFETY: the helper has no precondition.
        if unsafe { bpf_ktime_get_ns() } >= until {
            return 1;
        }
    }
    0
}
