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

/// How long it takes until a reading that failed is tried again.
const RETRY: Duration = Duration::from_millis(100);

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
    /// A signal asked to stop.
    Stop,
    /// It was stopped, and is no more.
    Continue,
    /// The time is up, or a signal asked to end.
    End,
}

/// The signals that ask to end. They end nothing by themselves from when this is made.
#[derive(Debug)]
pub(super) struct Signals {
    end: [Signal; 3],
    /// Those that stop and continue, where there is a terminal to give back.
    job: Option<[Signal; 2]>,
}

impl Signals {
    /// Takes them over, for a watch on a screen or not.
    pub(super) fn new(on_screen: bool) -> io::Result<Self> {
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        let [stop, proceed] = [libc::SIGTSTP, libc::SIGCONT].map(SignalKind::from_raw);
        let job = if on_screen { Some([signal(stop)?, signal(proceed)?]) } else { None };
        Ok(Self { end: [interrupt?, terminate?, hangup?], job })
    }
}

/// The clock, the signals and the keyboard.
#[derive(Debug)]
pub(super) struct Waker {
    ticks: Interval,
    /// When a reading that failed is tried again.
    again: Option<Instant>,
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
            again: None,
            end: length.and_then(|length| start.checked_add(length)),
            over: false,
            signals,
            keys: keyboard.then(wait_for_keys),
        }
    }

    /// Has the reading that is due made in a moment.
    pub(super) fn again(&mut self) {
        self.again = Instant::now().checked_add(RETRY);
    }

    /// Waits. A reading that is due at the very end is still made. Only the keyboard can fail.
    pub(super) async fn next(&mut self) -> io::Result<Wake> {
        let Self { ticks, again, end, over, signals, keys } = self;
        let Signals { end: [interrupt, terminate, hangup], job } = signals;
        if *over {
            return Ok(Wake::End);
        }
        loop {
            select! {
                biased;
                _ = interrupt.recv() => return Ok(Wake::End),
                _ = terminate.recv() => return Ok(Wake::End),
                _ = hangup.recv() => return Ok(Wake::End),
                wake = job_control(job) => return Ok(wake),
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
                () = until(*again) => {
                    *again = None;
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

/// What is asked of a job of a shell.
async fn job_control(signals: &mut Option<[Signal; 2]>) -> Wake {
    let Some([stop, proceed]) = signals else {
        return pending().await;
    };
    select! {
        biased;
        _ = stop.recv() => Wake::Stop,
        _ = proceed.recv() => Wake::Continue,
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
