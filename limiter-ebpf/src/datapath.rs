//! The way of a packet: parse, source, lists, limits, verdict.

use aya_ebpf::{bindings::xdp_md, programs::XdpContext};
use limiter_common::{
    contract::{Settings, Tally, flag},
    control,
    frame::Frame as _,
    packet::parse,
    reason::Reason,
};

#[cfg(feature = "messages")]
use crate::messages::{tell_anomaly, tell_binding, tell_giving_up, tell_refusal};
use crate::{
    admit::admit,
    cache::{keep_lease, remember_refusal},
    clock,
    control::decide_early,
    decide::decide_subject,
    entry, fast_path,
    frame::XdpFrame,
    maps::HEAD,
    notices::note_refusal,
    renewal::renew,
    seat::Seat,
    subject::Subject,
    verdict::Verdict,
};

/// How often a packet that is not simply admitted is decided about before it is given up. What other CPUs
/// do at its state is over in less time than an attempt takes.
const ATTEMPTS: u32 = 8;

/// No epoch.
const NEVER: u64 = u64::MAX;

/// Runs the limiter on one frame; `FRAGS` says that it may lie in several pieces.
#[inline(always)]
pub fn run<const FRAGS: bool>(ctx: &XdpContext) -> u32 {
    let frame = XdpFrame::new::<FRAGS>(ctx);
    let bytes = frame.total() as u64;
    let Some(subject) = Subject::get() else {
        return Verdict::new(Reason::Contended).settle(bytes);
    };
    (subject.bytes, subject.now, subject.seat) = (bytes, 0, Seat::UNKNOWN.0);
    subject.is_asked = 0;
    if let Some(verdict) = fast_path::decide(&frame, subject) {
        return verdict.settle(subject.reread().bytes);
    }
    run_any(ctx.ctx)
}

/// Runs the limiter on a frame that is not decided about by the fast path.
#[inline(always)]
fn run_any(ctx: *mut xdp_md) -> u32 {
    let is_ip = parse_subject(ctx) != 0;
    let Some(subject) = Subject::get() else {
        return Verdict::new(Reason::Contended).settle(0);
    };
    if !is_ip {
        return Verdict::new(Reason::NonIp).settle(subject.bytes);
    }
    subject.refusing.bit = 0;
    subject.classified = NEVER;
    subject.opening = 0;
    subject.tag = 0;
    (subject.leased, subject.lease_lost, subject.may_lease) = (0, 0, 0);
    #[cfg(feature = "messages")]
    tell_anomaly();
    // What of the packet was written is read back: the ways that the parser took are no longer told apart.
    let subject = subject.reread();
    if subject.conform == Reason::TooDeep.index() as u64 || control::may_be(&subject.packet) {
        let verdict = Verdict(decide_early().into());
        if !verdict.is_open() {
            return verdict.settle(subject.reread().bytes);
        }
    }
    // Most packets there are end here.
    let mut verdict = match InForce::get() {
        Some(policy) => admit(ctx, subject.reread(), &policy),
        None => Verdict::new(Reason::Contended),
    };
    for _ in 0..ATTEMPTS {
        if !verdict.is_decided() {
            bind_subject();
            #[cfg(feature = "messages")]
            tell_binding();
        } else if !verdict.is_open() {
            break;
        }
        verdict = Verdict(decide_subject(ctx).into());
    }
    if !verdict.is_decided() {
        verdict = Verdict(give_up_subject().into());
        #[cfg(feature = "messages")]
        tell_giving_up(verdict.0 as u32);
    }
    // It is looked up again, as there is no room on the stack to remember where it is.
    let Some(subject) = Subject::get() else { return verdict.settle(0) };
    let bytes = subject.bytes;
    if subject.may_lease != 0 {
        keep_lease();
    }
    if subject.refusing.bit != 0 {
        note_refusal();
        remember_refusal();
        #[cfg(feature = "messages")]
        tell_refusal(verdict.0 as u32);
    }
    verdict.settle(bytes)
}

/// Reads the frame of the subject, and gives 1 if it is IP, or could be. It is verified by itself: what
/// is on its stack is gone when the packet is decided.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn parse_subject(ctx: *mut xdp_md) -> u32 {
    let Some(subject) = Subject::get() else { return 0 };
    let frame = XdpFrame::of(ctx, subject.bytes as usize);
    let Some(conform) = parse(&frame, &mut subject.packet) else { return 0 };
    subject.conform = conform.index() as u64;
    1
}

/// Binds the entry of the subject's source to the policy in force, or makes it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn bind_subject() -> u32 {
    if let (Some(subject), Some(policy)) = (Subject::get(), InForce::get()) {
        subject.find_source(&policy.settings.mask);
        subject.seat = renew(subject, policy.epoch, policy.settings).0;
        subject.owed = 0;
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
    let (source, packet) = (subject.source, Tally { packets: 1, bytes: subject.bytes });
    let none = Tally::default();
    let (passed, dropped) = if verdict.drops() { (&none, &packet) } else { (&packet, &none) };
    entry::account(subject, &source, policy.settings, passed, dropped);
    verdict.0 as u32
}

/// What holds under an epoch, or the one after the next.
#[inline(always)]
pub(crate) fn settings(epoch: u32) -> Option<&'static Settings> {
    let head = HEAD.get_ptr(0)?;
    // SAFETY: the controller writes the half that no packet goes by, and after that the epoch. Who asks what held under
    // the epoch before may find what is about to hold, each word of one or the other.
    Some(unsafe { &(&(*head).settings)[epoch as usize & 1] })
}

/// The policy in force, as one packet sees it.
#[derive(Clone, Copy)]
pub(crate) struct InForce {
    pub(crate) epoch: u32,
    pub(crate) settings: &'static Settings,
    /// See [`Head::monitor`](limiter_common::contract::Head::monitor).
    switch: u64,
}

impl InForce {
    #[inline(always)]
    pub(crate) fn get() -> Option<Self> {
        let head = HEAD.get_ptr(0)?;
        // SAFETY: aligned words of a map value, which the controller writes by one store each, after
        // the half of the settings that the epoch says. They are read once, so that the packet sees one
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
        // SAFETY: the controller writes the half that no packet goes by.
        let settings = unsafe { &(&(*head).settings)[epoch as usize & 1] };
        Some(Self { epoch, settings, switch })
    }

    /// Not 0 when nothing is dropped, by the operator's word or by the policy's.
    #[inline(always)]
    pub(crate) fn monitors(&self) -> u64 {
        self.monitors_or(0)
    }

    /// The same, or when one of these flags is set.
    #[inline(always)]
    pub(crate) fn monitors_or(&self, flags: u32) -> u64 {
        self.switch | u64::from(self.settings.flags & (flag::MONITOR | flags))
    }
}
