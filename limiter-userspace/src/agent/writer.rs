//! Telling of events, to whom may not listen.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use super::event::{Dated, Event};

/// Events that wait to be told.
const WAITING: usize = 1024;
/// For how long the end waits for those.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tells events in a thread of its own, so that a reader who stopped reading stops nothing else.
pub(super) struct EventWriter {
    events: SyncSender<Dated>,
    /// Unix time, in seconds.
    unix: fn() -> u64,
    left_out: Arc<AtomicU64>,
    ended: Receiver<()>,
}

impl EventWriter {
    /// Tells them by `tell`, which says whether it could.
    ///
    /// # Errors
    /// That there is no thread.
    pub(super) fn new(
        unix: fn() -> u64,
        mut tell: impl FnMut(&Dated) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let (events, waiting) = sync_channel::<Dated>(WAITING);
        let (end, ended) = channel();
        let left_out = Arc::<AtomicU64>::default();
        let missed = Arc::clone(&left_out);
        thread::Builder::new().name("events".to_owned()).spawn(move || {
            for event in waiting {
                if !tell(&event) {
                    missed.fetch_add(event.event.of_sources(), Ordering::Relaxed);
                }
            }
            // Whoever waits for it may have gone.
            let _: Result<(), _> = end.send(());
        })?;
        Ok(Self { events, unix, left_out, ended })
    }

    /// How many events about sources could not be told, since that was asked last.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out.swap(0, Ordering::Relaxed)
    }

    /// Tells an event, if there is room for one more that waits.
    pub(super) fn emit(&self, event: Event) {
        let of_sources = event.of_sources();
        let dated = Dated { unix: (self.unix)(), event };
        if self.events.try_send(dated).is_err() {
            self.left_out.fetch_add(of_sources, Ordering::Relaxed);
        }
    }

    /// Waits a moment until all are told.
    pub(super) fn end(self) {
        let Self { events, ended, .. } = self;
        drop(events);
        // What is not told then, nobody reads.
        let _: Result<(), _> = ended.recv_timeout(PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_who_stopped_stops_nothing_and_what_is_lost_is_counted() {
        let (go, wait) = channel::<()>();
        let (sender, told) = channel();
        let writer = EventWriter::new(
            || 7,
            move |event| {
                let _ = wait.recv();
                sender.send(event.event.of_sources()).is_ok()
            },
        )
        .unwrap();
        let events = WAITING as u64 + 500;
        for _ in 0..events {
            writer.emit(Event::LeftOut { events: 1 });
        }
        let left_out = writer.left_out();
        // One is being told.
        assert!((499..=500).contains(&left_out), "{left_out}");
        drop(go);
        writer.end();
        assert_eq!(told.iter().sum::<u64>() + left_out, events);
    }

    #[test]
    fn what_cannot_be_written_is_counted() {
        let writer = EventWriter::new(|| 7, |_| false).unwrap();
        let left_out = Arc::clone(&writer.left_out);
        writer.emit(Event::Started);
        writer.emit(Event::LeftOut { events: 7 });
        writer.end();
        assert_eq!(left_out.load(Ordering::Relaxed), 7);
    }
}
