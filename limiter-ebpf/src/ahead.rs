//! Sources that pay for packets ahead, see [`limiter_common::recent`].

use limiter_common::{
    contract::{Settings, half},
    recent::Recent,
    word::Word as _,
};

use crate::{
    admit::look, barrier::publish, clock, datapath::settings, entry::SourceEntry, inline,
    maps::METERS, subject::Subject,
};

/// Whether the packet of the subject, to which these limits apply, passes as its source has paid for it, or pays
/// for it and others now. It is counted in the totals of the source then.
#[inline(always)]
pub(crate) fn pass(subject: &mut Subject, entry: &SourceEntry, limits: u64) -> bool {
    if limits != entry.profile.ahead_of || !clock::may_differ() {
        return false;
    }
    let word = entry.recent();
    let recent = Recent(word.load());
    if recent.pass(&word, subject.bytes) {
        return true;
    }
    if !recent.is_to_pay() {
        return false;
    }
    publish(subject);
    pay_ahead(entry.binding.epoch()) != 0
}

/// Has the subject's source pay for its packet and some more, if it is far from all limits after that too; 0 if
/// it does not.
///
/// It is verified by itself, and called once for all that are paid for.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pay_ahead(epoch: u32) -> u32 {
    let (Some(subject), Some(settings)) = (Subject::get(), settings(epoch)) else { return 0 };
    let Some(entry) = SourceEntry::of(subject, epoch) else { return 0 };
    let limits = entry.profile.ahead_of;
    if entry.profile.limits & subject.applicable != limits {
        return 0;
    }
    let packets = 1 + entry.profile.ahead;
    subject.binding = entry.binding;
    subject.time = clock::ticked(subject);
    if !is_far(subject, &entry, settings, limits, packets)
        || !look(subject, &entry, settings, limits, packets)
        || !Recent::begin_paying(&entry.recent())
    {
        return 0;
    }
    let left = inline::commit(subject, &entry, settings, limits);
    if left != 0 {
        // Another CPU was first.
        subject.ahead = entry.profile.ahead;
        subject.bill.charged = limits & !left;
        inline::refund();
        subject.reread().ahead = 0;
    }
    Recent::end_paying(&entry.recent(), if left == 0 { entry.profile.ahead } else { 0 });
    if left != 0 {
        return 0;
    }
    entry.account(false, subject.reread().bytes);
    1
}

/// Whether so many packets leave all of these limits far from being used up, by a time that may be behind: whose
/// do not are better decided about one by one, and it is not worth a reading of the clock to tell.
#[inline(always)]
fn is_far(
    subject: &Subject,
    entry: &SourceEntry,
    settings: &Settings,
    limits: u64,
    packets: u64,
) -> bool {
    let epoch = entry.binding.epoch();
    let is_far_from = #[inline(always)]
    |place: usize, _| {
        let Some(meter) = METERS.get(half(epoch, entry.profile.meters[place])) else {
            return false;
        };
        let spent = meter.gcra.spent(entry.cell(place).load(), subject.time().now);
        spent + meter.gcra.units(packets) < meter.gcra.near
    };
    inline::all(settings, limits, is_far_from) == 0
}
