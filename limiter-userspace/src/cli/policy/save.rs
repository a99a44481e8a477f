//! `limiter policy save`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use ipnet::IpNet;
use serde_json::json;
use thiserror::Error;

use super::{
    read::summary,
    unit::{self, Unit, attach_options},
};
use crate::{
    cli::{maps, unix},
    datapath::{bpffs::Pins, link::exists},
    error::{Error, Failure, Result},
    output::{file, stream::Output},
    policy::{
        Policy,
        document::{
            self, DOCUMENT_BYTES, FileError, SET_BYTES, Unsaved, parse, read_file,
            to_yaml_with_files,
        },
        reading::name,
        shadowed::FromFiles,
        units::{printable, quoted},
    },
};

#[derive(Debug, Args)]
pub(in crate::cli) struct Save {
    /// File to write, or - for the standard output. A file that exists keeps its permissions, and what it was
    /// is kept as FILE.bak; a new one is readable by its owner only
    #[arg(value_name = "FILE", default_value = unit::POLICY)]
    file: PathBuf,
    /// Replace also a file whose comments would be lost
    #[arg(long)]
    force: bool,
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
        let is_printed = self.to_output();
        let before = if is_printed { None } else { Before::read(&path)? };
        let kept = before.as_ref().map(|before| before.files(&policy)).unwrap_or_default();
        let header = before.as_ref().map(Before::header).unwrap_or_default();
        let text = header + &to_yaml_with_files(&policy, &kept);
        // A document that cannot be read would leave the machine without limits at the next start.
        let file = name(if is_printed { Path::new("policy") } else { &path });
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut files = |name: &str| read_file(&folder.join(name), SET_BYTES);
        let read = parse(&file, text.as_bytes(), &mut files).map_err(Unsaved)?;
        let (limits, prefixes) = (policy.limits.len(), policy.number_of_prefixes());
        if is_printed {
            if output.is_json() {
                let value = json!({ "document": text, "limits": limits, "prefixes": prefixes });
                return Ok(output.shape("limiter.save/1", &value)?);
            }
            return Ok(write!(output, "{text}")?);
        }
        let is_there =
            before.as_ref().is_some_and(|before| before.policy(unix()).as_ref() == Some(&read));
        let backup = if is_there { None } else { self.write(&text, before.as_ref())? };
        if output.is_json() {
            let value = json!({
                "file": file, "limits": limits, "prefixes": prefixes,
                "backup": backup.as_deref().map(name), "unchanged": is_there,
            });
            return Ok(output.shape("limiter.save/1", &value)?);
        }
        let saved = if is_there { "has this policy already" } else { "saved" };
        writeln!(output, "{file}: {saved}: {}", summary(&policy))?;
        let named = kept.set_paths.values().chain(kept.tenant_paths.values());
        let named: BTreeSet<String> = named.map(|path| printable(path, 256)).collect();
        if !named.is_empty() {
            let named: Vec<String> = named.into_iter().collect();
            writeln!(output, "It names its set files as before: {}", named.join(", "))?;
        }
        if let Some(backup) = &backup {
            writeln!(output, "The file before it is {}", name(backup))?;
        }
        // A path that cannot be in a unit does not prevent the saving.
        if let Ok(unit) = Unit::new(&path, pins, String::new()) {
            writeln!(output, "To have it applied when the machine starts:")?;
            write!(output, "{}", unit.how_to_install())?;
        }
        Ok(())
    }

    /// Writes the document, and keeps the one before it as a backup. Returns the path of that.
    fn write(&self, text: &str, before: Option<&Before>) -> Result<Option<PathBuf>> {
        let Some(before) = before.filter(|before| !before.text.is_empty()) else {
            file::replace(&self.file, text.as_bytes())?;
            return Ok(None);
        };
        if let Some(lost) = before.lost().filter(|_| !self.force) {
            let beside = beside(&self.file, ".new", text.as_bytes())?;
            let (path, beside) = (name(&self.file), name(&beside));
            return Err(Lossy { path, lost, beside }.into());
        }
        let backup = beside(&self.file, ".bak", &before.text)?;
        file::replace(&self.file, text.as_bytes())?;
        Ok(Some(backup))
    }

    /// Whether the document goes to standard output.
    fn to_output(&self) -> bool {
        self.file == Path::new("-")
    }
}

