//! Values in the forms that people write, and that limiter prints.

use super::{Bench, SMALL};

#[test]
fn times_are_read_as_people_write_them() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL} --pps 10,000 --for 1h30m"));
    bench.done("policy confirm");
    assert_eq!(bench.json("limit show source -j")["rate_per_second"], 10_000);
    bench.done("limit set source --rate 1e6/s");
    assert_eq!(bench.json("limit show source -j")["rate_per_second"], 1_000_000);
    for (arguments, said) in [
        // Each is longer than the one before: no entry is shortened.
        (&["--for", "600"][..], "(10m 00s)"),
        (&["--for", "1h 30m"], "(1h 30m)"),
        (&["--for", "3h18m49.5s"], "(3h 18m)"),
        (&["--for", "1w"], "(7d 00h)"),
        (&["--until", "2099-12-31"], "until 2099-12-31T00:00:00Z"),
        (&["--until", "2099-12-31T01:00:00+01:00"], "until 2099-12-31T00:00:00Z"),
        (&["--for", "forever"], "deny: 198.51.100.7/32"),
    ] {
        let arguments = [&["deny", "add", "198.51.100.7"], arguments].concat();
        let outcome = bench.limiter.with(&arguments).done().unwrap();
        assert!(outcome.stdout.contains(said), "{outcome}");
    }
    let entries = bench.json("deny list -j")["entries"].take();
    assert!(entries[0]["until"].is_null(), "{entries}");
    bench.refused(
        "penalty add 198.51.100.8 --for forever",
        2,
        &["`limiter deny add 198.51.100.8`"],
    );
    bench.refused("deny add 198.51.100.7 --until 2099-12-31T00:00:00", 2, &["+01:00"]);
}

#[test]
fn an_address_may_be_in_brackets() {
    let bench = Bench::attached();
    bench.done("penalty add [2001:db8::]/64 --for 10");
    let known = bench.run("get [2001:db8::2]").outcome().unwrap();
    assert!(known.stdout.starts_with("SOURCE   2001:db8::/64\n"), "{known}");
    let plain = bench.run("get 2001:db8::2").outcome().unwrap();
    assert_eq!(
        (known.code, known.stdout.lines().count()),
        (plain.code, plain.stdout.lines().count())
    );
    let asked = "--dport 22 --flags syn";
    let told = bench.done(&format!("test --src [2001:db8::2] --dst [2001:db8:1::1] {asked}"));
    let plain = bench.done(&format!("test --src 2001:db8::2 --dst 2001:db8:1::1 {asked}"));
    assert_eq!(told.stdout, plain.stdout);
    bench.done("penalty del [2001:db8::]/64");
    let told = bench.done("policy explain [2001:db8::2]").stdout;
    assert_eq!(told, bench.done("policy explain 2001:db8::2").stdout);
}
