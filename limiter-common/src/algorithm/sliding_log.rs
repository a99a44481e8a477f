//! The sliding log: at most so many events in any window, exactly.
//!
//! Events are numbered as they are admitted. The times of the last [`SlidingLog::MOST`] are kept, and event
//! n conforms when event n - limit is as old as the window or older; so it is checked before it is
//! written, and a refused one writes nothing. Which limit and which window are asked for may change
//! from one event to the next, as the log itself does not depend on them.
//!
//! A control word holds the number of the next event and the time of the last. Who moves it by one
//! owns the slot of that number and writes the time there. Slots alternate a bit from lap to lap, so
//! that one that was claimed and is not written yet is noticed; none is claimed again before. An event that was taken back
//! leaves a time in its slot that no event has.
//!
//! **What happens before what.** Nothing has to: each slot says by itself which event it holds, so a CPU that sees the control
//! word without the slot, or a slot without the control word, notices that. The exchange of the control word makes one CPU
//! the owner of a slot, which it writes by a plain store. The control word is loaded before its binding, as any word is.
//!
//! Times are 56 bits of nanoseconds, 2.3 years, and never go back: an event that comes up to
//! [`Gcra::TOLERANCE`] behind the last one, from a CPU whose clock is behind, counts at that time. A
//! clock that went further back admits one event, and all before it count as of that moment. The same
//! happens to a source that was idle for over 1.1 years.

use core::ops::Range;

use crate::{
    algorithm::{
        bounds::{BoundsError, check},
        gcra::Gcra,
        near,
        policer::{Look, Refusal},
        rate::Rate,
    },
    base::{
        slots::Slots,
        word::{TRIES, Word},
    },
};

mod copy;
mod recall;
mod settle;

/// A limit of events in a window of time; made by [`SlidingLog::new`]. Its state is a control word and
/// [`SlidingLog::MOST`] slots, all zero at first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlidingLog {
    /// Events in a window, from 1 to [`SlidingLog::MOST`]; 0 admits none.
    pub limit: u64,
    /// Nanoseconds in a window, from 1 to [`SlidingLog::LONGEST`].
    pub window: u64,
}

/// The slots of a log.
pub trait Log: Slots {
    /// Makes every event that is still to come at `time` one of that time; see [`SlidingLog::forget`]. The kernel half goes
    /// through the places in parts, each of which is verified by itself.
    #[inline(always)]
    fn forget(&self, time: u64) {
        SlidingLog::forget(self, 0..SlidingLog::MOST, time);
    }
}

/// An event that was charged, to be given to [`SlidingLog::refund`] if need be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(pub u64);

/// What a packet's time is to a log.
#[derive(Clone, Copy)]
struct Moment {
    /// When its event takes place.
    time: u64,
    /// Whether no event can be in a window that ends then: the last one is too old.
    quiet: bool,
    /// Whether the clock went far back.
    lost: bool,
}

impl SlidingLog {
    /// The events that a log can hold.
    pub const MOST: usize = 128;
    /// The longest window, in nanoseconds: 366 days.
    pub const LONGEST: u64 = Rate::MIN.period;

    const TIME_BITS: u32 = 56;
    const TIME: u64 = (1 << Self::TIME_BITS) - 1;
    /// The time in the slot of an event that was taken back. A slot without an event has the time 0.
    const VOID: u64 = 1;
    /// Debts from here on are of events to come.
    const FUTURE: u64 = 1 << (Self::TIME_BITS - 1);
    const LAP: u64 = Self::MOST as u64;

    /// The log that admits `limit` events in any `window` (nanoseconds).
    ///
    /// # Errors
    /// Any [`BoundsError`].
    pub const fn new(limit: u64, window: u64) -> Result<Self, BoundsError> {
        match check((limit, Self::LAP), window, (1, Self::LONGEST)) {
            Ok(()) => Ok(Self { limit, window }),
            Err(error) => Err(error),
        }
    }

