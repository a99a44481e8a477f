//! The entries of sources, bound to the policy in force.

use core::mem::offset_of;

use limiter_common::{
    abi::{
        layout::shared,
        policy::{Profile, Settings, half},
        table::Source,
    },
    algorithm::{binding::Binding, meter::Meter},
    base::{address::Address, tally::Tally, word::Word as _},
    memory::{event::Episode, pending::PendingTally},
    policy::{limit::COLUMNS, penalty::Block},
    table::set::Place,
};

use crate::{
    kernel::{
        atomics::{self, BoundWord, MapWord},
        barrier::{black_box, escape},
        key::SourceKey,
        maps::{METERS, PROFILES, SHARED_SOURCES, SOURCES},
        scratch::PacketScratch,
    },
    table::{
        lookup::EntryId,
        record::{LimitRef, Places, add, add_to, bound, is_of, own},
    },
};

/// The entry of a source, bound.
#[derive(Clone, Copy)]
pub(crate) struct SourceEntry {
    pub(crate) source: *mut Source,
    pub(crate) binding: Binding,
    /// The profile of the source.
    pub(crate) profile: &'static Profile,
    /// The numbers of the meters of its words: those of the profile, or where sources share the entry, of
    /// [`Profile::SHARED`].
    pub(crate) meters: &'static [u32; COLUMNS],
}

impl SourceEntry {
    /// The entry of this number, if it is that of the packet's source, whose key this is, and bound under `epoch`, of
    /// which these are the settings. The packet has its entry_id there then.
    #[inline(always)]
    pub(crate) fn at(
        number: u32,
        key: SourceKey,
        scratch: &mut PacketScratch,
        epoch: u32,
        settings: &'static Settings,
    ) -> Option<Self> {
        let source = SOURCES.get_ptr_mut(number)?;
        // SAFETY: it was just looked up.
        let binding = unsafe { own(source, key, epoch) }?;
        // Most have the first one. That is guessed where it is a branch, so that nothing waits for the entry.
        let profile = match binding.profile() {
            0 => &settings.default_profile,
            number => PROFILES.get(half(epoch, number))?,
        };
        scratch.entry_id = number;
        Some(Self { source, binding, profile, meters: &profile.meters })
    }

    /// The entry of the packet's source, if there is one that is bound under `epoch`.
    #[inline(always)]
    pub(crate) fn of(scratch: &PacketScratch, epoch: u32) -> Option<Self> {
        // SAFETY: it was just looked up.
        unsafe { Self::found(EntryId(scratch.entry_id).entry()?, scratch, epoch) }
    }

    /// The same, where the entry was looked up.
    ///
    /// # Safety
    /// `source` is the map value of the packet's [`EntryId`], looked up in this run of the program.
    #[inline(always)]
    pub(crate) unsafe fn found(
        source: *mut Source,
        scratch: &PacketScratch,
        epoch: u32,
    ) -> Option<Self> {
        let entry_id = EntryId(scratch.entry_id);
        if !entry_id.is_overflow() {
            // SAFETY: as the caller promises.
            let binding = unsafe { own(source, scratch.key(), epoch) }?;
            // Looked up whichever it is: what follows would be verified once for each map that it can be in. Which one
            // is guessed as in `at`.
            let number = binding.profile();
            let number = if number == 0 { black_box(0) as u32 } else { number };
            let profile = PROFILES.get(half(epoch, number))?;
            return Some(Self { source, binding, profile, meters: &profile.meters });
        }
        // SAFETY: as the caller promises.
        let binding = unsafe { bound(source) };
        if !binding.is_under(epoch) || scratch.numbered != epoch {
            return None;
        }
        let shared = PROFILES.get(half(epoch, binding.profile()))?;
        let profile = PROFILES.get(half(epoch, scratch.number))?;
        Some(Self { source, binding, profile, meters: &shared.meters })
    }

    /// Whether it is bound as it was.
    #[inline(always)]
    pub(crate) fn is_bound(&self) -> bool {
        // SAFETY: an entry points to a map value that was looked up in this run.
        (unsafe { bound(self.source) }) == self.binding
    }

    /// The word of the inline limit at a place, which is one that is there.
    #[inline(always)]
    pub(crate) fn cell(&self, scratch: &PacketScratch, place: usize) -> Option<BoundWord> {
        let state = LimitRef::at(scratch.entry_id, self.source, place)?;
        Some(self.word(state))
    }

    /// The word of a limit of the source.
    #[inline(always)]
    pub(crate) fn word(&self, LimitRef { word, .. }: LimitRef) -> BoundWord {
        // SAFETY: an entry points to a map value that was looked up in this run. The verifier checks that the word is in it.
        unsafe { BoundWord::new(word, &raw const (*self.source).binding, self.binding) }
    }

