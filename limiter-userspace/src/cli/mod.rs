//! The command line.

mod attach;
mod detach;
mod limit;
mod statistics;
mod watch;

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use serde_json::json;

use crate::{
    datapath::{
        bpffs::{self, Pins},
        instance,
        maps::Maps,
    },
    error::{Error, Result},
    output::stream::Output,
};

/// Kernel-level rate limiter: drops floods per source and per connection in XDP, before the network
/// stack sees them.
///
/// Nothing has to run for that to go on: programs and state are pinned in the kernel.
#[derive(Debug, Parser)]
#[command(name = "limiter", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    /// Directory of the instance on a BPF file system; another directory is another instance
    #[arg(long, global = true, value_name = "DIR", env = "LIMITER_BPFFS",
          default_value = bpffs::DEFAULT)]
    bpffs: PathBuf,
    /// Print JSON
    #[arg(short, long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Attach to interfaces; without a limit this only observes
    Attach(attach::Attach),
    /// Detach from interfaces; the last one takes the policy and all state with it
    Detach(detach::Detach),
    /// Show interfaces, limits, reasons and memory
    Status,
    /// Show or change the limits
    #[command(subcommand)]
    Limit(limit::LimitCommand),
    /// Watch rates, drops and the top dropped sources; leaving it changes nothing
    Watch(watch::Watch),
    /// List the sources with the most drops
    Top(statistics::Top),
}

/// Runs the command in the arguments of this process.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no failure; clap knows where each belongs.
            return match error.print() {
                Ok(()) => ExitCode::from(error.exit_code() as u8),
                Err(_) => ExitCode::FAILURE,
            };
        }
    };
    let pins = Pins::new(&cli.bpffs);
    let mut output = Output::stdout(cli.json);
    let result = match cli.command {
        Command::Attach(attach) => attach.run(&pins, &mut output),
        Command::Detach(detach) => detach.run(&pins, &mut output),
        Command::Status => statistics::status(&pins, &mut output),
        Command::Limit(limit) => limit.run(&pins, &mut output),
        Command::Watch(watch) => watch.run(&pins, &mut output),
        Command::Top(top) => top.run(&pins, &mut output),
    };
    match result.and_then(|()| Ok(output.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error, cli.json);
            ExitCode::from(error.exit_code())
        }
    }
}

/// Tells an error and what to do about it, on the standard error output if that is still there.
fn complain(error: &Error, json: bool) {
    let mut stderr = io::stderr().lock();
    let _: io::Result<()> = if json {
        let error = json!({ "error": { "message": error.to_string(), "hint": error.remedy() } });
        writeln!(stderr, "{error}")
    } else {
        writeln!(stderr, "error: {error}").and_then(|()| match error.remedy() {
            Some(remedy) => writeln!(stderr, "hint: {remedy}"),
            None => Ok(()),
        })
    };
}

/// The error for a command that needs an instance where there is none.
fn no_instance(pins: &Pins) -> Error {
    Error::NoInstance { directory: pins.directory().to_path_buf() }
}

/// Opens the maps for reading.
fn maps(pins: &Pins) -> Result<Maps> {
    if !instance::exists(pins)? {
        return Err(no_instance(pins));
    }
    Maps::open(pins)
}