    /// Looks whether an event at `now` (nanoseconds) conforms, and writes nothing. What is seen is the control word.
    ///
    /// # Errors
    /// Why it does not; [`Refusal::Contended`] when it would depend on an event that another CPU is
    /// just writing, and so on one that is about as late.
    #[inline(always)]
    pub fn look(&self, control: &impl Word, slots: &impl Slots, now: u64) -> Result<Look, Refusal> {
        let seen = control.load_acquire();
        if !control.bound() {
            return Err(Refusal::Contended);
        }
        if self.limit == 0 {
            return Err(Refusal::Exceed);
        }
        let number = Self::number(seen);
        let moment = self.moment(seen, now);
        // Its slot must have been written in the last lap.
        Self::written(slots, number.wrapping_sub(Self::LAP))?;
        if !moment.quiet && !moment.lost {
            let limit = if self.limit < Self::LAP { self.limit } else { Self::LAP };
            let time = Self::written(slots, number.wrapping_sub(limit))?;
            if Self::is_event(time) && !self.expired(time, moment.time) {
                return Err(Refusal::Exceed);
            }
        }
        Ok(Look { seen, next: Self::pack(number.wrapping_add(1), moment.time) })
    }

    /// Charges an event that conformed at `look`.
    ///
    /// What lost a race is decided anew, at most [`TRIES`] times.
    ///
    /// # Errors
    /// Why it is refused after all; nothing is charged then.
    #[inline(always)]
    pub fn charge(
        &self,
        control: &impl Word,
        slots: &impl Log,
        look: Look,
        now: u64,
    ) -> Result<Event, Refusal> {
        let mut look = look;
        for _ in 0..TRIES {
            if let Some(event) = self.attempt(control, slots, look, now) {
                return Ok(event);
            }
            look = self.look(control, slots, now)?;
        }
        Err(Refusal::Contended)
    }

    /// Charges an event that conformed at `look`, unless another one was charged since; then it is to
    /// be looked at anew.
    #[inline(always)]
    pub fn attempt(
        &self,
        control: &impl Word,
        slots: &impl Log,
        look: Look,
        now: u64,
    ) -> Option<Event> {
        look.commit(control).ok()?;
        let (number, time) = (Self::number(look.seen), look.next & Self::TIME);
        if self.moment(look.seen, now).lost {
            slots.forget(time);
        }
        slots.store(Self::place(number), Self::slot(number, time));
        Some(Event(Self::pack(number, time)))
    }

    /// Whether an event that was just charged leaves the limit [near]: as many events are in
    /// the window as that takes, with this one. One that was taken back after others came leaves a gap, which
    /// is not looked for: it counts as an event while it lies within, and as the end of the window at its
    /// edge.
    #[inline(always)]
    pub fn is_near(&self, slots: &impl Slots, event: Event) -> bool {
        let limit = if self.limit < Self::LAP { self.limit } else { Self::LAP };
        let (number, time) = (Self::number(event.0), event.0 & Self::TIME);
        let before = near::from(limit).wrapping_sub(1);
        match Self::written(slots, number.wrapping_sub(before)) {
            Ok(first) => Self::is_event(first) && !self.expired(first, time),
            // One that another CPU is just writing is in the window.
            Err(_) => true,
        }
    }

    /// How long after `now` the last event is in the window, in nanoseconds; 0 if the log is as good as a new one. It takes
    /// the control word alone. An event that is still to come counts as one of now.
    #[inline(always)]
    pub const fn owes(&self, control: u64, now: u64) -> u64 {
        let last = control & Self::TIME;
        let age = now.wrapping_sub(last) & Self::TIME;
        let age = if age < Self::FUTURE { age } else { 0 };
        if last == 0 { 0 } else { self.window.saturating_sub(age) }
    }

