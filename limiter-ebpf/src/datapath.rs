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
    maps::{DIGEST, EPOCH, SETTINGS},
    verdict::Verdict,
};

/// Runs the limiter on one frame; `FRAGS` says that it may lie in several pieces.
#[inline(always)]
pub fn run<const FRAGS: bool>(ctx: &XdpContext) -> u32 {
    let frame = XdpFrame::new::<FRAGS>(ctx);
    let bytes = frame.total() as u64;
    let verdict = match parse(&frame) {
        Some(packet) => match Digest::of(&packet) {
            Some(digest) => limit(digest, bytes),
            None => Verdict::Drop(Reason::Contended),
        },
        None => Verdict::Pass { reason: Reason::NonIp.index(), charged: 0 },
    };
    verdict.settle(bytes)
}

/// What the limits need to know of a packet.
///
/// It is kept in a map value of the CPU, of which the verifier remembers nothing: on the stack, it
/// would follow each of the thousand ways through the parser to the end of the program.
#[repr(C)]
pub(crate) struct Digest {
    connection: ConnectionKey,
    /// The key of the source.
    source: Address,
    /// See [`Plan::applicable`].
    applicable: u64,
    /// The place of the reason to pass it.
    conform: u64,
}

impl Digest {
    #[inline(always)]
    fn of(packet: &Packet) -> Option<&'static mut Self> {
        let digest = DIGEST.get_ptr_mut(0)?;
        // SAFETY: a map value of this CPU, on which no other packet is decided before this one: XDP
        // runs with bottom halves disabled. The second pointer is the first, but the compiler has
        // to read what was written.
        unsafe {
            (*digest).connection = packet.connection();
            (*digest).applicable = Plan::applicable(packet);
            (*digest).conform = Reason::conform(packet).index() as u64;
            Some(&mut *(opaque(digest as usize) as *mut Self))
        }
    }
}

/// Asks the limits of the source of a packet.
#[inline(always)]
fn limit(digest: &mut Digest, bytes: u64) -> Verdict {
    let Some(InForce { epoch, settings }) = InForce::get() else {
        return Verdict::Drop(Reason::Contended);
    };
    digest.source = digest.connection.source.masked(&settings.mask);
    let Some(entry) = SourceEntry::find(&digest.source, epoch, settings) else {
        // Nothing that is only observed is dropped.
        return if settings.limits == 0 {
            Verdict::Pass { reason: digest.conform as usize, charged: 0 }
        } else {
            Verdict::Drop(Reason::Contended)
        };
    };
    let applies = entry.plan.active & digest.applicable;
    let decision = if applies == 0 {
        Ok(())
    } else {
        let now = clock::now();
        let mut buckets = Buckets { entry: &entry, connection: &digest.connection, now };
        entry.plan.decide(applies, &mut buckets, now)
    };
    entry.account(decision.is_err(), bytes);
    match decision {
        Ok(()) => Verdict::Pass { reason: digest.conform as usize, charged: applies },
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
        let epoch = EPOCH.get_ptr(0)?;
        // SAFETY: an aligned word of an array map, which the controller writes by one store. It is
        // read once, so that the packet sees one policy.
        let epoch = unsafe { epoch.read_volatile() } as u32;
        Some(Self { epoch, settings: SETTINGS.get(epoch & 1)? })
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
