//! The way of a packet: parse, source, lists, limits, verdict.

use aya_ebpf::programs::XdpContext;
use limiter_common::{
    contract::{Settings, flag, half},
    frame::Frame as _,
    limit::{INLINE, Limit, Sort},
    packet::parse,
    plan::{self, Bill, Group as _},
    reason::Reason,
    word::Word as _,
};

use crate::{
    classes::classify_subject,
    clock,
    entry::{self, SourceEntry},
    frame::XdpFrame,
    inline::{self, Inline},
    keyed::{self, count_keyed},
    maps::{HEAD, METERS},
    offence::offend_subject,
    opening::{recall_opening, remember_opening},
    refused::{Place, Refusing},
    subject::Subject,
    tally,
    verdict::Verdict,
};

/// How often a packet is decided about before it is given up. What other CPUs do at its state is
/// over in less time than an attempt takes.
const ATTEMPTS: u32 = 8;

/// Runs the limiter on one frame; `FRAGS` says that it may lie in several pieces.
#[inline(always)]
pub fn run<const FRAGS: bool>(ctx: &XdpContext) -> u32 {
    let frame = XdpFrame::new::<FRAGS>(ctx);
    let bytes = frame.total() as u64;
    let Some(subject) = Subject::get() else {
        return Verdict::new(Reason::Contended).settle(bytes);
    };
    if !parse(&frame, &mut subject.packet) {
        return Verdict::new(Reason::NonIp).settle(bytes);
    }
    subject.bytes = bytes;
    subject.overflow = 0;
    subject.opening = 0;
    subject.tag = 0;
    subject.conform = Reason::conform(&subject.packet).index() as u64;
    let mut verdict = Verdict(decide_subject().into());
    for _ in 1..ATTEMPTS {
        if verdict.is_decided() {
            break;
        }
        bind_subject();
        verdict = Verdict(decide_subject().into());
    }
    if !verdict.is_decided() {
        verdict = Verdict(give_up_subject().into());
    }
    verdict.settle(subject.reread().bytes)
}

/// Decides about the packet of the subject, under one policy, and gives the place of the reason.
///
/// One that stays undecided ([`Reason::Contended`]) is counted nowhere: its source has no entry yet
/// that is bound to the policy, or other CPUs came first at its state. What it was charged is taken
/// back, but from state that a swap carries over at that very moment: at most one packet per CPU and
/// swap is charged there twice. As this is verified by itself, it can be called as often as it takes.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn decide_subject() -> u32 {
    let (Some(subject), Some(policy)) = (Subject::get(), InForce::get()) else {
        return Verdict::new(Reason::Contended).0 as u32;
    };
    subject.monitor = policy.monitors();
    let verdict = limit(subject, &policy);
    let verdict = if subject.monitors() { verdict.monitored() } else { verdict };
    verdict.0 as u32
}

/// Binds the entry of the subject's source to the policy in force, or makes it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn bind_subject() -> u32 {
    if let (Some(subject), Some(policy)) = (Subject::get(), InForce::get()) {
        subject.source = subject.packet.source.masked(&policy.settings.mask);
        subject.overflow = entry::renew(&subject.source, policy.epoch, policy.settings).into();
    }
    0
}

/// Gives up on the packet of the subject, and gives the place of the reason to pass or drop it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn give_up_subject() -> u32 {
    let undecided = Verdict::new(Reason::Contended);
    let (Some(subject), Some(policy)) = (Subject::get(), InForce::get()) else {
        return undecided.0 as u32;
    };
    let verdict = if policy.settings.flags & flag::LIMITS == 0 {
        // Nothing that is only observed is dropped.
        Verdict(subject.conform)
    } else if policy.monitors() != 0 {
        Verdict::new(Reason::Monitor)
    } else {
        undecided
    };
    entry::account(&subject.source, verdict.drops(), 1, subject.bytes);
    verdict.0 as u32
}

/// Decides about a packet by its source.
#[inline(always)]
fn limit(subject: &mut Subject, policy: &InForce) -> Verdict {
    let bytes = subject.bytes;
    policy.classify(subject);
    // Other parts of the program wrote to it.
    let subject = subject.reread();
    subject.source = subject.packet.source.masked(&policy.settings.mask);
    let Some(mut place) = Place::of(&subject.source) else {
        return Verdict::new(Reason::Contended);
    };
    // What is only monitored passes, and is not remembered.
    if !subject.monitors()
        && let Some(tally) = place.refuses(&subject.source, policy.epoch, subject.applicable, bytes)
    {
        tally::count(tally, true, bytes);
        return Verdict::new(Reason::Exceed);
    }
    let Some(entry) = SourceEntry::find(&subject.source, policy.epoch, subject.overflow != 0)
    else {
        return Verdict::new(Reason::Contended);
    };
    let verdict = decide(subject, policy, &entry, &mut place, bytes);
    if verdict.is_decided() {
        entry.account(verdict.drops() && !subject.monitors(), bytes);
    }
    verdict
}

