//! `limiter-demo`: shows the limiter between two hosts on real packets.
//!
//! Makes two hosts and a wire, attaches the limiter, sets two limits, runs five senders at once, and compares
//! the frames that arrived with what the limits admit. All of it is in namespaces without a name, so nothing
//! is left behind however the process ends.
//!
//! With `--l7` it shows the bridge instead: nginx before a service, and clients that ask for pages.

mod ending;
mod interrupt;
mod l7;
mod picture;
mod report;
mod senders;
mod stage;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Parser;
use limiter_userspace::output::{
    stream::{Output, OutputError},
    tone::Tone,
};

use self::{ending::Ending, report::Report, senders::senders, stage::Stage};

/// Shows limiter on real packets between two hosts made for it: attaches, limits, floods, counts.
#[derive(Debug, Parser)]
#[command(name = "limiter-demo", version, max_term_width = 100)]
struct Options {
    /// How long the senders send
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Also write the screen of `limiter watch` to this file, as SVG; it is not shown then
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Limit requests instead, by nginx and the bridge; a client that ignores 429 is blocked in the kernel
    #[arg(long, conflicts_with = "picture")]
    l7: bool,
}

fn main() -> ExitCode {
    let interrupted = ExitCode::from(128 + libc::SIGINT as u8);
    let options = Options::parse();
    let mut output = Output::stdout(false);
    match run(&options, &mut output).and_then(|ending| Ok(output.flush().map(|()| ending)?)) {
        Ok(Ending::Exact) => ExitCode::SUCCESS,
        Ok(Ending::Off) => ExitCode::FAILURE,
        Ok(Ending::Interrupted) => interrupted,
        // Ctrl-C also ends the child process, whose failure then arrives here.
        Err(_) if interrupt::is_asked() => interrupted,
        Err(error) => {
            // A failure to print the error cannot be reported either.
            let _: std::io::Result<()> = std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!("error: {error:#}\n"),
            );
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options, output: &mut Output) -> Result<Ending> {
    interrupt::catch()?;
    let stage = Stage::new()?;
    let length = Duration::from_secs(options.seconds);
    if options.l7 {
        return l7::run(&stage, length, output);
    }
    introduce(&stage, output)?;
    stage.limiter("attach eth0", output)?;
    stage.limiter("limit set source --rate 1kpps --burst 200", output)?;
    stage.limiter("limit set syn --rate 50/s", output)?;
    let footprint = stage.footprint()?;

    let mut senders = senders(&stage.hosts)?;
    let run = stage.run(&mut senders, length, options.picture.as_deref(), output)?;
    let report = run.map(|run| Report::new(&stage, &senders, &run)).transpose()?;
    if let Some(report) = &report {
        report.print(output)?;
    }
    stage.limiter("detach --all", output)?;
    footprint.assert_gone()?;
    let Some(report) = report else {
        writeln!(output, "\nStopped. Nothing is left of it.")?;
        return Ok(Ending::Interrupted);
    };
    advise(&stage, output)?;
    Ok(if report.is_exact() { Ending::Exact } else { Ending::Off })
}

fn introduce(stage: &Stage, output: &mut Output) -> Result<(), OutputError> {
    let (client, router) = (&stage.hosts.client_port, &stage.hosts.router_port);
    writeln!(output)?;
    output.toned(Tone::Strong, "Five senders on one wire, and limiter at its end")?;
    writeln!(output, "\n")?;
    let left = [client.v4.to_string(), client.v6.to_string()];
    let right = [router.v4.to_string(), router.v6.to_string()];
    let [v4, v6] = &left;
    writeln!(output, "  client  {v4:<14}                 eth0  {}  router", right[0])?;
    writeln!(output, "          {v6:<14} ──────────────▶ XDP   {}", right[1])
}

/// Prints how to use the limiter on a real interface.
fn advise(stage: &Stage, output: &mut Output) -> Result<(), OutputError> {
    let interface = stage::default_interface();
    let limiter = stage.limiter.path().display();
    writeln!(output, "\nOn a real interface, where it limits nothing until you set a limit:")?;
    for arguments in [
        format!("attach {interface}"),
        "watch".to_owned(),
        "limit set source --rate 10kpps".to_owned(),
        format!("detach {interface}"),
    ] {
        writeln!(output, "  sudo {limiter} {arguments}")?;
    }
    Ok(())
}
