//! Open connections: a map from connection to the time of its last packet.

use std::collections::HashMap;

/// What a packet tells about its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// The packet opens it (SYN).
    Open,
    /// The packet carries data.
    Data,
    /// One side has closed it (FIN).
    Finish,
    /// It was reset (RST).
    Reset,
}

/// At most so many open connections at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connections {
    limit: u64,
    idle: u64,
    open: HashMap<u64, Open>,
}

/// A tracked connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    /// The time of its last update, in units of [`Connections::TICK`].
    kept: u64,
    closing: bool,
}

impl Connections {
    /// The unit of stored times, in nanoseconds.
    const TICK: u64 = 1 << 24;
    /// The idle time, in nanoseconds, after which a closing connection may be dropped.
    const CLOSING: u64 = 10_000_000_000;

    /// A limit of `limit` open connections, each of which is forgotten after `idle` nanoseconds without a
    /// packet.
    #[must_use]
    pub fn new(limit: u64, idle: u64) -> Self {
        Self { limit, idle, open: HashMap::new() }
    }

    /// Decides about a packet of a connection at `now`, in nanoseconds. `now` must not go back.
    pub fn take(&mut self, now: u64, connection: u64, says: Says) -> bool {
        self.expire(now, [false, false]);
        let tick = now / Self::TICK;
        let Some(open) = self.open.get(&connection).copied() else {
            if says == Says::Reset {
                return true;
            }
            if self.open.len() as u64 >= self.limit {
                // Closing connections only give up their slots, after the shorter silence, when a new one
                // needs room.
                self.expire(now, [false, true]);
            }
            let room = (self.open.len() as u64) < self.limit;
            if room {
                let new = Open { kept: tick, closing: says == Says::Finish };
                self.open.insert(connection, new);
            }
            return room;
        };
        let closing = match says {
            Says::Open => false,
            Says::Finish | Says::Reset => true,
            _ => open.closing,
        };
        // A stored time is refreshed only when it is older than an eighth of the idle time.
        let old = tick - open.kept > self.silence(closing) / 8 / Self::TICK;
        let kept = if closing != open.closing || old { tick } else { open.kept };
        self.open.insert(connection, Open { kept, closing });
        true
    }

    fn silence(&self, closing: bool) -> u64 {
        if closing { self.idle.min(Self::CLOSING) } else { self.idle }
    }

    /// Removes connections that were silent for too long. `closing` says which idle time applies to open and
    /// to closing connections: true for the shorter one.
    fn expire(&mut self, now: u64, closing: [bool; 2]) {
        let lives = closing.map(|closing| {
            let silence = self.silence(closing);
            silence / Self::TICK + silence / 8 / Self::TICK + 2
        });
        self.open
            .retain(|_, open| now / Self::TICK <= open.kept + lives[usize::from(open.closing)]);
    }
}
