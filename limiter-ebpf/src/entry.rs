//! The entries of sources, found or made, and bound to the policy in force.

use aya_ebpf::maps::lpm_trie::Key;
use limiter_common::{
    address::Address,
    binding::{Binding, Bucket, bind},
    contract::{NEWCOMERS, Profile, Settings, Source, Tally, flag, half, shared},
    gcra::Time,
    limit::{INLINE, Limit},
    newcomer::Newcomer,
    notice::Episode,
    penalty::Block,
    recent::Recent,
    table::{self, Place, Tags, WAYS},
    word::Word as _,
};

use crate::{
    ahead::repay,
    barrier::{opaque, publish},
    carry::carry_word,
    cell::{self, Cell, Plain},
    clock, datapath,
    maps::{LIMITS, METERS, PREFIXES, PROFILES, SHARED_SOURCES, SOURCES},
    offence::recall_offences,
    seats::{self, Seats, find_way, take_seat},
    source_key::SourceKey,
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
    const UNREADABLE: Self = Self(u32::MAX - 1);
    /// That of the totals of sources that have none.
    const NOBODY: Self = Self(u32::MAX - 2);
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

/// The entry of a source, bound.
#[derive(Clone, Copy)]
pub(crate) struct SourceEntry {
    pub(crate) source: *mut Source,
    pub(crate) binding: Binding,
    pub(crate) profile: &'static Profile,
    /// What the lists say of the source: its profile, or where it shares the entry, that which it would
    /// have.
    pub(crate) lists: &'static Profile,
}

impl SourceEntry {
    /// The entry of this number, if it is that of the subject's source, whose key this is, and bound under `epoch`, of
    /// which these are the settings. The subject has its seat there then.
    #[inline(always)]
    pub(crate) fn at(
        number: u32,
        key: SourceKey,
        subject: &mut Subject,
        epoch: u32,
        settings: &'static Settings,
    ) -> Option<Self> {
        let source = SOURCES.get_ptr_mut(number)?;
        let binding = own(source, key, epoch)?;
        // Which it is, most are told by a branch that is guessed, so that nothing waits for the entry.
        let profile = match binding.profile() {
            0 => &settings.first,
            number => PROFILES.get(half(epoch, number))?,
        };
        subject.seat = Seat::new(number).0;
        Some(Self { source, binding, profile, lists: profile })
    }

    /// The entry of the subject's source, if there is one that is bound under `epoch`.
    #[inline(always)]
    pub(crate) fn of(subject: &Subject, epoch: u32) -> Option<Self> {
        let seat = Seat(subject.seat);
        let source = seat.entry()?;
        if seat != Seat::OVERFLOW {
            let binding = own(source, subject.key(), epoch)?;
            // As above.
            let number = binding.profile();
            let number = if number == 0 { opaque(0) as u32 } else { number };
            let profile = PROFILES.get(half(epoch, number))?;
            return Some(Self { source, binding, profile, lists: profile });
        }
        // SAFETY: it was just looked up.
        let binding = unsafe { bound(source) };
        if !binding.is_under(epoch) || subject.numbered != epoch {
            return None;
        }
        let profile = PROFILES.get(half(epoch, binding.profile()))?;
        let lists = PROFILES.get(half(epoch, subject.number))?;
        Some(Self { source, binding, profile, lists })
    }

    /// The binding that it has now.
    #[inline(always)]
    pub(crate) fn bound(&self) -> Binding {
        // SAFETY: an entry points to a map value that was looked up in this run.
        unsafe { bound(self.source) }
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

    /// What passed lately, and what is paid for: the word of a [`Recent`].
    #[inline(always)]
    pub(crate) fn recent(&self) -> Plain {
        // SAFETY: as in `cell`; an aligned word.
        unsafe { Plain::new(&raw mut (*self.source).recent) }
    }

    /// Adds a packet to the totals of the source.
    #[inline(always)]
    pub(crate) fn account(&self, dropped: bool, bytes: u64) {
        // SAFETY: as in `cell`; an aligned word.
        unsafe {
            if dropped {
                add(self.source, true, 1, bytes);
                return;
            }
            let recent = &raw mut (*self.source).recent;
            if Recent(recent.read_volatile()).is_half_full() {
                settle_recent();
            }
            cell::add(recent, Recent::packet(bytes).0);
        }
    }

    /// Until when the source is blocked, in nanoseconds, or was; 0 if it never was.
    #[inline(always)]
    pub(crate) fn blocked(&self) -> u64 {
        Block(self.block_word().load()).until(self.binding)
    }

    /// Blocks the source until then at least, in nanoseconds. Whether it was not for so long before.
    #[inline(always)]
    pub(crate) fn block(&self, until: u64) -> bool {
        Block::extend(&self.block_word(), until, self.binding)
    }

    #[inline(always)]
    fn block_word(&self) -> Plain {
        // SAFETY: as in `cell`; an aligned word.
        unsafe { Plain::new(&raw mut (*self.source).blocked) }
    }
}

/// The binding of an entry that was just looked up, if it is that of the source with this key, and of `epoch`.
#[inline(always)]
fn own(source: *const Source, key: SourceKey, epoch: u32) -> Option<Binding> {
    // SAFETY: the caller just looked it up.
    let binding = unsafe { bound(source) };
    if !binding.is_under(epoch) || !seats::is_of(source, key) {
        return None;
    }
    // It may change hands while it is asked whose it is.
    // SAFETY: as above.
    (unsafe { bound(source) } == binding).then_some(binding)
}

/// The binding of an entry.
///
/// # Safety
/// `source` is a map value that was looked up in this run of the program.
#[inline(always)]
unsafe fn bound(source: *const Source) -> Binding {
    // SAFETY: as the caller promises; an aligned word.
    Binding(unsafe { (&raw const (*source).binding).read_volatile() })
}

/// Adds packets to the totals of a source, or of those that have no entry.
#[inline(never)]
pub(crate) fn account(
    subject: &mut Subject,
    address: &Address,
    settings: &Settings,
    dropped: bool,
    total: &Tally,
) {
    // Looked for is the entry of the subject's source.
    let source = subject.source;
    subject.source = *address;
    subject.place = Place::of(address, settings.seed, settings.sets);
    publish(subject);
    let own = Seat::of(subject).entry().filter(|own| seats::is_of(*own, subject.key()));
    subject.reread().source = source;
    if let Some(source) = own.or_else(|| Seat::NOBODY.entry()) {
        // SAFETY: a map value that was just looked up.
        unsafe { add(source, dropped, total.packets, total.bytes) };
    }
}

/// Adds what passed of the subject's source lately to all that did.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn settle_recent() -> u32 {
    let Some(source) = Subject::get().and_then(|subject| Seat(subject.seat).entry()) else {
        return 0;
    };
    // SAFETY: a map value that was just looked up; an aligned word.
    let Tally { packets, bytes } = Recent::take(&unsafe { Plain::new(&raw mut (*source).recent) });
    if packets != 0 {
        // SAFETY: as above.
        unsafe { add(source, false, packets, bytes) };
    }
    0
}

/// # Safety
/// `source` is a map value that was looked up in this run of the program.
#[inline(always)]
unsafe fn add(source: *mut Source, dropped: bool, packets: u64, bytes: u64) {
    // SAFETY: as the caller promises; both are aligned words.
    unsafe {
        let tally = if dropped { &raw mut (*source).dropped } else { &raw mut (*source).passed };
        cell::add(&raw mut (*tally).packets, packets);
        cell::add(&raw mut (*tally).bytes, bytes);
    }
}

/// Makes the entry of the subject's source if there is none, and brings it up to date. Gives where it
/// is; [`Seat::UNKNOWN`] when other CPUs keep it from being found.
#[inline(always)]
pub(crate) fn renew(subject: &mut Subject, epoch: u32, settings: &Settings) -> Seat {
    let number = number(&subject.source, epoch, settings);
    (subject.number, subject.numbered) = (number, epoch);
    let mut seat = Seat::UNREADABLE;
    if subject.source.family != Address::NONE.family {
        subject.place = Place::of(&subject.source, settings.seed, settings.sets);
        seats::touch(subject.place);
        let Some(seats) = Seats::lock(subject.place.set, epoch) else { return Seat::UNKNOWN };
        subject.time = Time::exact(clock::now());
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
            refresh(source, number, false, subject, epoch);
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
        subject.time = Time::exact(clock::now());
        subject.was_full = 0;
        subject.newcomer = Newcomer::NONE;
        refresh(source, 0, true, subject, epoch);
    }
    seat
}

/// The number of the profile of a source.
#[inline(always)]
pub(crate) fn number(address: &Address, epoch: u32, settings: &Settings) -> u32 {
    if settings.flags & flag::PREFIXES == 0 {
        return 0;
    }
    PREFIXES
        .get(epoch & 1)
        .and_then(|prefixes| prefixes.get(&Key::new(Address::BITS, *address)))
        .copied()
        .unwrap_or(0)
}

/// Brings an entry up to date, which has the profile of this number, and charges it with the packet that
/// its source was admitted with before it had one, at the time of the subject.
#[inline(never)]
fn refresh(source: *mut Source, number: u32, shared: bool, subject: &mut Subject, epoch: u32) {
    let (Some(settings), Some(profile)) =
        (datapath::settings(epoch), PROFILES.get(half(epoch, number)))
    else {
        return;
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
        let penalties = if shared { 0 } else { settings.penalties & profile.limits };
        let until = if penalties == 0 { 0 } else { recall_offences(epoch, penalties) };
        // SAFETY: as above.
        unsafe { (&raw mut (*source).blocked).write_volatile(Block::new(until, target).0) };
        let before = datapath::settings(epoch.wrapping_sub(1));
        let charged =
            before.map_or(0, |before| subject.newcomer.facts.charged(epoch, settings, before));
        repay(epoch, seen.0);
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
                    carry_word(word, from.0, 0, number, subject.time().now)
                });
            } else {
                let credited = meter.gcra.credited(subject.credit(profile));
                bucket.renew(&meter.gcra, subject.time().now, credited);
                // SAFETY: as above.
                unsafe { stamp.write_volatile(after) };
                // One that owes nothing any more is charged to nothing; its time may be long ago.
                if charged >> place & 1 != 0
                    && let Some(limit) = LIMITS.get(half(epoch, Limit::row(settings.inline[place])))
                {
                    let word = subject.newcomer.word(limit, &meter.gcra);
                    if table::owes(word, meter.gcra.scale().0, subject.time().now) != 0 {
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
}
