//! What the options of `limiter attach` ask for.

use std::{path::PathBuf, time::Duration};

use clap::{ArgGroup, Args};

use crate::{
    cli::{
        keep_ssh::{KeepSsh, Kept, keep},
        policy::Document,
        preset::Preset,
        stderr::warn_of_document,
        unix,
    },
    datapath::maps::Maps,
    error::{Error, Result},
    output::stream::Output,
    policy::{Builtin, Layers, Policy, PolicyError, Session, model::GlobalMode, units::parse_time},
};

/// The options about the policy.
#[derive(Debug, Args)]
#[group(id = "policy_options", multiple = true)]
#[command(group = ArgGroup::new("limits").multiple(true).args(["policy", "preset", "pps", "syn"]))]
pub(super) struct PolicyOptions {
    /// Apply this policy document; - for the standard input
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["pps", "syn", "ipv4_prefix", "ipv6_prefix"])]
    policy: Option<PathBuf>,
    /// Apply this policy document if nothing is attached yet; an instance that runs keeps its policy
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["policy", "pps", "syn", "monitor", "ipv4_prefix", "ipv6_prefix"])]
    policy_if_new: Option<PathBuf>,
    /// Apply a policy that the command has with it, and print its limits; `limiter policy example` lists them
    #[arg(long, value_name = "NAME", value_enum,
          conflicts_with_all = ["policy", "policy_if_new", "pps", "syn"])]
    preset: Option<Preset>,
    /// Limit `source`: packets per source, e.g. 10kpps
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pps: Option<String>,
    /// Burst of the limit `source`: packets, e.g. 2k, or a time, e.g. 100ms
    #[arg(long, value_name = "N", requires = "pps", allow_hyphen_values = true)]
    burst: Option<String>,
    /// Limit `syn`: new TCP connections per source, e.g. 100/s
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    syn: Option<String>,
    /// Drop nothing, only count what would be dropped
    #[arg(long)]
    monitor: bool,
    /// Stop limiting after this time, e.g. 5m, unless `limiter policy confirm` is given before
    #[arg(long = "for", value_name = "TIME", requires = "limits")]
    time: Option<String>,
    /// Prefix length that makes an IPv4 source [default: 32]
    #[arg(long, value_name = "BITS")]
    ipv4_prefix: Option<u8>,
    /// Prefix length that makes an IPv6 source [default: 64]
    #[arg(long, value_name = "BITS")]
    ipv6_prefix: Option<u8>,
    #[command(flatten)]
    keep: KeepSsh,
}

/// What they ask for, read.
pub(super) struct Asked<'o> {
    pub(super) options: &'o PolicyOptions,
    document: Option<Document>,
    /// Why the document for a new instance could not be read.
    pub(super) unread: Option<Error>,
    session: Option<Session>,
    /// For how long, unless it is confirmed.
    pub(super) time: Option<Duration>,
    /// In an instance that is new.
    pub(super) new: Wanted,
}

/// What is to be in force.
pub(super) struct Wanted {
    pub(super) layers: Layers,
    /// The source that is allowed in it for the session.
    pub(super) kept: Option<Kept>,
}

