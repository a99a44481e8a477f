//! Policies that the command has with it, for `limiter attach --preset` and `limiter policy example`.

use clap::{Args, ValueEnum};
use serde_json::json;

use super::limit::entry;
use crate::{
    error::Result,
    output::{limits, stream::Output},
    policy::{
        Policy,
        document::{Faults, parse},
    },
};

/// A policy by what a host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Preset {
    /// A web server: new connections and packets to ports 80 and 443, pings, fragments
    Web,
    /// SSH: new connections of each address, and of each network
    Ssh,
    /// A DNS server: queries of each network, and of all together
    Dns,
    /// A game server: UDP of each player, joins, reflection floods
    Game,
    /// Any host: new connections, pings, fragments, reflection floods
    Host,
}

impl Preset {
    /// The word for it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Web => "web",
            Self::Ssh => "ssh",
            Self::Dns => "dns",
            Self::Game => "game",
            Self::Host => "host",
        }
    }

    /// Its document.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Web => include_str!("../../../packaging/presets/web.yaml"),
            Self::Ssh => include_str!("../../../packaging/presets/ssh.yaml"),
            Self::Dns => include_str!("../../../packaging/presets/dns.yaml"),
            Self::Game => include_str!("../../../packaging/presets/game.yaml"),
            Self::Host => include_str!("../../../packaging/presets/host.yaml"),
        }
    }

    /// Its policy.
    ///
    /// # Errors
    /// The faults of its document; it has none.
    pub(super) fn policy(self) -> Result<Policy, Faults> {
        let no_file = &mut |_: &str| Err(crate::policy::document::FileError::TooLarge { most: 0 });
        parse(self.name(), self.text().as_bytes(), no_file)
    }

    /// Prints the limits that the preset set in a policy, and how to change them.
    pub(super) fn print(self, policy: &Policy, output: &mut Output) -> Result<()> {
        let name = self.name();
        writeln!(output, "The limits of the preset `{name}`:")?;
        let entries: Vec<_> = policy.limits.iter().map(|limit| entry(policy, limit)).collect();
        limits::print(output, &entries)?;
        Ok(writeln!(
            output,
            "`limiter policy example {name}` says why; `limiter limit set NAME --rate RATE` changes one."
        )?)
    }
}

/// `limiter policy example`.
#[derive(Debug, Args)]
pub(super) struct Example {
    /// The preset; all are listed if none is given
    #[arg(value_name = "NAME", value_enum)]
    name: Option<Preset>,
}

impl Example {
    pub(super) fn run(&self, output: &mut Output) -> Result<()> {
        let Some(preset) = self.name else { return list(output) };
        if output.is_json() {
            let example = json!({ "name": preset.name(), "document": preset.text() });
            return Ok(output.shape("limiter.policy-example/1", &example)?);
        }
        Ok(write!(output, "{}", preset.text())?)
    }
}

/// Lists the presets.
fn list(output: &mut Output) -> Result<()> {
    let told = |preset: &Preset| {
        preset.to_possible_value().and_then(|value| Some(value.get_help()?.to_string()))
    };
    let presets = Preset::value_variants();
    if output.is_json() {
        let entry = |preset: &Preset| json!({ "name": preset.name(), "about": told(preset) });
        let entries: Vec<_> = presets.iter().map(entry).collect();
        return Ok(output.entries("limiter.policy-examples/1", "examples", &entries)?);
    }
    for preset in presets {
        writeln!(output, "{:5} {}", preset.name(), told(preset).unwrap_or_default())?;
    }
    Ok(writeln!(
        output,
        "`limiter policy example NAME` prints one; `limiter attach IFACE --preset NAME` puts it in force."
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{
        Assignment, Context, caveats::caveats, compile, model::Mode, units::rate_per_second,
    };

    #[test]
    fn every_preset_is_a_policy_that_compiles_and_leaves_nothing_to_be_said() {
        for preset in Preset::value_variants() {
            let policy = preset.policy().unwrap_or_else(|faults| panic!("{faults}"));
            compile(&policy, &Assignment::default(), &Context::default()).unwrap();
            let told: Vec<String> = caveats(&policy).into_iter().map(|it| it.message).collect();
            assert!(told.is_empty(), "{preset:?}: {told:?}");
            assert!(preset.text().starts_with("# "), "{preset:?} says what it is for");
        }
    }

    /// Safe numbers: nobody is blocked, all is by source or far above what one source may send, and an established connection
    /// of SSH is not limited.
    #[test]
    fn no_preset_cuts_off_who_is_connected() {
        for preset in Preset::value_variants() {
            for limit in preset.policy().unwrap().limits {
                assert_eq!((limit.mode, limit.penalty), (Mode::Enforce, None), "{}", limit.name);
                let is_of_ssh = limit.matching.ports.iter().any(|range| range.contains(&22));
                let about_tcp = limit.matching.protocols.contains(&6);
                let counts_all = limit.count.name() == "packets";
                assert!(
                    !(counts_all && (is_of_ssh || about_tcp && limit.matching.ports.is_empty()))
                );
                let bucket = limit.layers[0].allowance.bucket();
                assert!(rate_per_second(bucket.rate).as_f64().unwrap() <= 200_000.0);
                assert!(bucket.burst >= 10, "{}", limit.name);
            }
        }
    }
}