/// Decides about a packet of a source with an entry.
#[inline(always)]
fn decide(
    subject: &mut Subject,
    policy: &InForce,
    entry: &SourceEntry,
    place: &mut Place,
    bytes: u64,
) -> Verdict {
    let settings = policy.settings;
    let profile = entry.profile;
    let applies = profile.limits & subject.applicable;
    let blocked = entry.blocked();
    if applies | u64::from(profile.listed) | blocked == 0 {
        return Verdict(subject.conform);
    }
    let now = clock::now();
    if profile.listed != 0 {
        if now < profile.allowed {
            return Verdict::new(Reason::Allow);
        }
        if now < profile.denied {
            return Verdict::new(Reason::Deny);
        }
        if now < profile.blocked {
            return Verdict::new(Reason::Penalty);
        }
    }
    if now < blocked {
        return Verdict::new(Reason::Penalty);
    }
    if applies == 0 {
        return Verdict(subject.conform);
    }

    subject.bill = Bill { applies, enforced: settings.enforced, ..Bill::default() };
    let plain = applies & !settings.unit == 0;
    let sort = if plain { Sort::default() } else { Sort::of(&subject.packet) };
    let by_key = applies & settings.keyed;
    subject.now = now;
    subject.epoch = entry.binding.epoch();
    subject.profile = entry.binding.profile();
    subject.tenant = profile.tenant;
    let Subject { bill, looks, .. } = subject.reread();
    let mut group = Inline { entry, settings, profile, sort, bytes, bill, looks };
    plan::look(&mut group, now);
    if by_key != 0 {
        keyed::look(by_key);
    }
    if group.bill().refused == 0 {
        if by_key != 0 {
            keyed::charge();
        }
        if group.bill().refused == 0 {
            plan::charge(&mut group, now);
        }
        if group.bill().refused != 0 {
            inline::refund();
            if by_key != 0 {
                keyed::refund();
            }
        }
    }

    let bill = *group.bill();
    if bill.contended != 0 {
        return Verdict::new(Reason::Contended);
    }
    let conform = if bill.refused == 0 { bill.charged } else { 0 };
    let exceed = bill.monitored() | bill.refused;
    for index in 0..INLINE {
        let bit = settings.inline[index];
        if (conform | exceed) & bit != 0 {
            tally::count(settings.tallies[index], exceed & bit != 0, bytes);
        }
    }
    if (conform | exceed) & settings.keyed != 0 {
        count_keyed(conform & settings.keyed, exceed & settings.keyed);
    }
    if bill.refused == 0 {
        if bill.charged & settings.connections != 0 {
            remember_opening(bill.charged & settings.connections);
        }
        return Verdict(subject.conform);
    }
    refuse(subject, policy, entry, place, &bill, now);
    Verdict::new(Reason::Exceed)
}

/// What comes of a refusal, for the next packets of the source.
#[inline(always)]
fn refuse(
    subject: &Subject,
    policy: &InForce,
    entry: &SourceEntry,
    place: &mut Place,
    bill: &Bill,
    now: u64,
) {
    let settings = policy.settings;
    // What is only monitored blocks nobody later.
    if settings.penalties & bill.refused != 0
        && !subject.monitors()
        && !entry.is_shared(&subject.source)
    {
        entry.block(offend_subject(half(policy.epoch, Limit::row(bill.refused))));
    }
    // Of packets that a narrower limit is about too, nothing is remembered.
    if entry.overflow || subject.monitors() || bill.applies & (bill.refused - 1) != 0 {
        return;
    }
    for index in 0..INLINE {
        if settings.inline[index] != bill.refused {
            continue;
        }
        let Some(meter) = METERS.get(half(policy.epoch, entry.profile.meters[index])) else {
            return;
        };
        // A queue may have room for a smaller packet.
        if meter.gcra.strict == 0 {
            let refusing = Refusing {
                bit: bill.refused,
                tally: settings.tallies[index],
                limits: entry.profile.limits,
                wait: meter.gcra.wait(entry.cell(index).load(), now, 0),
            };
            place.remember(&subject.source, entry, &refusing, now);
        }
        return;
    }
}

/// What holds under an epoch, or the one after the next.
#[inline(always)]
pub(crate) fn settings(epoch: u32) -> Option<&'static Settings> {
    let head = HEAD.get_ptr(0)?;
    // SAFETY: the controller writes the half that no packet reads, and after that the epoch.
    Some(unsafe { &(&(*head).settings)[epoch as usize & 1] })
}

/// The policy in force, as one packet sees it.
#[derive(Clone, Copy)]
struct InForce {
    epoch: u32,
    settings: &'static Settings,
    /// See [`Head::monitor`](limiter_common::contract::Head::monitor).
    switch: u64,
}

impl InForce {
    #[inline(always)]
    fn get() -> Option<Self> {
        let head = HEAD.get_ptr(0)?;
        // SAFETY: aligned words of a map value, which the controller writes by one store each, after
        // the half of the settings that the epoch says. It is read once, so that the packet sees one
        // policy.
        let (mut epoch, revert, switch) = unsafe {
            (
                (&raw const (*head).epoch).read_volatile() as u32,
                (&raw const (*head).revert).read_volatile(),
                (&raw const (*head).monitor).read_volatile(),
            )
        };
        if let Some(at) = revert.at(epoch)
            && clock::now() >= at
        {
            epoch = epoch.wrapping_add(1);
        }
        Some(Self { epoch, settings: settings(epoch)?, switch })
    }

    /// Not 0 when nothing is dropped, by the operator's word or by the policy's.
    #[inline(always)]
    fn monitors(&self) -> u64 {
        self.switch | u64::from(self.settings.flags & flag::MONITOR)
    }

    /// Finds the limits that a packet is about, whatever its source.
    #[inline(always)]
    fn classify(&self, subject: &mut Subject) {
        subject.applicable = u64::MAX;
        if self.settings.sections != 0 {
            classify_subject(self.epoch, self.settings.sections, self.settings.elsewhere);
        }
        if subject.reread().applicable & self.settings.connections != 0 {
            recall_opening(self.epoch);
        }
    }
}