    /// Whether no event but the last one is in the window that ends at `now` (nanoseconds), and that one is written. `false`
    /// also where the event before was taken back: what came before that is not looked for. Not for the packet path.
    #[inline(always)]
    pub fn is_single(&self, control: u64, slots: &impl Slots, now: u64) -> bool {
        let number = Self::number(control);
        let [last, before] = [1, 2].map(|ago| Self::written(slots, number.wrapping_sub(ago)));
        let is_gone =
            |time| time == 0 || Self::is_event(time) && self.expired(time, Self::begun_at(now));
        last.is_ok() && before.is_ok_and(is_gone)
    }

    /// The time of `now` (nanoseconds), as control words have it.
    #[inline(always)]
    pub const fn begun_at(now: u64) -> u64 {
        let time = now & Self::TIME;
        if Self::is_event(time) { time } else { Self::VOID + 1 }
    }

    /// Whether the time of a slot is that of an event.
    #[inline(always)]
    const fn is_event(time: u64) -> bool {
        time > Self::VOID
    }

    /// What a slot of a log holds that another key goes on with, given what was there: no event, and the same lap.
    #[inline(always)]
    pub const fn emptied(slot: u64) -> u64 {
        slot & !Self::TIME
    }

    #[inline(always)]
    const fn moment(&self, seen: u64, now: u64) -> Moment {
        let time = Self::begun_at(now);
        let last = seen & Self::TIME;
        if last == 0 {
            return Moment { time, quiet: true, lost: false };
        }
        let behind = last.wrapping_sub(time) & Self::TIME;
        if behind == 0 || behind >= Self::FUTURE {
            Moment { time, quiet: self.expired(last, time), lost: false }
        } else {
            let lost = behind > Gcra::TOLERANCE;
            Moment { time: if lost { time } else { last }, quiet: false, lost }
        }
    }

    /// Whether an event is as old as the window or older. One that is still to come, from before the
    /// clock went back, is not.
    #[inline(always)]
    const fn expired(&self, event: u64, time: u64) -> bool {
        let age = time.wrapping_sub(event) & Self::TIME;
        age >= self.window && age < Self::FUTURE
    }

    /// The time of an event: [`VOID`](Self::VOID) if it was taken back, 0 if it never was.
    ///
    /// # Errors
    /// [`Refusal::Contended`] when it is not written yet.
    #[inline(always)]
    fn written(slots: &impl Slots, number: u64) -> Result<u64, Refusal> {
        let slot = slots.load(Self::place(number));
        if slot & !Self::TIME == Self::slot(number, 0) {
            Ok(slot & Self::TIME)
        } else {
            Err(Refusal::Contended)
        }
    }

    /// Makes every event that is still to come at `time` one of that time, of those in these places. An event of another CPU
    /// may be among them that was admitted just since: of that moment as well, but for its delay.
    #[inline(always)]
    pub fn forget(slots: &(impl Slots + ?Sized), places: Range<usize>, time: u64) {
        for place in places {
            let slot = slots.load(place);
            let ahead = slot.wrapping_sub(time) & Self::TIME;
            if Self::is_event(slot & Self::TIME) && ahead != 0 && ahead <= Self::FUTURE {
                let _: u64 = slots.compare_exchange(place, slot, slot & !Self::TIME | time);
            }
        }
    }

    /// The number of the next event, modulo two laps.
    #[inline(always)]
    const fn number(control: u64) -> u64 {
        control >> Self::TIME_BITS
    }

    #[inline(always)]
    const fn pack(number: u64, time: u64) -> u64 {
        number << Self::TIME_BITS | time
    }

    #[inline(always)]
    const fn place(number: u64) -> usize {
        (number & (Self::LAP - 1)) as usize
    }

    /// What the slot of an event holds. A slot that is zero is of the lap before the first.
    #[inline(always)]
    const fn slot(number: u64, time: u64) -> u64 {
        (!number & Self::LAP) << (u64::BITS - Self::LAP.trailing_zeros() - 1) | time
    }
}
