//! What a watch waits for.

use std::{
    future::{pending, ready},
    io,
    mem::MaybeUninit,
    ptr::null_mut,
    time::{Duration, Instant},
};

use crossterm::event::{self, Event};
use tokio::{
    select,
    signal::unix::{Signal, SignalKind, signal},
    task::{JoinHandle, spawn_blocking},
    time::{Interval, MissedTickBehavior, interval_at, sleep_until},
};

use super::stop::is_ignored;

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
    /// The one that stops, where there is a terminal to give back, and it is not to be ignored.
    stop: Option<Signal>,
    /// The one that continues, where there is a terminal to take over again.
    proceed: Option<Signal>,
}

impl Signals {
    /// Takes them over, for a watch on a screen or not.
    pub(super) fn new(on_screen: bool) -> io::Result<Self> {
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        let caught = |kind| signal(SignalKind::from_raw(kind));
        let stop = (on_screen && !is_ignored()?).then(|| caught(libc::SIGTSTP)).transpose()?;
        let proceed = on_screen.then(|| caught(libc::SIGCONT)).transpose()?;
        Ok(Self { end: [interrupt?, terminate?, hangup?], stop, proceed })
    }
}

/// Has this thread leave all of these signals to the first one. That takes in all that there is before it goes
/// on: with another one, it could go on for the signal that continues while the other still has the one before
/// it, which ends.
pub(super) fn leave_to_the_first() {
    let mut signals = MaybeUninit::uninit();
    // SAFETY: the set is made by the first call, and is there for the others, which cannot fail with these
    // numbers.
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGTSTP, libc::SIGCONT] {
            libc::sigaddset(signals.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, signals.as_ptr(), null_mut());
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

    /// Whether the reading that is due is to be made in a moment.
    pub(super) fn again(&mut self, wanted: bool) {
        let again = self.again.or_else(|| Instant::now().checked_add(RETRY));
        self.again = again.filter(|_| wanted);
    }

    /// Whether it can be stopped.
    pub(super) const fn can_stop(&self) -> bool {
        self.signals.stop.is_some()
    }

    /// Waits. A reading that is due at the very end is still made. Only the keyboard can fail.
    pub(super) async fn next(&mut self) -> io::Result<Wake> {
        let Self { ticks, again, end, over, signals, keys } = self;
        let Signals { end: [interrupt, terminate, hangup], stop, proceed } = signals;
        if *over {
            return Ok(Wake::End);
        }
        loop {
            select! {
                biased;
                _ = interrupt.recv() => return Ok(Wake::End),
                _ = terminate.recv() => return Ok(Wake::End),
                _ = hangup.recv() => return Ok(Wake::End),
                wake = job_control(stop, proceed) => return Ok(wake),
                pressed = pressed(keys) => {
                    let pressed = pressed?;
                    if !pressed.is_empty() {
                        return Ok(Wake::Keys(pressed));
                    }
                }
                _ = ticks.tick() => {
                    *again = None;
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
async fn job_control(stop: &mut Option<Signal>, proceed: &mut Option<Signal>) -> Wake {
    select! {
        biased;
        () = caught(stop) => select! {
            biased;
            // Both came while a reading was made: nobody would continue it again.
            () = caught(proceed) => Wake::Continue,
            () = ready(()) => Wake::Stop,
        },
        () = caught(proceed) => Wake::Continue,
    }
}

async fn caught(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
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

#[cfg(test)]
mod tests {
    use tokio::runtime;

    use super::*;

    const INTERVAL: Duration = Duration::from_millis(150);

    fn wake<T>(on_screen: bool, test: impl AsyncFnOnce(Waker) -> T) -> T {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let signals = Signals::new(on_screen).unwrap();
            test(Waker::new(signals, INTERVAL, None, false)).await
        })
    }

    #[test]
    fn what_is_tried_again_is_not_tried_twice() {
        let start = Instant::now();
        wake(false, async |mut waker| {
            // The interval ends the wait for the second one, and has nothing left of it.
            for _ in 0..2 {
                waker.again(true);
                assert!(matches!(waker.next().await, Ok(Wake::Tick)));
            }
            assert!(matches!(waker.next().await, Ok(Wake::Tick)));
            // A key had a reading made meanwhile.
            waker.again(true);
            waker.again(false);
            assert!(matches!(waker.next().await, Ok(Wake::Tick)));
        });
        assert!(start.elapsed() >= INTERVAL * 3, "{:?}", start.elapsed());
    }

    #[test]
    fn what_was_continued_already_is_not_stopped() {
        let sent = |signals: &[libc::c_int]| {
            wake(true, async |mut waker| {
                assert!(waker.can_stop());
                for signal in signals {
                    // SAFETY: a call without pointers; the signals are caught.
                    assert_eq!(unsafe { libc::raise(*signal) }, 0);
                }
                // Those of other tests may hand on one before the other.
                sleep_until((Instant::now() + RETRY / 4).into()).await;
                waker.next().await.unwrap()
            })
        };
        assert!(matches!(sent(&[libc::SIGTSTP]), Wake::Stop));
        assert!(matches!(sent(&[libc::SIGCONT]), Wake::Continue));
        assert!(matches!(sent(&[libc::SIGTSTP, libc::SIGCONT]), Wake::Continue));
    }
}
