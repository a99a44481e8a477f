//! What holds under a policy, as packets read it.

use crate::{
    abi::table::WAYS,
    base::{address::Mask, seed::Seed},
    memory::offence::Longest,
    packet::reason::Reason,
    policy::limit::{COLUMNS, INLINE, Key, LIMITS},
};

/// Where entry `number` of the tables of `epoch` is: even and odd epochs take turns, so that the next
/// policy is written beside the one in force.
#[inline(always)]
pub const fn half(epoch: u32, number: u32) -> u32 {
    number * 2 + (epoch & 1)
}

/// What every packet reads first: which policy is in force.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The epoch in force, from 1 on, in the low 32 bits, and [`LAYOUT_VERSION`](crate::abi::layout::LAYOUT_VERSION) in the high ones; 0
    /// before the first policy. Changed by one store.
    pub epoch: u64,
    /// See [`Revert`].
    pub revert: Revert,
    /// 1 while the operator has nothing dropped, whatever the policy says; what would be is counted.
    /// No change of the policy touches it.
    pub monitor: u64,
    /// What holds under it, at `epoch & 1`.
    pub settings: [Settings; 2],
}

/// When the policy that was in force before an epoch is to be so again: its tables are those of the
/// next epoch, which is in force from then on. Nobody has to do anything for that.
///
/// The epoch that it is about is part of it, so that it can be written before that epoch is in force.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revert(pub u64);

impl Revert {
    /// Never.
    pub const NEVER: Self = Self(0);
    const EPOCH_BITS: u32 = 16;

    /// After `epoch`, from the monotonic time `at` on, in nanoseconds; up to 65 µs earlier.
    #[inline(always)]
    pub const fn new(epoch: u32, at: u64) -> Self {
        Self(at >> Self::EPOCH_BITS << Self::EPOCH_BITS | epoch as u64 & 0xffff)
    }

    /// When, in nanoseconds, if it is about this epoch.
    #[inline(always)]
    pub const fn at(self, epoch: u32) -> Option<u64> {
        if self.0 != 0 && (self.0 ^ epoch as u64) & 0xffff == 0 {
            Some(self.0 >> Self::EPOCH_BITS << Self::EPOCH_BITS)
        } else {
            None
        }
    }
}

/// What holds for every packet under a policy.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What of an address makes a source.
    pub mask: Mask,
    /// Constants of [`flag`], or-ed.
    pub flags: u32,
    /// The properties of packets that limits ask about: constants of
    /// [`match_field`](crate::policy::matching::match_field), or-ed.
    pub match_fields: u32,
    /// Sets of sources.
    pub sets: u32,
    /// Sets of buckets.
    pub bucket_sets: u32,
    /// Sets of wide states.
    pub wide_sets: u32,
    /// The parts of the keys of the limits in [`Settings::by_rest`] that the source does not tell: the
    /// [rest](crate::policy::rest::Rest) of the key. [`Key::SOURCE`] is the second half of an IPv6 address.
    pub rest: Key,
    /// Sets of [offences](crate::memory::offence); 0 if there is no such table.
    pub offence_sets: u32,
    /// Sets of [handshakes](crate::memory::handshake). They go by the buckets that are asked for, made or not.
    pub handshake_sets: u32,
    /// 0.
    pub unused: u32,
    /// By what connections, datagrams, offences and the rest of keys are hashed.
    pub seed: Seed,
    /// By what sources and keys are hashed to their [places](crate::table::set::Place). Another one takes another table.
    pub table_seed: Seed,
    /// The limits that are enforced, as bits.
    pub enforced: u64,
    /// The limits by which every packet costs 1, as bits.
    pub unit: u64,
    /// The limits that are kept by keys of their own, as bits.
    pub keyed: u64,
    /// Those of them whose state is in the table of buckets, as bits.
    pub buckets_by_key: u64,
    /// Those of these by which every packet costs 1, as bits, but for those by interface: token buckets, leaky buckets and
    /// GCRA. Packets are leased from them.
    pub leasable: u64,
    /// Those of these that the source does not tell by itself, as bits.
    pub by_rest: u64,
    /// The limits that are enforced and have a penalty, as bits.
    pub penalties: u64,
    /// The longest times of these penalties.
    pub longest: Longest,
    /// The limits that count new connections, as bits.
    pub connections: u64,
    /// The limits that can be charged with the packet of a [newcomer](crate::table::probation) later, as bits:
    /// inline ones by which a packet costs 1 or its bytes.
    pub newcomers: u64,
    /// The limits that accept a destination that no prefix is about, as bits. Where no limit asks what a packet is, these
    /// are about all packets.
    pub default_destination_limits: u64,
    /// The bits of the limits whose state is in the entry of the source; 0 where there is none.
    pub inline: [u64; INLINE],
    /// Their [`limit_ids`](crate::policy::limit::Limit::limit_id).
    pub limit_ids: [u32; INLINE],
    /// Their places among the tallies.
    pub tallies: [u32; INLINE],
    /// The first profile, which most sources have, so that it need not be looked up.
    pub default_profile: Profile,
    /// The limits that drop all that they are about, as bits, but for those with a penalty: they are asked before all
    /// others, and have no state.
    pub drops: u64,
    /// 0, as in [`Profile::reserved`].
    pub reserved: [[u64; 17]; 4],
}

