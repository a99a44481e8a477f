//! The events that a watch waits for.

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

/// The longest wait for a key. After it the wait starts again; so the waiting thread outlives the
/// watch by at most this time.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// The pause before a failed reading is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// The most keys that are read together.
const MOST: usize = 256;

/// Keys that were pressed, with the times when they were read.
pub(super) type Pressed = Vec<(Event, Instant)>;

/// The event that ended a wait.
#[derive(Debug)]
pub(super) enum Wake {
    /// It is time for a reading.
    Tick,
    /// Keys were pressed, or the size of the terminal changed.
    Keys(Pressed),
    /// SIGTSTP was received.
    Stop,
    /// SIGCONT was received.
    Continue,
    /// The time is up, or a signal asked to end.
    End,
}

/// The signals that end or stop a watch. They lose their default action when this is made.
#[derive(Debug)]
pub(super) struct Signals {
    end: [Signal; 3],
    /// SIGTSTP, on a screen, unless the process ignores it.
    stop: Option<Signal>,
    /// SIGCONT, on a screen.
    proceed: Option<Signal>,
}

impl Signals {
    /// Catches the signals, for a watch on a screen or for one in lines.
    pub(super) fn new(on_screen: bool) -> io::Result<Self> {
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        let caught = |kind| signal(SignalKind::from_raw(kind));
        let stop = (on_screen && !is_ignored()?).then(|| caught(libc::SIGTSTP)).transpose()?;
        let proceed = on_screen.then(|| caught(libc::SIGCONT)).transpose()?;
        Ok(Self { end: [interrupt?, terminate?, hangup?], stop, proceed })
    }
}

/// Blocks these signals in this thread, so that the first thread handles them all. With two
/// threads, the first one could handle a SIGCONT while the other has not yet noted a signal before
/// it, which ends the watch.
pub(super) fn leave_to_the_first() {
    let mut signals = MaybeUninit::uninit();
    // SAFETY: the first call initialises the set for the others. With these numbers none of them
    // can fail.
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
    /// When a failed reading is tried again.
    again: Option<Instant>,
    end: Option<Instant>,
    /// Whether the last reading was due at the end of the watch.
    over: bool,
    signals: Signals,
    keys: Option<JoinHandle<io::Result<Pressed>>>,
}

impl Waker {
    /// Makes a tick in each `interval` from now on, and an end after `length`. Keys count if there
    /// is a `keyboard`.
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

    /// Sets the time to try a failed reading again, or clears it.
    pub(super) fn again(&mut self, wanted: bool) {
        let again = self.again.or_else(|| Instant::now().checked_add(RETRY));
        self.again = again.filter(|_| wanted);
    }

    /// Whether Ctrl-Z can stop the process.
    pub(super) const fn can_stop(&self) -> bool {
        self.signals.stop.is_some()
    }

    /// Waits for the next event. A reading that is due at the very end still counts. Fails only if
    /// the keyboard cannot be read.
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
                    // Without this, readings that take longer than the interval would never let the
                    // end come.
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

/// Waits for a signal of job control.
async fn job_control(stop: &mut Option<Signal>, proceed: &mut Option<Signal>) -> Wake {
    select! {
        biased;
        () = caught(stop) => select! {
            biased;
            // Both signals came during a reading. No further SIGCONT would follow a stop now.
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

/// The keys that were read. The wait for the next ones is started.
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
            // The tick of the interval ends the second wait, and is then used up.
            for _ in 0..2 {
                waker.again(true);
                assert!(matches!(waker.next().await, Ok(Wake::Tick)));
            }
            assert!(matches!(waker.next().await, Ok(Wake::Tick)));
            // A key made a reading meanwhile.
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
                    // SAFETY: the call takes no pointers; the signals are caught.
                    assert_eq!(unsafe { libc::raise(*signal) }, 0);
                }
                // Signals of other tests may be passed on one before the other.
                sleep_until((Instant::now() + RETRY / 4).into()).await;
                waker.next().await.unwrap()
            })
        };
        assert!(matches!(sent(&[libc::SIGTSTP]), Wake::Stop));
        assert!(matches!(sent(&[libc::SIGCONT]), Wake::Continue));
        assert!(matches!(sent(&[libc::SIGTSTP, libc::SIGCONT]), Wake::Continue));
    }
}
