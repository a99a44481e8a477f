//! The limits of a packet, asked together.
//!
//! Every limit that applies is looked at, and then all are charged or none: a
//! packet that any of them refuses costs the others nothing. Limits whose state is in the same place
//! are a [`Group`]; a packet goes through its groups twice, with one [`Bill`].

use core::ops::Range;

use crate::{
    algorithm::policer::{Look, Policer, Refusal},
    base::word::{RACES, Word},
    packet::reason::Reason,
};

/// What is known of the limits of one packet, as sets of their bits.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    /// The limits that are about the packet.
    pub applies: u64,
    /// The limits that are enforced; the others only count.
    pub enforced: u64,
    /// The limits that are not enforced and would refuse it.
    pub exceeded: u64,
    /// The limit that refuses it: the first of those that do; 0 when none does.
    pub refused: u64,
    /// 1 when it is refused undecided, because other CPUs moved the state.
    pub contended: u64,
    /// The limits that it was charged to.
    pub charged: u64,
    /// The limits that it leaves [near](crate::algorithm::near) if it is charged to them.
    pub near: u64,
    /// 1 when it has waited for a word since its time was read: by that time, no limit tells whether it exceeds.
    pub late: u64,
    /// The limits that are only counted, and left out of [`applies`](Self::applies): none told whether it exceeds.
    pub left_out: u64,
}

impl Bill {
    /// The limits that are to be asked still: none is, once one before it has refused.
    #[inline(always)]
    pub const fn asked(&self) -> u64 {
        self.applies & self.refused.wrapping_sub(1)
    }

    /// The limits that are to be charged.
    #[inline(always)]
    pub const fn due(&self) -> u64 {
        self.applies & !self.exceeded
    }

    /// The limits that it exceeds, but for the one that refuses it: those that are asked before.
    #[inline(always)]
    pub const fn monitored(&self) -> u64 {
        self.exceeded & self.refused.wrapping_sub(1)
    }

    /// What becomes of the packet, which is counted under `conform` if all of its limits have room for it.
    #[inline(always)]
    pub const fn reason(&self, conform: Reason) -> Reason {
        match (self.refused, self.contended) {
            (0, _) => conform,
            (_, 0) => Reason::Exceed,
            _ => Reason::Contended,
        }
    }

    /// How many races the packet may lose, and wait, before it gives up the limit with this bit. One that is only counted must not use
    /// up those of the others.
    #[inline(always)]
    pub const fn most_races(&self, bit: u64) -> u32 {
        if bit & self.enforced == 0 { RACES / 2 } else { RACES }
    }

    /// Notes that a limit has no room for the packet.
    #[inline(always)]
    pub const fn refuse(&mut self, bit: u64, refusal: Refusal) {
        let contended = matches!(refusal, Refusal::Contended) || self.late != 0;
        if bit & self.enforced != 0 {
            self.refused = bit;
            self.contended = contended as u64;
        } else if contended {
            // What is only counted is no reason to drop it undecided.
            self.applies &= !bit;
            self.left_out |= bit;
        } else {
            self.exceeded |= bit;
        }
    }

    /// Notes whether the packet leaves a limit near, if it is charged to that.
    #[inline(always)]
    pub const fn note_near(&mut self, bit: u64, is_near: bool) {
        self.near = self.near & !bit | if is_near { bit } else { 0 };
    }

    /// The limits that it is not charged to although it may pass: they would refuse it, or did not tell.
    #[inline(always)]
    pub const fn uncharged(&self) -> u64 {
        self.exceeded | self.left_out
    }

    /// Refuses the packet undecided: what its limits are kept in was changed meanwhile.
    #[inline(always)]
    pub const fn give_up(&mut self) {
        (self.refused, self.contended) = (1, 1);
    }
}

/// Limits of a packet whose state is in the same place.
///
/// What is found out on the way is kept in the group, so that the kernel half can have it in a map:
/// the verifier would follow every value that it could have on the stack.
pub trait Group {
    /// A word of state: a handle, cheap to copy.
    type Word: Word + Copy;
    /// The algorithm.
    type Policer: Policer;

    /// The bill of the packet.
    fn bill(&mut self) -> &mut Bill;

    /// What was seen at a place.
    fn look(&mut self, place: usize) -> &mut Look;

    /// The bit of the limit at a place; 0 when there is none.
    fn bit(&self, place: usize) -> u64;

    /// What the limit at a place admits, and the cost of the packet there; `None`, which refuses the
    /// packet, only if the tables are not as they should be.
    fn policer(&self, place: usize) -> Option<(&Self::Policer, u64)>;

