//! Blocks that a process pushes: the program `limiter_push`, which no interface runs.
//!
//! A pushed block is the [`OffenceRecord`](limiter_common::abi::state::OffenceRecord) of its source under [`Penalty::PUSHED`].
//! Packets find it as they find the blocks that limits made.
//!
//! **What happens before what.** The record is written first, under the lock of its set. The entry of the source is changed
//! after that, under the lock of its set in the source table. An entry is bound, and looks for blocks, under that lock too: it
//! finds the record, or is changed here. To take that lock is an exchange, so the record is seen before the entry is looked
//! for.

use aya_ebpf::programs::XdpContext;
use limiter_common::{
    abi::{
        policy::half,
        push::{self, Push},
        state::OffenceRecord,
        table::WAYS,
    },
    algorithm::binding::Binding,
    base::{
        address::Address,
        word::{StoreWord as _, TRIES, Word as _},
    },
    policy::penalty::{Block, Offence, Penalty},
    table::set::Place,
};

use crate::{
    history::{
        offences::{
            self, NONE, find_offence, lock_offences, make_offence, place_offences, unlock_offences,
        },
        penalties::{note_block, recall_offences},
    },
    kernel::{
        atomics::MapWord,
        barrier::escape,
        clock,
        key::SourceKey,
        maps::{OFFENCES_REF, PROFILES, SOURCES},
        scratch::PacketScratch,
    },
    policy::{active::ActivePolicy, profile},
    table::{lookup::find_way, record::bound, set::SetRef},
};

/// Does what the [`Push`] in the frame asks for. Returns a constant of [`push`].
#[inline(always)]
pub fn run(ctx: &XdpContext) -> u32 {
    let start = ctx.data();
    if start + size_of::<Push>() > ctx.data_end() {
        return push::REFUSED;
    }
    // SAFETY: the frame is as long.
    let Push { source, lifts, until, owner } = unsafe { (start as *const Push).read_unaligned() };
    let (Some(scratch), Some(policy)) = (PacketScratch::get(), ActivePolicy::get()) else {
        return push::REFUSED;
    };
    if OFFENCES_REF.get(0).is_none() || source.family == Address::NONE.family {
        return push::REFUSED;
    }
    // Not masked: where sources are larger than when it was asked for, that would be another one, which was not checked.
    scratch.write_key(SourceKey::of(&source));
    scratch.binding = Binding::new(policy.epoch, 0);
    escape(scratch);
    if lifts == 0 && is_allowed() != 0 {
        return push::ALLOWED;
    }
    place_offences(policy.epoch);
    if lock_offences() == 0 {
        return push::BUSY;
    }
    let done = if lifts == 0 { write_record(until, owner) } else { erase_record(owner) };
    unlock_offences();
    if done != push::DONE && (done != push::NOT_BLOCKED || lifts != push::LIFT_AGAIN) {
        return done;
    }
    if lifts == 0 {
        note_block(until);
    }
    // The end of a decision may have moved to an earlier time.
    change_entry(u32::from(lifts != 0 || owner != push::SHARED), until)
}

/// Returns 1 if the list `allow` has the source in the scratch, otherwise 0.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn is_allowed() -> u32 {
    let (Some(scratch), Some(policy)) = (PacketScratch::get(), ActivePolicy::get()) else {
        return 0;
    };
    let number = profile::number(&scratch.source, policy.epoch, policy.settings);
    let profile = PROFILES.get(half(policy.epoch, number));
    u32::from(profile.is_some_and(|profile| profile.allowed > clock::now()))
}

/// Writes that an owner has the source in the scratch blocked until then, in nanoseconds. The lock of the set of offences is held.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn write_record(until: u64, owner: u64) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return push::REFUSED };
    let line = match find_offence(scratch, Penalty::PUSHED) {
        NONE => make_offence(clock::now()),
        found => found,
    };
    if line == NONE {
        return push::FULL;
    }
    let Some(record) = offences::record(line) else { return push::REFUSED };
    let known = offences::words(record);
    let (own, other) = ends(record, owner);
    // The same again is asked for after `BUSY`.
    if owner == push::SHARED && own.load() > until {
        return push::LONGER;
    }
    own.store(until);
    block(&known, until.max(other.load()));
    push::DONE
}

