//! The demonstration, as somebody runs it who sees limiter for the first time.

use std::{fs, process::Command};

/// What it prints in two seconds.
fn shown(arguments: &[&str]) -> String {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_limiter-demo"));
    let output = demo.args(["--seconds", "2"]).args(arguments).output().unwrap();
    let [shown, errors] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(output.status.success(), "{shown}{errors}");
    shown
}

#[test]
fn each_sender_gets_what_its_limit_admits_and_nothing_is_left() {
    let shown = shown(&[]);
    assert!(shown.starts_with("\nFive senders on one wire, and limiter at its end\n"), "{shown}");
    let mut rest = shown.as_str();
    for line in [
        "$ limiter attach eth0",
        "  eth0: attached in native mode",
        "$ limiter limit set source --rate 1kpps --burst 200",
        "  source limit: 1 kpps after a burst of 200 packets",
        "$ limiter limit set syn --rate 50/s",
        "$ limiter watch --for 2s",
        "$ limiter detach --all",
        "  eth0: detached",
        "On a real interface, where it limits nothing until you set a limit:",
    ] {
        let (_, after) =
            rest.split_once(&format!("\n{line}")).unwrap_or_else(|| panic!("{line}: {shown}"));
        rest = after;
    }
    let table = shown.lines().skip_while(|line| !line.starts_with("SENDER "));
    let rows: Vec<&str> = table.skip(1).take_while(|line| !line.is_empty()).collect();
    assert_eq!(rows.len(), 5, "{shown}");
    let of = |verdict: &str| rows.iter().filter(|row| row.ends_with(verdict)).count();
    assert_eq!((of(" held"), of(" untouched")), (4, 1), "{shown}");
    assert!(shown.contains("\nEach sender got what its limit admits, to within 1 %."), "{shown}");
}

#[test]
fn the_picture_is_that_of_the_screen_while_all_send() {
    let file = std::env::temp_dir().join(format!("limiter-picture-{}.svg", std::process::id()));
    shown(&["--picture", file.to_str().unwrap()]);
    let picture = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    assert!(picture.starts_with("<svg "), "{picture}");
    for words in ["limiter", "eth0", "dropped", "SOURCE", "198.18.0.20"] {
        assert!(picture.contains(words), "{words}: {picture}");
    }
}
