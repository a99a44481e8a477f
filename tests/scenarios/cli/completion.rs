//! Completion by shells: the scripts, and the answers that they ask for.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use limiter_tests::command::Outcome;

use super::{Bench, SMALL, json::send};

/// A folder with the binary, for a search path. It is removed when this is dropped.
struct SearchPath(PathBuf);

impl SearchPath {
    fn of(bench: &Bench) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("limiter-completion-{}-{number}", process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(bench.limiter.path(), folder.join("limiter")).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        Self(folder)
    }
}

impl Drop for SearchPath {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The completions that bash offers for the last word of a line, in the network namespace of the router.
#[track_caller]
fn offered(bench: &Bench, path: &SearchPath, line: &str) -> Vec<String> {
    let script = bench.done("completion bash").stdout;
    // The script registers a function with `complete`; this calls that function.
    let ask = format!(
        "PATH={}:$PATH\n{script}\nCOMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}\n_limiter\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        path.0.display(),
    );
    let output = bench.hosts.router.command("bash").args(["-c", &ask]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let offered = String::from_utf8(output.stdout).unwrap();
    offered.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Asserts what bash offers. Candidates may come too late on a busy machine, and are offered the next time.
#[track_caller]
fn assert_offered(bench: &Bench, path: &SearchPath, line: &str, expected: &[&str]) {
    let late = (0..5).all(|_| offered(bench, path, line) != expected);
    assert!(!late, "{line}: {:?} instead of {expected:?}", offered(bench, path, line));
}

#[test]
fn bash_completes_commands_options_and_what_they_take() {
    let bench = Bench::new();
    let path = SearchPath::of(&bench);
    let offered = |line: &str| offered(&bench, &path, line);
    assert_eq!(offered("limiter att"), ["attach"]);
    assert_eq!(offered("limiter pol"), ["policy"]);
    assert_eq!(offered("limiter policy app"), ["apply"]);
    assert_eq!(offered("limiter attach --mo"), ["--mode", "--monitor", "--mount-bpffs"]);
    assert_eq!(offered("limiter monitor o"), ["on", "off"]);
    assert_eq!(offered("limiter completion z"), ["zsh"]);
    // What an agent starts, and what a package is made with, is for nobody else.
    for hidden in ["loader", "man", "version"] {
        assert!(!offered("limiter ").iter().any(|offered| offered == hidden), "{hidden}");
    }
    // Nothing is attached, so there is nothing to offer, and no message.
    assert_eq!(offered("limiter detach e"), Vec::<String>::new());
    assert_eq!(offered("limiter attach e"), ["eth0"]);
}

#[test]
fn bash_completes_what_is_there() {
    let bench = Bench::attached();
    let path = SearchPath::of(&bench);
    let is = |line: &str, expected: &[&str]| assert_offered(&bench, &path, line, expected);
    let offered = |line: &str| offered(&bench, &path, line);
    bench.done("deny add 198.51.100.7");
    bench.done("deny add 2001:db8:7::/48");
    bench.done("allow add 198.51.100.8");
    bench.done("penalty add 198.51.100.9 --for 1h");
    is("limiter detach ", &["eth0"]);
    is("limiter doctor l", &["lo"]);
    is("limiter limit set ", &["connection", "syn", "source"]);
    is("limiter limit show s", &["syn", "source"]);
    is("limiter drops --limit s", &["syn", "source"]);
    is("limiter drops -i ", &["eth0"]);
    is("limiter limit add web --per dest", &["destination", "destination_port"]);
    is("limiter limit del source --src ", &["203.0.113.0/24"]);
    is("limiter deny del 198", &["198.51.100.7/32"]);
    is("limiter deny del 2001", &["2001:db8:7::/48"]);
    // bash has the part up to the last colon already.
    is("limiter deny del 2001:db8:", &["7::/48"]);
    is("limiter limit del source --src=2", &["203.0.113.0/24"]);
    bench.done("deny add 192.0.2.1 192.0.2.2 --set feed");
    bench.done("deny add 192.0.2.3 --replace drop");
    bench.done("penalty add 192.0.2.4 --set scans --for 1h");
    for line in ["deny add 192.0.2.9 --set ", "deny add --replace ", "deny del --set "] {
        is(&format!("limiter {line}"), &["drop", "feed"]);
    }
    is("limiter deny flush --set=f", &["feed"]);
    is("limiter penalty del --set ", &["scans"]);
    is("limiter allow del ", &["198.51.100.8/32"]);
    is("limiter penalty del 198", &["198.51.100.9/32"]);
    is("limiter whitelist d", &["del"]);
    send(&bench, [192, 0, 2, 77], 5);
    is("limiter get 192.0.2.7", &["192.0.2.77"]);
    is("limiter test --src 192.0.2.7", &["192.0.2.77"]);
    // Another instance has other entries.
    let other = format!("{}/other", limiter_tests::sandbox::BPFFS);
    let others = offered(&format!("limiter --bpffs {other} deny del "));
    assert!(!others.is_empty(), "its options are offered");
    assert!(others.iter().all(|offered| offered.starts_with("--")), "{others:?}");
}

#[test]
fn an_answer_is_quick_and_silent_without_rights() {
    let bench = Bench::new();
    bench.done(&format!("attach eth0 {SMALL} --pps 1kpps"));
    let ask = ["--", "limiter", "limit", "set", ""];
    let asked = || {
        let command = bench.limiter.with(ask).env("COMPLETE", "bash");
        command.env("_CLAP_COMPLETE_INDEX", "3").env("_CLAP_IFS", "\n")
    };
    let begun = Instant::now();
    let answer = asked().done().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let has_source = |it: &Outcome| it.stdout.lines().any(|line| line == "source");
    // Late candidates are offered the next time.
    assert!(
        has_source(&answer) || (0..5).any(|_| has_source(&asked().done().unwrap())),
        "{answer}"
    );
    let answer = asked().as_nobody().outcome().unwrap();
    assert_eq!((answer.code, answer.stderr.as_str()), (0, ""), "{answer}");
    assert!(!answer.stdout.contains("source"), "{answer}");
    // The variable of somebody else changes nothing.
    let status = bench.run("status").env("COMPLETE", "bash").done().unwrap();
    assert!(status.stdout.contains("eth0"), "{status}");
}

#[test]
fn scripts_of_other_shells_ask_the_command() {
    let bench = Bench::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = bench.done(&format!("completion {shell}")).stdout;
        assert!(
            script.contains(&format!("COMPLETE={shell}")) || script.contains("COMPLETE=\"zsh\""),
            "{script}"
        );
        let told = bench.json(&format!("completion {shell} -j"));
        assert_eq!((&told["shell"], &told["script"]), (&shell.into(), &script.into()));
    }
    // They are shown with their help.
    for (shell, attach) in
        [("zsh", "attach:Attach to interfaces"), ("fish", "attach\tAttach to interfaces")]
    {
        let ask = bench.limiter.with(["--", "limiter", "att"]).env("COMPLETE", shell);
        let answer = ask.env("_CLAP_COMPLETE_INDEX", "1").done().unwrap().stdout;
        assert!(answer.starts_with(attach), "{answer}");
    }
    bench.refused("completion cmd", 2, &["cmd", "bash"]);
}

/// The candidates that zsh or fish offers for the last word of a line, without their help.
fn offered_by(bench: &Bench, path: &SearchPath, shell: &str, line: &str) -> Vec<String> {
    let script = bench.done(&format!("completion {shell}")).stdout;
    let (option, ask) = match shell {
        // Its completion system needs a terminal: functions stand for what the script calls of it.
        "zsh" => (
            "-f",
            format!(
                "compdef() {{ : }}; _describe() {{ print -rl -- \"${{(@P)3}}\" }}\n{script}\n\
                 words=(\"${{(@s: :)line}}\"); CURRENT=$#words; _clap_dynamic_completer_limiter"
            ),
        ),
        _ => ("--no-config", format!("{script}\ncomplete --do-complete \"$line\"")),
    };
    let mut command = bench.hosts.router.command(shell);
    let search = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", path.0.display());
    command.args([option, "-c", &ask]).env("PATH", search).env("line", line).env("HOME", &path.0);
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let candidate = |line: &str| match shell {
        // The help comes behind a colon. Those of the candidate have a backslash before them.
        "zsh" => line.replace("\\:", "\t").split(':').next().unwrap().replace('\t', ":"),
        _ => line.split('\t').next().unwrap().to_owned(),
    };
    String::from_utf8(output.stdout).unwrap().lines().map(candidate).collect()
}

#[test]
fn zsh_and_fish_complete_what_is_there() {
    let bench = Bench::attached();
    let path = SearchPath::of(&bench);
    bench.done("deny add 198.51.100.7");
    bench.done("deny add 2001:db8:7::/48");
    for (line, expected) in [
        ("limiter att", &["attach"][..]),
        ("limiter detach e", &["eth0"]),
        ("limiter limit show s", &["syn", "source"]),
        ("limiter deny del 198", &["198.51.100.7/32"]),
        ("limiter deny del 2001", &["2001:db8:7::/48"]),
        ("limiter limit del source --src 2", &["203.0.113.0/24"]),
    ] {
        for shell in ["zsh", "fish"] {
            // Candidates may come too late on a busy machine, and are offered the next time.
            let offered = || offered_by(&bench, &path, shell, line);
            let late = (0..5).all(|_| offered() != expected);
            assert!(!late, "{shell}: {line}: {:?} instead of {expected:?}", offered());
        }
    }
}

#[test]
fn scripts_are_valid() {
    let bench = Bench::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = bench.done(&format!("completion {shell}")).stdout;
        let output = Command::new(shell).args(["-n", "-c", &script]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}
