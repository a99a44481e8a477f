//! Single objects of the kernel: maps opened from their pins, and the errors of the library that opens them.

use std::{io, os::fd::AsFd as _};

use aya::maps::{Map, MapData, MapType};

use super::{
    bpffs::{Pins, exists},
    sys,
};
use crate::error::{Error, Result};

/// The number that the kernel gave a map.
pub(super) fn number(map: &MapData) -> Result<u32> {
    Ok(map.info().map_err(|error| object("look at a map", &error))?.id())
}

/// The error for a map that is not pinned.
pub(super) fn missing(name: &str) -> Error {
    Error::Object { action: format!("use the map {name}"), reason: "it is not pinned".to_owned() }
}

/// The bytes of the only value of an array, whatever layout it has. Its type is checked first: of a per-CPU map the kernel
/// would write a value for each CPU.
///
/// # Errors
/// [`Error::Object`] if the map is another one, or what the system says.
pub(super) fn only_value(map: &MapData, name: &str) -> Result<Vec<u8>> {
    let info = map.info().map_err(|error| object("look at a map", &error))?;
    let is_array = matches!(info.map_type(), Ok(MapType::Array));
    if !is_array || info.key_size() != 4 || info.max_entries() != 1 {
        let action = format!("read the map {name}");
        return Err(Error::Object { action, reason: "it is no array of one value".to_owned() });
    }
    sys::value(map.fd().as_fd(), 0, info.value_size() as usize)
        .map_err(|error| Error::system(format!("read the map {name}"), error))
}

/// An error of the library as one of ours.
pub(crate) fn object(action: impl Into<String>, error: &dyn std::error::Error) -> Error {
    let action = action.into();
    let mut reason = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>()
            && let Some(code) = error.raw_os_error()
        {
            return Error::system(action, io::Error::from_raw_os_error(code));
        }
        reason = format!("{reason}: {error}");
        source = error.source();
    }
    Error::Object { action, reason }
}

/// The map of that name; `None` if it is not pinned.
///
/// # Errors
/// What the system says.
pub(super) fn pinned(pins: &Pins, name: &str) -> Result<Option<MapData>> {
    let path = pins.map(name);
    if !exists(&path)? {
        return Ok(None);
    }
    MapData::from_pin(&path)
        .map(Some)
        .map_err(|error| object(format!("open {}", path.display()), &error))
}

/// The map of that name, to read and write values of a type.
///
/// # Errors
/// That it is another map, or what the system says.
pub(super) fn typed<T: TryFrom<Map, Error = aya::maps::MapError>>(
    pins: &Pins,
    name: &str,
) -> Result<T> {
    let failed = |error| object(format!("open the map {name}"), &error);
    let data = MapData::from_pin(pins.map(name)).map_err(failed)?;
    Map::from_map_data(data).and_then(T::try_from).map_err(failed)
}