    /// The time that the limit at a place goes by, in nanoseconds, where it is `now`.
    #[inline(always)]
    fn time(&self, _place: usize, now: u64) -> u64 {
        now
    }

    /// The state of the limit at a place; `None` when a packet that conforms is to create it.
    fn find(&mut self, place: usize) -> Option<Self::Word>;

    /// The state that [`find`](Group::find) did not have, created fresh; `None` when none can be had.
    #[inline(always)]
    fn create(&mut self, _place: usize) -> Option<Self::Word> {
        None
    }
}

/// What came of a charge, or of taking one back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// It is made.
    Made,
    /// Another CPU was first, so it can be tried again. Who gives that up [refuses](Bill::refuse) the packet.
    LostRace,
}

/// Looks at the limits at some places of a group, and charges nothing.
#[inline(always)]
pub fn look<G: Group>(group: &mut G, places: Range<usize>, now: u64) {
    for place in places {
        look_at(group, place, now);
    }
}

/// Looks at the limit at a place, if it is still to be asked.
#[inline(always)]
pub fn look_at<G: Group>(group: &mut G, place: usize, now: u64) {
    let bit = group.bit(place) & group.bill().asked();
    if bit == 0 {
        return;
    }
    let (word, now) = (group.find(place), group.time(place, now));
    let looked = match (group.policer(place), word) {
        (Some((policer, cost)), Some(word)) => policer.look(&word, now, cost),
        (Some((policer, cost)), None) => policer.look_fresh(now, cost),
        (None, _) => Err(Refusal::Contended),
    };
    match looked {
        Ok(look) => *group.look(place) = look,
        Err(refusal) => return group.bill().refuse(bit, refusal),
    }
    note_near(group, place, now);
}

/// Notes whether the packet leaves the limit at a place near, by what was seen there and by the time of that limit.
///
/// The limit is looked up anew, so that the verifier knows nothing of how the packet conformed.
#[inline(always)]
pub fn note_near<G: Group + ?Sized>(group: &mut G, place: usize, now: u64) {
    let (bit, next) = (group.bit(place), group.look(place).next);
    let is_near = group.policer(place).is_some_and(
        #[inline(always)]
        |(policer, _)| policer.is_near(next, now),
    );
    group.bill().note_near(bit, is_near);
}

/// Charges the limit at a place, if it is due, as it was looked at; `anew` says that it is to be looked at again, as another CPU may
/// have moved its word. Where it refuses after all, what was charged before is to be [taken back](refund_at).
#[inline(always)]
pub fn charge_at<G: Group>(group: &mut G, place: usize, anew: bool, now: u64) -> Charge {
    let bill = group.bill();
    let due = if bill.refused == 0 { bill.due() } else { 0 };
    let bit = group.bit(place) & due;
    if bit == 0 {
        return Charge::Made;
    }
    let word = match group.find(place) {
        None => group.create(place),
        word => word,
    };
    let Some(word) = word else {
        group.bill().refuse(bit, Refusal::Contended);
        return Charge::Made;
    };
    if anew && let Err(refusal) = look_again(group, place, word, now) {
        group.bill().refuse(bit, refusal);
        return Charge::Made;
    }
    if group.look(place).commit(word).is_err() {
        return Charge::LostRace;
    }
    group.bill().charged |= bit;
    Charge::Made
}

/// Looks anew at the limit at a place, whose word another CPU moved. The word is at hand: with [`look_at`] in the place of this, 1,000
/// instructions more are verified.
#[inline(always)]
fn look_again<G: Group>(
    group: &mut G,
    place: usize,
    word: G::Word,
    now: u64,
) -> Result<(), Refusal> {
    let now = group.time(place, now);
    let look = match group.policer(place) {
        Some((policer, cost)) => policer.look(&word, now, cost)?,
        None => return Err(Refusal::Contended),
    };
    *group.look(place) = look;
    note_near(group, place, now);
    Ok(())
}

/// Takes back what was charged to the limit at a place.
#[inline(always)]
pub fn refund_at<G: Group>(group: &mut G, place: usize, now: u64) -> Charge {
    if group.bit(place) & group.bill().charged == 0 {
        return Charge::Made;
    }
    let word = group.find(place);
    match (group.policer(place), word) {
        (Some((policer, cost)), Some(word)) if !policer.try_refund(word, now, cost) => {
            Charge::LostRace
        }
        _ => Charge::Made,
    }
}
