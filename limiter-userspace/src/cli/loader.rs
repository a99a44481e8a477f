//! `limiter loader`, which an agent starts for itself.

use std::{io, os::fd::AsFd as _};

use rustix::thread::set_name;

use crate::{
    datapath::{bpffs::Pins, loading, privilege, sys},
    error::{Error, Result},
};

/// Loads programs for the agent at the other end of the standard input, until that ends.
pub(super) fn run(pins: &Pins) -> Result<()> {
    privilege::keep_loading(pins)?;
    sys::ignore_signals();
    // It would be named after the link in /proc that it was executed by.
    set_name(c"limiter-loader")
        .map_err(|error| Error::system("name the loader", io::Error::from(error)))?;
    loading::serve(pins, io::stdin().as_fd())
}
