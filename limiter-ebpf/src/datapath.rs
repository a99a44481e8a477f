//! The way of a packet: parse, source, plan, verdict.

use aya_ebpf::programs::XdpContext;
use limiter_common::{
    address::Address,
    contract::{ConnectionKey, Settings},
    frame::Frame as _,
    limit::Limit,
    packet::{Packet, parse},
    plan::{Plan, State},
    reason::Reason,
};

use crate::{
    barrier::opaque,
    cell::Cell,
    clock,
    entry::{self, SourceEntry},
    frame::XdpFrame,
    maps::{HEAD, SUBJECT},
    refused::{self, Place},
    verdict::Verdict,
};

/// Runs the limiter on one frame; `FRAGS` says that it may lie in several pieces.
#[inline(always)]
pub fn run<const FRAGS: bool>(ctx: &XdpContext) -> u32 {
    let frame = XdpFrame::new::<FRAGS>(ctx);
    let bytes = frame.total() as u64;
    let Some(subject) = Subject::get() else {
        return Verdict::Drop(Reason::Contended).settle(bytes);
    };
    if parse(&frame, &mut subject.packet) {
        subject.applicable = Plan::applicable(&subject.packet);
        subject.conform = Reason::conform(&subject.packet).index() as u64;
        limit(subject.reread(), bytes).settle(bytes)
    } else {
        Verdict::Pass { reason: Reason::NonIp.index(), charged: 0 }.settle(bytes)
    }
}

/// What is decided about.
///
/// It is kept in a map value of the CPU, of which the verifier remembers nothing: on the stack, it
/// would follow each of the thousand ways through the parser to the end of the program.
pub(crate) struct Subject {
    packet: Packet,
    /// See [`Plan::applicable`].
    applicable: u64,
    /// The place of the reason to pass it.
    conform: u64,
    /// The key of its source.
    source: Address,
    /// The key of its connection.
    connection: ConnectionKey,
}

impl Subject {
    #[inline(always)]
    fn get() -> Option<&'static mut Self> {
        let subject = SUBJECT.get_ptr_mut(0)?;
        // SAFETY: a map value of this CPU, on which no other packet is decided before this one: XDP
        // runs with bottom halves disabled. All zeros, which it is at first, is a valid value.
        Some(unsafe { &mut *subject })
    }

    /// The same, but the compiler has to read what was written.
    #[inline(always)]
    fn reread(&mut self) -> &mut Self {
        // SAFETY: the pointer is that of `self`, which is given up for it.
        unsafe { &mut *(opaque(&raw mut *self as usize) as *mut Self) }
    }
}

/// Asks the limits of the source of a packet.
#[inline(always)]
fn limit(subject: &mut Subject, bytes: u64) -> Verdict {
    let Some(InForce { epoch, settings }) = InForce::get() else {
        return Verdict::Drop(Reason::Contended);
    };
    let packet = &subject.packet;
    let conform = subject.conform as usize;
    subject.source = packet.source.masked(&settings.mask);
    let Some(mut place) = Place::of(&subject.source) else {
        return Verdict::Drop(Reason::Contended);
    };
    if place.refuses(&subject.source, epoch, subject.applicable, bytes) {
        return Verdict::Drop(Reason::SourceExceed);
    }
    let Some(entry) = SourceEntry::find(&subject.source, epoch, settings, bytes) else {
        // Nothing that is only observed is dropped.
        return if settings.limits == 0 {
            Verdict::Pass { reason: conform, charged: 0 }
        } else {
            Verdict::Drop(Reason::Contended)
        };
    };
    let applies = entry.plan.active & subject.applicable;
    let decision = if applies == 0 {
        Ok(())
    } else {
        if applies & Limit::Connection.bit() != 0 {
            subject.connection = packet.connection();
        }
        let now = clock::now();
        let mut buckets = Buckets { entry: &entry, connection: &subject.connection, now };
        let decision = entry.plan.decide(applies, &mut buckets, now);
        if decision == Err(Reason::SourceExceed) && refused::memorable(applies) && !entry.overflow {
            place.remember(&subject.source, &entry, now);
        }
        decision
    };
    entry.account(decision.is_err(), bytes);
    match decision {
        Ok(()) => Verdict::Pass { reason: conform, charged: applies },
        Err(reason) => Verdict::Drop(reason),
    }
}

/// The policy in force, as one packet sees it.
#[derive(Clone, Copy)]
struct InForce {
    epoch: u32,
    settings: &'static Settings,
}

impl InForce {
    #[inline(always)]
    fn get() -> Option<Self> {
        let head = HEAD.get_ptr(0)?;
        // SAFETY: an aligned word of a map value, which the controller writes by one store, after
        // the half of the settings that it says. It is read once, so that the packet sees one
        // policy.
        unsafe {
            let epoch = (&raw const (*head).epoch).read_volatile() as u32;
            Some(Self { epoch, settings: &(&(*head).settings)[epoch as usize & 1] })
        }
    }
}

/// Where the words of a packet's buckets are.
struct Buckets<'a> {
    entry: &'a SourceEntry,
    connection: &'a ConnectionKey,
    now: u64,
}

impl State for Buckets<'_> {
    type Word = Cell;

    /// Of a register that is moved, even to itself, every kernel remembers that all copies of it are
    /// one value: that what was looked up under a limit that applies is there when that is asked
    /// again. Of a masked one that was put on the stack, kernels before 6.8 do not.
    #[inline(always)]
    fn applies(&self, applies: u64, limit: Limit) -> u64 {
        opaque((applies & limit.bit()) as usize) as u64
    }

    #[inline(always)]
    fn find(&mut self, limit: Limit) -> Option<Cell> {
        match limit {
            Limit::Syn | Limit::Source => Some(self.entry.cell(limit)),
            Limit::Connection => entry::connection(self.connection, self.entry, self.now),
        }
    }

    #[inline(always)]
    fn create(&mut self, limit: Limit) -> Option<Cell> {
        match limit {
            Limit::Syn | Limit::Source => None,
            Limit::Connection => entry::create_connection(self.connection, self.entry, self.now),
        }
    }
}
