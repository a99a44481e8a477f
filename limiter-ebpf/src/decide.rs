//! Deciding about any packet, limit by limit.

use aya_ebpf::bindings::xdp_md;
use limiter_common::{
    cache::Cached,
    contract::{Settings, half},
    limit::Limit,
    plan::{self, Bill, Group as _},
    reason::Reason,
    word::Word as _,
};

use crate::{
    cache,
    classes::classify_again,
    clock,
    datapath::InForce,
    entry::SourceEntry,
    inline::{self, Inline, refund_inline},
    keyed::{self, count_keyed, find_wait_keyed, refund_keyed},
    maps::METERS,
    near::{count_near, find_near_inline, find_near_keyed},
    offence::offend_subject,
    opening::remember_opening,
    seat::Seat,
    subject::Subject,
    tally::{self, Outcomes},
    verdict::Verdict,
};

/// Decides about the packet of the subject, under one policy, and gives the place of the reason.
///
/// One that stays undecided ([`Reason::Contended`]) is counted nowhere: its source has no entry yet
/// that is bound to the policy, or other CPUs came first at its state. What it was charged is taken
/// back, but from state that a swap carries over at that very moment: at most one packet per CPU and
/// swap is charged there twice. As this is verified by itself, it can be called as often as it takes.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn decide_subject(ctx: *mut xdp_md) -> u32 {
    let (Some(subject), Some(policy)) = (Subject::get(), InForce::get()) else {
        return Verdict::new(Reason::Contended).0 as u32;
    };
    subject.monitor = policy.monitors();
    let verdict = limit(ctx, subject, &policy);
    let verdict = if subject.monitors() { verdict.monitored() } else { verdict };
    verdict.0 as u32
}

/// Decides about a packet by its source.
#[inline(always)]
fn limit(ctx: *mut xdp_md, subject: &mut Subject, policy: &InForce) -> Verdict {
    if subject.classified != policy.epoch.into() {
        classify_again(policy.epoch);
    }
    // Other parts of the program wrote to it.
    let subject = subject.reread();
    subject.find_source(&policy.settings.mask);
    let Some(entry) = SourceEntry::of(subject, policy.epoch) else {
        return Verdict::new(Reason::Contended);
    };
    let verdict = decide(ctx, subject, policy.settings, &entry);
    if verdict.is_decided() {
        let subject = subject.reread();
        entry.account(verdict.drops() && !subject.monitors(), subject.bytes);
    }
    verdict
}