impl PolicyOptions {
    /// Reads what they name.
    pub(super) fn read(&self, output: &Output) -> Result<Asked<'_>> {
        let time = self.time.as_deref().map(parse_time).transpose();
        let file = self.policy.as_deref().or(self.policy_if_new.as_deref());
        let (mut document, mut unread) = (None, None);
        if let Some(path) = file {
            match Document::read(path) {
                Ok(read) => {
                    warn_of_document(&read.warnings, output);
                    document = Some(read);
                }
                // It may not be needed.
                Err(error) if self.policy_if_new.is_some() => unread = Some(error),
                Err(error) => return Err(error),
            }
        }
        if let Some(preset) = self.preset {
            document = Some(Document::of_preset(preset)?);
        }
        let (time, session) = (time.map_err(PolicyError::from)?, self.keep.session(output)?);
        let policy = document.as_ref().map(|document| document.policy.clone()).unwrap_or_default();
        let new = self.change(Layers { policy, ..Layers::default() }, None, session)?;
        Ok(Asked { options: self, document, unread, session, time, new })
    }

    /// Makes the other options part of what comes after what runs, if something does with these maps.
    fn change(
        &self,
        mut layers: Layers,
        maps: Option<&Maps>,
        session: Option<Session>,
    ) -> Result<Wanted> {
        let policy = &mut layers.policy;
        let mut prefix = policy.key_prefix;
        prefix.ipv4 = self.ipv4_prefix.unwrap_or(prefix.ipv4);
        prefix.ipv6 = self.ipv6_prefix.unwrap_or(prefix.ipv6);
        policy.set_key_prefix(prefix)?;
        let pps = (Builtin::Source, self.pps.as_deref(), self.burst.as_deref());
        for (limit, rate, burst) in [pps, (Builtin::Syn, self.syn.as_deref(), None)] {
            if let Some(rate) = rate {
                policy.set_bucket(limit, None, Some(rate), burst)?;
            }
        }
        if self.monitor {
            policy.mode = GlobalMode::Monitor;
        }
        let kept = keep(session, &mut layers, maps, unix())?;
        Ok(Wanted { layers, kept })
    }

    /// The preset whose limits they ask for.
    pub(super) const fn preset(&self) -> Option<Preset> {
        self.preset
    }

    /// Whether they set something of the policy where all interfaces are attached already. A document or a preset replaces
    /// all of a policy, and is left to `limiter policy apply` there.
    pub(super) const fn set(&self) -> bool {
        self.ask() && self.policy.is_none() && self.preset.is_none()
    }

    /// Whether they ask for anything at all of an instance that runs.
    pub(super) const fn ask(&self) -> bool {
        self.policy.is_some()
            || self.preset.is_some()
            || self.pps.is_some()
            || self.syn.is_some()
            || self.monitor
            || self.ipv4_prefix.is_some()
            || self.ipv6_prefix.is_some()
    }
}

