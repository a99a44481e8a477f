//! Deciding about a packet that is admitted, or refused as the one before, and nothing else is to be
//! said of: most packets there are.

use limiter_common::{
    contract::{Settings, half},
    gcra::Time,
    limit::{INLINE, Sort},
    policer::Look,
    reason::Reason,
    table,
    word::Word as _,
};

use crate::{
    barrier::publish,
    clock,
    datapath::InForce,
    entry::{Seat, SourceEntry},
    inline,
    maps::METERS,
    newcomers::admit_newcomer,
    opening::remember_opening,
    refused::Place,
    subject::Subject,
    tally,
    verdict::Verdict,
};

/// Decides about the packet of the subject, if that is a simple matter, and gives the place of the
/// reason, as [`decide_subject`](crate::decide::decide_subject) does; otherwise [`Verdict::OPEN`].
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn admit_subject() -> u32 {
    let (Some(subject), Some(policy)) = (Subject::get(), InForce::get()) else {
        return Verdict::new(Reason::Contended).0 as u32;
    };
    admit(subject, &policy).0 as u32
}

#[inline(always)]
fn admit(subject: &mut Subject, policy: &InForce) -> Verdict {
    let (bytes, settings) = (subject.bytes, policy.settings);
    policy.classify(subject);
    // Other parts of the program wrote to it.
    let subject = subject.reread();
    subject.source = subject.packet.source.masked(&settings.mask);
    // What is only monitored passes, and is not remembered. Where nobody was refused for a while,
    // nobody is looked for.
    if subject.refused > subject.ticked
        && policy.monitors() == 0
        && let Some(mut place) = Place::of(&subject.source)
        && let Some(tally) = place.refuses(&subject.source, policy.epoch, subject.applicable, bytes)
    {
        tally::count(tally, true, bytes);
        return Verdict::new(Reason::Exceed);
    }
    if subject.seat == Seat::UNKNOWN.0 {
        subject.place = table::Place::of(&subject.source, settings.seed, settings.sets);
        subject.seat = Seat::of(subject).0;
    }
    if subject.seat == Seat::NEWCOMER.0 {
        subject.seat = Seat::UNKNOWN.0;
        publish(subject);
        return Verdict(admit_newcomer().into());
    }
    if subject.seat == Seat::UNKNOWN.0 {
        return Verdict::new(Reason::Contended);
    }
    let Some(entry) = SourceEntry::of(subject, policy.epoch) else {
        subject.seat = Seat::UNKNOWN.0;
        return Verdict::new(Reason::Contended);
    };
    let applies = entry.profile.limits & subject.applicable;
    if entry.blocked() | u64::from(entry.lists.listed) | applies & settings.keyed != 0 {
        return Verdict::OPEN;
    }
    if applies != 0 {
        subject.binding = entry.binding;
        if !charge(subject, &entry, settings, applies) {
            return Verdict::OPEN;
        }
        tally::count_inline(settings, applies, 0, bytes);
        if applies & settings.connections != 0 {
            remember_opening(applies & settings.connections);
        }
    }
    entry.account(false, bytes);
    Verdict(subject.reread().conform)
}

/// What is known of a packet.
struct Conforming<'a> {
    entry: &'a SourceEntry,
    settings: &'a Settings,
    applies: u64,
    sort: Sort,
    bytes: u64,
}

/// Charges a packet to its limits, if it conforms to all.
#[inline(always)]
fn charge(subject: &mut Subject, entry: &SourceEntry, settings: &Settings, applies: u64) -> bool {
    let plain = applies & !settings.unit == 0;
    let sort = if plain { Sort::default() } else { Sort::of(&subject.packet) };
    let packet = Conforming { entry, settings, applies, sort, bytes: subject.bytes };
    let mut time = clock::ticked(subject);
    let looks = Subject::anew(&mut subject.looks);
    // What it takes a better clock to tell is asked again.
    if !packet.look(time, looks) {
        if time.tick == 0 {
            return false;
        }
        time = Time::exact(clock::now());
        if !packet.look(time, looks) {
            return false;
        }
    }
    let charged = packet.commit(looks);
    if charged == applies {
        subject.now = time.now;
        return true;
    }
    // Another CPU was first.
    subject.bill.charged = charged;
    inline::refund();
    false
}

impl Conforming<'_> {
    /// The limit at a place, as its bit; 0 when there is none.
    #[inline(always)]
    fn bit(&self, place: usize) -> u64 {
        self.settings.inline[place] & self.applies
    }

    /// Looks at its limits. Whether it conforms to all; if so, what charging it makes of them is known.
    #[inline(always)]
    fn look(&self, time: Time, looks: &mut [Look; INLINE]) -> bool {
        let epoch = self.entry.binding.epoch();
        for (place, look) in looks.iter_mut().enumerate() {
            let bit = self.bit(place);
            if bit == 0 {
                continue;
            }
            let Some(meter) = METERS.get(half(epoch, self.entry.profile.meters[place])) else {
                return false;
            };
            let cost = inline::cost(self.settings, epoch, bit, self.sort, self.bytes);
            let seen = self.entry.cell(place).load();
            let Some(next) = meter.gcra.conform(seen, time, cost) else { return false };
            *look = Look { seen, next };
        }
        // The words are of this binding if they still are.
        self.entry.cell(0).bound()
    }

    /// Charges them, and gives those that were: not all, if another CPU was first at the next.
    #[inline(always)]
    fn commit(&self, looks: &[Look; INLINE]) -> u64 {
        let mut charged = 0;
        for (place, look) in looks.iter().enumerate() {
            let bit = self.bit(place);
            if bit != 0 {
                if look.commit(self.entry.cell(place)).is_err() {
                    break;
                }
                charged |= bit;
            }
        }
        charged
    }
}
