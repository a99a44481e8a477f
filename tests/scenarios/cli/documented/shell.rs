//! Every line for a shell that a page shows, on a machine with systemd that has no network.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use limiter_tests::{command::binary, machine::Machine, process::kill, prometheus};

use serde_json::Value;

use super::{Bench, command, output::outputs, page, pages, root};
use crate::cli::package::Packages;

/// The pages whose lines are run first: what they set up, others need.
const FIRST: [&str; 3] = ["README.md", "docs/l7.md", "docs/operate.md"];

/// What is not run here: the page, how it begins, and where it is tested.
const ELSEWHERE: [(&str, &str, &str); 5] = [
    ("docs/l7.md", "curl --", "cli::bridge::documented runs all of the page, beside nginx"),
    ("docs/lists.md", "sudo cscli ", "cli::crowdsec runs it, beside the API of CrowdSec"),
    (
        "docs/operate.md",
        "192.0.2.9: ",
        "an event of an agent, which the unit tests of its events compare",
    ),
    ("docs/operate.md", "192.0.2.80: blocked ", "the same"),
    ("docs/operate.md", "1,204 events ", "the same"),
];

/// What pages take for granted.
const PREPARE: &str = r#"set -e
systemctl start systemd-journald.service
printf '#!/bin/sh\nexec "$@"\n' > /usr/bin/sudo
# Debian has no dnf.
printf '#!/bin/sh\nexec rpm --root /tmp/rpm --nodeps --noscripts --%s "$2"\n' '$1' > /usr/bin/dnf
chmod 755 /usr/bin/sudo /usr/bin/dnf
mkdir -p /etc/limiter/tls /etc/ratelimit /etc/haproxy /etc/prometheus /var/lib/prometheus/node-exporter /tmp/rpm
printf '[Service]\nExecStart=/bin/sleep infinity\n' > /run/systemd/system/nginx.service
ip address add 198.51.100.1/32 dev lo
echo 127.0.0.1 example.org >> /etc/hosts
cd /tmp/shared
mv promtool prometheus /usr/bin
mv all.yaml /etc/ratelimit/config
dpkg-deb --extract limiter_*.deb /tmp/unpacked
cd /tmp/unpacked/usr/share/limiter/monitoring
cp prometheus.yaml /etc/prometheus/prometheus.yml
cp limiter.rules.yaml /etc/prometheus
cd /tmp/shared
echo some-key > crowdsec.key
echo 192.0.2.99 | gzip > bans.txt.gz
mkdir feed
cd feed
echo 192.0.2.0/28 > drop.txt
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj /CN=example.org \
    -addext subjectAltName=DNS:example.org -keyout key -out certificate 2> /dev/null
"#;

/// The lines that pages show as they are, in blocks. What is in fences of these languages is tested by itself.
pub(super) fn blocks(page: &str) -> Vec<Vec<&str>> {
    const TESTED: [&str; 3] = ["yaml", "python", "mermaid"];
    let mut blocks = vec![Vec::new()];
    let (mut fence, mut is_block) = (None, true);
    for line in page.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_none() { Some(language) } else { None };
            blocks.push(Vec::new());
            continue;
        }
        let is_shown = match fence {
            Some(language) => !TESTED.contains(&language),
            // An indented line after one of a paragraph belongs to the paragraph.
            None => is_block && line.starts_with("    "),
        };
        is_block = line.is_empty() || is_shown;
        if is_shown && !line.is_empty() {
            blocks.last_mut().unwrap().push(line.trim());
        } else {
            blocks.push(Vec::new());
        }
    }
    blocks.retain(|block| !block.is_empty());
    blocks
}

/// The commands of a block: a line, with those after it if it is not whole.
fn commands(block: &[&str]) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for line in block {
        // Output in JSON belongs to its command.
        let goes_on = |it: &&mut String| {
            it.ends_with('\\') || it.matches('\'').count() % 2 == 1 || line.starts_with("{\"")
        };
        match commands.last_mut().filter(goes_on) {
            Some(command) => *command = format!("{command}\n{line}"),
            None => commands.push((*line).to_owned()),
        }
    }
    commands
}

