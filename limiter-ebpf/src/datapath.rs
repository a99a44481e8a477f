//! The way of a packet: parse, source, plan, verdict.

use core::hint::black_box;

use aya_ebpf::programs::XdpContext;
use limiter_common::{
    address::Address,
    contract::ConnectionKey,
    limit::Limit,
    packet::{Packet, Parsed, parse},
    plan::State,
    reason::Reason,
};

use crate::{
    cell::Cell,
    clock,
    entry::{self, SourceEntry},
    frame::XdpFrame,
    maps::{EPOCH, SETTINGS},
    verdict::Verdict,
};

/// Runs the limiter on one frame; `FRAGS` says that it may lie in several pieces.
#[inline(always)]
pub fn run<const FRAGS: bool>(ctx: &XdpContext) -> u32 {
    let frame = XdpFrame::new(ctx);
    let bytes = frame.length::<FRAGS>(ctx);
    let packet = match parse(&frame) {
        Parsed::NonIp => return Verdict { reason: Reason::NonIp, charged: 0 }.settle(bytes),
        Parsed::Unreadable => None,
        Parsed::Ip(packet) => Some(packet),
    };
    limit(bytes, packet.as_ref()).settle(bytes)
}

/// Asks the limits of the source of a packet; `None` is a frame whose source cannot be read.
#[inline(always)]
fn limit(bytes: u64, packet: Option<&Packet>) -> Verdict {
    // Settled here, so that the verifier need not follow each way through the parser to the end.
    let applicable = u64::from(black_box(applicable(packet) as u8));
    let conform = black_box(packet.map_or(Reason::Unreadable, Reason::conform));
    let Some(entry) = source(packet) else {
        return Verdict { reason: Reason::Contended, charged: 0 };
    };
    let plan = entry.plan;
    let applies = plan.active & applicable;
    let connection = match packet {
        Some(packet) if applies & Limit::Connection.bit() != 0 => packet.connection(),
        _ => ConnectionKey::default(),
    };
    let decision = if applies == 0 {
        Ok(())
    } else {
        plan.decide(applies, &mut Buckets { entry: &entry, connection: &connection }, clock::now())
    };
    let verdict = match decision {
        Ok(()) => Verdict { reason: conform, charged: applies },
        Err(reason) => Verdict { reason, charged: 0 },
    };
    entry.account(verdict.reason.drops(), bytes);
    verdict
}

/// The entry of the source of a packet, under the policy in force.
#[inline(always)]
fn source(packet: Option<&Packet>) -> Option<SourceEntry> {
    let epoch = EPOCH.get_ptr(0)?;
    // SAFETY: an aligned word of an array map; the controller writes it whole. It is read once, so
    // that the packet sees one policy.
    let epoch = unsafe { epoch.read_volatile() } as u32;
    let settings = SETTINGS.get(epoch & 1)?;
    let address = match packet {
        Some(packet) => packet.source.masked(&settings.mask),
        None => Address::NONE,
    };
    SourceEntry::find(&address, epoch, settings)
}

/// The limits that are about such a packet. What cannot be read counts as what it could be.
#[inline(always)]
const fn applicable(packet: Option<&Packet>) -> u64 {
    match packet {
        Some(packet) if packet.may_open() => {
            Limit::Source.bit() | Limit::Connection.bit() | Limit::Syn.bit()
        }
        Some(_) => Limit::Source.bit() | Limit::Connection.bit(),
        None => Limit::Source.bit() | Limit::Syn.bit(),
    }
}

/// Where the words of a packet's buckets are.
struct Buckets<'a> {
    entry: &'a SourceEntry,
    connection: &'a ConnectionKey,
}

impl State for Buckets<'_> {
    type Word = Cell;

    #[inline(always)]
    fn find(&mut self, limit: Limit) -> Option<Cell> {
        match limit {
            Limit::Syn | Limit::Source => Some(self.entry.cell(limit)),
            Limit::Connection => entry::connection(self.connection, self.entry),
        }
    }

    #[inline(always)]
    fn create(&mut self, limit: Limit) -> Option<Cell> {
        match limit {
            Limit::Syn | Limit::Source => None,
            Limit::Connection => entry::create_connection(self.connection, self.entry),
        }
    }
}
