//! `limiter attach`.

use clap::{Args, ValueEnum};
use limiter_common::limit::Limit;
use serde_json::json;

use crate::{
    datapath::{
        bpffs::{Pins, unmount},
        instance::{Attached, Choice, Instance, Outcome},
        interface::Interface,
        mode::Mode,
        privilege,
        sizes::Sizes,
    },
    error::{Error, Result},
    output::stream::Output,
    policy::{
        Bucket, Policy,
        units::{default_burst, parse_burst, parse_rate},
    },
};

#[derive(Debug, Args)]
pub(super) struct Attach {
    /// Interfaces; all of an instance share one policy and one set of buckets
    #[arg(required = true, value_name = "IFACE")]
    interfaces: Vec<String>,
    /// Where to run: auto takes native, and generic where the driver has no XDP
    #[arg(long, value_enum, default_value = "auto")]
    mode: ModeName,
    /// Limit `source`: packets per source, e.g. 10kpps
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pps: Option<String>,
    /// Burst of the limit `source`: packets, e.g. 2k, or a time, e.g. 100ms
    #[arg(long, value_name = "N", requires = "pps", allow_hyphen_values = true)]
    burst: Option<String>,
    /// Limit `syn`: new TCP connections per source, e.g. 100/s
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    syn: Option<String>,
    /// Replace the program of interfaces that are attached already, keeping all state
    #[arg(long)]
    replace: bool,
    /// Sources tracked at once [default: 1048576]
    #[arg(long, value_name = "N")]
    sources: Option<u32>,
    /// Connections tracked at once [default: 262144]
    #[arg(long, value_name = "N")]
    connections: Option<u32>,
    /// Distinct combinations of overrides [default: 131072]
    #[arg(long, value_name = "N")]
    overrides: Option<u32>,
    /// Prefix length that makes an IPv4 source [default: 32]
    #[arg(long, value_name = "BITS")]
    ipv4_prefix: Option<u8>,
    /// Prefix length that makes an IPv6 source [default: 64]
    #[arg(long, value_name = "BITS")]
    ipv6_prefix: Option<u8>,
    /// Mount a BPF file system first if there is none
    #[arg(long)]
    mount_bpffs: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModeName {
    Auto,
    Native,
    Skb,
}

/// What was done with an interface.
enum Done {
    Attached(Outcome),
    Replaced(Mode),
    Nothing(Mode),
}

impl Attach {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let mut asked = Policy::default();
        self.edit(&mut asked)?;
        let mut interfaces: Vec<Interface> = Vec::new();
        for name in &self.interfaces {
            let interface = Interface::find(name)?;
            interface.check_ethernet()?;
            if !interfaces.contains(&interface) {
                interfaces.push(interface);
            }
        }
        self.sizes().check()?;
        privilege::check()?;
        let mounted = if self.mount_bpffs { pins.mount()? } else { None };
        match self.attach_to(pins, &asked, &interfaces) {
            Ok((done, policy)) => {
                if let Some(mount) = mounted
                    && !output.is_json()
                {
                    writeln!(output, "mounted a BPF file system on {}", mount.display())?;
                }
                self.report(&interfaces, &done, &policy, output)
            }
            Err(error) => {
                if let Some(mount) = mounted {
                    unmount(&mount);
                }
                Err(error)
            }
        }
    }

    fn attach_to(
        &self,
        pins: &Pins,
        asked: &Policy,
        interfaces: &[Interface],
    ) -> Result<(Vec<Done>, Policy)> {
        let mut instance = Instance::open_or_create(pins, &self.sizes(), asked)?;
        let result = self.attach_all(&mut instance, interfaces);
        let policy = instance.maps().policy();
        instance.close()?;
        Ok((result?, policy?))
    }

    /// Attaches all interfaces that are not attached yet, or none of them.
    fn attach_all(&self, instance: &mut Instance, interfaces: &[Interface]) -> Result<Vec<Done>> {
        let before = instance.attached()?;
        let running = |interface: &Interface| {
            before.iter().find(|attached| attached.present && attached.index == interface.index)
        };
        if !instance.is_fresh() {
            self.check_sizes(instance)?;
        }
        let mut done = Vec::new();
        let result = interfaces.iter().try_for_each(|interface| {
            done.push(self.attach(instance, interface, running(interface))?);
            Ok(())
        });
        let new = done.iter().any(|done| matches!(done, Done::Attached(_)));
        let result = result.and_then(|()| {
            if new && !instance.is_fresh() {
                let mut policy = instance.maps().policy()?;
                self.edit(&mut policy)?;
                instance.maps_mut().apply(&policy)?;
            }
            instance.reclaim()
        });
        if let Err(error) = result {
            for attached in instance.attached()? {
                // The slot of one that is gone may have been given to another.
                if before.iter().all(|before| !before.exists || before.slot != attached.slot) {
                    instance.detach(attached.slot)?;
                }
            }
            return Err(error);
        }
        Ok(done)
    }