impl Settings {
    /// The number of the first entry of a wide state in [`map::BUCKETS`](crate::abi::layout::map::BUCKETS).
    #[inline(always)]
    pub const fn first_wide(&self) -> u32 {
        self.bucket_sets * WAYS as u32
    }

    /// The number of the first shared bucket there.
    #[inline(always)]
    pub const fn first_shared(&self) -> u32 {
        (self.bucket_sets + self.wide_sets) * WAYS as u32
    }

    /// The places of inline limits, as bits, whose limits were there under an epoch in the past, which was
    /// never taken back.
    #[inline(always)]
    pub const fn there_since(&self, epoch: u32) -> u32 {
        let mut there = 0;
        let mut place = 0;
        while place < INLINE {
            // A limit_id tells the epoch that its limit came in, and wraps.
            let came = self.limit_ids[place].wrapping_sub(1) / LIMITS * LIMITS;
            let since = epoch.wrapping_mul(LIMITS).wrapping_sub(came) as i32;
            there |= ((since >= 0) as u32) << place;
            place += 1;
        }
        there
    }

    /// The places of inline limits, as bits, that are the same limit's under other settings.
    #[inline(always)]
    pub const fn kept(&self, before: &Self) -> u32 {
        let mut kept = 0;
        let mut place = 0;
        while place < INLINE {
            kept |= ((self.limit_ids[place] == before.limit_ids[place]) as u32) << place;
            place += 1;
        }
        kept
    }
}

/// Bits of [`Settings::flags`].
pub mod flag {
    /// There are prefixes of sources with profiles of their own.
    pub const PREFIXES: u32 = 1;
    /// Some source may be refused something, whether or not that is dropped.
    pub const LIMITS: u32 = 2;
    /// Nothing is dropped by this policy, whatever [`Head::monitor`](crate::abi::policy::Head::monitor) is; what
    /// would be is counted.
    pub const MONITOR: u32 = 4;
    /// A limit asks about what a later fragment has from its first one: protocol, ports, flags or type.
    pub const FRAGMENTS: u32 = 8;
}

/// What holds for the sources of a prefix.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Profile {
    /// The limits that are about them, as bits.
    pub limits: u64,
    /// The limits, as bits, that packets are [leased](crate::memory::cache) from; 0 where none are.
    pub leased_of: u64,
    /// How many are leased at once, at most; also of packets that no limit is about. 0 where none are.
    pub lease: u64,
    /// The tenant that they are of, from 1 on; 0 for none.
    pub tenant: u32,
    /// 1 when `allowed`, `denied` or `blocked` is not 0.
    pub listed: u32,
    /// The meters of the inline limits, and of others at their
    /// [`override_column`](crate::policy::limit::Limit::override_column).
    pub meters: [u32; COLUMNS],
    /// How many packets of such sources without an entry a set lets pass [untracked](crate::table::untracked) in a tick.
    pub untracked: u64,
    /// Until when they are allowed, in nanoseconds of the monotonic clock; [`u64::MAX`] for ever, 0
    /// if they are not.
    pub allowed: u64,
    /// Until when they are denied, likewise.
    pub denied: u64,
    /// Until when they are blocked by hand, likewise.
    pub blocked: u64,
    /// 0: an index is multiplied by the size of what it is of, which is a shift by a power of two.
    pub reserved: [u64; 2],
}

impl Profile {
    /// The number of the profile that the [overflow entries](crate::abi::layout::shared::OVERFLOW) are bound to. It has
    /// every inline limit of the policy, each with its [`shared_meter`](crate::policy::limit::Limit::shared_meter).
    pub const SHARED: u32 = 1;

    /// What becomes of their packets at `now`, in nanoseconds, by what was said of them by hand.
    #[inline(always)]
    pub const fn listing(&self, now: u64) -> Option<Reason> {
        if now < self.allowed {
            Some(Reason::Allow)
        } else if now < self.denied {
            Some(Reason::Deny)
        } else if now < self.blocked {
            Some(Reason::Penalty)
        } else {
            None
        }
    }

    /// The same, where such a source is blocked by a penalty until `blocked`. The lists rule.
    #[inline(always)]
    pub const fn standing(&self, blocked: u64, now: u64) -> Option<Reason> {
        match self.listing(now) {
            None if now < blocked => Some(Reason::Penalty),
            reason => reason,
        }
    }

    /// What is [listed](Self::listing) if it takes no clock to tell, as it is so at any time.
    #[inline(always)]
    pub const fn listing_for_ever(&self) -> Option<Reason> {
        if self.allowed == u64::MAX {
            Some(Reason::Allow)
        } else if self.allowed == 0 && self.denied == u64::MAX {
            Some(Reason::Deny)
        } else if self.allowed | self.denied == 0 && self.blocked == u64::MAX {
            Some(Reason::Penalty)
        } else {
            None
        }
    }
}
