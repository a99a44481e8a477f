//! Deciding about any packet, limit by limit.

use aya_ebpf::bindings::xdp_md;
use limiter_common::{
    abi::{policy::Settings, table::Source},
    packet::reason::Reason,
};

use crate::{
    history::handshakes::record_syn,
    kernel::{clock, scratch::PacketScratch},
    limits::{
        counters::{self, Outcomes},
        inline::{self, Inline, refund_inline},
        keyed::{self, refund_keyed},
    },
    pipeline::{classify::classify_again, lease, lists::drop_by_limit},
    policy::{
        active::{self, ActivePolicy},
        verdict::Verdict,
    },
    table::entry::SourceEntry,
};

/// Decides about the packet, under one policy, and gives the place of the reason.
///
/// One that stays undecided ([`Reason::Contended`]) is counted nowhere: its source has no entry yet
/// that is bound to the policy, or other CPUs came first at its state. What it was charged is taken
/// back, but from state that a swap carries over at that very moment: at most one packet per CPU and
/// swap is charged there twice. As this is verified by itself, it can be called as often as it takes. It is given the entry of
/// the packet: with a map value that it looks up itself, twice the instructions are verified, and there is no room on the stack.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn decide_packet(ctx: *mut xdp_md, source: *mut Source) -> u32 {
    let (false, Some(scratch), Some(policy)) =
        (source.is_null(), PacketScratch::get(), ActivePolicy::get())
    else {
        return Verdict::new(Reason::Contended).0 as u32;
    };
    scratch.monitor = policy.monitors();
    limit(ctx, source, scratch, &policy).0 as u32
}

/// Decides about a packet by its source.
#[inline(always)]
fn limit(
    ctx: *mut xdp_md,
    source: *mut Source,
    scratch: &mut PacketScratch,
    policy: &ActivePolicy,
) -> Verdict {
    if scratch.classified != policy.epoch.into() {
        classify_again(policy.epoch);
    }
    // Other parts of the program wrote to it.
    let scratch = scratch.reread();
    scratch.find_source(&policy.settings.mask);
    // SAFETY: the caller looked it up in this run.
    let Some(entry) = (unsafe { SourceEntry::found(source, scratch, policy.epoch) }) else {
        return Verdict::new(Reason::Contended);
    };
    // Also if no limit is about the packet. It is asked before the decision: a branch behind that doubles what the verifier
    // follows.
    (scratch.binding, scratch.may_prove) = (entry.binding, entry.awaits_proof().into());
    let verdict = decide(ctx, scratch, policy.settings, &entry);
    let scratch = scratch.reread();
    let verdict = if scratch.monitors() { verdict.monitored() } else { verdict };
    if verdict.is_decided() {
        entry.account(verdict.drops(), scratch.bytes);
    }
    verdict
}

/// Decides about a packet of a source with an entry.
#[inline(always)]
fn decide(
    ctx: *mut xdp_md,
    scratch: &mut PacketScratch,
    settings: &Settings,
    entry: &SourceEntry,
) -> Verdict {
    // Before the time of a charge is known, so that what is leased is not used for a tick too long.
    (scratch.lease_tick, scratch.leased, scratch.may_lease) = (clock::number(), 0, 0);
    let profile = entry.profile;
    let applies = profile.limits & scratch.applicable;
    let blocked = entry.blocked();
    if applies | u64::from(profile.listed) | blocked == 0 {
        return Verdict(scratch.conform);
    }
    let now = clock::now();
    if let Some(reason) = profile.standing(blocked, now) {
        return Verdict::new(reason);
    }
    if applies == 0 {
        return Verdict(scratch.conform);
    }
    let drops = applies & settings.drops;
    if drops != 0 {
        return drop_by_limit(scratch, entry.binding.epoch(), drops);
    }

    if applies & settings.keyed != 0 {
        lease::plan_lease(scratch, entry, settings, applies);
    }
    scratch.open_bill(applies, settings.enforced);
    if applies & !settings.unit != 0 {
        scratch.classify_cost();
    }
    scratch.set_time(now);
    let scratch = scratch.reread();
    scratch.tenant = profile.tenant;
    inline::look_at_all(&mut Inline {
        entry,
        places: entry.places(),
        settings,
        scratch: scratch.reread(),
    });
    if by_key(scratch, settings) != 0 {
        keyed::look::<true>(ctx, by_key(scratch, settings));
        if scratch.reread().leased() != 0 && lease::may_be_leased() == 0 {
            return charge_alone(scratch.reread());
        }
    }
    if scratch.reread().bill.refused == 0 {
        if by_key(scratch, settings) != 0 {
            keyed::charge::<true>(ctx);
        }
        if scratch.reread().bill.refused == 0 {
            inline::charge_all(&mut Inline {
                entry,
                places: entry.places(),
                settings,
                scratch: scratch.reread(),
            });
        }
        // A lease is charged to all limits of the packet or to none.
        if scratch.reread().leased() != 0 && scratch.reread().bill.uncharged() != 0 {
            scratch.reread().bill.give_up();
        }
        if scratch.reread().bill.refused != 0 {
            refund_inline();
            if by_key(scratch, settings) != 0 {
                refund_keyed();
            }
        }
    }

    let scratch = scratch.reread();
    let bill = scratch.bill;
    if bill.refused != 0 && scratch.leased() != 0 {
        return charge_alone(scratch);
    }
    let reason = bill.reason(Reason::Conform);
    if reason == Reason::Contended {
        return Verdict::new(reason);
    }
    let conform = if bill.refused == 0 { bill.charged } else { 0 };
    let monitored = bill.monitored() | bill.refused & scratch.monitored();
    let exceed = bill.refused & !monitored;
    let outcomes = Outcomes { conform, exceed, monitored };
    counters::count_inline(settings, &outcomes, scratch.bytes);
    // Read again: there is no room on the stack for what was read before the decision.
    let of = active::hide_provenance(settings).keyed;
    if outcomes.all() & of != 0 {
        counters::count_keyed(scratch.binding.epoch(), conform & of, exceed & of, monitored & of);
    }
    if bill.refused == 0 {
        // The next ones would not be counted by that limit either.
        if bill.uncharged() != 0 {
            scratch.reread().may_lease = 0;
        }
        let near = bill.near & bill.charged;
        if near != 0 {
            counters::count_near(scratch.binding.epoch(), near);
        }
        scratch.refusing.begin(monitored & monitored.wrapping_neg());
        if bill.charged & settings.connections != 0 {
            record_syn(bill.charged & settings.connections);
        }
        return Verdict(scratch.conform);
    }
    scratch.may_lease = 0;
    scratch.refusing.begin(bill.refused);
    scratch.refused = bill.refused;
    Verdict::new(reason)
}

/// The limits with keys of their own that are about the packet. They are read from where they were written: of what is kept,
/// the verifier would follow none and some to the end.
#[inline(always)]
fn by_key(scratch: &mut PacketScratch, settings: &Settings) -> u64 {
    scratch.reread().bill.applies & settings.keyed
}

/// Gives up a lease: the packet is decided about anew at once, and charged alone.
#[inline(always)]
fn charge_alone(scratch: &mut PacketScratch) -> Verdict {
    (scratch.leased, scratch.may_lease, scratch.lease_lost) = (0, 0, 1);
    Verdict::OPEN
}
