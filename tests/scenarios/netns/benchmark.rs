//! The benchmark, of which a run takes a quarter of an hour: here are parts of it that no other test runs.

use std::process::Command;

fn report(only: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_limiter-bench"))
        .args(["--quick", "--only", only])
        .output()
        .unwrap();
    let [report, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{report}{errors}");
    report
}

#[test]
fn the_time_of_commands_that_edit_a_long_list_is_measured() {
    let report = report("lists");
    assert!(report.contains("\nlists       100000 addresses in one `deny add` in "), "{report}");
}

#[test]
fn the_cost_of_events_that_nobody_reads_is_measured() {
    let report = report("events");
    for row in ["every packet of a source that begins to be over its limit", "one source over"] {
        assert!(report.contains(row), "{row}: {report}");
    }
}