impl Asked<'_> {
    /// What is to be in force in an instance that runs with this policy, and with these maps.
    pub(super) fn over(&self, running: &Layers, maps: Option<&Maps>) -> Result<Wanted> {
        // A document for a new instance is none for this one.
        let document = self.document.as_ref().filter(|_| self.options.policy_if_new.is_none());
        let layers = match document {
            Some(document) => {
                document.guard(&running.policy)?;
                running.under(document.policy.clone())
            }
            None => running.clone(),
        };
        self.options.change(layers, maps, self.session)
    }

    /// What is to be in force in a new instance that nothing is attached to yet. What is to be for a time
    /// only comes after a policy that limits nothing, so that there is something to go back to.
    pub(super) fn first(&self) -> Layers {
        let wanted = &self.new.layers;
        match self.time {
            None => wanted.clone(),
            Some(_) => {
                let key_prefix = wanted.policy.key_prefix;
                let policy = Policy { key_prefix, ..Policy::default() };
                Layers { policy, ..Layers::default() }
            }
        }
    }

    /// What is to be in force in a new instance, of which these are the maps: its run-time lists were restored, and
    /// commands may have changed it since.
    pub(super) fn restored(&self, maps: &Maps) -> Result<Wanted> {
        let running = maps.settled()?;
        let mut layers = match self.time {
            Some(_) => running.under(self.new.layers.policy.clone()),
            None => running,
        };
        let kept = keep(self.session, &mut layers, Some(maps), unix())?;
        Ok(Wanted { layers, kept: kept.or(self.new.kept) })
    }

    /// Whether it is about the policy of an instance that runs.
    pub(super) const fn is_for_running(&self) -> bool {
        self.options.ask() || self.session.is_some()
    }

    /// Refuses a time for an instance that others are attached to.
    pub(super) fn check_time(&self, attached: impl Iterator<Item = String>) -> Result<()> {
        match self.time {
            None => Ok(()),
            Some(_) => Err(Error::Shared { attached: attached.collect() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        options: PolicyOptions,
    }

    fn options(arguments: &str) -> Result<PolicyOptions, clap::Error> {
        let words = std::iter::once("attach").chain(arguments.split_whitespace());
        Command::try_parse_from(words).map(|command| command.options)
    }

    #[test]
    fn options_change_what_runs() {
        let options = options("--pps 1kpps --burst 5 --monitor --ipv4-prefix 24").unwrap();
        let asked = options.read(&Output::stdout(false)).unwrap();
        let mut running = Policy::default();
        running
            .set_default(Builtin::Syn, Builtin::Syn.limit().count.bucket("7/s", None).unwrap())
            .unwrap();
        let running = Layers { policy: running, ..Layers::default() };
        let Wanted { layers, kept } = asked.over(&running, None).unwrap();
        let policy = &layers.policy;
        assert_eq!(kept, None);
        assert_eq!((policy.mode, policy.key_prefix.ipv4), (GlobalMode::Monitor, 24));
        let names: Vec<&str> = policy.limits.iter().map(|limit| limit.name.as_str()).collect();
        assert_eq!(names, ["syn", "source"]);
        let new = asked.first();
        assert_eq!((&new, new.policy.limits.len()), (&asked.new.layers, 1));
        assert_eq!(asked.over(&layers, None).unwrap().layers, layers);
        assert!(asked.check_time(["eth0".to_owned()].into_iter()).is_ok());
    }

    #[test]
    fn a_policy_for_a_time_comes_after_an_empty_one_and_only_in_a_new_instance() {
        let options = options("--pps 1kpps --for 5m --ipv4-prefix 24").unwrap();
        let asked = options.read(&Output::stdout(false)).unwrap();
        let first = asked.first().policy;
        assert_eq!((first.key_prefix.ipv4, first.limits.len()), (24, 0));
        assert_eq!(asked.new.layers.policy.limits.len(), 1);
        let error = asked.check_time(["eth0".to_owned()].into_iter()).unwrap_err().to_string();
        assert!(error.contains("attached to eth0 already"), "{error}");
    }

    #[test]
    fn a_document_for_a_new_instance_leaves_the_policy_that_runs_but_for_the_session() {
        const FILE: &str =
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/policy/valid/bytes.yaml");
        let options = options(&format!("--policy-if-new {FILE}")).unwrap();
        let mut asked = options.read(&Output::stdout(false)).unwrap();
        assert!(asked.unread.is_none() && !asked.is_for_running());
        assert_ne!(asked.new.layers.policy, Policy::default());
        let mut running = Policy::default();
        let limit = Builtin::Source.limit().count.bucket("7/s", None).unwrap();
        running.set_default(Builtin::Source, limit).unwrap();
        let running = Layers { policy: running, ..Layers::default() };
        assert_eq!(asked.over(&running, None).unwrap().layers, running);
        asked.session = Session::parse("203.0.113.9 50000 192.0.2.1 22");
        assert!(asked.is_for_running());
        let Wanted { layers, kept } = asked.over(&running, None).unwrap();
        assert_eq!((&layers.policy, layers.run_time.entries().len()), (&running.policy, 1));
        assert!(kept.is_some());
    }

    #[test]
    fn a_document_that_cannot_be_read_may_not_be_needed() {
        let if_new = options("--policy-if-new /nowhere/policy.yaml").unwrap();
        let unread = if_new.read(&Output::stdout(false)).unwrap().unread.unwrap().to_string();
        assert!(unread.contains("/nowhere/policy.yaml"), "{unread}");
        let error = options("--policy /nowhere/policy.yaml")
            .unwrap()
            .read(&Output::stdout(false))
            .err()
            .unwrap();
        assert_eq!(error.to_string(), unread);
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        for arguments in [
            "--policy a.yaml --pps 1kpps",
            "--policy a.yaml --syn 1/s",
            "--policy a.yaml --ipv6-prefix 48",
            "--for 5m",
            "--for 5m --monitor",
            "--burst 5",
            "--policy a.yaml --keep-ssh --no-keep-ssh",
            "--policy-if-new a.yaml --policy a.yaml",
            "--policy-if-new a.yaml --pps 1kpps",
            "--policy-if-new a.yaml --monitor",
            "--policy-if-new a.yaml --for 5m",
            "--preset web --policy a.yaml",
            "--preset web --pps 5/s",
            "--preset list",
        ] {
            assert!(options(arguments).is_err(), "{arguments}");
        }
        for arguments in [
            "--policy a.yaml --for 5m --monitor",
            "--preset web --for 5m --monitor",
            "--syn 1/s --for 5m",
            "--monitor",
            "--pps 1/s --syn 1/s --for 1s",
        ] {
            assert!(options(arguments).is_ok(), "{arguments}");
        }
    }
}
