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

    /// Decides about a packet of a connection at `now`; time does not go back.
    pub fn take(&mut self, now: u64, connection: u64, says: Says) -> bool {
        self.expire(now, [false, false]);
        let tick = now / Self::TICK;
        let Some(open) = self.open.get(&connection).copied() else {
            if says == Says::Reset {
                return true;
            }
            if self.open.len() as u64 >= self.limit {
                // Those that are closing are asked for their places.
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
        // A time is moved only when it is an eighth of the silence old.
        let old = tick - open.kept > self.silence(closing) / 8 / Self::TICK;
        let kept = if closing != open.closing || old { tick } else { open.kept };
        self.open.insert(connection, Open { kept, closing });
        true
    }

    fn silence(&self, closing: bool) -> u64 {
        if closing { self.idle.min(Self::CLOSING) } else { self.idle }
    }

    /// Forgets who was silent for too long, by these silences of open and of closing connections.
    fn expire(&mut self, now: u64, closing: [bool; 2]) {
        let lives = closing.map(|closing| {
            let silence = self.silence(closing);
            silence / Self::TICK + silence / 8 / Self::TICK + 2
        });
        self.open
            .retain(|_, open| now / Self::TICK <= open.kept + lives[usize::from(open.closing)]);
    }
}
