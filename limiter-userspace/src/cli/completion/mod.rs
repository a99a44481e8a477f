//! `limiter completion`, and the answers to what the scripts of that ask.

mod candidates;

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    path::Path,
};

use clap::{Args, ValueEnum};
use clap_complete::env::{Bash, CompleteEnv, EnvCompleter, Fish, Shells, Zsh};
use serde_json::json;

use super::command;
use crate::{error::Result, output::stream::Output};

/// The variable by which a script asks, which has the name of the shell.
const VARIABLE: &str = "COMPLETE";

const NAME: &str = "limiter";

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
        let shell: &dyn EnvCompleter = match self.shell {
            Shell::Bash => &Words,
            Shell::Zsh => &Autoloaded,
            Shell::Fish => &Fish,
        };
        let mut script = Vec::new();
        // Writing to memory does not fail.
        let _: io::Result<()> = shell.write_registration(VARIABLE, NAME, NAME, NAME, &mut script);
        let script = String::from_utf8_lossy(&script);
        if output.is_json() {
            return Ok(output.shape(
                "limiter.completion/1",
                &json!({ "shell": shell.name(), "script": script }),
            )?);
        }
        Ok(write!(output, "{script}")?)
    }
}

/// Answers a script that asks for completions. Returns whether one did.
pub(super) fn answered(arguments: &[OsString]) -> bool {
    // Somebody else may use a variable of this name.
    let is_asked = arguments.get(1).is_some_and(|first| first == "--")
        && env::var(VARIABLE).is_ok_and(|shell| Shell::from_str(&shell, false).is_ok());
    if !is_asked {
        return false;
    }
    let factory = || candidates::added_to(visible());
    let shells: [&dyn EnvCompleter; 3] = [&Words, &Autoloaded, &Fish];
    let asked = CompleteEnv::with_factory(factory).var(VARIABLE).shells(Shells(&shells));
    // An error would be written between the words that are typed.
    let folder = env::current_dir().ok();
    let _: Result<bool, clap::Error> = asked.try_complete(arguments, folder.as_deref());
    true
}

/// Bash, by a script that takes an IPv6 address for one word.
struct Words;

impl EnvCompleter for Words {
    fn name(&self) -> &'static str {
        Bash.name()
    }

    fn is(&self, name: &str) -> bool {
        Bash.is(name)
    }

    fn write_registration(
        &self,
        _: &str,
        _: &str,
        _: &str,
        _: &str,
        script: &mut dyn Write,
    ) -> io::Result<()> {
        script.write_all(include_bytes!("limiter.bash"))
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        arguments: Vec<OsString>,
        folder: Option<&Path>,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        Bash.write_complete(command, arguments, folder, to)
    }
}

/// Zsh, by a script that also completes when it is loaded for the first completion.
struct Autoloaded;

impl EnvCompleter for Autoloaded {
    fn name(&self) -> &'static str {
        Zsh.name()
    }

    fn is(&self, name: &str) -> bool {
        Zsh.is(name)
    }

    fn write_registration(
        &self,
        variable: &str,
        name: &str,
        binary: &str,
        completer: &str,
        script: &mut dyn Write,
    ) -> io::Result<()> {
        Zsh.write_registration(variable, name, binary, completer, script)?;
        writeln!(script, "[ \"$funcstack[1]\" = \"_{name}\" ] && _clap_dynamic_completer_{name}")
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        arguments: Vec<OsString>,
        folder: Option<&Path>,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        Zsh.write_complete(command, arguments, folder, to)
    }
}

/// The command line without the commands that no help names, which the library would offer.
fn visible() -> clap::Command {
    let all = command();
    let shown = all.get_subcommands().filter(|it| !it.is_hide_set()).cloned();
    clap::Command::new(NAME)
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .args(all.get_arguments().cloned())
        .subcommands(shown.collect::<Vec<_>>())
}
