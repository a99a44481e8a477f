//! `limiter policy save`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::{
    read::{name, summary},
    unit::Unit,
};
use crate::{
    cli::{maps, unix},
    datapath::bpffs::Pins,
    error::{Error, Result},
    output::{file, stream::Output},
    policy::spec::{DOCUMENT_BYTES, FileError, parse, to_yaml},
};

/// Where the policy is that is applied when the machine starts.
pub(super) const DEFAULT: &str = "/etc/limiter/policy.yaml";

#[derive(Debug, Args)]
pub(in crate::cli) struct Save {
    /// Where to; it is replaced as a whole, and only its owner may read it
    #[arg(value_name = "FILE", default_value = DEFAULT)]
    file: PathBuf,
    /// Save nothing, but print a unit of systemd that attaches with the document at start
    #[arg(long)]
    systemd: bool,
}

impl Save {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let path = std::path::absolute(&self.file).unwrap_or_else(|_| self.file.clone());
        let unit = Unit::new(&path, pins);
        if self.systemd {
            if output.is_json() {
                return Ok(output.json(&json!({ "unit": unit.to_string() }))?);
            }
            return Ok(write!(output, "{unit}")?);
        }
        let mut policy = maps(pins)?.settled()?;
        policy.drop_over(unix());
        let text = to_yaml(&policy);
        // What could not be read at the next start would leave everything open then.
        let no_files = &mut |_: &str| Err(FileError::TooLarge { most: DOCUMENT_BYTES });
        let path = name(&path);
        parse(&path, text.as_bytes(), no_files).map_err(|faults| Error::Unsaved { faults })?;
        file::replace(&self.file, text.as_bytes())?;
        if output.is_json() {
            let (limits, prefixes) = (policy.limits.len(), policy.number_of_prefixes());
            let value = json!({ "file": path, "limits": limits, "prefixes": prefixes });
            return Ok(output.json(&value)?);
        }
        writeln!(output, "{path}: saved: {}", summary(&policy))?;
        writeln!(output, "To have it applied when the machine starts:")?;
        Ok(write!(output, "{}", unit.how_to_install())?)
    }
}