/// Decides about a packet of a source with an entry.
#[inline(always)]
fn decide(
    ctx: *mut xdp_md,
    subject: &mut Subject,
    settings: &Settings,
    entry: &SourceEntry,
) -> Verdict {
    let (profile, lists) = (entry.profile, entry.lists);
    let applies = profile.limits & subject.applicable;
    let blocked = entry.blocked();
    if applies | u64::from(lists.listed) | blocked == 0 {
        return Verdict(subject.conform);
    }
    let by_key = applies & settings.keyed;
    if by_key != 0 {
        cache::plan_lease(subject, entry, applies);
    }
    let now = clock::now();
    if lists.listed != 0
        && let Some(reason) = lists.listing(now)
    {
        return Verdict::new(reason);
    }
    if now < blocked {
        return Verdict::new(Reason::Penalty);
    }
    if applies == 0 {
        return Verdict(subject.conform);
    }

    subject.open_bill(applies, settings.enforced);
    if applies & !settings.unit != 0 {
        subject.find_sort();
    }
    subject.set_time(now);
    let subject = subject.reread();
    subject.binding = entry.binding;
    subject.tenant = profile.tenant;
    let mut group = Inline { entry, settings, subject: subject.reread() };
    plan::look(&mut group, now);
    if by_key != 0 {
        keyed::look(ctx, by_key);
        if group.subject.leased() != 0 && cache::may_be_leased() == 0 {
            return charge_alone(group.subject);
        }
    }
    if group.bill().refused == 0 {
        if by_key != 0 {
            keyed::charge(ctx);
        }
        if group.bill().refused == 0 {
            plan::charge(&mut group, now);
        }
        if group.bill().refused != 0 {
            refund_inline();
            if by_key != 0 {
                refund_keyed();
            }
        }
    }

    let subject = subject.reread();
    let bill = subject.bill;
    if bill.refused != 0 && subject.leased() != 0 {
        return charge_alone(subject);
    }
    if bill.contended != 0 {
        return Verdict::new(Reason::Contended);
    }
    let conform = if bill.refused == 0 { bill.charged } else { 0 };
    let monitored = bill.monitored() | bill.refused & subject.monitored();
    let exceed = bill.refused & !monitored;
    let outcomes = Outcomes { conform, exceed, monitored };
    tally::count_inline(settings, &outcomes, subject.bytes);
    let of = settings.keyed;
    if outcomes.all() & of != 0 {
        count_keyed(conform & of, exceed & of, monitored & of);
    }
    if bill.refused == 0 {
        find_near_inline(subject, settings, entry);
        if conform & of != 0 {
            find_near_keyed();
        }
        if bill.exceeded != 0 {
            subject.reread().may_lease = 0;
        }
        if subject.reread().near != 0 {
            count_near(subject.binding.epoch());
        }
        subject.refusing.begin(monitored & monitored.wrapping_neg());
        if bill.charged & settings.connections != 0 {
            remember_opening(bill.charged & settings.connections);
        }
        return Verdict(subject.conform);
    }
    subject.may_lease = 0;
    subject.refusing.begin(bill.refused);
    refuse(subject, settings, entry, &bill);
    Verdict::new(Reason::Exceed)
}

/// Has a packet that could not be charged for several be charged alone, when it is decided about anew.
#[inline(always)]
fn charge_alone(subject: &mut Subject) -> Verdict {
    (subject.leased, subject.lease_lost) = (0, 1);
    Verdict::new(Reason::Contended)
}

/// What comes of a refusal, for the next packets of the source.
#[inline(always)]
fn refuse(subject: &mut Subject, settings: &Settings, entry: &SourceEntry, bill: &Bill) {
    let (epoch, seat) = (entry.binding.epoch(), Seat(subject.seat));
    // What is only monitored blocks nobody later.
    if settings.penalties & bill.refused != 0 && !subject.monitors() && !seat.is_shared() {
        let until = offend_subject(half(epoch, Limit::row(bill.refused)));
        // Another CPU may be about to write the end of the block.
        if entry.block(until) && until > subject.time.now {
            subject.refusing.until = until;
        }
    }
    if seat == Seat::OVERFLOW || subject.monitors() || entry.blocked() > subject.time.now {
        return;
    }
    // A drop is counted under the limit that is asked first, which may be a narrower one next time.
    if bill.applies & (bill.refused - 1) != 0 {
        return;
    }
    let Some(index) = inline::place(settings, bill.refused) else {
        find_wait_keyed(entry.profile.limits & subject.applicable);
        return;
    };
    let Some(meter) = METERS.get(half(epoch, entry.profile.meters[index])) else { return };
    // Of packets that do not cost the same, one that costs less may conform.
    let cost = u64::from(settings.unit & bill.refused != 0);
    let now = subject.time_of(&meter.gcra);
    let wait = meter.gcra.wait(entry.cell(index).load(), now, cost);
    // The word has to be that of the source still.
    if cost == 0 && meter.gcra.strict != 0 || entry.bound() != entry.binding {
        return;
    }
    // A penalty takes refusals one after the other, and what a wider limit refuses is given back to this one.
    let wider = bill.applies & !(bill.refused | (bill.refused - 1));
    let is_brief = settings.penalties & bill.refused | wider != 0;
    subject.refusing.since = now;
    subject.refusing.wait = if is_brief { wait.min(Cached::MOMENT) } else { wait };
    subject.refusing.precise = u32::from(meter.gcra.takes_clock(clock::tick_length()));
    subject.refusing.tally = settings.tallies[index];
    subject.refusing.limits = entry.profile.limits & subject.applicable;
}
