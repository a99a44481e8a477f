//! The sources that this CPU refuses for a while, without looking for their entries.

use limiter_common::{address::Address, contract::Settings, reason::Reason, refused::Refused};

use crate::{
    alarm,
    barrier::publish,
    clock,
    datapath::settings,
    entry,
    maps::REFUSED,
    source_key::SourceKey,
    subject::Subject,
    tally::{self, Outcome},
    verdict::Verdict,
};

/// The place of a source among those that this CPU refuses.
struct Place(&'static mut Refused);

/// The limit that a packet was over, and what comes of that for others of its source.
#[derive(Clone, Copy)]
pub(crate) struct Refusing {
    /// 0 if it was over none.
    pub(crate) bit: u64,
    /// The limits of the profile.
    pub(crate) limits: u64,
    /// For how long it will refuse them for sure, in nanoseconds; 0 if they have to be looked at.
    pub(crate) wait: u64,
    /// Until when the source is blocked from now on, in nanoseconds; 0 if it is not, or was before.
    pub(crate) until: u64,
    pub(crate) tally: u32,
    /// 1 if that has to end in time, 0 if no token is lost where it ends late.
    pub(crate) in_time: u32,
}

impl Refusing {
    /// Begins with a limit, or none.
    #[inline(always)]
    pub(crate) fn begin(&mut self, bit: u64) {
        (self.bit, self.wait, self.until) = (bit, 0, 0);
    }
}

impl Place {
    #[inline(always)]
    fn of(source: &Address) -> Option<Self> {
        let refused = REFUSED.get_ptr_mut(Refused::slot(source))?;
        // SAFETY: a map value of this CPU, on which no other packet is decided before this one: XDP
        // runs with bottom halves disabled. All zeros, which it is at first, is a valid value.
        Some(Self(unsafe { &mut *refused }))
    }

    /// Whether a packet is dropped under an epoch because its source is refused; it is counted then,
    /// but for the tally of the limit, which is given, with whether it is time to
    /// [tell](tell_refused) the entry.
    #[inline(always)]
    fn refuses(self, subject: &mut Subject, source: &Address, epoch: u32) -> Option<(u32, bool)> {
        let refused = self.0;
        // What has ended costs no reading of the clock.
        // SAFETY: a field of a map value, at a multiple of 8 bytes.
        let key = unsafe { SourceKey::read(&raw const refused.source) };
        if refused.until == 0 || !key.is(SourceKey::of(source)) {
            return None;
        }
        // What it takes a better clock than that of ticks to tell is asked again.
        let holds = refused.outlasts(clock::tick_length()) && refused.holds(clock::ticked(subject))
            || alarm::holds(refused);
        // For good, whatever packet it is: when the clock went back, that one may renew the bucket.
        if !holds {
            refused.until = 0;
            return None;
        }
        if !refused.concerns(epoch, subject.reread().applicable) {
            return None;
        }
        refused.count(subject.reread().bytes);
        Some((refused.tally, refused.is_due()))
    }

    /// Tells the entry of the source what was dropped.
    #[inline(always)]
    fn tell(&mut self, subject: &mut Subject, settings: &Settings) {
        let refused = &mut *self.0;
        if refused.dropped.packets == 0 {
            return;
        }
        entry::account(subject, &refused.source, settings, true, &refused.dropped);
        // Who reads meanwhile must not find the tally of one source under another.
        // SAFETY: fields of a value that is borrowed here.
        unsafe {
            (&raw mut refused.dropped.packets).write_volatile(0);
            (&raw mut refused.dropped.bytes).write_volatile(0);
        }
    }
}

/// Whether this CPU may refuse somebody, by what it remembers: where nobody was refused for a while, nobody is looked
/// for. Without ticks that is not known, and once one was, somebody is looked for with each packet. What is only
/// monitored passes, and is not remembered.
#[inline(always)]
pub(crate) fn may_refuse(subject: &Subject) -> bool {
    subject.refused > subject.ticked
}

/// Drops the subject as the packet before of its source, if that is refused, and counts it.
///
/// The source is asked for twice, as it need not be kept meanwhile: there is no room on the stack.
#[inline(always)]
pub(crate) fn drop_refused(
    subject: &mut Subject,
    source: impl Fn(&Subject) -> Address,
    epoch: u32,
) -> Option<Verdict> {
    let place = Place::of(&source(subject))?;
    let asked = source(subject);
    let Some((tally, is_due)) = place.refuses(subject, &asked, epoch) else {
        // By this it is known when nobody is refused any more.
        if clock::is_ticking() {
            clock::ticked(subject);
        }
        return None;
    };
    tally::count(tally, Outcome::Exceed, subject.reread().bytes);
    if is_due {
        subject.write_key(SourceKey::of(&asked));
        publish(subject);
        tell_refused(epoch);
    }
    Some(Verdict::new(Reason::Exceed))
}

/// Tells the entry of the subject's source what was dropped of it. It is verified by itself.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn tell_refused(epoch: u32) -> u32 {
    if let (Some(subject), Some(settings)) = (Subject::get(), settings(epoch))
        && let Some(mut place) = Place::of(&subject.source)
    {
        place.tell(subject, settings);
    }
    0
}

/// Remembers that a limit refused the subject, if others of its source need not be looked at for a while.
///
/// It is called when that is decided: there is no stack for both at once.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn remember_refusal() -> u32 {
    let Some(subject) = Subject::get() else { return 0 };
    if subject.refusing.wait == 0 {
        return 0;
    }
    let (Some(mut place), Some(settings)) =
        (Place::of(&subject.source), settings(subject.binding.epoch()))
    else {
        return 0;
    };
    // Sources that share a place would fight for it at each packet.
    if place.0.stays(subject.time.now) {
        return 0;
    }
    place.tell(subject, settings);
    let refused = place.0;
    let refusing = &subject.refusing;
    refused.source = subject.source;
    refused.epoch = subject.binding.epoch();
    refused.limits = refusing.limits;
    refused.bit = refusing.bit;
    refused.tally = refusing.tally;
    refused.hold(subject.time.now, refusing.wait, refusing.in_time != 0);
    if subject.refused < refused.until {
        subject.refused = refused.until;
    }
    0
}
