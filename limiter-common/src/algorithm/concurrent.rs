//! Leases: how many connections a key has open.
//!
//! A connection holds a slot while packets of it come. It loses the slot by silence. New connections
//! take slots in the first `limit` places only, so the limit holds whatever races. Where a limit was
//! lowered, connections beyond it keep their places, and new ones get in when fewer than the limit are
//! open; then, who claims at once with others counts again, and gives up if that makes too many.
//!
//! A FIN or a reset frees no slot, because nobody knows whether the host takes it for true: it only
//! marks the slot as [closing](Concurrent::is_due). Who finds the table full has the sockets of closing
//! connections looked up. A slot is free when there is no socket. A connection whose socket is not on
//! this host loses its slot then, but only after a shorter silence; so does one of which nobody knows any
//! more by what to look its socket up. One that its owner has not closed has its slot, whatever the other
//! side says.
//!
//! A packet of a connection without a slot takes one, unless it resets. Connections are told apart by
//! 30 bits of a hash; two that share them share a slot, so one more may get in for each 2^30 / limit
//! that try.
//!
//! The time of the last packet is kept in ticks of 2^24 ns (16.8 ms) and only moved when it is older
//! than an eighth of the silence that is allowed. So a slot is lost after a silence longer than that
//! time, and by nine eighths of it and three ticks at the latest. The ticks wrap: what nobody took for
//! 2.3 years looks for a moment as if it was just left.
//!
//! **What happens before what.** A CPU claims a slot by an exchange, which is a full barrier, and loads the other slots after
//! that. Of two CPUs that claim at once, the one whose barrier is later sees the claim of the other one. Loads
//! need no order among each other, as each slot that is acted upon is exchanged.

use crate::{
    algorithm::{
        bounds::{BoundsError, check},
        gcra::Gcra,
        near,
        policer::Refusal,
        sliding_log::SlidingLog,
    },
    base::{
        slots::Slots,
        word::{TRIES, Word},
    },
    packet::headers::Anomaly,
};

mod release;
mod table;

pub use self::table::Table;

/// What a look-up of the exact addresses and ports of a connection finds on this host. A socket that
/// listens is none of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket {
    /// None.
    None,
    /// What is left of one that its owner has closed (LAST_ACK, CLOSING, TIME_WAIT).
    Left,
    /// The connection's own, or its request for one, though the other side may be done with it (CLOSE_WAIT).
    Held,
    /// Nobody can tell: by what to look it up was forgotten.
    Unknown,
}

/// A limit of open connections; made by [`Concurrent::new`]. Its state is [`Concurrent::MOST`] slots, all
/// zero at first, which a change of the limit leaves as they are.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Concurrent {
    /// Open connections, from 1 to [`Concurrent::MOST`]; 0 admits none.
    pub limit: u64,
    /// The silence, in nanoseconds, after which a connection counts as gone, from
    /// [`Concurrent::SHORTEST`] to [`Concurrent::LONGEST`].
    pub idle: u64,
}

/// What a packet says of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// It begins: a SYN without ACK. One that was closing begins anew.
    Open,
    /// It goes on.
    Data,
    /// One side says that it is done: a FIN.
    Finish,
    /// It says that it is over: a RST. It takes no slot.
    Reset,
}

impl Signal {
    /// What a packet says. One that could begin a connection counts as one that does. One that declares no length
    /// ends none: the kernel may drop it.
    #[inline(always)]
    pub const fn of(packet: &crate::packet::headers::Packet) -> Self {
        const FIN: u8 = 0x01;
        const RST: u8 = 0x04;
        let ends = !matches!(packet.anomaly, Anomaly::Unsized);
        match packet.tcp_flags.get() {
            Some(flags) if ends && flags & RST != 0 => Self::Reset,
            _ if packet.may_open() => Self::Open,
            Some(flags) if ends && flags & FIN != 0 => Self::Finish,
            _ => Self::Data,
        }
    }
}

/// The outcome of looking at the table, to be given to [`Concurrent::charge`]; and what that did, to be
/// given to [`Concurrent::refund`] and [`Concurrent::keep_socket`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    place: usize,
    seen: u64,
    next: u64,
    claims: bool,
}

