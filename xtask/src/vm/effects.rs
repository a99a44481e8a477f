//! Whether Linux 6.1 runs the same main programs as Linux 6.12.
//!
//! A verifier removes what it takes for dead. That of Linux 6.1 can be wrong (`unlink` in `limiter-ebpf/src/kernel/barrier.rs`): it
//! once removed the charge of the first limit, so nothing was limited. Each guest prints a number for each function of what that
//! does. Linux 6.12 leaves out functions that nothing calls, so its numbers have to be among those of Linux 6.1. Later kernels
//! find more that is dead, such as what follows a look-up that cannot fail. They are not compared.

use std::collections::BTreeMap;

use super::kernel::Kernel;

/// How each line of a guest begins.
pub(crate) const START: &str = "effects of ";

/// A sentence for each program that is another one on [`Kernel::V6_1`], by the lines of the guests.
pub(super) fn differences(runs: &[(Kernel, Vec<String>)]) -> Vec<String> {
    let of = |kernel| runs.iter().find(|run| run.0 == kernel).map(|run| by_program(&run.1));
    let (Some(found), Some(expected)) = (of(Kernel::V6_1), of(Kernel::V6_12)) else {
        return Vec::new();
    };
    if expected.is_empty() {
        return vec!["no program was compared between Linux 6.1 and 6.12".to_owned()];
    }
    let compare = |(program, functions): (&&str, &Functions<'_>)| {
        let found = found.get(program);
        let is_missing = |(function, count): &(&&str, &usize)| {
            found.and_then(|found| found.get(*function)).is_none_or(|found| found < *count)
        };
        let missing = functions.iter().filter(is_missing).count();
        (missing != 0).then(|| {
            format!(
                "{program}: functions that do something else on Linux 6.1 than on 6.12: {missing}. The verifier of 6.1 may \
                 take instructions for dead that are not (see `unlink` in limiter-ebpf/src/kernel/barrier.rs), or that of \
                 6.12 finds more that is"
            )
        })
    };
    expected.iter().filter_map(compare).collect()
}

/// How many functions of a program have a number.
type Functions<'a> = BTreeMap<&'a str, usize>;

/// The functions of each program.
fn by_program(lines: &[String]) -> BTreeMap<&str, Functions<'_>> {
    let mut programs = BTreeMap::<_, Functions<'_>>::new();
    let lines = lines.iter().filter_map(|line| line.strip_prefix(START)?.rsplit_once(": "));
    for (program, numbers) in lines {
        let functions = programs.entry(program).or_default();
        for number in numbers.split(' ') {
            *functions.entry(number).or_default() += 1;
        }
    }
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_linux_6_1_changed_is_told() {
        let run = |kernel, lines: &[&str]| {
            (kernel, lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>())
        };
        let later = run(Kernel::V6_12, &["effects of x: a b b", "effects of y: c"]);
        let latest = run(Kernel::V7_3, &["effects of x: e"]);
        let told = |lines: &[&str]| {
            differences(&[latest.clone(), run(Kernel::V6_1, lines), later.clone()])
        };
        assert!(told(&["effects of x: a b b d", "effects of y: c"]).is_empty());
        for changed in ["effects of x: a b d", "effects of x: a b b", "effects of x: b b d"] {
            let is_same = changed.contains("a b b");
            assert_eq!(told(&[changed, "effects of y: c"]).is_empty(), is_same, "{changed}");
        }
        assert_eq!(told(&["effects of x: a b b"]).len(), 1, "one was not printed");
        assert_eq!(told(&[]).len(), 2);
        let silent = [run(Kernel::V6_1, &[]), run(Kernel::V6_12, &[])];
        assert_eq!(differences(&silent).len(), 1, "nothing was printed");
        // A kernel that did not run is not compared.
        assert!(differences(&[later]).is_empty());
    }
}
