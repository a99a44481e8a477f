//! `limiter completion`.

use clap::{Args, ValueEnum};
use clap_complete::{aot, generate};
use serde_json::json;

use super::command;
use crate::{error::Result, output::stream::Output};

#[derive(Debug, Args)]
pub(super) struct Completion {
    /// Shell that the script is for
    #[arg(value_enum)]
    shell: Shell,
}

/// The shells with a completion script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Completion {
    pub(super) fn run(&self, output: &mut Output) -> Result<()> {
        let shell = match self.shell {
            Shell::Bash => aot::Shell::Bash,
            Shell::Zsh => aot::Shell::Zsh,
            Shell::Fish => aot::Shell::Fish,
        };
        let mut script = Vec::new();
        generate(shell, &mut visible(), "limiter", &mut script);
        let script = String::from_utf8_lossy(&script);
        if output.is_json() {
            return Ok(output.shape(
                "limiter.completion/1",
                &json!({ "shell": shell.to_string(), "script": script }),
            )?);
        }
        Ok(write!(output, "{script}")?)
    }
}

/// The command line without the commands that no help names, which the library would offer.
fn visible() -> clap::Command {
    let all = command();
    let shown = all.get_subcommands().filter(|it| !it.is_hide_set()).cloned();
    clap::Command::new("limiter")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .args(all.get_arguments().cloned())
        .subcommands(shown.collect::<Vec<_>>())
}
