//! Debug messages of the datapath, for whoever works on it: no release has them.
//!
//! A build with the feature `datapath-log` has two objects: the one that ships, and one with messages. An instance
//! that is made [with messages](wanted) has a ring for them, and all its programs come from the second object.

use std::{
    cell::Cell,
    env,
    fmt::{self, Display},
    io::{self, Write as _},
    thread,
    time::Duration,
};

use aya_log::EbpfLogger;
use log::{Log, Metadata, Record};

use super::{bpffs::Pins, instance::exists, maps::Maps, program};
use crate::error::{Error, Result};

/// The ring that they come out of, as aya names it.
pub(super) const RING: &str = "AYA_LOGS";

/// How often [`follow`] looks for them. What does not fit into the ring meanwhile is lost.
const INTERVAL: Duration = Duration::from_millis(100);

/// The environment variable that has new instances made with messages.
const VARIABLE: &str = "LIMITER_DATAPATH_LOG";

thread_local! {
    /// Whether [`wanted`] runs on this thread.
    static WANTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; instances that it makes on this thread are made with messages.
pub fn wanted<T>(work: impl FnOnce() -> T) -> T {
    WANTED.set(true);
    let made = work();
    WANTED.set(false);
    made
}

/// Whether the instance that is pinned there, or is about to be made there, has messages.
pub(super) fn are_told(pins: &Pins) -> bool {
    let ring = pins.map(RING).exists();
    let new = !exists(pins).unwrap_or(true);
    ring || new && (WANTED.get() || env::var_os(VARIABLE).is_some_and(|it| !it.is_empty()))
}

/// Tells one.
type Tell = fn(&fmt::Arguments<'_>);

/// Takes messages.
pub struct Messages<F>(EbpfLogger<Taker<F>>);

/// Takes what aya makes of a message.
struct Taker<F>(F);

impl<F: Fn(&fmt::Arguments<'_>) + Send + Sync> Log for Taker<F> {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        (self.0)(record.args());
    }

    fn flush(&self) {}
}

impl<F: Fn(&fmt::Arguments<'_>) + Send + Sync> Messages<F> {
    /// Those of the instance that is pinned there, to be told by `tell`.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(pins: &Pins, tell: F) -> Result<Self> {
        // Handshake the object opens the ring that is pinned; the rest of it goes.
        let mut ebpf = program::open_maps(pins)?;
        EbpfLogger::init_with_logger(&mut ebpf, Taker(tell)).map(Self).map_err(|error| {
            Error::Object { action: format!("open the map {RING}"), reason: error.to_string() }
        })
    }

    /// Tells those that there are.
    pub fn tell(&mut self) {
        self.0.flush();
    }
}

/// Writes the messages of an instance to standard error, whenever there is one, in a thread that ends with
/// the process.
///
/// # Errors
/// That there is no thread.
pub(crate) fn follow(pins: Pins) -> io::Result<()> {
    thread::Builder::new().name("messages".to_owned()).spawn(move || {
        let (mut followed, mut told) = (None, None);
        loop {
            let failure = look(&pins, &mut followed).err().map(|error| error.to_string());
            if failure != told {
                failure.iter().for_each(write);
                told = failure;
            }
            thread::sleep(INTERVAL);
        }
    })?;
    Ok(())
}

/// Tells what there is, of an instance that may have been removed and made again.
fn look(pins: &Pins, followed: &mut Option<(Maps, Messages<Tell>)>) -> Result<()> {
    if let Some((maps, messages)) = followed
        && maps.are_pinned(pins)?
    {
        messages.tell();
        return Ok(());
    }
    *followed = None;
    if exists(pins)? && are_told(pins) {
        let tell: Tell = |message| write(message);
        *followed = Some((Maps::open(pins)?, Messages::open(pins, tell)?));
    }
    Ok(())
}

fn write(message: &impl Display) {
    // Whoever does not read it does not miss it.
    let _: io::Result<()> = writeln!(io::stderr(), "debug: {message}");
}
