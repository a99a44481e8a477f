//! Tries of prefixes: made whole, or amended by what differs.

use std::{cmp::Ordering, io, os::fd::AsFd as _};

use aya::{
    Pod,
    maps::{MapData, lpm_trie::Key},
};
use aya_obj::generated::bpf_map_type;
use limiter_common::base::address::Address;

use super::{object::object, program::lacking, stored_tries::Prefix, sys};
use crate::error::{Error, Result};

const BPF_F_NO_PREALLOC: u32 = 1;
/// What the kernel says of an operation that a map does not have; libc does not know it.
const ENOTSUPP: i32 = 524;

/// What makes one trie of another.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Changes<T> {
    gone: Vec<Prefix<T>>,
    /// Prefixes that are new, or mapped to something else.
    put: Vec<Prefix<T>>,
}

impl<T: Copy + PartialEq> Changes<T> {
    /// The changes from `before` to `after`. `None` if to make the trie whole is no more work, or if the prefixes are not in
    /// the order in which policies are compiled.
    pub(super) fn between(before: &[Prefix<T>], after: &[Prefix<T>]) -> Option<Self> {
        if !(before.is_sorted_by_key(place) && after.is_sorted_by_key(place)) {
            return None;
        }
        let (mut gone, mut put) = (Vec::new(), Vec::new());
        let (mut olds, mut news) = (before.iter().peekable(), after.iter().peekable());
        loop {
            let order = match (olds.peek(), news.peek()) {
                (Some(old), Some(new)) => place(old).cmp(&place(new)),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Some(Self { gone, put }),
            };
            let old = olds.next_if(|_| order.is_le());
            let new = news.next_if(|_| order.is_ge());
            match (old, new) {
                (Some(old), None) => gone.push(*old),
                (Some(old), Some(new)) if old == new => {}
                (_, new) => put.extend(new.copied()),
            }
            if gone.len() + put.len() >= after.len() {
                return None;
            }
        }
    }
}

/// By which compiled prefixes are in order: a prefix follows those that contain it.
fn place<T>((bits, address, _): &Prefix<T>) -> (u32, [u32; 4], u32) {
    (address.family, address.words.map(u32::from_be), *bits)
}

/// Has a trie that no packet reads go through these changes. On an error, it has some of them.
///
/// # Errors
/// What the system says.
pub(super) fn amend<T, V: Pod>(
    trie: &MapData,
    changes: &Changes<T>,
    value: impl Fn(&T) -> V,
) -> io::Result<()> {
    let trie = trie.fd().as_fd();
    for (bits, address, _) in &changes.gone {
        sys::remove(trie, &Key::new(*bits, *address))?;
    }
    let (keys, values) = entries(&changes.put, value);
    sys::update(trie, &keys, &values)
}

/// The room of a trie that is made with so many prefixes, and may be amended by others. The kernel takes memory for the prefixes
/// that are there; before Linux 6.4 it tells that of the room.
fn room(prefixes: usize) -> u32 {
    u32::try_from(prefixes + prefixes / 2 + 1_024).unwrap_or(u32::MAX)
}

/// Keys and values of the kernel for prefixes.
fn entries<T, V>(prefixes: &[Prefix<T>], value: impl Fn(&T) -> V) -> (Vec<Key<Address>>, Vec<V>) {
    prefixes.iter().map(|(bits, address, of)| (Key::new(*bits, *address), value(of))).unzip()
}

/// A new trie with these prefixes, and what `value` makes of what they are mapped to; `None` if there are none.
///
/// # Errors
/// What the system says.
pub(super) fn make<T, V: Pod>(
    name: &str,
    prefixes: &[Prefix<T>],
    value: impl Fn(&T) -> V,
) -> Result<Option<MapData>> {
    if prefixes.is_empty() {
        return Ok(None);
    }
    let definition = aya_obj::Map::new_from_params(
        bpf_map_type::BPF_MAP_TYPE_LPM_TRIE as u32,
        size_of::<Key<Address>>() as u32,
        size_of::<V>() as u32,
        room(prefixes.len()),
        BPF_F_NO_PREALLOC,
    );
    let trie = MapData::create(definition, name, None)
        .map_err(|error| object(format!("make a table of {} {name}", prefixes.len()), &error))?;
    let (keys, values) = entries(prefixes, value);
    sys::update(trie.fd().as_fd(), &keys, &values).map_err(|error| {
        if error.raw_os_error() == Some(ENOTSUPP) {
            lacking("batch updates of LPM tries (since 5.13)")
        } else {
            Error::system(format!("write the {name}"), error)
        }
    })?;
    Ok(Some(trie))
}

#[cfg(test)]
mod tests;
