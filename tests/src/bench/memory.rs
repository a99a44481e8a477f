//! The kernel memory of an instance.

use anyhow::Result;
use limiter_tests::sandbox::BPFFS;
use limiter_userspace::datapath::{bpffs::Pins, instance::Instance, sizes::Sizes};

use super::setting::Setting;

/// Kernel memory of the maps of an instance with one limit, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// With room for 64 k sources, and other tables in proportion.
    pub(crate) small: u64,
    /// With the default sizes: room for 1 M sources.
    pub(crate) default: u64,
}

/// Makes both instances, one after the other.
pub(crate) fn measure() -> Result<Memory> {
    let bytes = |sizes: Sizes| -> Result<u64> {
        let pins = Pins::new(format!("{BPFFS}/memory"));
        let policy = Setting::Source.policy()?;
        let instance = Instance::open_or_create(&pins, &sizes, &policy, None)?;
        let bytes = instance.maps().memory()?;
        instance.close()?;
        Ok(bytes)
    };
    Ok(Memory { small: bytes(Sizes::for_sources(1 << 16))?, default: bytes(Sizes::default())? })
}
