//! What is read of an entry of the table, and counted there.

use crate::kernel::{atomics, key::SourceKey};
use limiter_common::{abi::table::Source, algorithm::binding::Binding};

/// The binding of an entry, if it is that of the source with this key, and of `epoch`.
///
/// # Safety
/// As for [`bound`].
#[inline(always)]
pub(crate) unsafe fn own(source: *const Source, key: SourceKey, epoch: u32) -> Option<Binding> {
    // SAFETY: as the caller promises.
    let binding = unsafe { bound(source) };
    // SAFETY: as above.
    if !binding.is_under(epoch) || !unsafe { is_of(source, key) } {
        return None;
    }
    // It may change hands while it is asked whose it is. This spares the packet most of the work in vain. It needs no
    // order: who finds out nothing here finds another binding after the words.
    // SAFETY: as above.
    (unsafe { bound(source) } == binding).then_some(binding)
}

/// The binding of an entry, loaded before all that is loaded of the entry later.
///
/// # Safety
/// `source` is a map value that was looked up in this run of the program.
#[inline(always)]
pub(crate) unsafe fn bound(source: *const Source) -> Binding {
    // SAFETY: as the caller promises; an aligned word.
    Binding(unsafe { atomics::load_acquire(&raw const (*source).binding) })
}

/// Whether an entry is that of the source with this key.
///
/// # Safety
/// As for [`bound`].
#[inline(always)]
pub(crate) unsafe fn is_of(source: *const Source, key: SourceKey) -> bool {
    // SAFETY: as the caller promises; as aligned as words of 64 bits, as is asserted below.
    unsafe { SourceKey::read(&raw const (*source).address) }.is(key)
}

/// Adds packets to the totals of an entry.
///
/// # Safety
/// As for [`bound`].
#[inline(always)]
pub(crate) unsafe fn add(source: *mut Source, dropped: bool, packets: u64, bytes: u64) {
    // SAFETY: as the caller promises; both are aligned words.
    unsafe {
        let tally = if dropped { &raw mut (*source).dropped } else { &raw mut (*source).passed };
        atomics::add(&raw mut (*tally).packets, packets);
        atomics::add(&raw mut (*tally).bytes, bytes);
    }
}
