//! The output that pages show, in sections whose commands follow each other.

use std::{collections::BTreeSet, thread, time::Duration};

use limiter_tests::{
    packet::{Frame, SYN},
    traffic::{Sender, send_together},
};

use super::{SMALL, Shown, command, form::form, page};

/// The sections whose output is compared: the page, the heading, and how many outputs it shows.
const COMPARED: [(&str, &str, usize); 4] = [
    ("README.md", "Quickstart", 3),
    ("docs/operate.md", "Attach and limit", 5),
    ("docs/operate.md", "Ask, and change nothing", 1),
    ("docs/operate.md", "See what is dropped", 1),
];

/// The lines of output that a page shows, and that are compared.
pub(super) fn outputs(path: &str) -> BTreeSet<String> {
    let sections = COMPARED.iter().filter(|(page, ..)| *page == path);
    let outputs = sections.flat_map(|(page, section, _)| examples(page, section));
    let lines = outputs
        .flat_map(|(_, text)| text.lines().map(|it| it.trim().to_owned()).collect::<Vec<_>>());
    lines.filter(|line| !line.is_empty()).collect()
}

/// The commands of a section of a page, each with the output that is shown.
fn examples(path: &str, section: &str) -> Vec<(String, String)> {
    let page = page(path);
    let (_, section) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut examples: Vec<(String, String)> = Vec::new();
    let mut is_output = false;
    for line in section.lines() {
        if let Some(command) = line.strip_prefix("    ").and_then(command) {
            examples.push((command.to_owned(), String::new()));
            is_output = true;
        } else if line.is_empty() || line.starts_with("    ") {
            if let (true, Some((_, output))) = (is_output, examples.last_mut()) {
                output.push_str(line.strip_prefix("    ").unwrap_or_default());
                output.push('\n');
            }
        } else {
            is_output = false;
        }
    }
    examples.into_iter().map(|(command, output)| (command, output.trim().to_owned())).collect()
}

impl Shown {
    /// Makes three sources exceed their limits, in the order in which the README lists them.
    fn flood(&self) {
        let hosts = &self.bench.hosts;
        let target = [198, 51, 100, 1];
        let floods = [
            (Frame::udp([192, 0, 2, 7], target, 5_000, 53), 20_000),
            (Frame::tcp([192, 0, 2, 80], target, 5_000, 443, SYN), 3_000),
            (Frame::udp([203, 0, 113, 9], target, 5_000, 53), 1_000),
        ];
        let mut senders = floods.map(|(frame, per_second)| {
            // Frames for another host, so that no answer is sent.
            let frame = frame.macs(hosts.client_port.mac, [2, 0, 0, 0, 0xff, 0xff]).padded();
            let (client, port) = (&hosts.client.namespace, &hosts.client_port);
            Sender::new(client, port, per_second, frame.build()).unwrap()
        });
        send_together(&mut senders, Duration::from_secs(1), &Default::default()).unwrap();
    }

    /// Asserts that the output of a command has the form that is shown. A command that waits for packets gets some.
    fn compare(&self, line: &str, shown: &str) {
        let command = self.bench.run(&self.arguments(line));
        let outcome = if line.contains(" drops ") {
            thread::scope(|scope| {
                let waiting = scope.spawn(|| command.outcome().unwrap());
                while !waiting.is_finished() {
                    self.flood();
                }
                waiting.join().unwrap()
            })
        } else {
            command.outcome().unwrap()
        };
        let printed = format!("{}{}", outcome.stdout, outcome.stderr);
        assert_eq!(form(&printed), form(shown), "{line}\n{printed}");
    }
}

/// Runs the commands of a section, and compares each output that is shown. Returns how many were.
fn compare_all(shown: &Shown, path: &str, section: &str) -> usize {
    let mut compared = 0;
    for (line, output) in examples(path, section) {
        if line.contains(" watch") {
            continue;
        }
        if line.contains(" top") {
            shown.flood();
        }
        if output.is_empty() && line.contains(" drops ") {
            continue;
        }
        if output.is_empty() {
            shown.run(&line);
        } else {
            shown.compare(&line, &output);
            compared += 1;
        }
    }
    compared
}

#[test]
fn pages_show_what_commands_print() {
    for (path, section, outputs) in COMPARED {
        let shown = Shown::new();
        match section {
            "Ask, and change nothing" => {
                shown.bench.done(&format!("attach eth0 {SMALL}"));
                shown.bench.done(&shown.arguments("limiter policy apply policy.yaml"));
            }
            "See what is dropped" => {
                shown.bench.done(&format!("attach eth0 {SMALL} --pps 1kpps --syn 100/s"));
            }
            _ => {}
        }
        assert_eq!(compare_all(&shown, path, section), outputs, "{path}, {section}");
    }
}
