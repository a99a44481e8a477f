//! The entries of sources, made, and brought up to date.

use limiter_common::{
    address::Address,
    binding::{Binding, Bucket, bind},
    contract::{NEWCOMERS, Settings, Source, half},
    limit::{INLINE, Limit},
    newcomer::Newcomer,
    penalty::Block,
    table::{self, Place},
    word::Word as _,
};

use crate::{
    barrier::publish,
    carry::carry_word,
    cell::Plain,
    clock, datapath,
    entry::add,
    maps::{LIMITS, METERS, PROFILES},
    offence::{may_be_blocked, recall_offences},
    profile,
    seat::Seat,
    seats::Seats,
    subject::Subject,
    vacancy::{take_seat, touch},
};

/// Makes the entry of the subject's source if there is none, and brings it up to date. Gives where it
/// is; [`Seat::UNKNOWN`] when other CPUs keep it from being found.
#[inline(always)]
pub(crate) fn renew(subject: &mut Subject, epoch: u32, settings: &Settings) -> Seat {
    let number = profile::number(&subject.source, epoch, settings);
    (subject.number, subject.numbered) = (number, epoch);
    let mut seat = Seat::UNREADABLE;
    if subject.source.family != Address::NONE.family {
        subject.place = Place::of(&subject.source, settings.seed, settings.sets);
        touch(subject.place);
        let Some(seats) = Seats::lock(subject.place.set, epoch) else { return Seat::UNKNOWN };
        find_time();
        subject.was_full = 0;
        publish(subject);
        seat = Seat(take_seat(epoch));
        // It changes hands under the lock alone.
        if seat != Seat::OVERFLOW
            && let Some(source) = seat.entry()
        {
            let newcomers = seats.newcomers();
            subject.seat = seat.0;
            let came = newcomers.find(&subject.source);
            let has_come = came < NEWCOMERS;
            subject.newcomer = if has_come { newcomers.at(came) } else { Newcomer::NONE };
            publish(subject);
            refresh(source, epoch, number, 0);
            if has_come {
                seats.forget(came);
            }
        }
        seats.unlock_changed();
        if seat != Seat::OVERFLOW {
            return seat;
        }
    }
    if let Some(source) = seat.entry() {
        subject.seat = seat.0;
        find_time();
        subject.was_full = 0;
        subject.newcomer = Newcomer::NONE;
        publish(subject);
        refresh(source, epoch, 0, 1);
    }
    seat
}

/// Finds out when the subject's entry is bound. It is verified by itself, as there is little room on the stack.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_time() -> u32 {
    if let Some(subject) = Subject::get() {
        subject.set_time(clock::now());
    }
    0
}

/// Brings an entry up to date, which has the profile of this number, and charges it with the packet that
/// its source was admitted with before it had one, at the time of the subject. It is verified by itself: it is called
/// where a seat was found in any of many ways.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn refresh(source: *mut Source, epoch: u32, number: u32, is_shared: u32) -> u32 {
    let (false, Some(subject), Some(settings), Some(profile)) = (
        source.is_null(),
        Subject::get(),
        datapath::settings(epoch),
        PROFILES.get(half(epoch, number)),
    ) else {
        return 0;
    };
    // SAFETY: the caller looked the entry up in this run; an aligned word. It changes no more, but for
    // that of a shared entry, which has one generation.
    let seen = Binding(unsafe { (&raw const (*source).binding).read_volatile() });
    let target = Binding::new(epoch, number).like(seen);
    // SAFETY: the caller looked the entry up in this run. It is written under its lock, so no binding
    // is asked for.
    let cell = |word: *mut u64| unsafe { Plain::new(word) };
    // SAFETY: as above.
    let entry = cell(unsafe { &raw mut (*source).binding });
    let _: Option<Binding> = bind(&entry, target, || {
        let epoch = target.epoch();
        // A block is of a limit: it goes, and comes back, with that being about the source.
        let penalties = if is_shared != 0 { 0 } else { settings.penalties & profile.limits };
        let is_asked = penalties != 0 && may_be_blocked(subject.time().now);
        let until = if is_asked { recall_offences(epoch, penalties) } else { 0 };
        // SAFETY: as above.
        unsafe { (&raw mut (*source).blocked).write_volatile(Block::new(until, target).0) };
        // If that half is being written for the next one already, it is told of a limit that it has changed since: the
        // charge of one packet.
        let before = datapath::settings(epoch.wrapping_sub(1));
        let charged =
            before.map_or(0, |before| subject.newcomer.facts.charged(epoch, settings, before));
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
                (Bucket { word, scale }, &raw mut (*source).stamps[place])
            };
            let after = settings.stamps[place];
            // SAFETY: as above.
            if unsafe { stamp.read_volatile() } == after {
                bucket.rescale(meter.gcra.scale(), |word, from| {
                    carry_word(word, from.0, 0, number, subject.time_of(&meter.gcra))
                });
            } else {
                let credited = meter.gcra.credited(subject.credit(profile));
                bucket.renew(&meter.gcra, subject.time_of(&meter.gcra), credited);
                // SAFETY: as above.
                unsafe { stamp.write_volatile(after) };
                // One that owes nothing any more is charged to nothing; its time may be long ago.
                if charged >> place & 1 != 0
                    && let Some(limit) = LIMITS.get(half(epoch, Limit::row(settings.inline[place])))
                {
                    let word = subject.newcomer.word(limit, &meter.gcra);
                    if table::owes(word, meter.gcra.scale().0, subject.time_of(&meter.gcra)) != 0 {
                        let credited = meter.gcra.credited(subject.credit(profile));
                        let word = word.wrapping_add(credited);
                        let _: u64 = bucket.word.compare_exchange(bucket.word.load(), word);
                    }
                }
            }
        }
        if subject.newcomer.facts.bytes() != 0 {
            // SAFETY: as above.
            unsafe { add(source, false, 1, subject.newcomer.facts.bytes()) };
        }
    });
    0
}