impl Look {
    /// There is nothing to do: a reset of no connection.
    const NOTHING: Self = Self { place: 0, seen: 0, next: 0, claims: false };
    /// Refused, at places that there are not.
    const EXCEED: Self = Self { place: Concurrent::MOST, ..Self::NOTHING };
    const CONTENDED: Self = Self { place: Concurrent::MOST + 1, ..Self::NOTHING };

    /// Whether the connection said with this packet, and not before, that it is done.
    #[inline(always)]
    pub const fn closes(self) -> bool {
        let before = if self.claims { 0 } else { self.seen };
        self.next & !before & Concurrent::CLOSES != 0
    }

    #[inline(always)]
    fn outcome(self) -> Result<Self, Refusal> {
        match self {
            Self::EXCEED => Err(Refusal::Exceed),
            Self::CONTENDED => Err(Refusal::Contended),
            look => Ok(look),
        }
    }
}

/// A packet, as a table sees it.
#[derive(Clone, Copy)]
struct Packet {
    tag: u32,
    signal: Signal,
    /// When it comes.
    tick: u32,
}

impl Concurrent {
    /// The places of a table.
    pub const MOST: usize = 128;
    /// The shortest silence that can be asked for, in nanoseconds.
    pub const SHORTEST: u64 = 1_000_000_000;
    /// The longest, in nanoseconds: 30 days.
    pub const LONGEST: u64 = 30 * 24 * 3600 * 1_000_000_000;
    /// The silence, in nanoseconds, after which a connection that is closing and has no socket on this
    /// host counts as gone, unless that of an open one is shorter.
    pub const CLOSING: u64 = 10_000_000_000;

    /// The leases of `limit` connections that may be silent for `idle` nanoseconds.
    ///
    /// # Errors
    /// Any [`BoundsError`].
    pub const fn new(limit: u64, idle: u64) -> Result<Self, BoundsError> {
        match check((limit, Self::MOST as u64), idle, (Self::SHORTEST, Self::LONGEST)) {
            Ok(()) => Ok(Self { limit, idle }),
            Err(error) => Err(error),
        }
    }

    /// The name of a connection, from a hash of its 5-tuple: 30 bits, never 0.
    #[inline(always)]
    pub const fn tag(hash: u64) -> u32 {
        let tag = (hash >> 34) as u32;
        if tag == 0 { 1 } else { tag }
    }

    /// Looks whether a packet of the connection `tag` conforms at `now` (nanoseconds), and writes
    /// nothing.
    ///
    /// # Errors
    /// [`Refusal::Exceed`] when the connection has no slot and can have none.
    #[inline(always)]
    pub fn look(
        &self,
        slots: &impl Table,
        tag: u32,
        signal: Signal,
        now: u64,
    ) -> Result<Look, Refusal> {
        let packet = Packet { tag, signal, tick: Self::tick(now) };
        self.judge(slots, &packet).outcome()
    }

    /// Charges a packet that conformed at `look`: its connection gets its slot or keeps it.
    ///
    /// What lost a race is looked at anew, at most [`TRIES`] times.
    ///
    /// # Errors
    /// Why it is refused after all; nothing is written then.
    #[inline(always)]
    pub fn charge(
        &self,
        slots: &impl Table,
        look: Look,
        tag: u32,
        signal: Signal,
        now: u64,
    ) -> Result<Look, Refusal> {
        let mut look = look;
        for _ in 0..TRIES {
            if Self::claim(slots, look) && self.settled(slots, look, now) {
                return Ok(look);
            }
            look = self.look(slots, tag, signal, now)?;
        }
        Err(Refusal::Contended)
    }

    /// Charges a packet that conformed at `look`, unless the slot is another's by now; then it is to
    /// be looked at anew, which `false` says. What was claimed has to be [settled](Self::settled).
    #[inline(always)]
    pub fn claim(slots: &impl Slots, look: Look) -> bool {
        look.seen == look.next && !look.claims
            || slots.compare_exchange(look.place, look.seen, look.next) == look.seen
    }

