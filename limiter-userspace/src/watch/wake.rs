//! What a watch waits for.

use std::{
    future::pending,
    io,
    time::{Duration, Instant},
};

use crossterm::event::{self, Event};
use tokio::{
    select,
    signal::unix::{Signal, SignalKind, signal},
    task::{JoinHandle, spawn_blocking},
    time::{Interval, MissedTickBehavior, interval_at, sleep_until},
};

/// How long a wait for a key lasts before it is begun again, and so how long the thread that waits
/// outlives the watch.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// Why a watch goes on.
#[derive(Debug)]
pub(super) enum Wake {
    /// It is time for a reading.
    Tick,
    /// A key was pressed, or the terminal changed.
    Key(Event),
    /// The time is up, or a signal asked to end.
    End,
}

/// The clock, the signals and the keyboard.
#[derive(Debug)]
pub(super) struct Waker {
    ticks: Interval,
    end: Option<Instant>,
    /// Whether the reading of the very end was due.
    over: bool,
    signals: [Signal; 3],
    keys: Option<JoinHandle<io::Result<Option<Event>>>>,
}

impl Waker {
    /// Wakes every `interval` from now on, for that `length`; for keys too, if there is a keyboard.
    pub(super) fn new(
        interval: Duration,
        length: Option<Duration>,
        keyboard: bool,
    ) -> io::Result<Self> {
        let start = Instant::now();
        let mut ticks = interval_at((start + interval).into(), interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Ok(Self {
            ticks,
            end: length.and_then(|length| start.checked_add(length)),
            over: false,
            signals: [
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
                signal(SignalKind::hangup())?,
            ],
            keys: keyboard.then(wait_for_key),
        })
    }

    /// Waits. A reading that is due at the very end is still made. Only the keyboard can fail.
    pub(super) async fn next(&mut self) -> io::Result<Wake> {
        let Self { ticks, end, over, signals: [interrupt, terminate, hangup], keys } = self;
        if *over {
            return Ok(Wake::End);
        }
        loop {
            select! {
                biased;
                _ = interrupt.recv() => return Ok(Wake::End),
                _ = terminate.recv() => return Ok(Wake::End),
                _ = hangup.recv() => return Ok(Wake::End),
                event = key(keys) => if let Some(event) = event? {
                    return Ok(Wake::Key(event));
                },
                _ = ticks.tick() => {
                    // Or readings that take longer than the interval would never come to an end.
                    *over = end.is_some_and(|end| Instant::now() >= end);
                    return Ok(Wake::Tick);
                }
                () = until(*end) => return Ok(Wake::End),
            }
        }
    }
}

async fn until(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end.into()).await,
        None => pending().await,
    }
}

/// The outcome of the wait for a key, which is begun again.
async fn key(
    keys: &mut Option<JoinHandle<io::Result<Option<Event>>>>,
) -> io::Result<Option<Event>> {
    let Some(waiting) = keys else {
        return pending().await;
    };
    let event = (&mut *waiting).await??;
    *waiting = wait_for_key();
    Ok(event)
}

fn wait_for_key() -> JoinHandle<io::Result<Option<Event>>> {
    spawn_blocking(|| if event::poll(KEY_WAIT)? { event::read().map(Some) } else { Ok(None) })
}
