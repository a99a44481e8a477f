//! Which tests of the command line and of real traffic a change asks for.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};

use crate::{child, workspace};

/// Where tests are that a folder or file asks for: the beginning of its path, and a module of the target `integration`.
const ASKED_FOR: [(&str, &str); 11] = [
    ("limiter-userspace/src/agent/", "cli::agent"),
    ("limiter-userspace/src/cli/attach/", "cli::attach"),
    ("limiter-userspace/src/cli/list/", "cli::lists"),
    ("limiter-userspace/src/cli/policy/", "cli::policy"),
    ("limiter-userspace/src/datapath/interface.rs", "cli::interfaces"),
    ("limiter-userspace/src/doctor/", "cli::doctor"),
    ("limiter-userspace/src/inquiry/", "cli::inquiry"),
    ("limiter-userspace/src/metrics/", "cli::metrics"),
    ("limiter-userspace/src/watch/", "cli::watch"),
    ("monitoring/", "cli::prometheus"),
    ("packaging/", "cli::package"),
];

/// The modules of `tests` that what differs from the last commit asks for; where nothing does, what the last commit
/// changed.
pub(crate) fn modules(tests: &[String]) -> Result<BTreeSet<String>> {
    let mut paths = changed(&["diff", "--name-only", "HEAD"])?;
    paths.extend(changed(&["ls-files", "--others", "--exclude-standard"])?);
    if paths.is_empty() {
        paths = changed(&["diff", "--name-only", "HEAD~1", "HEAD"])?;
    }
    Ok(paths.iter().flat_map(|path| modules_of(path)).filter(|it| are_in(tests, it)).collect())
}

fn changed(arguments: &[&str]) -> Result<Vec<String>> {
    let mut git = std::process::Command::new("git");
    git.current_dir(workspace::root()).args(arguments);
    let listing = child::query(&mut git)
        .with_context(|| format!("`git {}` does not tell what has changed", arguments.join(" ")))?;
    Ok(listing.lines().map(str::to_owned).collect())
}

fn are_in(tests: &[String], module: &str) -> bool {
    tests.iter().any(|test| crate::suite::is_in(test, module))
}

/// The modules that one path asks for: that of the file itself where it has tests, and those of [`ASKED_FOR`].
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
        assert_eq!(modules_of("limiter-userspace/src/agent/keeper.rs"), ["cli::agent"]);
        assert!(modules_of("tests/scenarios/prog/swap.rs").is_empty());
        assert!(modules_of("docs/policy.md").is_empty());
    }
}
