//! The entries of sources, bound to the policy in force.

use core::mem::offset_of;

use limiter_common::{
    address::Address,
    binding::Binding,
    contract::{Profile, Settings, Source, Tally, half},
    penalty::Block,
    recent::Recent,
    table::Place,
    word::Word as _,
};

use crate::{
    barrier::{opaque, publish},
    cell::{self, Cell, Plain},
    maps::{PROFILES, SOURCES},
    seat::Seat,
    source_key::SourceKey,
    subject::Subject,
};

/// The entry of a source, bound.
#[derive(Clone, Copy)]
pub(crate) struct SourceEntry {
    pub(crate) source: *mut Source,
    pub(crate) binding: Binding,
    pub(crate) profile: &'static Profile,
    /// What the lists say of the source: its profile, or where it shares the entry, that which it would
    /// have.
    pub(crate) lists: &'static Profile,
}

impl SourceEntry {
    /// The entry of this number, if it is that of the subject's source, whose key this is, and bound under `epoch`, of
    /// which these are the settings. The subject has its seat there then.
    #[inline(always)]
    pub(crate) fn at(
        number: u32,
        key: SourceKey,
        subject: &mut Subject,
        epoch: u32,
        settings: &'static Settings,
    ) -> Option<Self> {
        let source = SOURCES.get_ptr_mut(number)?;
        // SAFETY: it was just looked up.
        let binding = unsafe { own(source, key, epoch) }?;
        // Most have the first one. That is guessed where it is a branch, so that nothing waits for the entry.
        let profile = match binding.profile() {
            0 => &settings.first,
            number => PROFILES.get(half(epoch, number))?,
        };
        subject.seat = Seat::new(number).0;
        Some(Self { source, binding, profile, lists: profile })
    }

    /// The entry of the subject's source, if there is one that is bound under `epoch`.
    #[inline(always)]
    pub(crate) fn of(subject: &Subject, epoch: u32) -> Option<Self> {
        let seat = Seat(subject.seat);
        let source = seat.entry()?;
        if seat != Seat::OVERFLOW {
            // SAFETY: it was just looked up.
            let binding = unsafe { own(source, subject.key(), epoch) }?;
            // Looked up whichever it is: what follows would be verified once for each map that it can be in. Which one
            // is guessed as in `at`.
            let number = binding.profile();
            let number = if number == 0 { opaque(0) as u32 } else { number };
            let profile = PROFILES.get(half(epoch, number))?;
            return Some(Self { source, binding, profile, lists: profile });
        }
        // SAFETY: it was just looked up.
        let binding = unsafe { bound(source) };
        if !binding.is_under(epoch) || subject.numbered != epoch {
            return None;
        }
        let profile = PROFILES.get(half(epoch, binding.profile()))?;
        let lists = PROFILES.get(half(epoch, subject.number))?;
        Some(Self { source, binding, profile, lists })
    }

    /// The binding that it has now.
    #[inline(always)]
    pub(crate) fn bound(&self) -> Binding {
        // SAFETY: an entry points to a map value that was looked up in this run.
        unsafe { bound(self.source) }
    }

    /// The word of an inline limit.
    #[inline(always)]
    pub(crate) fn cell(&self, index: usize) -> Cell {
        // SAFETY: an entry points to a map value that was looked up in this run.
        unsafe {
            let source = self.source;
            Cell::new(&raw mut (*source).words[index], &raw const (*source).binding, self.binding)
        }
    }

    /// When the source was refused last, see [`Episode::last`](limiter_common::notice::Episode::last).
    #[inline(always)]
    pub(crate) fn refused(&self) -> u64 {
        // SAFETY: as in `cell`; an aligned word.
        unsafe { (&raw const (*self.source).refused).read_volatile() }
    }

    /// Adds a packet to the totals of the source.
    #[inline(always)]
    pub(crate) fn account(&self, dropped: bool, bytes: u64) {
        if dropped {
            // SAFETY: as in `cell`; an aligned word.
            unsafe { add(self.source, true, 1, bytes) };
        } else {
            self.account_passed(&Tally { packets: 1, bytes });
        }
    }

