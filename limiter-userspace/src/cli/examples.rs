//! Examples of each command, for its help and its manual page.

use clap::Command;

/// The heading of the examples.
pub(super) const HEADING: &str = "Examples:";

/// Commands, by their words, with example lines.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "limiter attach eth0",
            "limiter limit set source --rate 10kpps --burst 20k",
            "limiter status",
            "limiter watch",
            "limiter detach eth0",
        ],
    ),
    (
        "attach",
        &[
            "limiter attach eth0",
            "limiter attach eth0 eth1 --pps 10kpps --syn 100/s --for 5m",
            "limiter attach eth0 --preset web --monitor",
            "limiter attach eth0 --policy /etc/limiter/policy.yaml --monitor",
            "limiter attach eth0 --replace",
        ],
    ),
    ("detach", &["limiter detach eth0", "limiter detach --all"]),
    ("status", &["limiter status", "limiter status -j"]),
    ("limit list", &["limiter limit list"]),
    ("limit show", &["limiter limit show source"]),
    (
        "limit set",
        &[
            "limiter limit set source --rate 10kpps --burst 20k",
            "limiter limit set source --src 203.0.113.0/24 --rate 5/min",
        ],
    ),
    (
        "limit add",
        &[
            "limiter limit add ssh --match tcp:ssh --count connections --rate 5/min",
            "limiter limit add web --match tcp:80,443 --rate 2kpps --burst 4k --action monitor",
            "limiter limit add dns --match udp:53 --count bytes --rate 2Mbit/s --per source/24",
            "limiter limit add connections --match tcp:443 --open 50",
        ],
    ),
    ("limit del", &["limiter limit del syn", "limiter limit del source --src 203.0.113.0/24"]),
    ("get", &["limiter get 203.0.113.9", "limiter get 2001:db8::/64"]),
    (
        "test",
        &[
            "limiter test --src 192.0.2.9 --dst 198.51.100.1 --dport 22 --flags syn",
            "limiter test --pcap capture.pcap",
        ],
    ),
    ("policy check", &["limiter policy check policy.yaml"]),
    ("policy diff", &["limiter policy diff policy.yaml"]),
    (
        "policy apply",
        &[
            "limiter policy apply policy.yaml --confirm 60s",
            "limiter policy apply policy.yaml --dry-run",
        ],
    ),
    ("policy confirm", &["limiter policy confirm"]),
    ("policy revert", &["limiter policy revert"]),
    ("policy show", &["limiter policy show"]),
    (
        "policy explain",
        &[
            "limiter policy explain 192.0.2.9:22/tcp --flags syn",
            "limiter policy explain --request POST /login --header x-user-id:7 --source 192.0.2.9",
        ],
    ),
    ("policy example", &["limiter policy example", "limiter policy example web"]),
    ("policy schema", &["limiter policy schema"]),
    ("policy import", &["limiter policy import --from ratelimit /etc/ratelimit/config"]),
    ("policy save", &["limiter policy save", "limiter policy save --systemd"]),
    ("monitor", &["limiter monitor on", "limiter monitor off"]),
    ("allow add", &["limiter allow add 203.0.113.0/24 --for 1h"]),
    ("allow del", &["limiter allow del 203.0.113.0/24"]),
    ("allow list", &["limiter allow list"]),
    ("allow flush", &["limiter allow flush"]),
    (
        "deny add",
        &["limiter deny add 192.0.2.7", "limiter deny add 192.0.2.0/24 --for 1h --reason scans"],
    ),
    ("deny del", &["limiter deny del 192.0.2.7"]),
    ("deny list", &["limiter deny list"]),
    ("deny flush", &["limiter deny flush"]),
    ("penalty add", &["limiter penalty add 192.0.2.80 --for 60s"]),
    ("penalty del", &["limiter penalty del 192.0.2.80"]),
    ("penalty list", &["limiter penalty list"]),
    ("penalty flush", &["limiter penalty flush"]),
    ("watch", &["limiter watch", "limiter watch -j --interval 5s --count 12"]),
    (
        "drops",
        &[
            "limiter drops",
            "limiter drops --limit source --count 20",
            "limiter drops --source 203.0.113.0/24 --for 10s --top",
            "limiter drops --for 10s --pcap drops.pcap",
        ],
    ),
    ("top", &["limiter top -n 3"]),
    ("agent", &["limiter agent -i eth0 --policy /etc/limiter/policy.yaml --listen 127.0.0.1:9180"]),
    ("bridge config", &["limiter bridge config nginx", "limiter bridge config envoy"]),
    ("bridge openapi", &["limiter bridge openapi"]),
    ("metrics", &["limiter metrics"]),
    ("doctor", &["limiter doctor", "limiter doctor eth0"]),
    ("completion", &["limiter completion bash"]),
];

/// The first example of a command, by its words.
pub(super) fn of(words: &str) -> Option<&'static str> {
    EXAMPLES.iter().find(|(command, _)| *command == words)?.1.first().copied()
}

/// Adds the examples to the help of a command and its subcommands.
pub(super) fn added_to(mut command: Command) -> Command {
    for (words, lines) in EXAMPLES {
        command = add(command, words, lines);
    }
    command
}

fn add(command: Command, words: &str, lines: &[&str]) -> Command {
    let Some(word) = words.split(' ').next().filter(|word| !word.is_empty()) else {
        let mut text =
            command.get_after_help().map_or_else(String::new, |before| format!("{before}\n\n"));
        text.push_str(HEADING);
        for line in lines {
            text.push_str("\n  ");
            text.push_str(line);
        }
        return command.after_help(text);
    };
    let rest = words[word.len()..].trim_start();
    command.mut_subcommand(word, |below| add(below, rest, lines))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    /// Commands without subcommands, by their words.
    fn leaves(command: &Command, words: &str, found: &mut Vec<String>) {
        for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            let words = format!("{words} {}", below.get_name());
            match below.has_subcommands() {
                true => leaves(below, &words, found),
                false => found.push(words.trim_start().to_owned()),
            }
        }
    }

    #[test]
    fn every_command_has_examples() {
        let mut commands = vec![String::new()];
        leaves(&Cli::command(), "", &mut commands);
        let shown: Vec<&str> = EXAMPLES.iter().map(|(words, _)| *words).collect();
        assert_eq!(shown, commands);
    }

    #[test]
    fn every_example_is_a_command_line() {
        for (words, lines) in EXAMPLES {
            for line in *lines {
                let parsed = added_to(Cli::command()).try_get_matches_from(line.split(' '));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                assert!(line.starts_with(&format!("limiter {words}")), "{line}");
            }
        }
    }
}