    /// Notes in the word of a key that a packet of it is to be charged at `now` (nanoseconds), before that is done: the key
    /// owes for [`longest`](Self::longest) after the stamp. It is moved when it is older than an eighth of the silence.
    /// `false` if another CPU moved it, or the word is not the key's any more.
    #[inline(always)]
    pub fn stamp(&self, word: &impl Word, now: u64) -> bool {
        let (seen, time) = (word.load(), SlidingLog::begun_at(now));
        let fresh = SlidingLog { limit: 0, window: (self.idle >> 3) + 1 };
        word.bound() && (fresh.owes(seen, now) != 0 || word.compare_exchange(seen, time) == seen)
    }

    /// How long after its [stamp](Self::stamp) a key has a connection at most, in nanoseconds: the stamp may be as old as
    /// that says, and a connection [loses its place](self) by a bit more than its silence.
    #[inline(always)]
    pub const fn longest(&self) -> u64 {
        self.idle + (self.idle >> 2) + (Self::MARGIN << 24)
    }

    /// The silence that this time is the [longest](Self::longest) of.
    pub const fn idle_of(longest: u64) -> u64 {
        let quarters = longest.saturating_sub(Self::MARGIN << 24);
        quarters / 5 * 4 + quarters % 5
    }

    /// Ticks that [`longest`](Self::longest) has beyond what it is rounded from.
    const MARGIN: u64 = 5;

    /// Whether a packet that was just charged at `now` (nanoseconds) stays so; if not, nothing of it is
    /// left, and it is to be looked at anew.
    #[inline(always)]
    pub fn settled(&self, slots: &impl Table, charged: Look, now: u64) -> bool {
        !charged.claims || self.settle(slots, charged.place, charged.next, Self::tick(now))
    }

    /// Whether a packet that was just charged at `now` (nanoseconds) leaves the limit [near].
    /// One of a connection that has its place takes nothing and so never does.
    #[inline(always)]
    pub fn is_near(&self, slots: &impl Table, charged: Look, now: u64) -> bool {
        charged.claims && near::is(slots.open(self.expiry(), Self::tick(now)), self.limit)
    }

    /// Notes that the connection of a packet that was just charged has a socket on this host, or had
    /// one: if it [closes](Look::closes), its slot is free as soon as there is none.
    #[inline(always)]
    pub fn keep_socket(slots: &impl Slots, charged: Look) {
        let with = charged.next | Self::HERE;
        let _: u64 = slots.compare_exchange(charged.place, charged.next, with);
    }

    /// The connection in a slot.
    #[inline(always)]
    pub const fn tag_of(slot: u64) -> u32 {
        (slot >> 34) as u32
    }

    /// Whether the socket of the connection in this slot is to be looked up when no place is free: it
    /// said that it is done, and had a socket on this host then, or was silent for
    /// [`CLOSING`](Self::CLOSING) since.
    #[inline(always)]
    pub const fn is_due(&self, slot: u64, now: u64) -> bool {
        self.due(slot, Self::tick(now)) < 0
    }

    /// Answers for a place that was [due](Self::is_due) with this slot what the look-up found: the
    /// slot is free unless the connection holds its socket, which is given back. That counts as if a
    /// packet had come, and the socket is not looked up again before the next tick. Where nobody
    /// can tell, a connection is as good as one whose socket is elsewhere: it has to be silent for
    /// [`CLOSING`](Self::CLOSING).
    #[inline(always)]
    pub fn answer(
        &self,
        slots: &impl Slots,
        place: usize,
        slot: u64,
        socket: Socket,
        now: u64,
    ) -> bool {
        let next = match socket {
            Socket::Unknown if self.due(slot & !Self::HERE, Self::tick(now)) >= 0 => {
                slot & !Self::HERE
            }
            Socket::Held => {
                let flags = Self::CLOSES | Self::HERE;
                Self::slot(Self::tag_of(slot), flags, Self::tick(now).wrapping_add(1))
            }
            Socket::None | Socket::Left | Socket::Unknown => 0,
        };
        let _: u64 = slots.compare_exchange(place, slot, next);
        next != 0
    }

