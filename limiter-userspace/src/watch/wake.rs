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

/// Keys that are taken at once.
const MOST: usize = 256;

/// Keys that were pressed, with the times when they were read.
pub(super) type Pressed = Vec<(Event, Instant)>;

/// Why a watch goes on.
#[derive(Debug)]
pub(super) enum Wake {
    /// It is time for a reading.
    Tick,
    /// Keys were pressed, or the terminal changed: all there is.
    Keys(Pressed),
    /// The time is up, or a signal asked to end.
    End,
}

/// The signals that ask to end. They end nothing by themselves from when this is made.
#[derive(Debug)]
pub(super) struct Signals([Signal; 3]);

impl Signals {
    /// Takes them over.
    pub(super) fn new() -> io::Result<Self> {
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        Ok(Self([interrupt?, terminate?, hangup?]))
    }
}

/// The clock, the signals and the keyboard.
#[derive(Debug)]
pub(super) struct Waker {
    ticks: Interval,
    end: Option<Instant>,
    /// Whether the reading of the very end was due.
    over: bool,
    signals: Signals,
    keys: Option<JoinHandle<io::Result<Pressed>>>,
}

impl Waker {
    /// Wakes every `interval` from now on, for that `length`; for keys too, if there is a keyboard.
    pub(super) fn new(
        signals: Signals,
        interval: Duration,
        length: Option<Duration>,
        keyboard: bool,
    ) -> Self {
        let start = Instant::now();
        let mut ticks = interval_at((start + interval).into(), interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Self {
            ticks,
            end: length.and_then(|length| start.checked_add(length)),
            over: false,
            signals,
            keys: keyboard.then(wait_for_keys),
        }
    }

    /// Waits. A reading that is due at the very end is still made. Only the keyboard can fail.
    pub(super) async fn next(&mut self) -> io::Result<Wake> {
        let Self { ticks, end, over, signals: Signals([interrupt, terminate, hangup]), keys } =
            self;
        if *over {
            return Ok(Wake::End);
        }
        loop {
            select! {
                biased;
                _ = interrupt.recv() => return Ok(Wake::End),
                _ = terminate.recv() => return Ok(Wake::End),
                _ = hangup.recv() => return Ok(Wake::End),
                pressed = pressed(keys) => {
                    let pressed = pressed?;
                    if !pressed.is_empty() {
                        return Ok(Wake::Keys(pressed));
                    }
                }
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
async fn pressed(keys: &mut Option<JoinHandle<io::Result<Pressed>>>) -> io::Result<Pressed> {
    let Some(waiting) = keys else {
        return pending().await;
    };
    let pressed = (&mut *waiting).await??;
    *waiting = wait_for_keys();
    Ok(pressed)
}

fn wait_for_keys() -> JoinHandle<io::Result<Pressed>> {
    spawn_blocking(|| {
        let mut pressed = Vec::new();
        let mut wait = KEY_WAIT;
        while pressed.len() < MOST && event::poll(wait)? {
            pressed.push((event::read()?, Instant::now()));
            wait = Duration::ZERO;
        }
        Ok(pressed)
    })
}
