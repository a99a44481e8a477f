//! Finds the slow tests that a change needs.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};

use crate::{child, workspace};

/// The tests that a changed file needs: a prefix of its path, and a module of the target `integration`.
const ASKED_FOR: [(&str, &str); 33] = [
    ("docs/", "cli::documented"),
    ("docs/l7.md", "cli::bridge"),
    ("README.md", "cli::documented"),
    ("limiter-ebpf/", "netns::limits"),
    ("limiter-userspace/src/agent/", "cli::agent"),
    ("limiter-userspace/src/agent/bouncer", "cli::crowdsec"),
    ("limiter-userspace/src/bridge/", "cli::bridge"),
    ("limiter-userspace/src/cli/", "cli::commands"),
    ("limiter-userspace/src/cli/", "cli::mistakes"),
    ("limiter-userspace/src/cli/attach/", "cli::attach"),
    ("limiter-userspace/src/cli/keep_ssh", "cli::ssh"),
    ("limiter-userspace/src/cli/list/", "cli::lists"),
    ("limiter-userspace/src/cli/monitor", "cli::monitor"),
    ("limiter-userspace/src/cli/policy/", "cli::policy"),
    ("limiter-userspace/src/crowdsec/", "cli::crowdsec"),
    ("limiter-userspace/src/datapath/", "cli::attach"),
    ("limiter-userspace/src/datapath/", "cli::locks"),
    ("limiter-userspace/src/datapath/", "cli::names"),
    ("limiter-userspace/src/datapath/kept", "cli::lists"),
    ("limiter-userspace/src/doctor/", "cli::doctor"),
    ("limiter-userspace/src/error.rs", "cli::mistakes"),
    ("limiter-userspace/src/query/", "cli::inquiry"),
    ("limiter-userspace/src/metrics/", "cli::metrics"),
    ("limiter-userspace/src/output/", "cli::json"),
    ("limiter-userspace/src/policy/", "cli::policy"),
    ("limiter-userspace/src/policy/guard", "cli::agent::guard"),
    ("limiter-userspace/src/policy/run_time", "cli::lists"),
    ("limiter-userspace/src/policy/session", "cli::ssh"),
    ("limiter-userspace/src/watch/", "cli::watch"),
    ("monitoring/", "cli::prometheus"),
    ("packaging/", "cli::package"),
    ("packaging/crowdsec.sh", "cli::crowdsec"),
    ("packaging/fail2ban", "cli::fail2ban"),
];

/// The slow targets without privilege, each with the path prefixes that need it.
const TARGETS: [(&str, &[&str]); 3] = [
    ("lease_races", &["limiter-common/", "Cargo."]),
    ("loom", &["limiter-common/", "Cargo."]),
    ("policy", &["limiter-userspace/", "limiter-common/", "Cargo."]),
];

/// The slowest module of the target `policy`, with the path prefixes that need it.
const HOSTILE: (&str, &[&str]) = ("hostile::", &["limiter-userspace/", "Cargo."]);

/// The modules of `tests` that the change needs.
pub(crate) fn modules(tests: &[String]) -> Result<BTreeSet<String>> {
    let paths = paths()?;
    Ok(paths.iter().flat_map(|path| modules_of(path)).filter(|it| are_in(tests, it)).collect())
}

/// The slow targets without privilege that the change does not need.
pub(crate) fn other_targets() -> Result<Vec<&'static str>> {
    let paths = paths()?;
    let others = TARGETS.iter().filter(|(_, begins)| !asked_for(&paths, begins));
    Ok(others.map(|(target, _)| *target).collect())
}

/// The slow module without privilege, if the change does not need it.
pub(crate) fn other_module() -> Result<Option<&'static str>> {
    let (module, begins) = HOSTILE;
    Ok((!asked_for(&paths()?, begins)).then_some(module))
}

/// Whether one of the paths starts with one of these prefixes.
fn asked_for(paths: &[String], begins: &[&str]) -> bool {
    paths.iter().any(|path| begins.iter().any(|begin| path.starts_with(begin)))
}

/// The files that differ from the last commit; if there are none, those that the last commit changed.
fn paths() -> Result<Vec<String>> {
    let mut paths = changed(&["diff", "--name-only", "HEAD"])?;
    paths.extend(changed(&["ls-files", "--others", "--exclude-standard"])?);
    if paths.is_empty() {
        paths = changed(&["diff", "--name-only", "HEAD~1", "HEAD"])?;
    }
    Ok(paths)
}

fn changed(arguments: &[&str]) -> Result<Vec<String>> {
    let mut git = std::process::Command::new("git");
    git.current_dir(workspace::root()).args(arguments);
    let listing = child::query(&mut git)
        .with_context(|| format!("`git {}` does not tell what has changed", arguments.join(" ")))?;
    Ok(listing.lines().map(str::to_owned).collect())
}

fn are_in(tests: &[String], module: &str) -> bool {
    tests.iter().any(|test| crate::outcome::is_in(test, module))
}

/// The modules that a changed path needs: its own if it has tests, and those in [`ASKED_FOR`].
fn modules_of(path: &str) -> Vec<String> {
    let by_table = ASKED_FOR.iter().filter(|(begin, _)| path.starts_with(begin));
    let mut modules: Vec<String> = by_table.map(|(_, module)| (*module).to_owned()).collect();
    let scenario = path.strip_prefix("tests/scenarios/").and_then(|it| it.strip_suffix(".rs"));
    if let Some(scenario) = scenario
        && ["cli/", "netns/"].iter().any(|suite| scenario.starts_with(suite))
    {
        modules.push(scenario.replace('/', "::"));
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_asks_for_itself_and_a_folder_for_its_tests() {
        assert_eq!(modules_of("tests/scenarios/cli/watch/terminal.rs"), ["cli::watch::terminal"]);
        assert_eq!(modules_of("tests/scenarios/netns/wire.rs"), ["netns::wire"]);
        assert_eq!(modules_of("limiter-userspace/src/agent/reconcile.rs"), ["cli::agent"]);
        assert_eq!(modules_of("packaging/fail2ban.conf"), ["cli::package", "cli::fail2ban"]);
        assert!(modules_of("tests/scenarios/prog/swap.rs").is_empty());
        assert!(
            modules_of("limiter-common/src/algorithm/gcra.rs").is_empty(),
            "unit and prog always run"
        );
    }

    #[test]
    fn all_of_the_controller_asks_for_something() {
        let folder = "limiter-userspace/src";
        for entry in std::fs::read_dir(workspace::root().join(folder)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let end = if entry.path().is_dir() { "/some.rs" } else { "" };
            let is_root = ["lib.rs", "main.rs"].contains(&name.as_str());
            assert!(is_root || !modules_of(&format!("{folder}/{name}{end}")).is_empty(), "{name}");
        }
    }
}
