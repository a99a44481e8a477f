//! The entries of sources, found or made, and bound to the policy in force.

use aya_ebpf::{bindings::BPF_NOEXIST, maps::lpm_trie::Key};
use limiter_common::{
    address::Address,
    binding::{Binding, Bucket, bind},
    contract::{Profile, Settings, Source, flag, half, shared},
    limit::INLINE,
    penalty::Block,
    word::Word as _,
};

use crate::{
    carry::carry_word,
    cell::{self, Cell, Plain},
    clock,
    maps::{METERS, PREFIXES, PROFILES, SHARED_SOURCES, SOURCES},
    offence::recall_offences,
};

/// Whose the shared entries are: no prefix has them.
static NOBODY: Address = Address::NONE;
static NEW_SOURCE: Source = Source::NEW;

/// The entry of a source, bound.
#[derive(Clone, Copy)]
pub(crate) struct SourceEntry {
    pub(crate) source: *mut Source,
    pub(crate) binding: Binding,
    pub(crate) profile: &'static Profile,
    /// Whether the entry is shared by sources that could not get one of their own.
    pub(crate) overflow: bool,
}

impl SourceEntry {
    /// The entry of `address`, the key of a source, if there is one that is bound under `epoch`.
    /// [`Address::NONE`] has a shared one, and so have, as `overflow` says, the sources for which
    /// the kernel has no entry to give.
    #[inline(always)]
    pub(crate) fn find(address: &Address, epoch: u32, overflow: bool) -> Option<Self> {
        let source = lookup(address, overflow)?;
        // SAFETY: an aligned word of a map value.
        let binding = Binding(unsafe { (&raw const (*source).binding).read_volatile() });
        if !binding.is_under(epoch) {
            return None;
        }
        let profile = PROFILES.get(half(epoch, binding.profile()))?;
        Some(Self { source, binding, profile, overflow })
    }

    /// Whether several sources share it, all of which would pay for what one of them does.
    #[inline(always)]
    pub(crate) const fn is_shared(&self, address: &Address) -> bool {
        self.overflow || address.family == Address::NONE.family
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

    /// Adds a packet to the totals of the source.
    #[inline(always)]
    pub(crate) fn account(&self, dropped: bool, bytes: u64) {
        // SAFETY: as in `cell`.
        unsafe { add(self.source, dropped, 1, bytes) };
    }

    /// Until when the source is blocked, in nanoseconds, or was; 0 if it never was.
    #[inline(always)]
    pub(crate) fn blocked(&self) -> u64 {
        Block(self.block_word().load()).until(self.binding.epoch())
    }

    /// Blocks the source until then at least, in nanoseconds.
    #[inline(always)]
    pub(crate) fn block(&self, until: u64) {
        Block::extend(&self.block_word(), until, self.binding.epoch());
    }

    #[inline(always)]
    fn block_word(&self) -> Plain {
        // SAFETY: as in `cell`; an aligned word.
        unsafe { Plain::new(&raw mut (*self.source).blocked) }
    }
}

/// The entry of a source, or the one that it shares.
#[inline(always)]
fn lookup(address: &Address, overflow: bool) -> Option<*mut Source> {
    if overflow {
        SHARED_SOURCES.get_ptr_mut(shared::OVERFLOW)
    } else if address.family == Address::NONE.family {
        SHARED_SOURCES.get_ptr_mut(shared::UNREADABLE)
    } else {
        SOURCES.get_ptr_mut(address)
    }
}

/// Adds packets to the totals of a source, or of those that have no entry.
#[inline(never)]
pub(crate) fn account(address: &Address, dropped: bool, packets: u64, bytes: u64) {
    let source = lookup(address, false).or_else(|| lookup(address, true));
    if let Some(source) = source {
        // SAFETY: a map value that was just looked up.
        unsafe { add(source, dropped, packets, bytes) };
    }
}

/// # Safety
/// `source` is a map value that was looked up in this run of the program.
#[inline(always)]
unsafe fn add(source: *mut Source, dropped: bool, packets: u64, bytes: u64) {
    // SAFETY: as the caller promises; both are aligned words.
    unsafe {
        let tally = if dropped { &raw mut (*source).dropped } else { &raw mut (*source).passed };
        cell::add(&raw mut (*tally).packets, packets);
        cell::add(&raw mut (*tally).bytes, bytes);
    }
}

/// Makes an entry for a source that has none. It is zeroed, so it will be bound as one that is
/// behind.
#[inline(never)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a value would be copied to the stack"
)]
fn create(address: &Address) -> Option<*mut Source> {
    // Another CPU may have made it first, which is as good.
    let _: Result<(), i32> = SOURCES.insert(address, &NEW_SOURCE, u64::from(BPF_NOEXIST));
    lookup(address, false)
}

/// Makes the entry of a source if there is none, and brings it up to date. Gives whether it is the
/// one of those for which the kernel has no entry to give.
#[inline(always)]
pub(crate) fn renew(address: &Address, epoch: u32, settings: &Settings) -> bool {
    let own = lookup(address, false).or_else(|| create(address));
    let overflow = own.is_none();
    let address = if overflow { &NOBODY } else { address };
    if let Some(source) = own.or_else(|| lookup(address, overflow)) {
        let _: Option<Binding> = refresh(source, address, epoch, settings);
    }
    overflow
}

/// Brings the entry of a source up to date.
#[inline(never)]
fn refresh(
    source: *mut Source,
    address: &Address,
    epoch: u32,
    settings: &Settings,
) -> Option<Binding> {
    let number = if settings.flags & flag::PREFIXES == 0 {
        0
    } else {
        PREFIXES
            .get(epoch & 1)
            .and_then(|prefixes| prefixes.get(&Key::new(Address::BITS, *address)))
            .copied()
            .unwrap_or(0)
    };
    let target = Binding::new(epoch, number);
    let profile = PROFILES.get(half(epoch, number))?;
    let now = clock::now();
    // SAFETY: the caller looked the entry up in this run. It is written under its lock, so no binding
    // is asked for.
    let cell = |word: *mut u64| unsafe { Plain::new(word) };
    // SAFETY: as above.
    let entry = cell(unsafe { &raw mut (*source).binding });
    bind(&entry, target, || {
        // A block is of a limit: it goes, and comes back, with that being about the source.
        let shared = address.family == Address::NONE.family;
        let penalties = if shared { 0 } else { settings.penalties & profile.limits };
        let until = if penalties == 0 { 0 } else { recall_offences(epoch, penalties) };
        // SAFETY: as above.
        unsafe { (&raw mut (*source).blocked).write_volatile(Block::new(until, epoch).0) };
        for place in 0..INLINE {
            let number = half(epoch, profile.meters[place]);
            let Some(meter) = METERS.get(number) else { continue };
            if settings.inline[place] & profile.limits == 0 {
                continue;
            }
            // SAFETY: as above.
            let (bucket, stamp) = unsafe {
                let word = cell(&raw mut (*source).words[place]);
                let scale = cell(&raw mut (*source).scales[place]);
                (Bucket { word, scale }, cell(&raw mut (*source).stamps[place]))
            };
            let (before, after) = (stamp.load(), u64::from(settings.stamps[place]));
            if before == after {
                bucket.rescale(meter.gcra.scale(), |word, from| {
                    carry_word(word, from.0, 0, number, now)
                });
            } else {
                bucket.renew(&meter.gcra, now);
                let _: u64 = stamp.compare_exchange(before, after);
            }
        }
    })
}