    /// What a packet of a connection that has this place would do; `None` if it has lost it by now.
    #[inline(always)]
    fn keep(&self, slots: &impl Table, place: usize, packet: &Packet) -> Option<Look> {
        if place >= Self::MOST {
            return None;
        }
        let seen = slots.load(place);
        if Self::tag_of(seen) != packet.tag {
            return None;
        }
        Some(Look { place, seen, next: self.moved(seen, packet), claims: false })
    }

    /// What a packet would do.
    #[inline(always)]
    fn judge(&self, slots: &impl Table, packet: &Packet) -> Look {
        let own = slots.next(self, None, packet.tag, packet.tick);
        if let Some(look) = self.keep(slots, own, packet) {
            return look;
        }
        if let Signal::Reset = packet.signal {
            return Look::NOTHING;
        }
        let place = slots.room(self, packet.tag, packet.tick);
        if place >= Self::MOST {
            // Perhaps another packet of the connection has just taken the last place.
            let own = slots.next(self, None, packet.tag, packet.tick);
            return self.keep(slots, own, packet).unwrap_or(Look::EXCEED);
        }
        let flags = if let Signal::Finish = packet.signal { Self::CLOSES } else { 0 };
        let next = Self::slot(packet.tag, flags, packet.tick);
        let value = slots.load(place);
        // A place that was taken just now is not claimed: what is seen there never was.
        let seen = if Self::live(value, packet.tick, self.silence()) { !value } else { value };
        Look { place, seen, next, claims: true }
    }

    /// Takes back what a packet did that is refused by another limit after all, given what
    /// [`charge`](Self::charge) returned.
    ///
    /// A slot that another packet of the connection has moved since stays. That its socket was
    /// [noted](Self::keep_socket) is taken back too.
    #[inline(always)]
    pub fn refund(slots: &impl Slots, charged: Look) {
        if charged.next != charged.seen {
            let before = if charged.claims { 0 } else { charged.seen };
            if slots.compare_exchange(charged.place, charged.next, before) != charged.next {
                let with = charged.next | Self::HERE;
                let _: u64 = slots.compare_exchange(charged.place, with, before);
            }
        }
    }

    /// The slot of a connection after a packet of it.
    #[inline(always)]
    const fn moved(&self, slot: u64, packet: &Packet) -> u64 {
        let was = slot & Self::CLOSES != 0;
        let closes = match packet.signal {
            Signal::Open => false,
            Signal::Data => was,
            Signal::Finish | Signal::Reset => true,
        };
        let age = Self::age(slot, packet.tick);
        if closes == was && age <= self.times(closes).refresh {
            return slot;
        }
        // A clock that is behind moves no time back.
        let flags = if closes { Self::CLOSES | slot & Self::HERE } else { 0 };
        Self::slot(packet.tag, flags, if age < 0 { slot as u32 } else { packet.tick })
    }

    /// Whether the slot just claimed is kept. It is given up when other CPUs took a slot for the
    /// connection before this place, and they give theirs up behind it: whoever claimed later sees
    /// both. It is given up as well when too many are open, which happens only below a limit that was
    /// lowered: of those who claimed at once the last one sees that.
    #[inline(never)]
    fn settle(&self, slots: &impl Table, mine: usize, claimed: u64, tick: u32) -> bool {
        let tag = Self::tag_of(claimed);
        for _ in 0..Self::TWINS {
            let twin = slots.twin(self, mine, tag, tick);
            if twin >= Self::MOST {
                break;
            }
            let value = slots.load(twin);
            if twin > mine {
                if Self::tag_of(value) == tag {
                    let _: u64 = slots.compare_exchange(twin, value, 0);
                }
                continue;
            }
            // Packets of the connection may have moved it meanwhile.
            let value = slots.load(mine);
            if Self::tag_of(value) != tag || slots.compare_exchange(mine, value, 0) == value {
                return false;
            }
        }
        if slots.open(self.silence(), tick) <= self.limit {
            return true;
        }
        let _: u64 = slots.compare_exchange(mine, claimed, 0);
        false
    }

    /// How often it looks for another slot of the connection: one for each of three CPUs.
    const TWINS: u32 = 2;

    /// How far a slot's time may be ahead of a CPU's, in ticks.
    const TOLERANCE: u32 = (Gcra::TOLERANCE >> 24) as u32 + 1;
}
