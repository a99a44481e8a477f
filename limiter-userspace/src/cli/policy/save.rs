//! `limiter policy save`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::{
    read::summary,
    unit::{self, Unit, attach_options},
};
use crate::{
    cli::{maps, unix},
    datapath::{bpffs::Pins, link::exists},
    error::{Error, Result},
    output::{file, stream::Output},
    policy::{
        document::{DOCUMENT_BYTES, FileError, Unsaved, parse, to_yaml},
        reading::name,
        units::quoted,
    },
};

#[derive(Debug, Args)]
pub(in crate::cli) struct Save {
    /// File to write, or - for the standard output; a file that exists is replaced as a whole and keeps its
    /// permissions, a new one is readable by its owner only
    #[arg(value_name = "FILE", default_value = unit::POLICY)]
    file: PathBuf,
    /// Print a systemd unit that attaches with the document at boot, and save nothing
    #[arg(long)]
    systemd: bool,
}

impl Save {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let path = std::path::absolute(&self.file).unwrap_or_else(|_| self.file.clone());
        if self.systemd {
            if self.to_output() {
                let fault = "a document that was printed is in no file";
                return Err(Error::UnitPath { path: quoted("-"), fault });
            }
            let options = match exists(pins)? {
                true => attach_options(pins, &maps(pins)?)?,
                false => String::new(),
            };
            let unit = Unit::new(&path, pins, options)?;
            if output.is_json() {
                return Ok(output.shape("limiter.unit/1", &json!({ "unit": unit.to_string() }))?);
            }
            return Ok(write!(output, "{unit}")?);
        }
        let mut policy = maps(pins)?.settled()?.policy;
        policy.drop_over(unix());
        let text = to_yaml(&policy);
        // A document that cannot be read would leave the machine without limits at the next start.
        let no_files = &mut |_: &str| Err(FileError::TooLarge { most: DOCUMENT_BYTES });
        let file = name(if self.to_output() { Path::new("policy") } else { &path });
        parse(&file, text.as_bytes(), no_files).map_err(Unsaved)?;
        let (limits, prefixes) = (policy.limits.len(), policy.number_of_prefixes());
        if self.to_output() {
            if output.is_json() {
                let value = json!({ "document": text, "limits": limits, "prefixes": prefixes });
                return Ok(output.shape("limiter.save/1", &value)?);
            }
            return Ok(write!(output, "{text}")?);
        }
        file::replace(&self.file, text.as_bytes())?;
        if output.is_json() {
            let value = json!({ "file": file, "limits": limits, "prefixes": prefixes });
            return Ok(output.shape("limiter.save/1", &value)?);
        }
        writeln!(output, "{file}: saved: {}", summary(&policy))?;
        // A path that cannot be in a unit does not prevent the saving.
        if let Ok(unit) = Unit::new(&path, pins, String::new()) {
            writeln!(output, "To have it applied when the machine starts:")?;
            write!(output, "{}", unit.how_to_install())?;
        }
        Ok(())
    }

    /// Whether the document goes to standard output.
    fn to_output(&self) -> bool {
        self.file == Path::new("-")
    }
}
