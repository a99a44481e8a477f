//! What holds for which sources.

use aya_ebpf::maps::lpm_trie::Key;
use limiter_common::{
    abi::policy::{Settings, flag},
    base::address::Address,
};

use crate::kernel::maps::PREFIXES;

/// The number of the profile of a source.
#[inline(always)]
pub(crate) fn number(address: &Address, epoch: u32, settings: &Settings) -> u32 {
    if settings.flags & flag::PREFIXES == 0 {
        return 0;
    }
    PREFIXES
        .get(epoch & 1)
        .and_then(|prefixes| prefixes.get(&Key::new(Address::BITS, *address)))
        .copied()
        .unwrap_or(0)
}
