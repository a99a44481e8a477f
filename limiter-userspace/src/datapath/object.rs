//! Single objects of the kernel, and the errors of the library that opens them.

use std::{io, os::fd::AsFd as _};

use aya::maps::{MapData, MapType};

use super::sys;
use crate::error::{Error, Result};

/// The number that the kernel gave a map.
pub(super) fn number(map: &MapData) -> Result<u32> {
    Ok(map.info().map_err(|error| object("look at a map", &error))?.id())
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
