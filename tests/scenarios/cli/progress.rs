//! What commands show on a terminal while they work.

use std::fs;

use super::{Bench, Document, inquiry::pcap};

/// Replaces the line of the step before.
const LINE: &str = "\r\u{1b}[K";

/// Runs a command on a terminal, and asserts that it shows these steps, and then its result without them.
#[track_caller]
fn assert_shown(bench: &Bench, command: &str, steps: &[&str], result: &str) {
    let text = bench.on_terminal(command);
    let mut rest = text.as_str();
    for step in steps {
        let step = format!("{LINE}{step} ...");
        assert!(rest.contains(&step), "{step:?}: {text:?}");
        rest = rest.split_once(&step).unwrap().1;
    }
    let (_, end) = rest.rsplit_once(LINE).unwrap();
    assert!(end.contains(result) && !end.contains(" ..."), "{command}: {end:?}");
}

#[test]
fn what_may_take_long_shows_its_steps() {
    let bench = Bench::attached();
    let prefixes =
        |first: u8| (0..20_000).map(move |it| format!("{first}.{}.{}.0/24", it / 256, it % 256));
    let list: Vec<String> = prefixes(11).collect();
    let document = Document::new(&format!("deny: [{}]", list.join(", ")));
    let listed = Document::new("");
    fs::write(listed.path(), prefixes(12).map(|it| it + "\n").collect::<String>()).unwrap();
    let capture = Document::new("");
    fs::write(capture.path(), pcap(&[vec![0; 60]])).unwrap();
    let shown = |command: &str, steps: &[&str], result: &str| {
        assert_shown(&bench, command, steps, result);
    };
    shown("doctor eth0", &["loading programs, as attaching would"], "VERDICT");
    let reading = document.in_place("reading FILE");
    shown(
        &document.in_place("policy apply FILE"),
        &[&reading, "comparing", "applying 0 limits, 20,000 prefixes"],
        ": applied",
    );
    bench.on_terminal(&listed.in_place("deny add - < FILE"));
    let deleting = ["reading the standard input", "deny: deleting 20,000 prefixes"];
    shown(&listed.in_place("deny del - < FILE"), &deleting, "deny: 20,000 prefixes deleted");
    shown("deny flush", &["deny: removing what was set at run time"], "deny: removed 0 run-time");
    shown(&capture.in_place("test --pcap FILE"), &["judging packets"], "non_ip ");
    // What is not a terminal gets results alone.
    assert_eq!(bench.done("doctor eth0").stderr, "");
}

#[test]
fn tables_are_exchanged_only_where_it_says_so() {
    let bench = Bench::attached();
    let attaching = "loading programs and attaching them";
    let text = bench.on_terminal("attach eth0 --replace");
    assert!(
        text.contains(attaching) && !text.contains("tables of") && !text.contains("exchanging"),
        "{text:?}"
    );
    for (option, step, result) in [
        (
            "--sources 8192",
            "exchanging the tables for some of the sizes that are asked for",
            "8,192 sources",
        ),
        (
            "--new-seed",
            "exchanging the tables for some with another seed",
            "hashed by another seed",
        ),
    ] {
        assert_shown(&bench, &format!("attach eth0 {option}"), &[step, attaching], result);
    }
}