/// A machine on which pages are followed, and what runs there.
struct Followed {
    machine: Machine,
    processes: Vec<Child>,
    /// The lines that were run.
    done: BTreeSet<String>,
    /// The drop-ins of units so far.
    drop_ins: usize,
}

impl Followed {
    fn run(&self, line: &str) -> String {
        let found = "set -e; cd /tmp/shared; export CURL_CA_BUNDLE=/tmp/shared/feed/certificate";
        self.machine.run(&format!("{found}\n{line}")).unwrap()
    }

    fn start(&mut self, line: &str) {
        let mut command = self.machine.command(line);
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        self.processes.push(command.spawn().unwrap());
    }

    /// Runs a line until it succeeds.
    fn until_done(&self, line: &str) {
        let start = Instant::now();
        while !self.machine.output(line).unwrap().status.success() {
            assert!(start.elapsed() < Duration::from_secs(30), "{line}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Does what a block of a page says.
    fn follow(&mut self, page: &str, block: &[&str]) {
        let text = block.join("\n");
        match block[0] {
            "[Service]" => self.extend(&text),
            line if line.starts_with("LoadCredential=") => {
                self.extend(&format!("[Service]\n{line}"));
            }
            line if line.starts_with("LIMITER_") => {
                // The file has all of them, as comments.
                for line in block {
                    self.run(&format!("grep -Fxq '#{line}' /etc/default/limiter"));
                }
                let more = "LIMITER_INTERFACES=eth0\nLIMITER_LISTEN=127.0.0.1:9180";
                let add = format!("cat >> /etc/default/limiter <<'END'\n{text}\n{more}\nEND\n");
                self.run(&add);
                self.run("systemctl restart limiter && systemctl is-active limiter");
            }
            "[sshd]" => {
                let more = "backend = polling\nlogpath = /dev/null";
                self.run(&format!("printf '%s\n' '{text}' '{more}' > /etc/fail2ban/jail.local"));
                self.run("fail2ban-client -t");
            }
            line if line.starts_with("bin_path: ") => {
                self.run(&line.replace("bin_path: ", "test -x "));
            }
            line if line.starts_with("update @m ") => self.try_rules(block),
            line if line.starts_with("sum by ") => {
                self.run(&format!("promtool query instant http://localhost:9090 '{line}'"));
            }
            _ => {
                for line in commands(block) {
                    let is_listed = |(on, begin, _): &(&str, &str, &str)| {
                        *on == page && line.starts_with(begin)
                    };
                    if !ELSEWHERE.iter().any(is_listed) && self.done.insert(line.clone()) {
                        self.try_line(&line);
                    }
                }
            }
        }
    }

    /// Runs a line for a shell.
    fn try_line(&self, line: &str) {
        let line = line.split(" # ").next().unwrap().trim();
        if let Some(arguments) = line.strip_prefix("cargo xtask ") {
            return are_arguments(arguments);
        }
        // Without the shell, `pages_show_commands_that_work` runs it.
        if command(line).is_some() && !line.contains(['|', '>', '<', '&']) {
            return;
        }
        // What it prints stands below it. Here is no such connection, which the result is about.
        if let Some((line, shown)) = line.split_once("\n{\"") {
            let members = |text: &str| {
                let value: Value = serde_json::from_str(text).unwrap();
                value.as_object().unwrap().keys().cloned().collect::<Vec<_>>()
            };
            return assert_eq!(members(&self.run(line)), members(&format!("{{\"{shown}")));
        }
        // The page says so in words.
        if line.starts_with("chgrp ") {
            self.run("cp bridge.crt bridge.key ca.crt /etc/limiter/tls");
        }
        // These wait for packets.
        let line = line.replace("tcpdump ", "tcpdump -d ");
        // The settings of the package stay, as in an upgrade.
        let line = line.replace("sudo tar ", "sudo tar --exclude '*/etc/*' ");
        let printed = self.run(&line);
        // The status is that of the last command alone.
        assert!(!line.contains(" | ") || !printed.is_empty(), "{line}");
    }

    /// Adds lines to the unit that they are about, which has to start with them.
    fn extend(&mut self, text: &str) {
        let is_bridge = text.contains("bridge");
        let unit = if is_bridge { "limiter-bridge" } else { "limiter" };
        let folder = format!("/etc/systemd/system/{unit}.service.d");
        self.drop_ins += 1;
        let file = format!("{folder}/{}.conf", self.drop_ins);
        self.run(&format!("mkdir -p {folder} && cat > {file} <<'END'\n{text}\nEND\n"));
        self.run(&format!("systemctl daemon-reload && systemctl restart {unit}"));
        self.run(&format!("systemctl is-active {unit}"));
        let told = self.run(&format!("systemd-analyze verify {unit}.service 2>&1"));
        assert!(!told.contains("Unknown"), "{told}");
    }

    /// Takes the rules of the other tools.
    fn try_rules(&self, block: &[&str]) {
        let (nftables, iptables) = (block[0], block[1]);
        let (rule, set) = nftables.split_once("# set m: ").unwrap();
        let set = set.replace(", ", "; ");
        self.run(&format!(
            "nft -f - <<'END'\ntable t {{\nset m {{ type ipv4_addr; flags dynamic; {set}; }}\n\
             chain c {{ type filter hook input priority 0; {rule}; }}\n}}\nEND\n"
        ));
        self.run(&format!("iptables-legacy -A INPUT {iptables}"));
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.processes.iter_mut().for_each(kill);
    }
}

/// Has the program behind `cargo xtask` parse arguments, and do nothing.
fn are_arguments(arguments: &str) {
    let xtask = binary().unwrap().with_file_name("xtask");
    let (program, arguments) = match arguments.split_once(' ').unwrap_or((arguments, "")) {
        ("bench", rest) => (Path::new(env!("CARGO_BIN_EXE_limiter-bench")), rest),
        ("demo", rest) => (Path::new(env!("CARGO_BIN_EXE_limiter-demo")), rest),
        _ => (&*xtask, arguments),
    };
    // clap parses what is before `--help`.
    let arguments = arguments.split_whitespace().chain(["--help"]);
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn every_line_for_a_shell_works() {
    let begin = Instant::now();
    let packages = Packages::make(&[env!("CARGO_PKG_VERSION")]);
    let folder = packages.folder();
    for name in ["prometheus", "promtool"] {
        fs::copy(prometheus::program(name).unwrap(), folder.join(name)).unwrap();
    }
    fs::copy(root().join("fuzz/seeds/ratelimit/all.yaml"), folder.join("all.yaml")).unwrap();
    let bench = Bench::new();
    let machine = Machine::boot(&bench.hosts.router, folder).unwrap();
    let (processes, done) = (Vec::new(), BTreeSet::new());
    let mut followed = Followed { machine, processes, done, drop_ins: 0 };
    followed.run(PREPARE);
    followed.start("cd /tmp/shared/feed && exec openssl s_server -WWW -quiet -accept 443 -cert certificate -key key");
    followed.start("cd /tmp && exec prometheus --config.file=/etc/prometheus/prometheus.yml");
    followed.until_done("bash -c ': < /dev/tcp/127.0.0.1/443'");
    let mut paths = pages();
    let place = |path: &str| FIRST.iter().position(|it| *it == path).unwrap_or(FIRST.len());
    paths.sort_by_key(|path| (place(path), path.clone()));
    for path in paths {
        let (text, outputs) = (page(&path), outputs(&path));
        for block in blocks(&text).iter().filter(|block| !outputs.contains(block[0])) {
            println!("{:?} {path}: {block:?}", begin.elapsed());
            followed.follow(&path, block);
        }
    }
}
