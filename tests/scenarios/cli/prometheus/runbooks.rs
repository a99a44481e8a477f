//! The runbooks of the alerts.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use limiter_tests::command::binary;

/// The folder of the runbooks; the alerts link to the same path.
const FOLDER: &str = "docs/runbooks";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(FOLDER)
}

/// Each alert: its name and the lines of its rule.
fn alerts(rules: &str) -> Vec<(&str, &str)> {
    let parts = rules.split("- alert: ").skip(1);
    parts.map(|part| part.split_once('\n').unwrap()).collect()
}

/// The `limiter` commands in a text: on indented lines and between backticks.
fn commands(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("    "));
    let lines = lines.map(|line| line.trim_start_matches("sudo ").to_owned());
    let inline = text.split('`').skip(1).step_by(2);
    let inline = inline.map(|words| words.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.chain(inline).filter(|command| command.starts_with("limiter ")).collect()
}

#[test]
fn every_alert_has_a_page_and_every_page_an_alert() {
    let rules = fs::read_to_string(super::shipped().join("limiter.rules.yaml")).unwrap();
    let alerts = alerts(&rules);
    assert!(alerts.len() > 15, "{alerts:?}");
    for (name, rule) in &alerts {
        let page = folder().join(format!("{name}.md"));
        let page = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{name}: {error}"));
        let line = format!("runbook: {FOLDER}/{name}.md\n");
        assert!(rule.contains(&line), "{name} does not name its page");
        let severity = rule.lines().find_map(|line| line.trim().strip_prefix("severity: "));
        let severity = severity.unwrap_or_else(|| panic!("{name} has no severity"));
        assert!(["critical", "warning", "info"].contains(&severity), "{name}: {severity}");
        assert!(page.starts_with(&format!("# {name}\n")), "{page}");
        assert!(page.contains(&format!(" Severity: {severity}.\n")), "{name}: {page}");
        for heading in ["Who is affected", "Look", "What to do"] {
            assert!(page.contains(&format!("\n## {heading}\n")), "{name}: {heading}");
        }
        let action = rule.split_once("action: ").unwrap().1;
        assert!(action.contains('`'), "{name}: no command to begin with");
    }
    let pages = fs::read_dir(folder()).unwrap().map(|page| page.unwrap().file_name());
    let pages: BTreeSet<String> = pages.map(|page| page.into_string().unwrap()).collect();
    let expected = alerts.iter().map(|(name, _)| format!("{name}.md")).collect();
    assert_eq!(pages, expected);
}

/// A command in a runbook has to work as written, because an operator types it during an incident.
#[test]
fn alerts_and_pages_show_commands_that_there_are() {
    let rules = fs::read_to_string(super::shipped().join("limiter.rules.yaml")).unwrap();
    let rules = rules.replace("{{ $labels.interface }}", "eth0");
    let mut all = commands(&rules.replace("{{ $labels.table }}", "sources"));
    for page in fs::read_dir(folder()).unwrap() {
        all.extend(commands(&fs::read_to_string(page.unwrap().path()).unwrap()));
    }
    assert!(all.len() > 20, "{all:?}");
    for command in all {
        // clap parses the arguments before `--help`, so wrong ones fail.
        let arguments = command.split(' ').skip(1).chain(["--help"]);
        let mut limiter = Command::new(binary().unwrap());
        let output = limiter.args(arguments).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
