//! `cargo xtask`: set-up, build, checks, tests, demonstration and benchmark of limiter.
//!
//! It depends only on `anyhow`, `clap` and `libc`, so that it builds before it has installed anything.

mod apt;
mod capability;
mod cargo_fuzz;
mod checkout;
mod child;
#[cfg(test)]
mod circles;
mod dist;
mod fuzz;
mod launch;
mod libtest;
mod linker;
mod lint;
mod outcome;
mod packages;
mod privilege;
mod setup;
mod step;
mod suite;
mod toolchain;
mod tools;
mod touched;
mod unpacked;
mod vm;
mod wheels;
mod workspace;

use std::{ffi::OsString, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{
    step::{Extent, Use},
    suite::{Depth, Selection},
    vm::kernel::Kernel,
};

/// Everything a developer of limiter runs: each command does its own set-up first.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what the build, the tests, the demo and the benchmark need
    Setup {
        /// Only report; exit with 1 when something is missing
        #[arg(long)]
        check: bool,
    },
    /// Build the `limiter` binary and say where it is
    Build {
        /// Optimised
        #[arg(long)]
        release: bool,
    },
    /// Check formatting, clippy (host and BPF target) and documentation, warnings denied
    Lint,
    /// Lint, then run the unit, property, program-run, namespace and command-line tests, and the
    /// program-run tests on other kernels
    Test {
        /// Only this part
        #[arg(value_enum, default_value_t = Selection::All)]
        suite: Selection,
        /// What a change needs, in some minutes: of the tests that take long those that the change touches, a quarter of the
        /// property tests' cases, of the model
        /// checker's orders those with one preemption, no guests and no fuzzers
        #[arg(long, conflicts_with = "full")]
        quick: bool,
        /// All random runs of `prog`, for an eighth otherwise
        #[arg(long)]
        full: bool,
    },
    /// Run the program-run tests in which kernels may differ on other kernels, in an emulator
    Vm {
        /// Boot this one, and others by further options; without any, all but 5.10
        #[arg(long = "kernel", value_enum, value_name = "VERSION")]
        kernels: Vec<Kernel>,
    },
    /// Feed inputs that libFuzzer makes to the readers of policies, set files, captures, frames and requests
    Fuzz {
        /// Only this target
        #[arg(value_parser = fuzz::NAMES)]
        target: Option<String>,
        /// How long each target runs; all run at the same time
        #[arg(long, value_name = "SECONDS", default_value_t = fuzz::SECONDS)]
        seconds: u32,
    },
    /// Limit real traffic between two network namespaces and show it
    #[command(disable_help_flag = true)]
    Demo {
        /// Passed on to `limiter-demo`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Measure nanoseconds per packet and packets per second beside other limiters; with --l7, the bridge
    #[command(disable_help_flag = true)]
    Bench {
        /// Passed on to `limiter-bench`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Make a Debian package, an RPM, an archive and their checksums, in `target/dist`
    Dist(dist::Dist),
    /// Check that this process may load and run BPF programs and make namespaces
    #[command(hide = true)]
    Capability,
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    match task {
        Task::Setup { check } => {
            let extent = if check { Extent::Report } else { Extent::Install };
            setup::setup(
                &[
                    Use::Build,
                    Use::Lint,
                    Use::Traffic,
                    Use::Dist,
                    Use::Servers,
                    Use::Fuzz,
                    Use::Kernels,
                ],
                extent,
            )?;
        }
        Task::Build { release } => launch::build(release)?,
        Task::Lint => return suite::run(Selection::Lint, Depth::Usual),
        Task::Test { suite, quick, full } => {
            let depth = match (quick, full) {
                (true, _) => Depth::Quick,
                (false, true) => Depth::Full,
                (false, false) => Depth::Usual,
            };
            return suite::run(suite, depth);
        }
        Task::Vm { kernels } => return vm::run(&kernels),
        Task::Fuzz { target, seconds } => return fuzz::run(target.as_deref(), seconds),
        Task::Demo { arguments } => launch::launch("limiter-demo", &arguments)?,
        Task::Bench { arguments } => launch::launch("limiter-bench", &arguments)?,
        Task::Dist(dist) => dist.run()?,
        Task::Capability => capability::check()?,
    }
    Ok(ExitCode::SUCCESS)
}
