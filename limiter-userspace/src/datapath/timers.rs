//! Whether the kernel has timers that programs can set.

use std::fs;

use aya::util::KernelVersion;

/// Whether programs can set timers here. Without them, they read the clock more often.
pub(super) fn are_available() -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    // Where there is no such file, as in most network namespaces, nobody can turn the JIT off.
    let (build, jit) =
        (read("/proc/sys/kernel/version"), read("/proc/sys/net/core/bpf_jit_enable"));
    are_in(KernelVersion::current().ok(), &build, &jit)
}

/// Whether they can on a kernel of this version, which says this of how it was built and of its JIT.
fn are_in(version: Option<KernelVersion>, build: &str, jit: &str) -> bool {
    // A kernel for real time refuses programs that set timers, or warns when they do.
    let real_time = ["PREEMPT_RT", "PREEMPT RT"].iter().any(|kind| build.contains(kind));
    // What a timer calls has to be compiled.
    let compiled = jit.trim() != "0";
    version.is_some_and(|version| version >= KernelVersion::new(5, 15, 0)) && !real_time && compiled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_take_a_kernel_that_is_new_enough_not_for_real_time_and_has_a_compiler() {
        let debian = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.158-1 (2025-11-09)";
        let version = |major, minor| Some(KernelVersion::new(major, minor, 0));
        for jit in ["1\n", "2\n", ""] {
            assert!(are_in(version(6, 1), debian, jit) && are_in(version(5, 15), debian, jit));
        }
        assert!(!are_in(version(5, 14), debian, "1\n") && !are_in(None, debian, "1\n"));
        assert!(!are_in(version(6, 1), debian, "0\n"));
        for build in ["#1 SMP PREEMPT_RT Debian 6.1.158-1", "#1 SMP PREEMPT RT Debian 5.10.1-1"] {
            assert!(!are_in(version(6, 18), build, "1\n"), "{build}");
        }
    }
}
