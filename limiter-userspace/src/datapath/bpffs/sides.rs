//! The two directories of maps of an instance, one of which is in use.
//!
//! An [exchange](crate::datapath::exchange) makes new maps in the other directory. The maps in use are the newest ones that
//! have an epoch, so one store of an epoch exchanges all of them. The old ones are removed afterwards.

use std::{fs, io::ErrorKind};

use aya::maps::MapData;
use limiter_common::abi::layout::map;

use super::{Pins, exists, unpin};
use crate::{
    datapath::object::{object, only_value},
    error::{Error, Result},
};

/// One of the directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    First,
    Second,
}

impl Side {
    pub(super) const BOTH: [Self; 2] = [Self::First, Self::Second];

    /// The name of the directory.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::First => "maps",
            Self::Second => "maps2",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// What is in the directory that is not in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    Nothing,
    /// Maps that were never in use, or the rest of maps that were.
    Remains,
    /// The maps that were in use before. Their state may not be carried over yet.
    Old,
}

impl Pins {
    /// These pins with the directory that is in use now, also if maps are exchanged later. Pins of a fixed directory stay
    /// the same.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn in_use(&self) -> Result<Self> {
        match self.side {
            Some(_) => Ok(self.clone()),
            None => Ok(self.sides()?.0),
        }
    }

    /// The pins of the directory in use, those of the other one, and what is in that.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn sides(&self) -> Result<(Self, Self, Beside)> {
        let [first, second] = Side::BOTH.map(|side| self.with_side(side));
        let (side, is_old) = match readable([first.head(), second.head()])? {
            [Some(first), Some(second)] => {
                let second_is_newer = first.number.wrapping_sub(second.number).cast_signed() < 0;
                let (newer, side) = match second_is_newer {
                    true => (second, Side::Second),
                    false => (first, Side::First),
                };
                let is_in_use = newer.epoch != 0;
                (if is_in_use { side } else { side.other() }, is_in_use)
            }
            [None, Some(_)] => (Side::Second, false),
            _ => (Side::First, false),
        };
        let other = self.with_side(side.other());
        let beside = match is_old {
            true => Beside::Old,
            false if other.has_maps()? => Beside::Remains,
            false => Beside::Nothing,
        };
        Ok((self.with_side(side), other, beside))
    }

    /// The pins of one of the directories, whichever is in use, and those of the other one.
    pub(crate) fn by_side(&self, second: bool) -> (Self, Self) {
        let side = if second { Side::Second } else { Side::First };
        (self.with_side(side), self.with_side(side.other()))
    }

    /// Whether the directory in use, or that of these pins if it is fixed, is the second one.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn is_second(&self) -> Result<bool> {
        Ok(self.in_use()?.side == Some(Side::Second))
    }

    pub(super) fn with_side(&self, side: Side) -> Self {
        Self { side: Some(side), ..self.clone() }
    }

    /// Whether anything is in the directory of these maps.
    fn has_maps(&self) -> Result<bool> {
        let directory = self.maps();
        match fs::read_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            pins => {
                let mut pins = pins.map_err(|error| {
                    Error::system(format!("read {}", directory.display()), error)
                })?;
                Ok(pins.next().is_some())
            }
        }
    }

    /// Removes the pins of these maps. The head goes first, without which the others are [`Beside::Remains`].
    ///
    /// # Errors
    /// [`Error::Unsafe`] for directories that others may change, or what the system says.
    pub(crate) fn clear_maps(&self) -> Result<()> {
        self.check_owners()?;
        unpin(&self.map(map::HEAD))?;
        Self::clear_directory(&self.maps())
    }

    /// The number and the epoch of the head, if it is pinned.
    fn head(&self) -> Result<Option<Head>> {
        let path = self.map(map::HEAD);
        if !exists(&path)? {
            return Ok(None);
        }
        let failed = |error| object(format!("open {}", path.display()), &error);
        let data = match MapData::from_pin(&path) {
            // It was unpinned meanwhile.
            Err(_) if !exists(&path)? => return Ok(None),
            data => data.map_err(failed)?,
        };
        let value = only_value(&data, map::HEAD)?;
        let info = data.info().map_err(|error| object("look at the epoch", &error))?;
        Ok(Some(Head { number: info.id(), epoch: word(&value, 0) }))
    }
}

/// The heads that this process may read. One of two that it may not is of maps that root is making just now, or has left: it
/// gives them to the user who has the instance before they are in use.
fn readable(heads: [Result<Option<Head>>; 2]) -> Result<[Option<Head>; 2]> {
    match heads {
        [Ok(Some(first)), Err(Error::Permission { .. })] => Ok([Some(first), None]),
        [Err(Error::Permission { .. }), Ok(Some(second))] => Ok([None, Some(second)]),
        [first, second] => Ok([first?, second?]),
    }
}

/// The head of the maps in a directory.
struct Head {
    /// The id that the kernel gave the map. A newer map has a higher id.
    number: u32,
    /// Its first word in every layout: 0 until the maps are in use.
    epoch: u64,
}

/// The word of a value at an offset in bytes; 0 beyond its end.
pub(crate) fn word(value: &[u8], offset: usize) -> u64 {
    let bytes = value.get(offset..).and_then(|rest| rest.first_chunk());
    u64::from_ne_bytes(bytes.copied().unwrap_or_default())
}
