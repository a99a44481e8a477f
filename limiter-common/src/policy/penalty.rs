//! Sources that stay over a limit, blocked for a time.
//!
//! **What happens before what.** Words of an [`Offence`] are moved by exchanges. A new block stores its end last, and its
//! begin before that. Whoever reads a block loads the begin by an acquire load, and the end after it. So it never takes the
//! end of an older block together with the begin of a newer one.

use crate::{
    algorithm::binding::Binding,
    base::word::Word,
    packet::{
        headers::{Anomaly, Fragment, Packet, TcpFlags},
        protocol::{ACK, TCP},
    },
};

/// What happens to a source that stays over a limit; all zero when nothing does.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Penalty {
    /// Nanoseconds for which a source has to be over the limit, at least 1; 0 for no penalty.
    pub after: u64,
    /// Nanoseconds for which it is blocked then, at most [`Penalty::LONGEST`].
    pub block: u64,
    /// The longest block, in nanoseconds, at most [`Penalty::LONGEST`].
    pub most: u64,
    /// By what each block is longer than the one before, 1 to [`Penalty::STEEPEST`].
    pub backoff: u64,
    /// Which limit it is of: the [`limit_id`](crate::policy::limit::Limit::limit_id) of the layer that it began with.
    pub limit: u32,
    /// 1 when packets count that nothing [proves](Evidence), otherwise 0.
    pub unproven: u32,
}

/// What can prove that a packet was sent from its source address, and not forged: a handshake that was completed from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Nothing.
    None,
    /// It is a SYN: packets of the connection that it opens.
    Follows,
    /// It is a segment of a connection: the socket of that, if this host has a full one.
    Socket,
}

impl Evidence {
    /// States of a full socket, of `include/net/tcp_states.h`, as bits: ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT,
    /// LAST_ACK and CLOSING. A socket that listens, a request and one in TIME_WAIT prove nothing of a packet.
    const FULL: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;

    /// What can prove a packet.
    #[inline(always)]
    pub const fn of(packet: &Packet) -> Self {
        if packet.protocol != TCP
            || !matches!(packet.fragment.get(), Fragment::Whole)
            || !matches!(packet.anomaly, Anomaly::None)
        {
            return Self::None;
        }
        match packet.tcp_flags.get() {
            Some(flags) if TcpFlags::open(flags) => Self::Follows,
            // Every segment of an open connection has an ACK, but some resets.
            Some(flags) if flags & ACK != 0 => Self::Socket,
            _ => Self::None,
        }
    }

    /// Whether a socket in this state, of `include/net/tcp_states.h`, proves the segments of its connection.
    #[inline(always)]
    pub const fn is_full(state: u32) -> bool {
        state < u32::BITS && Self::FULL >> state & 1 != 0
    }
}

/// What is known of a source that was over a limit; all zero at first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offence<W = u64> {
    /// When it began to be over it without a rest, in nanoseconds; 0 when it is not.
    pub began: W,
    /// When it was last over it.
    pub last: W,
    /// Since when it is blocked for that, or was.
    pub since: W,
    /// Until when, by the penalty that it was blocked under; see [`Penalty::until`]. It is read after
    /// `since`.
    pub blocked: W,
    /// How many blocks came without a rest of [`Penalty::most`] between them.
    pub blocks: W,
}

impl Penalty {
    /// The [`limit`](Self::limit) of blocks that a process pushed. No limit has it.
    pub const PUSHED: u32 = u32::MAX;
    /// The longest block: 366 days.
    pub const LONGEST: u64 = 366 * 24 * 3600 * 1_000_000_000;
    /// The steepest back-off.
    pub const STEEPEST: u64 = 10;
    /// A source that is refused nothing for so long, in nanoseconds, and for `after`, is no longer over
    /// the limit.
    pub const REST: u64 = 1_000_000_000;
    /// After so many blocks they grow no further.
    const DOUBLINGS: u32 = 16;

    /// So long without a refusal, in nanoseconds, and a source is no longer over the limit.
    #[inline(always)]
    pub const fn rest(&self) -> u64 {
        if self.after > Self::REST { self.after } else { Self::REST }
    }

    /// Until when a block is one that was made at `since`, to end at `blocked`, in nanoseconds: if that
    /// was under another penalty, it is no longer than the longest of this one.
    #[inline(always)]
    pub const fn until(&self, since: u64, blocked: u64) -> u64 {
        let most = since + self.most;
        if blocked < most { blocked } else { most }
    }

    /// How long block number `blocks` is, from 1 on.
    #[inline(always)]
    pub const fn length(&self, blocks: u64) -> u64 {
        let mut length = self.block;
        let mut left = blocks;
        let mut step = 0;
        while step < Self::DOUBLINGS {
            step += 1;
            if left > 1 && length < self.most {
                length *= self.backoff;
                left -= 1;
            }
        }
        if length < self.most { length } else { self.most }
    }

    /// Notes that a packet of a source was over the limit at `now` (nanoseconds), and blocks it if it
    /// has been over it for long enough. Of several CPUs that find that, one does it. Gives until
    /// when it is blocked, or was.
    ///
    /// The offence is about this limit alone, so nothing that is done to another saves who stays
    /// over it, nor makes it worse.
    #[inline(always)]
    pub fn exceed<W: Word>(&self, offence: &Offence<W>, now: u64) -> u64 {
        self.exceed_from(offence, now, now, now)
    }