    fn attach(
        &self,
        instance: &mut Instance,
        interface: &Interface,
        running: Option<&Attached>,
    ) -> Result<Done> {
        match running {
            Some(running) if self.replace => {
                instance.replace(running)?;
                Ok(Done::Replaced(running.mode))
            }
            Some(running) => Ok(Done::Nothing(running.mode)),
            None => instance.attach(interface, self.mode.choice()).map(Done::Attached),
        }
    }

    fn report(
        &self,
        interfaces: &[Interface],
        done: &[Done],
        policy: &Policy,
        output: &mut Output,
    ) -> Result<()> {
        if output.is_json() {
            let entries: Vec<_> = interfaces.iter().zip(done).map(Done::json).collect();
            return Ok(output.json(&entries)?);
        }
        for (interface, done) in interfaces.iter().zip(done) {
            writeln!(output, "{}", done.text(&interface.name))?;
        }
        let asked = self.pps.is_some()
            || self.syn.is_some()
            || self.ipv4_prefix.is_some()
            || self.ipv6_prefix.is_some();
        if done.iter().all(|done| !matches!(done, Done::Attached(_))) {
            if asked {
                writeln!(output, "The policy is as it was; change it with `limiter limit set`.")?;
            }
        } else if Limit::ALL.iter().all(|limit| policy.limit(*limit).is_off()) {
            writeln!(
                output,
                "Nothing is limited yet, only counted. Set a limit: `limiter limit set source \
                 --rate 10kpps`"
            )?;
        }
        Ok(())
    }

    /// Sets what the options ask for.
    fn edit(&self, policy: &mut Policy) -> Result<()> {
        let mut prefix = policy.key_prefix;
        prefix.ipv4 = self.ipv4_prefix.unwrap_or(prefix.ipv4);
        prefix.ipv6 = self.ipv6_prefix.unwrap_or(prefix.ipv6);
        policy.set_key_prefix(prefix)?;
        let pps = (Limit::Source, self.pps.as_deref(), self.burst.as_deref());
        for (limit, rate, burst) in [pps, (Limit::Syn, self.syn.as_deref(), None)] {
            if let Some(rate) = rate {
                policy.set_default(limit, bucket(rate, burst)?)?;
            }
        }
        Ok(())
    }

    fn sizes(&self) -> Sizes {
        let default = Sizes::default();
        Sizes {
            sources: self.sources.unwrap_or(default.sources),
            connections: self.connections.unwrap_or(default.connections),
            overrides: self.overrides.unwrap_or(default.overrides),
        }
    }

    /// Sizes that are given must be those of the instance that runs.
    fn check_sizes(&self, instance: &Instance) -> Result<()> {
        let running = instance.sizes()?;
        for (option, asked, running) in [
            ("--sources", self.sources, running.sources),
            ("--connections", self.connections, running.connections),
            ("--overrides", self.overrides, running.overrides),
        ] {
            if let Some(asked) = asked
                && asked != running
            {
                return Err(Error::Size { option, running, asked });
            }
        }
        Ok(())
    }
}

/// The bucket of a rate and a burst as they were written; without a burst, the default one.
pub(super) fn bucket(rate: &str, burst: Option<&str>) -> Result<Bucket> {
    let rate = parse_rate(rate).map_err(crate::policy::PolicyError::from)?;
    let burst = match burst {
        Some(burst) => parse_burst(burst).map_err(crate::policy::PolicyError::from)?.packets(rate),
        None => default_burst(rate),
    };
    Ok(Bucket::new(rate, burst)?)
}

impl ModeName {
    const fn choice(self) -> Choice {
        match self {
            Self::Auto => Choice::Auto,
            Self::Native => Choice::Only(Mode::Native),
            Self::Skb => Choice::Only(Mode::Generic),
        }
    }
}

impl Done {
    fn text(&self, name: &str) -> String {
        match self {
            Self::Attached(Outcome { mode, fallback }) => {
                let cost = match mode {
                    Mode::Native => "",
                    Mode::Generic => ", which is slower and counts packets after they were merged",
                };
                let reason = fallback.as_ref().map_or_else(String::new, |reason| {
                    format!("; the driver refused native mode: {reason}")
                });
                format!("{name}: attached in {mode} mode{cost}{reason}")
            }
            Self::Replaced(mode) => {
                format!("{name}: replaced the program, still in {mode} mode; all state was kept")
            }
            Self::Nothing(mode) => {
                format!("{name}: attached already, in {mode} mode; nothing was changed")
            }
        }
    }

    fn json((interface, done): (&Interface, &Self)) -> serde_json::Value {
        let (action, mode, fallback) = match done {
            Self::Attached(Outcome { mode, fallback }) => ("attached", mode, fallback.as_ref()),
            Self::Replaced(mode) => ("replaced", mode, None),
            Self::Nothing(mode) => ("unchanged", mode, None),
        };
        json!({
            "name": interface.name,
            "mode": mode.name(),
            "action": action,
            "fallback": fallback.map(ToString::to_string),
        })
    }
}
