//! The `limiter` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    limiter_userspace::cli::run()
}