    /// The same of a source that is found at `now` to have been over the limit from `from` to `to`, without a rest in
    /// between: both are at most `now`, in nanoseconds.
    ///
    /// What lies before the end of its last block was paid for by that, and what lies before the time that the offence
    /// knows of, with a rest between them, is forgotten. So the same time can be noted twice, and times in any order.
    #[inline(always)]
    pub fn exceed_from<W: Word>(&self, offence: &Offence<W>, from: u64, to: u64, now: u64) -> u64 {
        let [began, last] = [&offence.began, &offence.last].map(Word::load);
        let (since, blocked) = (offence.since.load_acquire(), offence.blocked.load());
        let until = self.until(since, blocked);
        if to < until {
            return until;
        }
        let from = if from < until { until } else { from };
        let from = if from == 0 { 1 } else { from };
        if began != 0 && is_later(began, now, 0) {
            // The clock went back.
            set(&offence.last, last, to);
            return until;
        }
        let (first, latest) = if began == 0 || is_later(from, last, self.rest()) {
            (from, to)
        } else if is_later(began, to, self.rest()) {
            return until;
        } else {
            (
                if is_later(began, from, 0) { from } else { began },
                if is_later(last, to, 0) { last } else { to },
            )
        };
        set(&offence.last, last, latest);
        if first != began && !set(&offence.began, began, first) {
            return until;
        }
        let time = latest.wrapping_sub(first);
        if (time as i64) < self.after as i64 || !set(&offence.began, first, 0) {
            return until;
        }
        let blocks = offence.blocks.load();
        let rested = is_later(now, until, self.most);
        let number = if rested { 1 } else { blocks + 1 };
        set(&offence.blocks, blocks, number);
        let end = now + self.length(number);
        // Who reads when it began, and then until when it is, sees the block before, one that is over, or
        // this one, perhaps cut as if it had begun with the one before: never a longer one.
        set(&offence.blocked, blocked, now);
        set(&offence.since, since, now);
        set(&offence.blocked, now, end);
        end
    }
}

/// Whether a time is later than another by more than so many nanoseconds.
#[inline(always)]
const fn is_later(time: u64, other: u64, by: u64) -> bool {
    time.wrapping_sub(other) as i64 > by as i64
}

/// A block as the entry of a source has it: until when the source is blocked, and the
/// [`version_tag`](Binding::version_tag) of the binding under which that was found. Whoever decides under another
/// one neither goes by it nor changes it, so that no block outlives the binding of the entry that it
/// was made under.
///
/// Beside it is noted whether a SYN of the source was refused that a connection may [follow](Evidence::Follows).
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block(pub u64);

impl Block {
    /// The low bits, which are those of the mark; times are exact to 256 ns.
    const VERSION_TAG: u64 = 0xff;
    /// The bit of a source of which such a SYN was refused. Times, in nanoseconds, have none as high for 292 years.
    pub const AWAITS_PROOF: u64 = 1 << 63;

    /// One until then, in nanoseconds; 0 for none.
    #[inline(always)]
    pub const fn new(until: u64, binding: Binding) -> Self {
        Self(until & !Self::VERSION_TAG | binding.version_tag() as u64)
    }

    /// Until when it is one under a binding, in nanoseconds, or was; 0 if it never was, or if one that is over was
    /// [forgotten](Self::forget).
    #[inline(always)]
    pub const fn until(self, binding: Binding) -> u64 {
        self.state(binding) & !Self::AWAITS_PROOF
    }

    /// Whether a proof is awaited of what its source did under a binding.
    #[inline(always)]
    pub const fn awaits_proof(self, binding: Binding) -> bool {
        self.state(binding) & Self::AWAITS_PROOF != 0
    }

    /// What there is of it under a binding; 0 if there is neither a block nor a proof that is awaited.
    #[inline(always)]
    pub const fn state(self, binding: Binding) -> u64 {
        let state = self.0 & !Self::VERSION_TAG;
        if state != 0 && self.is_under(binding) { state } else { 0 }
    }

    /// Whether it was found under a binding.
    #[inline(always)]
    pub const fn is_under(self, binding: Binding) -> bool {
        (self.0 ^ binding.version_tag() as u64) & Self::VERSION_TAG == 0
    }

    /// Makes the block in a word one until then at least, in nanoseconds, if it is of this binding.
    /// Where another CPU moves the word just now, the next packet that is refused does it. Whether it
    /// was made longer.
    #[inline(always)]
    pub fn extend<W: Word>(word: &W, until: u64, binding: Binding) -> bool {
        let seen = word.load();
        let block = seen & Self::AWAITS_PROOF | Self::new(until, binding).0;
        Self(seen).is_under(binding) && seen < block && set(word, seen, block)
    }

    /// Forgets the block in a word if it is of this binding and over at `now`, in nanoseconds. So no packet after that
    /// reads the clock for it. Where another CPU moves the word just now, the next packet does it.
    #[inline(always)]
    pub fn forget<W: Word>(word: &W, now: u64, binding: Binding) {
        let seen = word.load();
        let until = Self(seen).until(binding);
        if until != 0 && until <= now {
            set(word, seen, seen & (Self::AWAITS_PROOF | Self::VERSION_TAG));
        }
    }

    /// Notes in a word that a proof is awaited, or that none is any more, if it is of this binding. Where another CPU
    /// moves the word just now, the next packet does it.
    #[inline(always)]
    pub fn await_proof<W: Word>(word: &W, awaits: bool, binding: Binding) {
        let seen = word.load();
        let next = seen & !Self::AWAITS_PROOF | if awaits { Self::AWAITS_PROOF } else { 0 };
        if Self(seen).is_under(binding) && seen != next {
            set(word, seen, next);
        }
    }
}

/// Stores a value if nobody else did meanwhile.
#[inline(always)]
fn set<W: Word>(word: &W, seen: u64, new: u64) -> bool {
    word.compare_exchange(seen, new) == seen
}
