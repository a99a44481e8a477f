//! `limiter metrics`.

use super::unix;
use crate::{datapath::bpffs::Pins, error::Result, metrics::read, output::stream::Output};

/// Prints the metrics of the instance, also if there is no instance.
pub(super) fn metrics(pins: &Pins, output: &mut Output) -> Result<()> {
    let metrics = read(pins, unix())?;
    if output.is_json() {
        return Ok(output.json(&metrics)?);
    }
    Ok(write!(output, "{metrics}")?)
}
