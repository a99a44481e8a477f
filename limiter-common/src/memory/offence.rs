//! The table of offences: what is known of sources that were over limits with penalties.
//!
//! The table is an array of lines of 64 bytes, in sets of [`LINES`]. The first line of a set is its
//! [`OffenceHead`](crate::abi::state::OffenceHead): the lock, and a tag for each other line. Each other line is the
//! [`OffenceRecord`](crate::abi::state::OffenceRecord) of one source and limit.
//!
//! A record whose block runs is never given away. Of the others in a set, that with the least debt makes room: the one that
//! would have been forgotten first. Where all blocks of a set run, a newcomer gets no record. Its limit still refuses it.
//!
//! **What happens before what.** Records are made and changed by the holder of the lock alone, and by commands, which blank a
//! record. A CPU that looks for a block takes no lock. It compares the key, reads the block, and compares the key again. A
//! record is blanked before it gets another key, so a block that was read between two equal keys is of that key, or is over.

use crate::{
    base::{address::Address, seed::Seed, siphash::SipHash, word::Word},
    policy::penalty::Offence,
};

/// Lines of a set: one head, and the records.
pub const LINES: u32 = 16;

/// Lines for each bucket that an instance asks for. Where half of the records are in use, 1 of 100 sets has no line free; where a
/// quarter is, 1 of 100,000.
pub const PER_BUCKET: u32 = 2;

/// The number of sets in a table of so many lines.
pub const fn sets(lines: u32) -> u32 {
    lines / LINES
}

/// Where the records of a source are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the first line of the set.
    pub head: u32,
    /// The tag of their lines.
    pub tag: u16,
}

impl Place {
    /// The place of a source in so many sets, for all limits. Who does not know the seed cannot choose sources that share a set.
    #[inline(always)]
    pub const fn of(source: &Address, seed: Seed, sets: u32) -> Self {
        let [a, b, c, d] = source.words;
        let hash = SipHash::new(seed.key())
            .word((a as u64) << 32 | b as u64)
            .word((c as u64) << 32 | d as u64)
            .word(source.family as u64)
            .finish();
        let set = (hash as u32 as u64 * sets as u64) >> 32;
        Self { head: set as u32 * LINES, tag: (hash >> 48) as u16 }
    }
}

/// The longest times of all penalties of a policy, by which records of any limit are weighed against each other.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Longest {
    /// The longest [`Penalty::most`](crate::policy::penalty::Penalty::most), in nanoseconds.
    pub most: u64,
    /// The longest [`Penalty::rest`](crate::policy::penalty::Penalty::rest), in nanoseconds.
    pub rest: u64,
}

impl Longest {
    /// The time in nanoseconds until which a record is of use: [`Room::NONE`] while its block runs, which no penalty of the policy
    /// has last longer than `most`. A time before `now` is one of a source that has rested: it is no more than a new one.
    #[inline(always)]
    pub fn useful_until<W: Word>(&self, known: &Offence<W>, now: u64) -> u64 {
        let (blocked, most) = (known.blocked.load(), known.since.load().wrapping_add(self.most));
        let blocked = if blocked < most { blocked } else { most };
        if blocked > now {
            return Room::NONE;
        }
        let rested = known.last.load().wrapping_add(self.rest);
        // The next block is longer until then.
        let grows = if known.blocks.load() == 0 { 0 } else { blocked.wrapping_add(self.most) };
        if grows > rested { grows } else { rested }
    }
}

/// For how long a set whose blocks all run is not searched again for room, in nanoseconds.
pub const FULL: u64 = 1_000_000_000;

/// Whether a set, which was found full until then, need not be searched.
#[inline(always)]
pub const fn is_full(until: u64, now: u64) -> bool {
    // Not `until > now`: a clock that goes back does not close it for longer.
    until.wrapping_sub(now).wrapping_sub(1) < FULL
}

/// A line with the time until which its record is of use, to 16 ns, in one word.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room(pub u64);

impl Room {
    const LINE: u64 = LINES as u64 - 1;
    /// The block of the record runs. No time in nanoseconds is as high for 146 years.
    pub const NONE: u64 = 1 << 62;

    /// That of a line with this number in the table.
    #[inline(always)]
    pub const fn new(line: u32, until: u64) -> Self {
        Self(until & !Self::LINE | line as u64 & Self::LINE)
    }

