//! Debug messages of the datapath, for whoever works on it: no release has them.
//!
//! A build with the feature `datapath-log` has two objects: the one that ships, and one with messages. An instance
//! that is made [with messages](ring::wanted) has a ring for them, and all its programs come from the second object.

pub mod ring;

use std::{
    fmt::{self, Display},
    io::{self, Write as _},
    thread,
    time::Duration,
};

use aya_log::EbpfLogger;
use log::{Log, Metadata, Record};

use self::ring::{RING, are_told};
use super::{bpffs::Pins, link::exists, maps::Maps, program};
use crate::error::{Error, Result};

/// How often [`follow`] looks for them. What does not fit into the ring meanwhile is lost.
const INTERVAL: Duration = Duration::from_millis(100);

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
        // The object opens the ring that is pinned; the rest of it goes.
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
