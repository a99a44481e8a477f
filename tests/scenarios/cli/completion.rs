//! Completion scripts for shells.

use std::process::Command;

use super::Bench;

/// The completions that bash offers for the last word of a line.
#[track_caller]
fn offered(script: &str, line: &str) -> Vec<String> {
    // The script registers a function with `complete`; this calls that function.
    let words: Vec<String> = line.split(' ').map(|word| format!("'{word}'")).collect();
    let last = words.len() - 1;
    let before = if last == 0 { "''" } else { &words[last - 1] };
    let ask = format!(
        "{script}\nCOMP_WORDS=({}); COMP_CWORD={last}\n_limiter limiter {} {before}\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        words[last],
    );
    let output = Command::new("bash").args(["-c", &ask]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_what_they_take() {
    let bench = Bench::new();
    let script = bench.done("completion bash").stdout;
    assert_eq!(offered(&script, "limiter att"), ["attach"]);
    assert_eq!(offered(&script, "limiter pol"), ["policy"]);
    assert_eq!(offered(&script, "limiter policy app"), ["apply"]);
    assert_eq!(offered(&script, "limiter attach --mo"), ["--mode", "--monitor", "--mount-bpffs"]);
    assert_eq!(offered(&script, "limiter monitor o"), ["on", "off"]);
    assert_eq!(offered(&script, "limiter completion z"), ["zsh"]);
    // What an agent starts, and what a package is made with, is for nobody else.
    for hidden in ["loader", "man"] {
        assert!(!offered(&script, "limiter ").iter().any(|offered| offered == hidden), "{hidden}");
    }
}

#[test]
fn scripts_for_other_shells_name_every_command() {
    let bench = Bench::new();
    let help = bench.done("--help").stdout;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<&str> = commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|command| !command.is_empty() && *command != "help")
        .collect();
    assert!(commands.len() > 12, "{help}");
    for (shell, [before, after]) in [("zsh", ["'", ":"]), ("fish", ["-a \"", "\""])] {
        let script = bench.done(&format!("completion {shell}")).stdout;
        for command in &commands {
            let named = script.contains(&format!("{before}{command}{after}"));
            assert!(named, "no {command} for {shell}");
        }
        let told = bench.json(&format!("completion {shell} -j"));
        assert_eq!((&told["shell"], &told["script"]), (&shell.into(), &script.into()));
    }
    bench.refused("completion cmd", 2, &["cmd", "bash"]);
}