    /// The places that the entry has.
    #[inline(always)]
    pub(crate) const fn places(&self) -> Places {
        Places::of_entry(self.source)
    }

    /// The meter of the inline limit at a place.
    #[inline(always)]
    pub(crate) fn meter(&self, place: usize) -> Option<&'static Meter> {
        METERS.get(half(self.binding.epoch(), self.meters[place]))
    }

    /// The time in which the source is over its limits.
    #[inline(always)]
    pub(crate) fn episode(&self) -> Episode<u64> {
        // SAFETY: as in `cell`; an aligned word.
        Episode(unsafe { (&raw const (*self.source).episode).read_volatile() })
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
            let recent = &raw mut (*self.source).pending;
            if PendingTally(recent.read_volatile()).is_due() {
                settle_pending();
            }
            atomics::add(recent, PendingTally::of(passed).0);
        }
    }

    /// Whether the packets that are counted in the entry come to a multiple of sixteen with this one.
    #[inline(always)]
    pub(crate) fn is_sixteenth(&self) -> bool {
        // SAFETY: as in `cell`; an aligned word.
        let pending = PendingTally(unsafe { (&raw const (*self.source).pending).read_volatile() });
        pending.tally().packets % 16 == 15
    }

    /// Until when the source is blocked, in nanoseconds, or was; 0 if it never was, or if one that is over was forgotten.
    #[inline(always)]
    pub(crate) fn blocked(&self) -> u64 {
        Block(self.block_word().load()).until(self.binding)
    }

    /// Whether the source may be blocked, or a connection of it may [prove](crate::history::proofs) what it did.
    #[inline(always)]
    pub(crate) fn has_offended(&self) -> bool {
        Block(self.block_word().load()).state(self.binding) != 0
    }

    /// Whether a connection of the source may prove what it did.
    #[inline(always)]
    pub(crate) fn awaits_proof(&self) -> bool {
        Block(self.block_word().load()).awaits_proof(self.binding)
    }

    /// Notes whether that is so.
    #[inline(always)]
    pub(crate) fn await_proof(&self, awaits: bool) {
        Block::await_proof(&self.block_word(), awaits, self.binding);
    }

    /// Blocks the source until then at least, in nanoseconds. Whether it was not for so long before.
    #[inline(always)]
    pub(crate) fn block(&self, until: u64) -> bool {
        Block::extend(&self.block_word(), until, self.binding)
    }

    /// Forgets a block that is over at `now`, in nanoseconds.
    #[inline(always)]
    pub(crate) fn forget_block(&self, now: u64) {
        Block::forget(&self.block_word(), now, self.binding);
    }

    #[inline(always)]
    fn block_word(&self) -> MapWord {
        // SAFETY: as in `cell`; an aligned word.
        unsafe { MapWord::new(&raw mut (*self.source).blocked) }
    }
}

const _: () = assert!(offset_of!(Source, address) % 8 == 0);

/// Adds packets to the totals of a source, or of those that have no entry.
#[inline(never)]
pub(crate) fn account(
    scratch: &mut PacketScratch,
    address: &Address,
    settings: &Settings,
    passed: &Tally,
    dropped: &Tally,
) {
    // Looked for is the entry of the packet's source.
    let (source, place) = (scratch.source, scratch.place);
    scratch.source = *address;
    scratch.place = Place::of(address, settings.table_seed, settings.sets);
    escape(scratch);
    let own = EntryId::of(scratch).entry();
    // SAFETY: it was just looked up.
    let own = own.filter(|own| unsafe { is_of(*own, scratch.key()) });
    let scratch = scratch.reread();
    (scratch.source, scratch.place) = (source, place);
    // SAFETY: a map value that was just looked up.
    let own = own.map(|own| unsafe { [&raw mut (*own).passed, &raw mut (*own).dropped] });
    let tallies = own.or_else(|| {
        let untracked = SHARED_SOURCES.get_ptr_mut(shared::UNTRACKED)?;
        // SAFETY: as above.
        Some(unsafe { [&raw mut (*untracked).passed, &raw mut (*untracked).dropped] })
    });
    let Some(tallies) = tallies else { return };
    for (tally, more) in tallies.into_iter().zip([passed, dropped]) {
        if more.packets != 0 {
            // SAFETY: as above.
            unsafe { add_to(tally, more) };
        }
    }
}

/// Adds what passed of the packet's source lately to all that did.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn settle_pending() -> u32 {
    let Some(source) = PacketScratch::get().and_then(|scratch| EntryId(scratch.entry_id).entry())
    else {
        return 0;
    };
    // SAFETY: a map value that was just looked up; an aligned word.
    let Tally { packets, bytes } =
        PendingTally::take(&unsafe { MapWord::new(&raw mut (*source).pending) });
    if packets != 0 {
        // SAFETY: as above.
        unsafe { add(source, false, packets, bytes) };
    }
    0
}
