//! Maps that are opened from their pins.

use aya::maps::{Map, MapData};

use super::{
    bpffs::{Pins, exists},
    object::object,
};
use crate::error::{Error, Result};

/// The error for a map that is not pinned.
pub(super) fn missing(name: &str) -> Error {
    Error::Object { action: format!("use the map {name}"), reason: "it is not pinned".to_owned() }
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
