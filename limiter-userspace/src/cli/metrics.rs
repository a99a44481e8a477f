//! `limiter metrics`.

use super::{maps, unix};
use crate::{datapath::bpffs::Pins, error::Result, metrics::read, output::stream::Output};

/// Prints what monitoring systems read of the instance.
pub(super) fn metrics(pins: &Pins, output: &mut Output) -> Result<()> {
    let metrics = read(pins, &maps(pins)?, unix())?;
    if output.is_json() {
        return Ok(output.json(&metrics)?);
    }
    Ok(write!(output, "{metrics}")?)
}
