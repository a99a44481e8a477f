//! What is read of an entry of the table, and counted there.

use core::ptr;

use limiter_common::{
    abi::table::{ENTRY_PLACES, FurtherLimits, LimitState, Source},
    algorithm::binding::Binding,
    base::tally::Tally,
    policy::limit::INLINE,
};

use crate::kernel::{
    atomics,
    barrier::black_box,
    key::SourceKey,
    maps::{FURTHER_LIMITS, HAS_FURTHER},
};

/// Where the state of the inline limits of a source is.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    pub(super) source: *mut Source,
    /// The entry itself where there are none, or they are not asked for. No packet comes to them then, but Linux before 6.12 may
    /// follow a way there, and has to find a value.
    pub(crate) further: *mut FurtherLimits,
}

impl Places {
    /// Those that an entry has, which was looked up in this run of the program.
    #[inline(always)]
    pub(crate) const fn of_entry(source: *mut Source) -> Self {
        Self { source, further: source.cast() }
    }

    /// All of the entry of this number, which was looked up in this run of the program.
    #[inline(always)]
    pub(crate) fn of(number: u32, source: *mut Source) -> Option<Self> {
        let places = Self::of_entry(source);
        if has_further() { places.with_further(number) } else { Some(places) }
    }

    /// The same with the further ones of the entry, whose number this is.
    #[inline(always)]
    pub(crate) fn with_further(self, number: u32) -> Option<Self> {
        let further = further_of(number);
        (!further.is_null()).then_some(Self { further, ..self })
    }

    /// Calls `visit` with each place that there is, until one visit says no. Whether all said yes.
    #[inline(always)]
    pub(crate) fn all(&self, mut visit: impl FnMut(usize, LimitRef) -> bool) -> bool {
        for place in 0..ENTRY_PLACES {
            if !visit(place, LimitRef::in_entry(self.source, place)) {
                return false;
            }
        }
        if has_further() {
            for place in ENTRY_PLACES..INLINE {
                if !visit(place, LimitRef::beside(self.further, place - ENTRY_PLACES)) {
                    return false;
                }
            }
        }
        true
    }

    /// That at a place that [is there](has_place).
    #[inline(always)]
    pub(crate) fn at(&self, place: usize) -> LimitRef {
        if is_beside(place) {
            LimitRef::beside_any(self.further, place)
        } else {
            LimitRef::in_entry(self.source, place)
        }
    }
}

/// The state of an inline limit of a source.
#[derive(Clone, Copy)]
pub(crate) struct LimitRef {
    pub(crate) word: *mut u64,
    pub(crate) scale: *mut u64,
    pub(crate) limit_id: *mut u32,
}

impl LimitRef {
    /// That at a place that [is there](has_place), of an entry which was looked up in this run of the program and has this number.
    #[inline(always)]
    pub(crate) fn at(number: u32, source: *mut Source, place: usize) -> Option<Self> {
        if !is_beside(place) {
            return Some(Self::in_entry(source, place));
        }
        let further = further_of(number);
        (!further.is_null()).then(
            #[inline(always)]
            || Self::beside_any(further, place),
        )
    }

    /// That at one of the first places.
    #[inline(always)]
    pub(crate) fn in_entry(source: *mut Source, place: usize) -> Self {
        let place = place & (ENTRY_PLACES - 1);
        // SAFETY: these are addresses of fields of a map value that was looked up; nothing is read.
        unsafe {
            Self {
                word: &raw mut (*source).words[place],
                scale: &raw mut (*source).scales[place],
                limit_id: &raw mut (*source).limit_ids[place],
            }
        }
    }

    /// That at one of the others, by its number among them.
    #[inline(always)]
    pub(crate) fn beside(further: *mut FurtherLimits, number: usize) -> Self {
        // SAFETY: as in `in_entry`. Behind the last words are others of the same value, so a number of three bits is within it.
        unsafe {
            Self {
                word: (&raw mut (*further).words).cast::<u64>().add(number),
                scale: (&raw mut (*further).scales).cast::<u64>().add(number),
                limit_id: (&raw mut (*further).limit_ids).cast::<u32>().add(number),
            }
        }
    }

    /// The same, where the verifier does not see which one it is.
    #[inline(always)]
    fn beside_any(further: *mut FurtherLimits, place: usize) -> Self {
        Self::beside(further, black_box(place - ENTRY_PLACES) & (INLINE - 1))
    }

    /// Writes it.
    ///
    /// # Safety
    /// As for [`bound`].
    #[inline(always)]
    pub(crate) unsafe fn write(&self, state: LimitState) {
        // SAFETY: as the caller promises; aligned words.
        unsafe {
            self.word.write_volatile(state.word);
            self.scale.write_volatile(state.scale);
            self.limit_id.write_volatile(state.limit_id);
        }
    }
}

/// The further limits of an entry; null if there are none. It is no part of who calls it: there is no room on their stack.
#[inline(never)]
fn further_of(number: u32) -> *mut FurtherLimits {
    FURTHER_LIMITS.get_ptr_mut(number).unwrap_or(ptr::null_mut())
}

/// Whether sources have more places than their entries. The constant is frozen at load time, so the verifier follows no packet
/// to a place that there is not.
#[inline(always)]
pub(crate) fn has_further() -> bool {
    HAS_FURTHER.load() != 0
}

/// Whether a place, which [is there](has_place), is none of the entry.
#[inline(always)]
fn is_beside(place: usize) -> bool {
    has_further() && !is_first(place)
}

/// Whether there is a place for the state of an inline limit.
#[inline(always)]
pub(super) fn has_place(place: usize) -> bool {
    has_further() || is_first(place)
}

/// Whether each entry has a place.
///
/// Where a place is compared twice, Linux before 6.12 follows ways on which the answers differ, and no longer knows what it adds to
/// a pointer there. So the bits of the place tell it, and each part is found by bits of it alone.
#[inline(always)]
fn is_first(place: usize) -> bool {
    const { assert!(ENTRY_PLACES.is_power_of_two() && INLINE.is_power_of_two()) };
    black_box(place & (INLINE - ENTRY_PLACES)) == 0
}

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
    // SAFETY: as the caller promises.
    unsafe {
        let tally = if dropped { &raw mut (*source).dropped } else { &raw mut (*source).passed };
        add_to(tally, &Tally { packets, bytes });
    }
}

/// Adds packets to a tally.
///
/// # Safety
/// `tally` is in a map value that was looked up in this run of the program.
#[inline(always)]
pub(crate) unsafe fn add_to(tally: *mut Tally, more: &Tally) {
    // SAFETY: as the caller promises; both are aligned words.
    unsafe {
        atomics::add(&raw mut (*tally).packets, more.packets);
        atomics::add(&raw mut (*tally).bytes, more.bytes);
    }
}
