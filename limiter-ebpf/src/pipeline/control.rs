//! Steps before the source is looked up: packets that are nested too deep, control traffic of the link, which has budgets
//! of its own, fragments, and frames that are not IP.

use limiter_common::{
    abi::policy::{flag, half},
    algorithm::policer::Look,
    base::word::{RACES, Word as _},
    packet::{control::Protocol, reason::Reason},
    policy::control::{self, NON_IP_ROW, ROWS},
};

use crate::{
    history::fragments::follow_fragment,
    kernel::{
        atomics::MapWord,
        barrier::black_box,
        clock,
        maps::{CONTROL, CONTROL_LINKS, CONTROL_SOURCES, packet_slot},
        scratch::{PacketScratch, lose_race},
    },
    policy::{active::ActivePolicy, verdict::Verdict},
};

/// Decides about the packet if it is too deep, control traffic that has a budget, or a first fragment that contradicts
/// another. Returns the place of the reason, or that of [`Verdict::OPEN`] for an ordinary packet. A later fragment gets what
/// its first one said.
///
/// The kernel verifies it by itself: few packets come here.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn decide_early() -> u32 {
    let (Some(scratch), Some(policy)) = (PacketScratch::get(), ActivePolicy::get()) else {
        return Verdict::OPEN.0 as u32;
    };
    let verdict = if scratch.conform == Reason::TooDeep.index() as u64 {
        refuse(Reason::TooDeep, &policy)
    } else if let Some(verdict) = decide(scratch, &policy) {
        verdict
    } else if scratch.packet.fragment.0 != 0 && policy.settings.flags & flag::FRAGMENTS != 0 {
        match follow_fragment(policy.epoch) {
            0 => Verdict::OPEN,
            _ => refuse(Reason::Overlap, &policy),
        }
    } else {
        Verdict::OPEN
    };
    verdict.0 as u32
}

/// Decides about a frame that is neither IP nor of a protocol of the link, and gives the place of the reason.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn decide_non_ip() -> u32 {
    let verdict = match non_ip() {
        Some(verdict) => verdict,
        None => Verdict::new(Reason::NonIp),
    };
    verdict.0 as u32
}

/// The verdict of the budget of such frames; `None` if there is none.
#[inline(always)]
fn non_ip() -> Option<Verdict> {
    let (policy, slot) = (ActivePolicy::get()?, packet_slot());
    let budgets = CONTROL.get(half(policy.epoch, slot))?;
    if !budgets.limits_non_ip() {
        return None;
    }
    let links = CONTROL_LINKS.get_ptr_mut(slot)?;
    // SAFETY: a map value that was just looked up; the row is within it, and its words are aligned.
    let word = unsafe { MapWord::new((&raw mut (*links)[NON_IP_ROW]).cast()) };
    for _ in 0..=RACES {
        let seen = word.load();
        let Some(next) = control::charge(&budgets.non_ip, seen, clock::now()) else {
            return Some(refuse(Reason::NonIpExceed, &policy));
        };
        if (Look { seen, next }).commit(word).is_ok() {
            return Some(Verdict::new(Reason::NonIp));
        }
        if lose_race(RACES) == 0 {
            break;
        }
    }
    Some(refuse(Reason::Contended, &policy))
}

/// The place of the packet's protocol in [`Protocol::ALL`]; one that is not there, for an ordinary packet.
///
/// The kernel verifies it by itself, and so knows nothing of the protocol where the budgets are charged: it would follow
/// each protocol through that.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn control_protocol() -> u32 {
    let protocol = PacketScratch::get().and_then(|scratch| Protocol::of(&scratch.packet));
    protocol.map_or(ROWS as u32, |protocol| protocol as u32)
}

/// The verdict on control traffic that has a budget; `None` for an ordinary packet.
#[inline(always)]
fn decide(scratch: &PacketScratch, policy: &ActivePolicy) -> Option<Verdict> {
    // The compiler knows what is given, and would compare with that alone: the verifier has to see the bound.
    let protocol = *Protocol::ALL.get(black_box(control_protocol() as usize))?;
    let slot = packet_slot();
    let budgets = CONTROL.get(half(policy.epoch, slot))?;
    if !budgets.is_on(protocol) {
        return None;
    }
    // For a host that asks for its address, the budget of the link is charged alone.
    let place = control::place(&scratch.packet, protocol, policy.settings.seed);
    for _ in 0..=RACES {
        match charge_control(policy.epoch, protocol as u32, place.unwrap_or(control::SOURCES)) {
            CHARGED => return Some(Verdict::new(Reason::Control)),
            EXCEEDS => return Some(refuse(Reason::ControlExceed, policy)),
            _ if lose_race(RACES) == 0 => break,
            _ => {}
        }
    }
    Some(refuse(Reason::Contended, policy))
}

const CHARGED: u32 = 0;
const EXCEEDS: u32 = 1;
const CONTENDED: u32 = 2;

/// Charges a packet of a protocol to its budget of the link, and to that of the source with the word at a place, unless that
/// is [`control::SOURCES`]. A packet that one budget refuses is charged to neither.
///
/// The kernel verifies it by itself, and not once for each try.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn charge_control(epoch: u32, protocol: u32, place: u32) -> u32 {
    charge_both(epoch, protocol, place).unwrap_or(CONTENDED)
}

#[inline(always)]
fn charge_both(epoch: u32, protocol: u32, place: u32) -> Option<u32> {
    let slot = packet_slot();
    let protocol = *Protocol::ALL.get(black_box(protocol as usize))?;
    let budgets = CONTROL.get(half(epoch, slot))?;
    let links = CONTROL_LINKS.get_ptr_mut(slot)?;
    // The compiler knows that it is one of them, and the verifier does not.
    let row = black_box(protocol as usize) & (ROWS - 1);
    // SAFETY: map values that were just looked up; the row is within the first, and their words are aligned.
    let (link, source) = unsafe {
        (
            MapWord::new((&raw mut (*links)[row]).cast()),
            MapWord::new(CONTROL_SOURCES.get_ptr_mut(place)?),
        )
    };
    let now = clock::now();
    let (seen, source_seen) = (link.load(), source.load());
    let Some(next) = control::charge(&budgets.link, seen, now) else { return Some(EXCEEDS) };
    // A word of nobody stays as it is: Linux 6.1 does not see that a pointer which may not be there is not used then.
    let source_next = if place == control::SOURCES {
        source_seen
    } else {
        match control::charge(budgets.of_source(protocol), source_seen, now) {
            Some(next) => next,
            None => return Some(EXCEEDS),
        }
    };
    (Look { seen, next }).commit(link).ok()?;
    if (Look { seen: source_seen, next: source_next }).commit(source).is_ok() {
        return Some(CHARGED);
    }
    // Another CPU was first. If one moved the word of the link too, a packet of its budget is lost.
    let _: Result<(), u64> = Look { seen: next, next: seen }.commit(link);
    None
}

/// The verdict on a packet that is dropped for this reason, unless nothing is.
#[inline(always)]
fn refuse(reason: Reason, policy: &ActivePolicy) -> Verdict {
    Verdict::new(if policy.monitors() != 0 { Reason::Monitor } else { reason })
}