    /// Adds packets that passed, at most [`u16::MAX`], to the totals of the source.
    #[inline(always)]
    pub(crate) fn account_passed(&self, passed: &Tally) {
        // SAFETY: as in `cell`; an aligned word.
        unsafe {
            let recent = &raw mut (*self.source).recent;
            if Recent(recent.read_volatile()).is_due() {
                settle_recent();
            }
            cell::add(recent, Recent::of(passed).0);
        }
    }

    /// Until when the source is blocked, in nanoseconds, or was; 0 if it never was.
    #[inline(always)]
    pub(crate) fn blocked(&self) -> u64 {
        Block(self.block_word().load()).until(self.binding)
    }

    /// Blocks the source until then at least, in nanoseconds. Whether it was not for so long before.
    #[inline(always)]
    pub(crate) fn block(&self, until: u64) -> bool {
        Block::extend(&self.block_word(), until, self.binding)
    }

    #[inline(always)]
    fn block_word(&self) -> Plain {
        // SAFETY: as in `cell`; an aligned word.
        unsafe { Plain::new(&raw mut (*self.source).blocked) }
    }
}

/// The binding of an entry, if it is that of the source with this key, and of `epoch`.
///
/// # Safety
/// As for [`bound`].
#[inline(always)]
unsafe fn own(source: *const Source, key: SourceKey, epoch: u32) -> Option<Binding> {
    // SAFETY: as the caller promises.
    let binding = unsafe { bound(source) };
    // SAFETY: as above.
    if !binding.is_under(epoch) || !unsafe { is_of(source, key) } {
        return None;
    }
    // It may change hands while it is asked whose it is.
    // SAFETY: as above.
    (unsafe { bound(source) } == binding).then_some(binding)
}

/// The binding of an entry.
///
/// # Safety
/// `source` is a map value that was looked up in this run of the program.
#[inline(always)]
pub(crate) unsafe fn bound(source: *const Source) -> Binding {
    // SAFETY: as the caller promises; an aligned word.
    Binding(unsafe { (&raw const (*source).binding).read_volatile() })
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

const _: () = assert!(offset_of!(Source, address) % 8 == 0);

/// Adds packets to the totals of a source, or of those that have no entry.
#[inline(never)]
pub(crate) fn account(
    subject: &mut Subject,
    address: &Address,
    settings: &Settings,
    passed: &Tally,
    dropped: &Tally,
) {
    // Looked for is the entry of the subject's source.
    let (source, place) = (subject.source, subject.place);
    subject.source = *address;
    subject.place = Place::of(address, settings.seed, settings.sets);
    publish(subject);
    let own = Seat::of(subject).entry();
    // SAFETY: it was just looked up.
    let own = own.filter(|own| unsafe { is_of(*own, subject.key()) });
    let subject = subject.reread();
    (subject.source, subject.place) = (source, place);
    if let Some(source) = own.or_else(|| Seat::NOBODY.entry()) {
        // SAFETY: a map value that was just looked up.
        unsafe {
            if passed.packets != 0 {
                add(source, false, passed.packets, passed.bytes);
            }
            if dropped.packets != 0 {
                add(source, true, dropped.packets, dropped.bytes);
            }
        }
    }
}

/// Adds what passed of the subject's source lately to all that did.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn settle_recent() -> u32 {
    let Some(source) = Subject::get().and_then(|subject| Seat(subject.seat).entry()) else {
        return 0;
    };
    // SAFETY: a map value that was just looked up; an aligned word.
    let Tally { packets, bytes } = Recent::take(&unsafe { Plain::new(&raw mut (*source).recent) });
    if packets != 0 {
        // SAFETY: as above.
        unsafe { add(source, false, packets, bytes) };
    }
    0
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
        cell::add(&raw mut (*tally).packets, packets);
        cell::add(&raw mut (*tally).bytes, bytes);
    }
}
