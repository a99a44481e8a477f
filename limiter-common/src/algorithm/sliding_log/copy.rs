//! Copies of logs, as when a table is exchanged for another one.
//!
//! A log is copied word by word, while other CPUs charge it. So the control word that was read may count an event whose slot
//! is not written yet. A slot that was read may have an event that the control word does not count. Copied as it is, such a
//! slot would be of a wrong lap, and no CPU would ever write it: the copy would refuse each event as contended. So each slot
//! of a copy gets the lap that the control word says.

use super::SlidingLog;
use crate::base::slots::Slots;

impl SlidingLog {
    /// The slot at a place of a copy, whose control word is [`numbered`](Self::numbered) like `to`, of the log with these slots
    /// and this control word.
    ///
    /// A slot of another lap than the control word says gets the time of the last event: that is the time of an event that
    /// was counted and not written yet, and no event that is in the window counts as an earlier one. What came after the
    /// control word was read is lost.
    #[inline(always)]
    pub fn copied(slots: &impl Slots, control: u64, to: u64, place: usize) -> u64 {
        let last = |control| Self::number(control).wrapping_sub(1);
        let back = last(to).wrapping_sub(place as u64) & (Self::LAP - 1);
        let [new, old] = [to, control].map(|control| last(control).wrapping_sub(back));
        let slot = slots.load(Self::place(old));
        // All ones if the lap is another one. A branch would be followed in each turn of a loop.
        let other = 0_u64.wrapping_sub((slot ^ Self::slot(old, 0)) >> (u64::BITS - 1));
        Self::slot(new, (slot & !other | control & other) & Self::TIME)
    }

    /// The control word of a copy of the log with this control word, where events are numbered as they were under `to`. A CPU
    /// that writes an event for the log that was there before writes a slot of the right lap.
    #[inline(always)]
    pub const fn numbered(control: u64, to: u64) -> u64 {
        Self::pack(Self::number(to), control & Self::TIME)
    }
}
