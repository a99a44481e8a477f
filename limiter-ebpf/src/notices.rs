//! Telling of sources that begin to be over their limits, and of those that are blocked.

use aya_ebpf::bindings::BPF_RB_NO_WAKEUP;
use limiter_common::{
    contract::half,
    limit::Limit,
    notice::{Notice, Telling, kind},
    word::Word as _,
};

use crate::{
    cell::Plain,
    maps::{LIMITS, NOTICED, NOTICES, SLOT},
    seat::Seat,
    subject::Subject,
};

/// Notes that the subject is over a limit, and tells of it if that is something new.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn note_refusal() -> u32 {
    let Some(subject) = Subject::get() else { return 0 };
    // Of sources that share an entry, nothing can be told of one.
    let Some((episode, dropped)) = Seat(subject.seat).episode(subject.binding) else { return 0 };
    let monitored = subject.refusing.bit & (subject.monitored() | !subject.bill.refused) != 0;
    let telling = episode.refuse(subject.time.now, monitored);
    if telling != Telling::Nothing {
        let kind = if monitored { kind::MONITORED } else { kind::LIMITED };
        tell(subject, &dropped, kind, telling == Telling::GoesOn);
    }
    if subject.refusing.until != 0 {
        tell(subject, &dropped, kind::BLOCKED, false);
    }
    0
}

/// Tells what happened to the source of the subject, or counts it only.
#[inline(always)]
fn tell(subject: &Subject, dropped: &Plain, kind: u16, again: bool) {
    let Some(noticed) = NOTICED.get_ptr_mut(0) else { return };
    // SAFETY: a map value of this CPU, which no other program writes meanwhile: XDP runs to its end on a
    // CPU before the next packet.
    let noticed = unsafe { &mut *noticed };
    let refusing = &subject.refusing;
    let row = half(subject.binding.epoch(), Limit::row(refusing.bit));
    let now = subject.time.now;
    let told = noticed.spend(now, kind, again)
        && LIMITS.get(row).is_some_and(|limit| {
            let notice = Notice {
                time: now,
                until: if kind == kind::BLOCKED { refusing.until } else { 0 },
                dropped: dropped.load(),
                source: subject.source,
                slot: SLOT.load(),
                tally: limit.tally,
                kind,
                again: again.into(),
            };
            // Who reads looks by itself: to wake it would cost more than to tell.
            NOTICES.output::<Notice>(&notice, BPF_RB_NO_WAKEUP.into()).is_ok()
        });
    if again {
        return;
    }
    if let Some(happened) = noticed.happened.get_mut(usize::from(kind)) {
        *happened += 1;
    }
    if !told && let Some(left_out) = noticed.left_out.get_mut(usize::from(kind)) {
        *left_out += 1;
    }
}
