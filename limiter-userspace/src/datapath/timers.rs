//! Whether programs may set timers.

use std::fs;

/// Whether programs may set timers here, if the kernel takes those that do: one that is older than Linux 5.15 or does not
/// compile programs refuses them, and one for real time may only warn when they do it.
pub(super) fn may_be_set() -> bool {
    let build = fs::read_to_string("/proc/sys/kernel/version").unwrap_or_default();
    !is_for_real_time(&build)
}

/// Whether a kernel that says this of how it was built is one for real time.
fn is_for_real_time(build: &str) -> bool {
    ["PREEMPT_RT", "PREEMPT RT"].iter().any(|kind| build.contains(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_for_real_time_says_so() {
        for build in ["#1 SMP PREEMPT_RT Debian 6.1.158-1", "#1 SMP PREEMPT RT Debian 5.10.1-1"] {
            assert!(is_for_real_time(build), "{build}");
        }
        for build in ["#1 SMP PREEMPT_DYNAMIC Debian 6.1.158-1 (2025-11-09)", "#1 SMP", ""] {
            assert!(!is_for_real_time(build), "{build}");
        }
    }
}
