//! Which entry the source of a packet has.

use limiter_common::{
    address::Address,
    binding::Binding,
    contract::{Source, shared},
    notice::Episode,
    table::{Tags, WAYS, Ways as _},
};

use crate::{
    barrier::publish,
    cell::Plain,
    entry::{bound, is_of},
    maps::{SHARED_SOURCES, SOURCES},
    seats::Seats,
    subject::Subject,
};

/// Which entry a source has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seat(pub(crate) u32);

impl Seat {
    /// Not known yet.
    pub(crate) const UNKNOWN: Self = Self(0);
    /// That of the sources that found no room.
    pub(crate) const OVERFLOW: Self = Self(u32::MAX);
    /// That of the frames whose source cannot be read.
    pub(crate) const UNREADABLE: Self = Self(u32::MAX - 1);
    /// That of the totals of sources that have none.
    pub(crate) const NOBODY: Self = Self(u32::MAX - 2);
    /// Not known yet, in a set without a free way.
    pub(crate) const NEWCOMER: Self = Self(u32::MAX - 3);
    /// The same, and it was found that the source needs one.
    pub(crate) const TO_BE_MADE: Self = Self(u32::MAX - 4);

    /// Whether several sources share its entry, all of which would pay for what one of them does.
    #[inline(always)]
    pub(crate) fn is_shared(self) -> bool {
        self == Self::OVERFLOW || self == Self::UNREADABLE
    }

    /// The time in which the source of an entry is over its limits, if it is one of the table that is bound
    /// so still, and how many packets of it were dropped.
    #[inline(always)]
    pub(crate) fn episode(self, binding: Binding) -> Option<(Episode<Plain>, Plain)> {
        if self.is_shared() {
            return None;
        }
        let source = self.entry()?;
        // SAFETY: it was just looked up.
        if unsafe { bound(source) } != binding {
            return None;
        }
        // SAFETY: as above; aligned words.
        Some(unsafe {
            let [last, told, dropped] = [
                &raw mut (*source).refused,
                &raw mut (*source).told,
                &raw mut (*source).dropped.packets,
            ]
            .map(|word| Plain::new(word));
            (Episode { last, told }, dropped)
        })
    }

    /// An entry of the table.
    #[inline(always)]
    pub(crate) const fn new(number: u32) -> Self {
        Self(number + 1)
    }

    /// That of the subject's source, whose place is known, if it has one.
    #[inline(always)]
    pub(crate) fn of(subject: &mut Subject) -> Self {
        if subject.source.family == Address::NONE.family {
            return Self::UNREADABLE;
        }
        let place = subject.place;
        let Some(seats) = Seats::of(place.set, 0) else { return Self::UNKNOWN };
        subject.state = seats.state();
        subject.tags = seats.tags();
        if subject.tags.have(place.tag) {
            publish(subject);
            let way = find_way() as usize;
            if way < WAYS {
                return Self::new(seats.entry(way));
            }
        }
        Self::none(subject.reread().tags)
    }

    /// That of a source without an entry, in a set that had these tags.
    #[inline(always)]
    pub(crate) const fn none(tags: Tags) -> Self {
        if tags.have(0) { Self::UNKNOWN } else { Self::NEWCOMER }
    }

    #[inline(always)]
    pub(crate) fn entry(self) -> Option<*mut Source> {
        match self {
            Self::OVERFLOW => SHARED_SOURCES.get_ptr_mut(shared::OVERFLOW),
            Self::UNREADABLE => SHARED_SOURCES.get_ptr_mut(shared::UNREADABLE),
            Self::NOBODY => SHARED_SOURCES.get_ptr_mut(shared::NOBODY),
            Self(number) => SOURCES.get_ptr_mut(number.wrapping_sub(1)),
        }
    }
}

/// The way of the subject's source, whose place is known, in its set; [`WAYS`] if it has none.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn find_way() -> u32 {
    let Some(subject) = Subject::get() else { return WAYS as u32 };
    let place = subject.place;
    let Some(seats) = Seats::of(place.set, 0) else { return WAYS as u32 };
    let mut found = WAYS;
    for way in 0..WAYS {
        if seats.tag(way) == place.tag
            && seats.age(way).mark() == place.mark
            && let Some(source) = SOURCES.get_ptr_mut(seats.entry(way))
            // SAFETY: it was just looked up.
            && unsafe { is_of(source, subject.key()) }
        {
            found = way;
            break;
        }
    }
    found as u32
}
