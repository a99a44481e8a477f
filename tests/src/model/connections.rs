//! Open connections: a set of them.

use std::collections::HashMap;

/// What a packet says of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// It begins.
    Open,
    /// It goes on.
    Data,
    /// One side is done.
    Finish,
    /// It is over.
    Reset,
}

/// So many connections at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connections {
    limit: u64,
    idle: u64,
    open: HashMap<u64, Open>,
}

/// A connection that has a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    /// The tick that its place says.
    kept: u64,
    closing: bool,
}

impl Connections {
    /// The unit of the times that are kept, in nanoseconds.
    const TICK: u64 = 1 << 24;
    /// The silence, in nanoseconds, that is allowed to one that is closing.
    const CLOSING: u64 = 10_000_000_000;

    /// No connections, of at most `limit` that may be silent for `idle` nanoseconds.
    #[must_use]
    pub fn new(limit: u64, idle: u64) -> Self {
        Self { limit, idle, open: HashMap::new() }
    }

    /// How many there are at `now`.
    pub fn open(&mut self, now: u64) -> u64 {
        self.expire(now);
        self.open.len() as u64
    }

    /// Decides about a packet of a connection at `now`; time does not go back.
    pub fn take(&mut self, now: u64, connection: u64, says: Says) -> bool {
        self.expire(now);
        if says == Says::Reset {
            self.open.remove(&connection);
            return true;
        }
        let (tick, room) = (now / Self::TICK, (self.open.len() as u64) < self.limit);
        let Some(open) = self.open.get(&connection).copied() else {
            if room {
                let new = Open { kept: tick, closing: says == Says::Finish };
                self.open.insert(connection, new);
            }
            return room;
        };
        let closing = match says {
            Says::Open => false,
            Says::Finish => true,
            _ => open.closing,
        };
        // A time is moved only when it is an eighth of the silence old.
        let old = tick - open.kept > self.silence(closing) / 8 / Self::TICK;
        let kept = if closing != open.closing || old { tick } else { open.kept };
        self.open.insert(connection, Open { kept, closing });
        true
    }

    fn silence(&self, closing: bool) -> u64 {
        if closing { self.idle.min(Self::CLOSING) } else { self.idle }
    }

    fn expire(&mut self, now: u64) {
        let lives = [false, true].map(|closing| {
            let silence = self.silence(closing);
            silence / Self::TICK + silence / 8 / Self::TICK + 2
        });
        self.open
            .retain(|_, open| now / Self::TICK <= open.kept + lives[usize::from(open.closing)]);
    }
}