    /// The line, within its set.
    #[inline(always)]
    pub const fn line(self) -> u32 {
        (self.0 & Self::LINE) as u32
    }

    /// The time, in nanoseconds.
    #[inline(always)]
    pub const fn until(self) -> u64 {
        self.0 & !Self::LINE
    }
}

/// The line in a set that a newcomer takes: the one that is of use for the shortest time. `None` if the blocks of all run.
#[inline(always)]
pub fn room(of_line: impl Fn(u32) -> Room) -> Option<Room> {
    let mut found = Room(Room::NONE);
    for line in 1..LINES {
        let room = of_line(line);
        if room.0 < found.0 {
            found = room;
        }
        if room.until() == 0 {
            break;
        }
    }
    if found.0 >= Room::NONE { None } else { Some(found) }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 1_000 * SECOND;
    const LONGEST: Longest = Longest { most: 200 * SECOND, rest: 10 * SECOND };

    #[test]
    fn all_lines_but_heads_have_keys_and_the_seed_tells_which() {
        let sets = 5;
        let of = |number: u32, seed| {
            let source = Address::v4(number.to_be_bytes());
            Place::of(&source, Seed(seed), sets)
        };
        let mut found = [0; 5];
        let mut moved = 0;
        for number in 0..1_000 {
            let place = of(number, [1, 2, 3, 4]);
            assert_eq!(place.head % LINES, 0);
            found[(place.head / LINES) as usize] += 1;
            moved += u32::from(place != of(number, [5, 6, 7, 8]));
        }
        assert!(found.iter().all(|keys| (120..280).contains(keys)), "{found:?}");
        assert!(moved > 990, "{moved}");
    }

    const fn rounded(time: u64) -> u64 {
        time & !15
    }

    fn room_among(known: [Offence; 15]) -> Option<(u32, u64)> {
        let found = room(|line| {
            let Offence { began, last, since, blocked, blocks } = known[line as usize - 1];
            let [began, last, since, blocked, blocks] =
                [began, last, since, blocked, blocks].map(Cell::new);
            let known = Offence { began, last, since, blocked, blocks };
            Room::new(line, LONGEST.useful_until(&known, NOW))
        });
        found.map(|room| (room.line(), room.until()))
    }

    #[test]
    fn a_block_that_runs_makes_no_room_and_the_least_debt_does() {
        let blocked = Offence {
            since: NOW - SECOND,
            blocked: NOW + 1,
            last: NOW,
            blocks: 1,
            ..Offence::default()
        };
        assert_eq!(room_among([blocked; 15]), None);
        let mut known = [blocked; 15];
        known[9] = Offence { blocked: NOW, ..blocked };
        assert_eq!(room_among(known), Some((10, rounded(NOW + LONGEST.most))), "it is over");
        // A source that goes on being over its limit, and one that has rested.
        known[3] = Offence { last: NOW - 1, ..Offence::default() };
        assert_eq!(room_among(known), Some((4, rounded(NOW - 1 + LONGEST.rest))));
        known[4] = Offence { last: NOW - 20, ..Offence::default() };
        assert_eq!(room_among(known).map(|(line, _)| line), Some(5));
        known[14] = Offence::default();
        assert_eq!(room_among(known).map(|(line, _)| line), Some(15), "it is free");
    }

    #[test]
    fn a_block_that_is_longer_than_any_penalty_of_the_policy_makes_room_when_those_would_be_over() {
        let blocked = Offence {
            since: NOW - LONGEST.most,
            blocked: NOW + LONGEST.most,
            last: NOW - LONGEST.most,
            blocks: 1,
            ..Offence::default()
        };
        assert_eq!(room_among([blocked; 15]), Some((1, rounded(NOW + LONGEST.most))));
        let later = Offence { since: NOW - LONGEST.most + 1, ..blocked };
        assert_eq!(room_among([later; 15]), None);
    }

    #[test]
    fn a_set_is_full_for_a_second_and_no_longer_if_the_clock_goes_back() {
        let until = NOW + FULL;
        assert!(is_full(until, NOW) && is_full(until, until - 1));
        assert!(!is_full(until, until) && !is_full(until, NOW - 1) && !is_full(0, NOW));
    }
}
