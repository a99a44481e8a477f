//! The entries of sources, found or made, and bound to the policy in force.

use aya_ebpf::{bindings::BPF_NOEXIST, maps::lpm_trie::Key};
use limiter_common::{
    address::Address,
    binding::{Binding, Bucket, Standing, bind},
    contract::{Profile, Settings, Source, Tally, flag, half, shared},
    limit::{INLINE, Limit},
    penalty::Offence,
    word::Word as _,
};

use crate::{
    carry::carry_word,
    cell::{self, Cell, Plain},
    clock,
    maps::{METERS, PREFIXES, PROFILES, SHARED_SOURCES, SOURCES},
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
    /// The entry of `address`, the key of a source; [`Address::NONE`] has a shared one, and so have
    /// the sources for which the kernel has no entry to give. One that another CPU keeps from being
    /// bound is told of a packet of `bytes` here, as nobody else can.
    #[inline(always)]
    pub(crate) fn find(
        address: &Address,
        epoch: u32,
        settings: &Settings,
        bytes: u64,
    ) -> Option<Self> {
        let (source, address, overflow) = if address.family == Address::NONE.family {
            (SHARED_SOURCES.get_ptr_mut(shared::UNREADABLE)?, &NOBODY, false)
        } else if let Some(source) = SOURCES.get_ptr_mut(address).or_else(|| create(address)) {
            (source, address, false)
        } else {
            (SHARED_SOURCES.get_ptr_mut(shared::OVERFLOW)?, &NOBODY, true)
        };
        // SAFETY: an aligned word of a map value.
        let seen = Binding(unsafe { (&raw const (*source).binding).read_volatile() });
        let binding = match seen.standing(epoch) {
            Standing::Current => seen,
            Standing::Behind | Standing::Locked => {
                let Some(binding) = refresh(source, address, epoch, settings) else {
                    // Without limits it passes.
                    // SAFETY: it was looked up above.
                    unsafe { account(source, settings.flags & flag::LIMITS != 0, bytes) };
                    return None;
                };
                binding
            }
        };
        let profile = PROFILES.get(half(binding.epoch(), binding.profile()))?;
        Some(Self { source, binding, profile, overflow })
    }

    /// The entry of `address` that was found to be bound so, once more. One that was thrown out
    /// meanwhile is gone.
    #[inline(always)]
    pub(crate) fn again(address: &Address, binding: Binding, overflow: bool) -> Option<Self> {
        let source = if address.family == Address::NONE.family {
            SHARED_SOURCES.get_ptr_mut(shared::UNREADABLE)?
        } else if overflow {
            SHARED_SOURCES.get_ptr_mut(shared::OVERFLOW)?
        } else {
            SOURCES.get_ptr_mut(address)?
        };
        let profile = PROFILES.get(half(binding.epoch(), binding.profile()))?;
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
        unsafe { account(self.source, dropped, bytes) };
    }

    /// Until when the source is blocked, in nanoseconds, or was; 0 if it never was.
    #[inline(always)]
    pub(crate) fn blocked(&self) -> u64 {
        // SAFETY: as in `cell`; an aligned word.
        unsafe { (&raw const (*self.source).blocked).read_volatile() }
    }

    /// Notes that the source was over a limit with a penalty at `now`.
    #[inline(never)]
    pub(crate) fn penalise(&self, limit: &Limit, now: u64) {
        let source = self.source;
        // SAFETY: as in `cell`; aligned words.
        unsafe {
            let over = &raw mut (*source).over;
            // Having been over another limit is another story.
            if over.read_volatile() != u64::from(limit.stamp) {
                over.write_volatile(u64::from(limit.stamp));
                (&raw mut (*source).began).write_volatile(0);
            }
        }
        // SAFETY: as in `cell`; a policy has no part in them.
        let [began, last, blocked, blocks] = unsafe {
            [
                &raw mut (*source).began,
                &raw mut (*source).last,
                &raw mut (*source).blocked,
                &raw mut (*source).blocks,
            ]
            .map(|word| Plain::new(word))
        };
        limit.penalty.exceed(&Offence { began, last, blocked, blocks }, now);
    }
}

/// Adds a packet to the totals of a source.
///
/// # Safety
/// `source` is a map value that was looked up in this run of the program.
#[inline(always)]
unsafe fn account(source: *mut Source, dropped: bool, bytes: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        let tally = if dropped { &raw mut (*source).dropped } else { &raw mut (*source).passed };
        add(tally, 1, bytes);
    }
}

/// Adds packets that were dropped to the totals of a source, or of those that have no entry.
#[inline(never)]
pub(crate) fn account_dropped(address: &Address, packets: u64, bytes: u64) {
    let source = if address.family == Address::NONE.family {
        SHARED_SOURCES.get_ptr_mut(shared::UNREADABLE)
    } else {
        SOURCES.get_ptr_mut(address).or_else(|| SHARED_SOURCES.get_ptr_mut(shared::OVERFLOW))
    };
    if let Some(source) = source {
        // SAFETY: a map value that was just looked up.
        unsafe { add(&raw mut (*source).dropped, packets, bytes) };
    }
}

/// # Safety
/// `tally` is in a map value that was looked up in this run of the program.
#[inline(always)]
unsafe fn add(tally: *mut Tally, packets: u64, bytes: u64) {
    // SAFETY: as the caller promises; both are aligned words.
    unsafe {
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
    SOURCES.get_ptr_mut(address)
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