/// The end of an owner and that of the other one in a record that was just looked up. The place of a word goes by the owner, so that
/// what follows is verified once.
#[inline(always)]
fn ends(record: *mut OffenceRecord, owner: u64) -> (MapWord, MapWord) {
    let known = offences::words(record);
    // Before there were owners, all blocks were shared, and both words were 0, as in a record that was just made.
    if known.last.load() | known.began.load() == 0 {
        known.last.store(known.blocked.load());
    }
    let place = (owner & push::CROWDSEC) as usize;
    // SAFETY: a map value that was just looked up; the first two words of an offence, that of CrowdSec first.
    unsafe {
        let first = (&raw mut (*record).offence).cast::<u64>();
        (MapWord::new(first.add(place ^ 1)), MapWord::new(first.add(place)))
    }
}

/// Has the source of a record blocked until then, in nanoseconds.
#[inline(always)]
fn block(known: &Offence<MapWord>, until: u64) {
    // As if it began when it ends: no penalty of the policy cuts it.
    known.since.store(until);
    known.blocked.store_release(until);
}

/// Ends the block of an owner in the record of the source in the scratch. The record becomes nobody's, unless the block of the other
/// owner runs. The lock of the set of offences is held.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn erase_record(owner: u64) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return push::REFUSED };
    let line = find_offence(scratch, Penalty::PUSHED);
    if line == NONE {
        return push::NOT_BLOCKED;
    }
    let Some(record) = offences::record(line) else { return push::REFUSED };
    let (known, now) = (offences::words(record), clock::now());
    let (own, other) = ends(record, owner);
    if own.load() <= now {
        return push::NOT_BLOCKED;
    }
    if other.load() > now {
        own.store(0);
        block(&known, other.load());
        return push::DONE;
    }
    // SAFETY: it was just looked up.
    unsafe { offences::blank(record) };
    push::DONE
}

/// Blocks the entry of the source in the scratch until then at least; or, if `anew` is not 0, until what the records of it say.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn change_entry(anew: u32, until: u64) -> u32 {
    let (Some(scratch), Some(policy)) = (PacketScratch::get(), ActivePolicy::get()) else {
        return push::REFUSED;
    };
    let settings = policy.settings;
    scratch.place = Place::of(&scratch.source, settings.table_seed, settings.sets);
    escape(scratch);
    let Some(set_ref) = SetRef::lock(scratch.place.set) else { return push::BUSY };
    let way = find_way() as usize;
    let done = if way >= WAYS {
        push::DONE
    } else if anew == 0 {
        block_entry(set_ref.entry(way), until)
    } else {
        free_entry(set_ref.entry(way))
    };
    set_ref.unlock();
    done
}

/// Blocks the source of an entry until then at least, in nanoseconds. The lock of its set is held.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn block_entry(number: u32, until: u64) -> u32 {
    let Some(source) = SOURCES.get_ptr_mut(number) else { return push::REFUSED };
    // SAFETY: it was just looked up; an aligned word.
    let (binding, word) = unsafe { (bound(source), MapWord::new(&raw mut (*source).blocked)) };
    // An entry that is behind is bound by its next packet, which finds the record.
    for _ in 0..TRIES {
        let found = Block(word.load());
        if !found.is_under(binding) || found.until(binding) >= until & !0xff {
            return push::DONE;
        }
        if Block::extend(&word, until, binding) {
            return push::DONE;
        }
    }
    push::BUSY
}

/// Leaves the entry of a source with the blocks that its records have. The lock of its set is held.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn free_entry(number: u32) -> u32 {
    let (Some(source), Some(policy)) = (SOURCES.get_ptr_mut(number), ActivePolicy::get()) else {
        return push::REFUSED;
    };
    // SAFETY: it was just looked up; an aligned word.
    let (binding, word) = unsafe { (bound(source), MapWord::new(&raw mut (*source).blocked)) };
    // As above.
    if !binding.is_under(policy.epoch) {
        return push::DONE;
    }
    let Some(profile) = PROFILES.get(half(policy.epoch, binding.profile())) else {
        return push::REFUSED;
    };
    let penalties = policy.settings.penalties & profile.limits;
    for _ in 0..TRIES {
        let seen = word.load();
        let left = recall_offences(policy.epoch, penalties);
        let block = seen & Block::AWAITS_PROOF | Block::new(left, binding).0;
        // A packet that blocks the source meanwhile has noted that before, and finds the longer block or moves the word.
        if word.compare_exchange(seen, block) == seen
            && recall_offences(policy.epoch, penalties) <= left
        {
            return push::DONE;
        }
    }
    push::BUSY
}
