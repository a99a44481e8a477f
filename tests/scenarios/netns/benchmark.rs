//! The benchmark, of which a run takes a quarter of an hour: here is a part of it that no other test runs.

use std::process::Command;

#[test]
fn the_cost_of_events_that_nobody_reads_is_measured() {
    let output = Command::new(env!("CARGO_BIN_EXE_limiter-bench"))
        .args(["--quick", "--only", "events"])
        .output()
        .unwrap();
    let [report, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{report}{errors}");
    for row in ["every packet of a source that begins to be over its limit", "one source over"] {
        assert!(report.contains(row), "{row}: {report}");
    }
}
