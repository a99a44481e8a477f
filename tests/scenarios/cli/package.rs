//! The contents of the packages: the unit, manual pages, examples, and the rights of the agent.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use limiter_tests::{command::binary, process::kill, sandbox::BPFFS};

use super::{Bench, Document, SMALL, agent::loader};

/// A folder with packages, which is removed when this is dropped.
pub(crate) struct Packages {
    folder: PathBuf,
}

impl Packages {
    /// Packs the tested binary, once for each version.
    pub(crate) fn make(versions: &[&str]) -> Self {
        let packages = Self::empty();
        for version in versions {
            let binary = binary().unwrap();
            let xtask = binary.with_file_name("xtask");
            assert!(xtask.exists(), "there is no {}: `cargo build -p xtask`", xtask.display());
            let mut xtask = Command::new(xtask);
            xtask.arg("dist").arg("--binary").arg(binary).args(["--version", version]);
            xtask.arg("--output").arg(&packages.folder);
            // The build may lie outside git, where no commit gives the date.
            told(xtask.env("SOURCE_DATE_EPOCH", "1700000000"));
        }
        packages
    }

    fn empty() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("limiter-package-{}-{number}", process::id()));
        fs::create_dir(&folder).unwrap();
        Self { folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Packages {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(name)
}

/// The values of a setting in the unit, line by line.
pub(crate) fn unit_lines(setting: &str) -> Vec<String> {
    let unit = fs::read_to_string(source("limiter.service")).unwrap();
    let lines = unit.lines().filter_map(|line| line.strip_prefix(setting)?.strip_prefix('='));
    lines.map(str::to_owned).collect()
}

/// All output of a command that has to succeed.
#[track_caller]
fn told(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

#[test]
fn the_unit_is_as_closed_as_it_says() {
    for unit in ["limiter.service", "limiter-bridge.service"] {
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=yes", "--threshold=30", "--no-pager"]);
        let text = told(analyze.arg(source(unit)));
        println!("{}", text.lines().last().unwrap());
    }
    assert_eq!(unit_lines("AmbientCapabilities"), unit_lines("CapabilityBoundingSet"));
    // An upgrade by the archive makes no groups, and a unit with one that is missing does not start.
    assert_eq!(unit_lines("SupplementaryGroups"), [""; 0]);
}

#[test]
fn packages_are_the_same_byte_for_byte() {
    let packages = [Packages::make(&["1.0.0"]), Packages::make(&["1.0.0"])];
    for name in [
        "limiter_1.0.0_amd64.deb",
        "limiter-1.0.0-1.x86_64.rpm",
        "limiter-1.0.0-x86_64.tar.gz",
        "SHA256SUMS",
    ] {
        let [first, second] =
            packages.each_ref().map(|packages| fs::read(packages.folder.join(name)).unwrap());
        assert!(first == second, "{name}");
    }
    let archive = packages[0].folder.join("limiter-1.0.0-x86_64.tar.gz");
    let listing = told(Command::new("tar").arg("tzf").arg(archive));
    let deb = packages[0].folder.join("limiter_1.0.0_amd64.deb");
    let package = told(Command::new("dpkg-deb").arg("-c").arg(&deb));
    let mut rpm = Command::new("rpm");
    rpm.args(["--query", "--list", "--package"]);
    let rpm = told(rpm.arg(packages[0].folder.join("limiter-1.0.0-1.x86_64.rpm")));
    let mut check = Command::new("sha256sum");
    let checked = told(check.args(["--check", "SHA256SUMS"]).current_dir(&packages[0].folder));
    assert_eq!(checked.matches(": OK\n").count(), 3, "{checked}");
    told(Command::new("lintian").args(["--fail-on", "error"]).arg(&deb));
    for file in [
        "/usr/sbin/limiter\n",
        "/etc/limiter/policy.yaml\n",
        "/usr/lib/systemd/system/limiter.service\n",
        "/usr/lib/systemd/system/limiter-bridge.service\n",
        "/usr/share/man/man8/limiter-bridge.8.gz\n",
        "/usr/lib/sysusers.d/limiter.conf\n",
        "/usr/share/man/man8/limiter.8.gz\n",
        "/usr/share/man/man8/limiter-policy-apply.8.gz\n",
        "/usr/share/man/man5/limiter-policy.5.gz\n",
        "/usr/share/bash-completion/completions/limiter\n",
        "/usr/share/zsh/vendor-completions/_limiter\n",
        "/usr/share/fish/vendor_completions.d/limiter.fish\n",
        "/usr/share/doc/limiter/examples/web-edge.yaml\n",
        "/usr/share/doc/limiter/crowdsec.sh\n",
        "/usr/share/doc/limiter/fail2ban.conf\n",
        "/usr/share/doc/limiter/fail2ban-push.conf\n",
        "/usr/share/doc/limiter/runbooks/LimiterMostDropped.md\n",
        "/usr/share/limiter/monitoring/limiter.rules.yaml\n",
        "/usr/share/limiter/policy.schema.json\n",
    ] {
        assert!(listing.contains(file) && package.contains(file) && rpm.contains(file), "{file}");
    }
}

#[test]
fn every_example_is_a_policy() {
    let bench = Bench::new();
    let mut examples: Vec<PathBuf> =
        fs::read_dir(source("examples")).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(examples.len() >= 4);
    examples.push(source("policy.yaml"));
    for example in &examples {
        let checked = bench.done(&format!("policy check {}", example.display()));
        // Some policies cause a note about the cost of their most expensive packet.
        let told = checked.stderr.lines().filter(|line| !line.contains(" us of a CPU: "));
        let told = told.collect::<Vec<_>>();
        if example.ends_with("web-edge.yaml") {
            // A penalty causes a warning that an operator has to read.
            let [line] = told[..] else { panic!("{checked}") };
            assert!(
                line.starts_with("warning: limit syn: its penalty blocks sources of TCP"),
                "{line}"
            );
        } else {
            assert!(told.is_empty(), "{checked}");
        }
    }
    let installed = bench.json(&format!("policy check -j {}", source("policy.yaml").display()));
    assert_eq!(installed["limits"], 0, "what is installed limits nothing: {installed}");
}

/// An editor finds the schema of the policy that is installed.
#[test]
fn the_installed_policy_names_its_schema() {
    let bench = Bench::new();
    let packages = Packages::make(&["1.0.0"]);
    let archive = packages.folder.join("limiter-1.0.0-x86_64.tar.gz");
    let file = |path: &str| {
        let listing = told(Command::new("tar").arg("tzf").arg(&archive));
        let member = listing.lines().find(|line| line.ends_with(path)).unwrap();
        told(Command::new("tar").arg("xzOf").arg(&archive).arg(member))
    };
    let policy = file("/etc/limiter/policy.yaml");
    let schema = policy.lines().next().unwrap().strip_prefix("# yaml-language-server: $schema=");
    let schema = file(schema.unwrap());
    assert_eq!(schema, bench.done("policy schema").stdout);
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    assert_eq!(schema["$id"], "urn:limiter:policy:1");
}

/// Cargo takes the build results of a copied checkout to be fresh, so that its xtask was built in another one.
#[test]
fn xtask_works_on_the_checkout_that_it_was_copied_with() {
    let copy = Packages::empty();
    let root = copy.folder.join("limiter");
    let built = root.join("target/debug");
    fs::create_dir_all(&built).unwrap();
    let mut copying = Command::new("cp");
    copying.args(["-r", "Cargo.toml", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"]);
    copying.args(["docs", "monitoring", "packaging", "xtask"]).arg(&root);
    told(copying.current_dir(source("..")));
    fs::copy(binary().unwrap().with_file_name("xtask"), built.join("xtask")).unwrap();
    fs::write(root.join("packaging/policy.yaml"), "version: 1 # of the copy\n").unwrap();
    let mut xtask = Command::new(built.join("xtask"));
    // As `cargo xtask` has it.
    xtask.current_dir(&root).env("CARGO_MANIFEST_DIR", root.join("xtask"));
    xtask.env("SOURCE_DATE_EPOCH", "1700000000");
    xtask.arg("dist").arg("--binary").arg(binary().unwrap()).args(["--version", "1.0.0"]);
    let said = told(&mut xtask);
    let archive = root.join("target/dist/limiter-1.0.0-x86_64.tar.gz");
    assert!(said.contains(archive.to_str().unwrap()), "{said}");
    let listing = told(Command::new("tar").arg("tzf").arg(&archive));
    let policy = listing.lines().find(|line| line.ends_with("/etc/limiter/policy.yaml")).unwrap();
    let policy = told(Command::new("tar").arg("xzOf").arg(&archive).arg(policy));
    assert_eq!(policy, "version: 1 # of the copy\n");
}

/// Collects the commands in the help of a command, and below it.
fn commands(bench: &Bench, words: &str, found: &mut Vec<String>) {
    let help = bench.done(&format!("{words} --help")).stdout;
    let below = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in below.take_while(|line| !line.is_empty()) {
        let name = line.strip_prefix("  ").and_then(|line| line.split(' ').next());
        if let Some(name) = name.filter(|name| !name.is_empty() && *name != "help") {
            let words = format!("{words} {name}").trim_start().to_owned();
            commands(bench, &words, found);
            found.push(words);
        }
    }
}

#[test]
fn every_command_has_a_page_that_is_well_formed() {
    let bench = Bench::new();
    let pages = Packages::empty();
    bench.done(&format!("man {}", pages.folder.display()));
    let mut all = Vec::new();
    commands(&bench, "", &mut all);
    assert!(all.len() > 25, "{all:?}");
    for command in &all {
        let page = pages.folder.join(format!("limiter-{}.8", command.replace(' ', "-")));
        let text = fs::read_to_string(&page).unwrap();
        for section in [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH \"EXIT STATUS\""] {
            assert!(text.contains(section), "no {section} in {}", page.display());
        }
        let is_leaf = !all.iter().any(|other| other.starts_with(&format!("{command} ")));
        assert_eq!(text.contains(".SH EXAMPLES"), is_leaf, "{}", page.display());
    }
    let files: Vec<_> = fs::read_dir(&pages.folder).unwrap().map(|it| it.unwrap().path()).collect();
    // One page for each command, one for the program, and one for policies.
    assert_eq!(files.len(), all.len() + 2);
    for file in files {
        let mut groff = Command::new("groff");
        let said = told(groff.args(["-ww", "-b", "-man", "-Tutf8", "-z"]).arg(&file));
        assert_eq!(said, "", "{}", file.display());
    }
    let attach = pages.folder.join("limiter-attach.8");
    let mut groff = Command::new("groff");
    // On one line, without overstrikes.
    groff.args(["-man", "-Tascii", "-P-cbou", "-rLL=999n"]);
    let shown = told(groff.arg(attach));
    assert!(shown.contains("[--policy FILE] [--policy-if-new FILE]"), "{shown}");
    let policy = fs::read_to_string(pages.folder.join("limiter-policy.5")).unwrap();
    for key in ["limits[].match.ports", "tenants.NAME.cidrs", "allow[].until"] {
        let key = key.replace('-', "\\-");
        assert!(policy.contains(&key), "no {key} in {policy}");
    }
}

/// The unit does the same before the service starts.
#[test]
fn an_instance_that_root_gave_away_stays_its_owners() {
    const OWNER: &str = "65534";
    let bench = Bench::new();
    let shell = |line: &str| told(bench.hosts.router.command("sh").args(["-ec", line]));
    let owners = format!("find {BPFFS}/limiter -mindepth 1 ! -user {OWNER}");
    let own = "links programs maps";
    shell(&format!("mkdir -m 750 {BPFFS}/limiter && cd {BPFFS}/limiter && mkdir -m 700 {own}"));
    shell(&format!("cd {BPFFS}/limiter && chown {OWNER}:{OWNER} {own}"));
    let refused = |what: &str| {
        for command in [&*format!("attach eth0 {SMALL}"), "detach --all"] {
            let outcome = bench.run(command).outcome().unwrap();
            assert_ne!(outcome.code, 0, "{what}: {outcome}");
            if command.starts_with("attach") {
                outcome.assert_says(&["belongs to another user", "hint: "]);
            }
        }
    };
    // If others may write there, anyone may have made the directory and may exchange it.
    for (open, closed) in [("1777", "700"), ("777", "700")] {
        shell(&format!("chmod {open} {BPFFS}"));
        refused("the file system");
        shell(&format!("chmod {closed} {BPFFS}"));
    }
    shell(&format!("chown {OWNER} {BPFFS}/limiter"));
    refused("the directory around");
    shell(&format!("chown 0 {BPFFS}/limiter"));
    // Root must not touch what a link points to.
    shell(&format!("mkdir {BPFFS}/other && mkdir {BPFFS}/other/precious"));
    shell(&format!("cd {BPFFS}/limiter && rmdir programs && ln -s {BPFFS}/other programs"));
    refused("a link");
    shell(&format!(
        "cd {BPFFS}/limiter && rm programs && mkdir -m 700 programs && test -d {BPFFS}/other/precious"
    ));
    shell(&format!(
        "cd {BPFFS}/limiter && chown {OWNER}:{OWNER} programs && rmdir {BPFFS}/other/precious {BPFFS}/other"
    ));

    assert_eq!(bench.done("detach --all").stdout, "Nothing is attached.\n");
    bench.done(&format!("attach eth0 {SMALL} --pps 1kpps"));
    bench.done("attach lo");
    assert_eq!(shell(&owners), "");
    bench.done("limit set source --rate 5/s");
    bench.done("attach eth0 --replace");
    assert_eq!(shell(&owners), "");
    bench.done("attach eth0 --sources 8192");
    assert_eq!(shell(&owners), "");
    bench.done("detach --all");
    let left = shell(&format!("cd {BPFFS}/limiter && find . -type d | sort && {owners}"));
    assert_eq!(
        left, ".\n./links\n./maps\n./maps2\n./programs\n",
        "its directories are left, and nothing else"
    );
}

/// A user may have directories of pins, and a link in the place of those of maps.
#[test]
fn what_a_link_in_the_place_of_maps_points_to_is_left_alone() {
    let bench = Bench::new();
    let shell = |line: &str| told(bench.hosts.router.command("sh").args(["-ec", line]));
    let elsewhere = shell("mktemp -d");
    let elsewhere = elsewhere.trim();
    shell(&format!(
        "touch {elsewhere}/precious && mkdir {BPFFS}/limiter && cd {BPFFS}/limiter && \
         mkdir -m 700 links programs maps && ln -s {elsewhere} maps2 && chown -R -h 65534 ."
    ));
    for command in ["deny add 192.0.2.1", "detach eth0", "status", &format!("attach eth0 {SMALL}")]
    {
        let outcome = bench.run(command).outcome().unwrap();
        assert_ne!(outcome.code, 0, "{command}: {outcome}");
    }
    shell(&format!("rm {elsewhere}/precious && rmdir {elsewhere}"));
}

/// The five sets of capabilities of a process, as `/proc` names them.
const SETS: [&str; 5] = ["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"];

/// Asserts the fields of `/proc/PID/status`.
#[track_caller]
pub(super) fn assert_status(status: &str, expected: &[(&str, &str)]) {
    for (field, expected) in expected {
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(":\t"));
        assert_eq!(line, Some(*expected), "{field} in {status}");
    }
}

/// An agent that root starts by hand drops its other capabilities too, in every thread. Only its loader can load what reads
/// kernel memory.
#[test]
fn an_agent_keeps_two_capabilities_and_its_loader_one_more() {
    const NONE: &str = "0000000000000000";
    /// `CAP_NET_ADMIN` and `CAP_BPF`.
    const KEPT: &str = "0000008000001000";
    /// And `CAP_PERFMON`.
    const OF_LOADER: &str = "000000c000001000";
    let rights = |kept| {
        let values = [kept, kept, NONE, NONE, NONE];
        let sets: Vec<_> = SETS.into_iter().zip(values).collect();
        [sets, vec![("NoNewPrivs", "1")]].concat()
    };
    let bench = Bench::new();
    let document = Document::new("limits: []");
    let agent = bench.run(&document.in_place("agent --policy FILE"));
    // Empty variables count as not set.
    let agent = agent
        .env("LIMITER_INTERFACES", " eth0  lo")
        .env("LIMITER_EVENTS", "")
        .env("LIMITER_LISTEN", "");
    let mut agent = agent.to(Stdio::null()).start().unwrap();
    let start = Instant::now();
    while bench.programs().values().any(Option::is_none) {
        assert!(start.elapsed() < Duration::from_secs(20), "nothing is attached");
        thread::sleep(Duration::from_millis(20));
    }
    let tasks = fs::read_dir(format!("/proc/{}/task", agent.id())).unwrap();
    let mut threads = 0;
    for task in tasks {
        let Ok(status) = fs::read_to_string(task.unwrap().path().join("status")) else { continue };
        assert_status(&status, &rights(KEPT));
        threads += 1;
    }
    assert!(threads > 1);
    let loader = loader::of(agent.id());
    let status = fs::read_to_string(format!("/proc/{loader}/status")).unwrap();
    assert_status(&status, &rights(OF_LOADER));
    kill(&mut agent);
    loader::assert_ends(loader);
}