/// Writes a file beside another one: with a suffix after its name, and a number where such a file has something else.
fn beside(path: &Path, suffix: &str, text: &[u8]) -> Result<PathBuf> {
    let mut number = 0_u32;
    loop {
        let mut with = path.as_os_str().to_owned();
        with.push(suffix);
        if number > 0 {
            with.push(format!(".{number}"));
        }
        let with = PathBuf::from(with);
        match fs::symlink_metadata(&with) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                file::replace(&with, text)?;
                return Ok(with);
            }
            Ok(_) if read_file(&with, text.len() as u64).is_ok_and(|there| there == text) => {
                return Ok(with);
            }
            _ => number += 1,
        }
        if number > 999 {
            let full = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(Error::system(format!("write {}", with.display()), full));
        }
    }
}

/// The file that is to be replaced.
struct Before {
    text: Vec<u8>,
    /// Its policy, and its sets and tenants that have files; `None` if it is no valid document.
    read: Option<(Policy, FromFiles)>,
}

impl Before {
    /// Reads the file; `None` if there is none, or no regular file.
    fn read(path: &Path) -> Result<Option<Self>> {
        if !fs::metadata(path).is_ok_and(|it| it.is_file()) {
            return Ok(None);
        }
        let failed = |error: FileError| {
            Error::system(format!("read {}", path.display()), io::Error::other(error))
        };
        let text = read_file(path, DOCUMENT_BYTES).map_err(failed)?;
        let read = document::read_with_files(path, 0, &mut |_| {}).ok();
        Ok(Some(Self { text, read: read.map(|(policy, _, files)| (policy, files)) }))
    }

    /// Its policy without the entries of lists that have ended at `now` (seconds of Unix time).
    fn policy(&self, now: u64) -> Option<Policy> {
        let mut policy = self.read.as_ref()?.0.clone();
        policy.drop_over(now);
        Some(policy)
    }

    /// The files of its sets and tenants that a policy has too. What a file has may have changed since that
    /// policy was applied: the file is named all the same.
    fn files(&self, policy: &Policy) -> FromFiles {
        let Some((_, files)) = &self.read else { return FromFiles::default() };
        let mut files = files.clone();
        let is_there = |of: &BTreeMap<String, Vec<IpNet>>, name: &str, own: &[IpNet]| {
            of.get(name)
                .is_some_and(|all| own.iter().all(|prefix| all.binary_search(prefix).is_ok()))
        };
        files.sets.retain(|name, own| is_there(&policy.sets, name, own));
        files.tenants.retain(|name, own| is_there(&policy.tenants, name, own));
        files.set_paths.retain(|name, _| files.sets.contains_key(name));
        files.tenant_paths.retain(|name, _| files.tenants.contains_key(name));
        files
    }

    /// The comments in front of the document, which are kept.
    fn header(&self) -> String {
        let text = String::from_utf8_lossy(&self.text);
        let is_kept = |line: &&str| line.trim().is_empty() || line.starts_with('#');
        text.split_inclusive('\n').take_while(is_kept).collect()
    }

    /// What of the file would be lost with it; `None` if nothing would.
    fn lost(&self) -> Option<&'static str> {
        if self.read.is_none() {
            return Some("is no policy that can be read");
        }
        let text = String::from_utf8_lossy(&self.text);
        let has_comment = |line: &str| {
            line.trim_start().starts_with('#') || line.contains(" #") || line.contains("\t#")
        };
        let rest = text.lines().skip(self.header().lines().count());
        rest.into_iter().any(has_comment).then_some("has comments, which would be lost")
    }
}

/// A file was not replaced.
#[derive(Debug, Error)]
#[error("{path} is not replaced: it {lost}")]
struct Lossy {
    path: String,
    lost: &'static str,
    /// Where the document was written instead.
    beside: String,
}

impl Failure for Lossy {
    fn remedy(&self) -> Option<String> {
        let Self { path, beside, .. } = self;
        Some(format!(
            "the policy in force is in {beside}: take over what changed; or replace the file by \
             `limiter policy save --force {path}`, which keeps it as {path}.bak"
        ))
    }
}
