//! The command line.

mod agent;
mod attach;
mod bridge;
mod change;
mod completion;
mod detach;
mod doctor;
mod drops;
mod examples;
mod explain;
mod get;
mod keep_ssh;
mod limit;
mod list;
mod loader;
mod manual;
mod metrics;
mod monitor;
mod policy;
mod preset;
mod progress;
mod statistics;
mod stderr;
mod test;
mod user;
mod watch;
mod words;

use std::{
    env,
    ffi::OsString,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, error::ErrorKind};
use serde_json::json;

use self::{
    stderr::{complain, teller_of_waiting},
    words::Line,
};
use crate::{
    datapath::{
        bpffs::{self, Pins},
        instance::Instance,
        interface,
        link::exists,
        maps::Maps,
        privilege,
    },
    error::{Error, Result},
    output::{number::Amounts, stream::Output},
    policy::List,
};

/// Kernel-level rate limiter: drops floods per source and per connection in XDP, before the network
/// stack sees them.
///
/// No process has to run for that: programs and state are pinned in the kernel.
#[derive(Debug, Parser)]
#[command(name = "limiter", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    /// Directory of the instance on a BPF file system; another directory is another instance
    #[arg(long, global = true, value_name = "DIR", env = "LIMITER_BPFFS",
          default_value = bpffs::DEFAULT)]
    bpffs: PathBuf,
    /// File that keeps the run-time lists (`allow`, `deny`, `penalty`) over reboots
    /// [default: below /var/lib/limiter, one for each instance]
    #[arg(long, global = true, value_name = "FILE", env = "LIMITER_STATE")]
    state: Option<PathBuf>,
    /// Print JSON
    #[arg(short, long, global = true)]
    json: bool,
    /// Print bytes in tables unrounded; JSON always has them so
    #[arg(short, long, global = true)]
    raw: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Attach to interfaces; until a limit is set, packets are only counted
    Attach(attach::Attach),
    /// Detach from interfaces; with the last one, the policy and all state are removed
    Detach(detach::Detach),
    /// Show interfaces, limits, reasons and memory
    Status,
    /// Show or change the limits
    #[command(subcommand)]
    Limit(limit::LimitCommand),
    /// Show what is known of a source: its limits and what is left of them, penalties, totals
    Get(get::Get),
    /// Show whether a packet, or each packet of a file, would pass; no state is changed
    Test(test::Test),
    /// Check, compare, apply, show and save whole policies
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Stop all drops at once, whatever the policy says, or drop again; would-be drops are counted
    Monitor(monitor::Monitor),
    /// Let all packets of sources pass, whatever the limits say
    #[command(subcommand)]
    Allow(list::ListCommand),
    /// Drop all packets of sources
    #[command(subcommand)]
    Deny(list::ListCommand),
    /// Block sources for a while, or list those that are blocked
    #[command(subcommand)]
    Penalty(list::PenaltyCommand),
    /// Watch rates, drops and the top dropped sources; leaving it changes nothing
    Watch(watch::Watch),
    /// Show packets that are dropped, as they come, and what most of them have in common
    Drops(drops::Drops),
    /// List the sources with the most drops
    Top(statistics::Top),
    /// Attach interfaces when they appear, follow a policy document, serve metrics, until it is stopped
    Agent(agent::Agent),
    /// Answer proxies that ask about HTTP requests, by the limits on requests of a policy, until it is stopped
    Bridge(bridge::Bridge),
    /// Print metrics in the text format of Prometheus
    Metrics,
    /// Check whether limiter works on this machine, and what would improve it; nothing is changed
    Doctor(doctor::Doctor),
    /// Print the version
    #[command(hide = true)]
    Version,
    /// Print a script for a shell that completes commands, options and their values
    Completion(completion::Completion),
    /// Write the manual pages of all commands into a directory
    #[command(hide = true)]
    Man(manual::Man),
    /// Load programs for the agent that started it, and that has no right to
    #[command(hide = true)]
    Loader,
}

/// The definition of the command line, of which the help, the completion and the manual pages are
/// made.
fn command() -> clap::Command {
    manual::with_exit_codes(examples::added_to(words::with_aliases(Cli::command())))
}

/// Parses the arguments of a command line. `line` has its words.
fn parse(mut arguments: Vec<OsString>, line: &Line) -> Result<Cli, clap::Error> {
    let mut parsed = command().try_get_matches_from(&arguments);
    if let Some(default) = parsed.as_ref().err().and_then(|error| line.default(error)) {
        arguments.push(default.into());
        parsed = command().try_get_matches_from(&arguments);
    }
    parsed.and_then(|it| Cli::from_arg_matches(&it))
}

