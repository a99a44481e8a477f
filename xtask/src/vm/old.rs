//! A kernel that is too old: `limiter attach` has to say what it lacks and leave nothing behind.

use std::path::Path;

use anyhow::{Result, bail};

use super::{boot, guest::End, initramfs, kernel::Kernel};
use crate::libtest::Run;

const COMMANDS: &str = "\
limiter attach lo
echo \"attach ended with $?\"
echo \"pinned: $(ls -A /sys/fs/bpf)\"
echo \"on lo: $(ip link show lo | grep -o prog/xdp)\"
";

/// Texts that the output has to contain. A text that ends with a space has to be a whole line.
const EXPECTED: [&str; 5] = [
    "lacks atomic compare-and-exchange in BPF (since 5.12), which limiter needs",
    "hint: boot Linux 5.13 or later",
    "attach ended with 1",
    "pinned: ",
    "on lo: ",
];

/// Boots the kernel and runs an attach on it.
pub(super) fn run(kernel: Kernel, limiter: &Path) -> Result<Run> {
    let initramfs = initramfs(kernel, COMMANDS)?;
    initramfs.add_program(limiter, "limiter")?;
    let mut said = Vec::new();
    let end = boot(kernel, initramfs, |line| said.push(line.to_owned()))?;
    let release = match end {
        End::Ran { kernel, status: 0 } => kernel,
        End::Ran { kernel, status } => bail!("{kernel}: the commands ended with {status}"),
        End::Broke(how) => bail!("the guest {how}"),
    };
    let mut ran = Run::default();
    for expected in EXPECTED {
        if said.iter().any(|line| fits(line, expected)) {
            ran.counts.passed += 1;
        } else {
            ran.failures.push(format!("{release}: nothing said `{expected}`"));
            ran.counts.failed += 1;
        }
    }
    let message = said.into_iter().find(|line| line.starts_with("error: ")).unwrap_or_default();
    ran.notes.push(format!("{release}, limiter attach: {message}"));
    Ok(ran)
}

/// Whether a line fits a text of [`EXPECTED`].
fn fits(line: &str, expected: &str) -> bool {
    if expected.ends_with(' ') { line == expected } else { line.contains(expected) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_to_be_empty_must_be() {
        assert!(fits("pinned: ", "pinned: "));
        assert!(!fits("pinned: limiter", "pinned: "));
        assert!(fits("error: it lacks x", "lacks x"));
    }
}
