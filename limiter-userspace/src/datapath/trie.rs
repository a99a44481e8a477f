//! Tries of prefixes, made whole.

use std::os::fd::AsFd as _;

use aya::{
    Pod,
    maps::{MapData, lpm_trie::Key},
};
use aya_obj::generated::bpf_map_type;
use limiter_common::base::address::Address;

use super::{object::object, program::lacking, sys};
use crate::error::{Error, Result};

const BPF_F_NO_PREALLOC: u32 = 1;
/// What the kernel says of an operation that a map does not have; libc does not know it.
const ENOTSUPP: i32 = 524;

/// A new trie with these prefixes: bits that count, the prefix, and what `value` makes of the rest;
/// `None` if there are none.
///
/// # Errors
/// What the system says.
pub(super) fn make<T, V: Pod>(
    name: &str,
    prefixes: &[(u32, Address, T)],
    value: impl Fn(&T) -> V,
) -> Result<Option<MapData>> {
    if prefixes.is_empty() {
        return Ok(None);
    }
    let entries = prefixes.len() as u32;
    let definition = aya_obj::Map::new_from_params(
        bpf_map_type::BPF_MAP_TYPE_LPM_TRIE as u32,
        size_of::<Key<Address>>() as u32,
        size_of::<V>() as u32,
        entries,
        BPF_F_NO_PREALLOC,
    );
    let trie = MapData::create(definition, name, None)
        .map_err(|error| object(format!("make a table of {entries} {name}"), &error))?;
    let (keys, values): (Vec<_>, Vec<_>) =
        prefixes.iter().map(|(bits, address, of)| (Key::new(*bits, *address), value(of))).unzip();
    sys::update(trie.fd().as_fd(), &keys, &values).map_err(|error| {
        if error.raw_os_error() == Some(ENOTSUPP) {
            lacking("batch updates of LPM tries (since 5.13)")
        } else {
            Error::system(format!("write the {name}"), error)
        }
    })?;
    Ok(Some(trie))
}