/// Runs the command in the arguments of this process.
pub fn run() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().collect();
    if completion::answered(&arguments) {
        return ExitCode::SUCCESS;
    }
    let line = Line::new(&arguments, &command(), interface_names);
    let cli = match parse(arguments, &line) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error, &line),
    };
    let pins = Pins::new(&cli.bpffs).telling_of(Some(teller_of_waiting(cli.json)));
    let pins = match cli.state.filter(|file| !file.as_os_str().is_empty()) {
        Some(file) => pins.with_state(file),
        None => pins,
    };
    // A message would be drawn over the screen of a watch. The agent reports a lock in its own way.
    let silent = pins.clone().telling_of(None);
    let amounts = if cli.raw { Amounts::Exact } else { Amounts::Rounded };
    let mut output = Output::stdout(cli.json).with_amounts(amounts);
    let result = match cli.command {
        Command::Attach(attach) => attach.run(&pins, &mut output),
        Command::Detach(detach) => detach.run(&pins, &mut output),
        Command::Status => statistics::status(&pins, &mut output),
        Command::Limit(limit) => limit.run(&pins, &mut output),
        Command::Policy(policy) => policy.run(&pins, &mut output),
        Command::Get(get) => get.run(&pins, &mut output),
        Command::Test(test) => test.run(&pins, &mut output),
        Command::Monitor(monitor) => monitor.run(&pins, &mut output),
        Command::Allow(list) => list.run(List::Allow, &pins, &mut output),
        Command::Deny(list) => list.run(List::Deny, &pins, &mut output),
        Command::Penalty(list) => list.run(&pins, &mut output),
        Command::Watch(watch) => watch.run(&silent, &mut output),
        Command::Drops(drops) => drops.run(&pins, &mut output),
        Command::Top(top) => top.run(&pins, &mut output),
        Command::Agent(agent) => agent.run(silent, &mut output),
        Command::Bridge(bridge) => bridge.run(&mut output),
        Command::Metrics => metrics::metrics(&pins, &mut output),
        Command::Doctor(doctor) => doctor.run(&pins, &mut output),
        Command::Version => version(&mut output),
        Command::Completion(completion) => completion.run(&mut output),
        Command::Man(man) => man.run(&mut output),
        Command::Loader => loader::run(&pins),
    };
    match result.and_then(|()| Ok(output.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = line.answered(error);
            complain(&error, &output);
            ExitCode::from(error.exit_code())
        }
    }
}

/// Reports a command line that cannot be parsed.
fn refuse(error: &clap::Error, line: &Line) -> ExitCode {
    // clap returns help and version as errors too, and knows their output and exit code.
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        return match error.print() {
            Ok(()) => ExitCode::from(error.exit_code() as u8),
            Err(_) => ExitCode::FAILURE,
        };
    }
    let error = line.refusal(error, &command());
    complain(&error, &Output::stdout(line.json));
    ExitCode::from(error.exit_code())
}

/// The names of the interfaces of this network namespace; none if they cannot be listed.
fn interface_names() -> Vec<String> {
    interface::list().unwrap_or_default().into_iter().map(|interface| interface.name).collect()
}

/// Prints the version, as `--version` does.
fn version(output: &mut Output) -> Result<()> {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    if output.is_json() {
        return Ok(output.shape("limiter.version/1", &json!({ "version": VERSION }))?);
    }
    Ok(writeln!(output, "limiter {VERSION}")?)
}

/// Opens the maps of the instance, to read them.
fn maps(pins: &Pins) -> Result<Maps> {
    if !exists(pins)? {
        return Err(no_instance(pins));
    }
    privilege::check_sysfs()?;
    Maps::open(pins)
}

/// Opens the instance, to change it.
fn instance(pins: &Pins) -> Result<Instance> {
    Instance::open(pins)?.ok_or_else(|| no_instance(pins))
}

fn no_instance(pins: &Pins) -> Error {
    Error::NoInstance { directory: pins.directory().to_path_buf() }
}

/// The time in seconds of Unix time.
fn unix() -> u64 {
    unix_time().as_secs()
}

/// Unix time.
fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The end of a time that starts now, in seconds of Unix time, rounded up.
fn end_of(time: Duration) -> u64 {
    let end = unix_time().saturating_add(time);
    end.as_secs().saturating_add(u64::from(end.subsec_nanos() > 0))
}
