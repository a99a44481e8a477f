//! An instance for trying out a policy: nothing is attached to it, nobody else sees it, and it ends with the process.

use std::env;

use super::{
    bpffs::{Pins, c_path},
    instance::Instance,
    maps::Maps,
    sizes::Sizes,
    sys,
};
use crate::{
    error::{Error, Result},
    policy::Policy,
};

/// Makes the tables of a policy. The folder of temporary files is hidden from this process from then on: the BPF file
/// system that holds the tables is mounted over it.
///
/// # Errors
/// That the policy cannot be compiled, or what the system says.
pub fn trial(policy: &Policy) -> Result<Maps> {
    let mount = env::temp_dir();
    sys::own_mounts().map_err(|error| Error::system("make tables for the policy", error))?;
    sys::mount_bpf(&c_path(mount.as_os_str())?).map_err(|error| {
        let folder = mount.display();
        Error::system(format!("make tables for the policy: mount them over {folder}"), error)
    })?;
    let pins = Pins::new(mount.join("limiter")).with_state(mount.join("lists"));
    // Most policies need no more than the fewest overrides, whatever the length of their lists.
    Instance::open_or_create(&pins, &Sizes::smallest(), policy, None)?;
    Maps::open(&pins)
}
