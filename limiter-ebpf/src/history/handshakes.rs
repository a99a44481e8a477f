//! The SYNs that were admitted as new connections, so that their repetitions are told from others.

use limiter_common::{
    abi::state::SynSet,
    base::word::Word as _,
    memory::handshake::{self, Handshake, Record, WAYS},
};

use crate::{
    kernel::{
        atomics::MapWord, barrier::black_box, clock, maps::SYN_DEDUP, scratch::PacketScratch,
    },
    policy::active::settings,
};

/// An epoch of which no packet is.
const NO_EPOCH: u64 = u64::MAX;

/// Finds out which connection the packet opens and whether it repeats a SYN that was admitted, and
/// takes the limits that this was charged to from those that the packet is about.
///
/// A packet is found to be a repetition once, however often it is decided about. That is used up
/// whatever becomes of the packet: also of the SYNs that a client sends, those that are lost are.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn find_retransmission(epoch: u32) -> u32 {
    let (Some(scratch), Some(settings)) = (PacketScratch::get(), settings(epoch)) else { return 0 };
    if scratch.handshake_key == 0 {
        (scratch.handshake_charged, scratch.handshake_way) = (0, WAYS as u64);
        scratch.handshake_key = handshake::key(&scratch.packet, settings.seed).unwrap_or(0);
        if scratch.handshake_key != 0 {
            recall(scratch, epoch);
        }
    }
    if scratch.handshake_charged != 0 {
        // The bits of another policy are of other limits.
        if scratch.handshake_epoch != u64::from(epoch) {
            scratch.handshake_charged = settings.connections;
        }
        scratch.applicable &= !scratch.handshake_charged;
    }
    0
}

/// Finds the record of the connection that the packet opens, and uses a repetition up.
#[inline(always)]
fn recall(scratch: &mut PacketScratch, epoch: u32) {
    let Some(set) = Records::of(scratch.handshake_key, epoch) else { return };
    let way = handshake::find(|way| set.handshake(way), scratch.handshake_key);
    if way >= WAYS {
        return;
    }
    scratch.handshake_way = way as u64;
    if let Some((seen, charged)) = set.record(way).repeat(clock::now()) {
        scratch.handshake_charged = charged;
        scratch.handshake_epoch = if seen.is_under(epoch) { epoch.into() } else { NO_EPOCH };
    }
}

/// Remembers the connection that the packet opens, and that it was charged to these limits.
///
/// CPUs write here without a lock. Where two are at one way, what is left may be the connection of one with the limits of
/// the other: some of its repetitions, [`Handshake::REPEATS`] at most, are charged to a limit more, or to one less.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn record_syn(charged: u64) -> u32 {
    let Some(scratch) = PacketScratch::get() else { return 0 };
    let (key, now) = (scratch.handshake_key, scratch.time.now);
    if key == 0 {
        return 0;
    }
    let Some(set) = Records::of(key, scratch.binding.epoch()) else { return 0 };
    let known = scratch.handshake_way as usize;
    let way = if known < WAYS { known } else { handshake::oldest(|way| set.handshake(way), now) };
    // What repeats a SYN that other limits were charged with keeps its time.
    if scratch.handshake_charged == 0 {
        set.record(way).write(Handshake::new(key, scratch.binding.epoch(), now), charged);
    } else if set.handshake(way).is_of(key) {
        set.record(way).write(set.handshake(way), scratch.handshake_charged | charged);
    }
    0
}

/// The records of a set.
struct Records(*mut SynSet);

impl Records {
    /// Those of the set of a connection with this key, of the table as the settings of an epoch have it.
    #[inline(always)]
    fn of(key: u64, epoch: u32) -> Option<Self> {
        let sets = settings(epoch)?.handshake_sets;
        Some(Self(SYN_DEDUP.get_ptr_mut(handshake::set(key, sets))?))
    }

    #[inline(always)]
    fn handshake(&self, way: usize) -> Handshake {
        Handshake(self.record(way).handshake.load())
    }

    /// The way is hidden from the compiler each time: one that was hidden once costs more verified instructions.
    #[inline(always)]
    fn record(&self, way: usize) -> Record<MapWord> {
        let way = black_box(way) & (WAYS - 1);
        // SAFETY: a map value that was looked up in this run; aligned words of one of its ways.
        unsafe {
            Record {
                handshake: MapWord::new(&raw mut (*self.0)[way].handshake),
                charged: MapWord::new(&raw mut (*self.0)[way].charged),
            }
        }
    }
}
