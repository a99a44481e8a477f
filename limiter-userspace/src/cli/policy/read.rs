//! `limiter policy check` and `limiter policy diff`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::{
    bridge::decide,
    cli::{
        maps,
        preset::Preset,
        progress::Progress,
        stderr::{warn, warn_of_document},
        unix,
    },
    datapath::{bpffs::Pins, host},
    error::{Error, Result},
    output::{changes, faults, number::grouped, stream::Output},
    policy::{
        Policy,
        caveats::{Caveat, caveats},
        document::{Faults, Warnings, diff},
        guard::guard,
        reading::{self, name},
        shadowed::FromFiles,
    },
};

#[derive(Debug, Args)]
pub(in crate::cli) struct Check {
    /// The document, in YAML; - for the standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Quote the lines of files of sets that are wrong
    #[arg(long)]
    show: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct Diff {
    /// The document, in YAML; - for the standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Check {
    pub(super) fn run(&self, output: &mut Output) -> Result<()> {
        let (policy, warnings) =
            read(&self.file).map_err(|error| match error.failure::<Faults>() {
                // The files were read with the rights of the caller, so quoting them discloses nothing.
                Some(faults) if self.show => faults.clone().quoting().into(),
                _ => error,
            })?;
        let file = name(&self.file);
        if output.is_json() {
            let warnings = faults::entries(warnings.list());
            let caveats: Vec<_> = caveats(&policy)
                .iter()
                .map(|Caveat { limits, message, remedy }| {
                    json!({ "limits": limits, "message": message, "hint": remedy })
                })
                .collect();
            return Ok(output.shape(
                "limiter.check/1",
                &json!({
                    "file": file,
                    "limits": policy.limits.len(),
                    "limits_on_requests": policy.on_requests.len(),
                    "prefixes": policy.number_of_prefixes(),
                    "warnings": warnings,
                    "caveats": caveats,
                }),
            )?);
        }
        warn_of_document(&warnings, output);
        for caveat in caveats(&policy) {
            warn(&line(&caveat), output);
        }
        Ok(writeln!(output, "{file}: ok: {}", summary(&policy))?)
    }
}

impl Diff {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let (policy, _) = read(&self.file)?;
        let changes = diff(&maps(pins)?.policy()?, &policy);
        if output.is_json() {
            return Ok(output.entries("limiter.diff/1", "changes", &changes::entries(&changes))?);
        }
        Ok(changes::print(output, &changes)?)
    }
}

/// A document that may replace the policy in force.
pub(in crate::cli) struct Document {
    file: String,
    pub(in crate::cli) policy: Policy,
    pub(in crate::cli) warnings: Warnings,
    /// The parts that come from files of sets and tenants.
    files: FromFiles,
}

impl Document {
    /// Reads a document, see [`reading::read_with_files`].
    pub(in crate::cli) fn read(path: &Path) -> Result<Self> {
        let (policy, warnings, files) = reading::read_with_files(path, unix(), &mut |_| {})?;
        can_be_asked(path, &policy)?;
        Ok(Self { file: name(path), policy, warnings, files })
    }

    /// The document of a preset.
    pub(in crate::cli) fn of_preset(preset: Preset) -> Result<Self> {
        let file = format!("preset {}", preset.name());
        let (warnings, files) = (Warnings::default(), FromFiles::default());
        Ok(Self { file, policy: preset.policy()?, warnings, files })
    }

    /// Refuses a document whose files would cut this host off, or lift most of a list in force.
    pub(in crate::cli) fn guard(&self, running: &Policy) -> Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        guard(Some(running), &self.policy, &self.files, &host::read()?).map_err(|refusal| {
            Error::ChangeRefused { document: self.file.clone(), refusal: refusal.to_string() }
        })
    }
}

/// Reads the policy in a document, see [`reading::read`].
fn read(path: &Path) -> Result<(Policy, Warnings)> {
    let _progress = Progress::of(&format!("reading {}", name(path)));
    let (policy, warnings) = reading::read(path, unix(), &mut |_| {})?;
    can_be_asked(path, &policy)?;
    Ok((policy, warnings))
}

/// Checks that the bridge could decide by the policy of a document too.
fn can_be_asked(path: &Path, policy: &Policy) -> Result<()> {
    decide::check(policy)
        .map_err(|error| Error::Impossible { file: name(path), error: Box::new(error) })
}

/// A caveat on one line. Of many limits, only the first ones are named.
fn line(Caveat { limits, message, remedy }: &Caveat) -> String {
    const NAMED: usize = 5;
    let named = limits.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match limits.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {} more", grouped(more as u64)),
    };
    let limits = if limits.len() == 1 { "limit" } else { "limits" };
    format!("{limits} {named}{more}: {message}; {remedy}")
}

/// The number of limits and prefixes in a policy, in words.
pub(super) fn summary(policy: &Policy) -> String {
    let counted = |count: usize, one: &str, more: &str| {
        format!("{} {}", grouped(count as u64), if count == 1 { one } else { more })
    };
    let limits = counted(policy.limits.len(), "limit", "limits");
    let on_requests = match policy.on_requests.len() {
        0 => String::new(),
        some => format!(", {}", counted(some, "limit on requests", "limits on requests")),
    };
    let prefixes = counted(policy.number_of_prefixes(), "prefix", "prefixes");
    format!("{limits}{on_requests}, {prefixes}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::document;

    #[test]
    fn a_caveat_is_one_line() {
        let of = |limits: &[&str]| Caveat {
            limits: limits.iter().map(|&name| name.to_owned()).collect(),
            message: "it leaks".to_owned(),
            remedy: "mend it".to_owned(),
        };
        assert_eq!(line(&of(&["a"])), "limit a: it leaks; mend it");
        let many = line(&of(&["a", "b", "c", "d", "e", "f", "g"]));
        assert_eq!(many, "limits a, b, c, d, e and 2 more: it leaks; mend it");
    }

    #[test]
    fn a_policy_is_summed_up_in_limits_and_prefixes() {
        let policy = |text: &str| {
            document::parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap()
        };
        assert_eq!(summary(&policy("version: 1")), "0 limits, 0 prefixes");
        let one = "version: 1\nlimits: [{name: a, key: source, overrides: [{src: 203.0.113.9, rate: 1/s}]}]";
        assert_eq!(summary(&policy(one)), "1 limit, 1 prefix");
        let requests = "version: 1\nlimits: [{name: a, on: requests, key: source, rate: 1/s}]";
        assert_eq!(summary(&policy(requests)), "0 limits, 1 limit on requests, 0 prefixes");
        let many: Vec<String> = (0..=255).map(|last| format!("203.0.113.{last}")).collect();
        let many = format!(
            "version: 1\nsets: {{a: {{cidrs: [{0}]}}}}\ntenants: {{b: {{cidrs: [{0}]}}}}\n\
             deny: [{0}]\npenalties: [{{src: 192.0.2.1, until: 1}}]\nallow: [192.0.2.2]\n",
            many.join(", ")
        );
        // Neighbouring prefixes in a set are merged if they make up one prefix.
        let sets: usize = policy(&many).sets.values().map(Vec::len).sum();
        assert_eq!(summary(&policy(&many)), format!("0 limits, {} prefixes", 258 + 2 * sets));
    }
}
