//! The tables of words: other names of commands and options, and answers to words that are none.

/// Other names of commands. Each one means the same as its command, without doubt.
pub(super) const COMMAND_ALIASES: &[(&str, &[&str])] = &[
    ("status", &["stats", "stat", "info"]),
    ("allow", &["whitelist", "allowlist", "permit"]),
    ("deny", &["blacklist", "denylist", "blocklist"]),
    ("doctor", &["diagnose"]),
    ("completion", &["completions"]),
    ("limit del", &["rm", "remove", "unset"]),
    ("allow del", &["rm", "remove", "unset"]),
    ("allow list", &["show"]),
    ("allow flush", &["clear"]),
    ("deny del", &["rm", "remove", "unset"]),
    ("deny list", &["show"]),
    ("deny flush", &["clear"]),
    ("penalty del", &["rm", "remove", "unset"]),
    ("penalty list", &["show"]),
    ("penalty flush", &["clear"]),
    ("policy check", &["validate", "verify", "lint"]),
    ("policy apply", &["load"]),
    ("policy show", &["list", "ls", "get", "export", "dump"]),
];

/// Other names of options: the command, the option's name, and what else it is called.
pub(super) const OPTION_ALIASES: &[(&str, &str, &str)] =
    &[("attach", "pps", "rate"), ("limit set", "rate", "pps")];

/// What a command with subcommands does without one: it shows.
pub(super) const DEFAULTS: &[(&str, &str)] = &[
    ("limit", "list"),
    ("allow", "list"),
    ("deny", "list"),
    ("penalty", "list"),
    ("policy", "show"),
];

/// An answer to words that a command refuses.
pub(super) struct Answer {
    /// The commands that refuse them, separated by `|`; empty for `limiter` itself.
    pub(super) commands: &'static str,
    /// The words, separated by spaces. A word in capitals is a class of words, see `Line::is`.
    pub(super) words: &'static str,
    /// The hint. A name in braces is filled with what was given, see `Line::filled`.
    pub(super) hint: &'static str,
}

const fn answer(commands: &'static str, words: &'static str, hint: &'static str) -> Answer {
    Answer { commands, words, hint }
}

/// The answer to who wants a change back.
const UNDO: &str = "`limiter policy revert` takes back a policy that waits to be confirmed; for any other change, keep a copy \
                    before it, `limiter policy show > {file}`, and apply that";

/// The answers. The first that fits is given; one for `*` only if no command is named almost so.
pub(super) const ANSWERS: &[Answer] = &[
    // Words after `limiter`.
    answer(
        "",
        "ban block blackhole jail penalize punish",
        "`limiter penalty add {addresses} --for {time}` blocks it for {time}; `limiter deny add {addresses}` drops it \
         until it is deleted",
    ),
    answer(
        "",
        "drop reject",
        "`limiter deny add {addresses}` drops all its packets until it is deleted; `limiter penalty add {addresses} \
         --for {time}` blocks it for {time}",
    ),
    answer("", "accept pass trust", "`limiter allow add {listed}` lets all its packets pass"),
    answer(
        "",
        "unban unblock undeny unjail release pardon forgive",
        "`limiter penalty del {addresses}` ends its block; `limiter deny del {addresses}` takes it off the list of \
         what is always dropped",
    ),
    answer(
        "",
        "load+FILE use+FILE",
        "`limiter policy apply {file}` puts it in force; `limiter policy check {file}` only checks it",
    ),
    answer(
        "",
        "start load enable up on install run setup init protect",
        "`limiter attach {iface}` attaches limiter to {iface}, and no process has to run; `systemctl enable --now \
         limiter` does it at each boot",
    ),
    answer(
        "",
        "stop unload disable down off uninstall",
        "`limiter detach {iface}` detaches limiter from {iface}; `limiter monitor on` only stops the drops",
    ),
    answer(
        "",
        "restart upgrade update",
        "`limiter attach {iface} --replace` loads the program anew and keeps all state; `systemctl restart \
         limiter` restarts the agent",
    ),
    answer(
        "",
        "reload",
        "`limiter policy apply {file}` puts a document in force; `systemctl reload limiter` has the agent read \
         its document again",
    ),
    answer(
        "",
        "log logs events journal",
        "`limiter drops` shows packets that are dropped, `limiter top` the sources with the most drops; \
         `journalctl -u limiter` has the messages of the agent",
    ),
    answer(
        "",
        "list ls show rules ruleset",
        "`limiter status` shows interfaces, limits and counters; `limiter limit list`, `limiter allow list`, \
         `limiter deny list` and `limiter penalty list` show one kind; `limiter policy show` prints the policy",
    ),
    answer(
        "",
        "flush clear",
        "`limiter deny flush`, `limiter allow flush` and `limiter penalty flush` empty a list; `limiter limit del \
         {name}` switches a limit off; `limiter detach --all` removes everything",
    ),
    answer(
        "",
        "reset zero forget",
        "`limiter penalty del {address}` ends its block and forgets its refusals; a bucket fills by itself; \
         counters stay until `limiter detach --all`",
    ),
    answer("", "add+IFACE", "`limiter attach {iface}` attaches it"),
    answer(
        "",
        "add insert append",
        "`limiter deny add {listed}` drops it, `limiter allow add {listed}` lets it pass, `limiter limit set \
         source --src {address} --rate RATE` limits it",
    ),
    answer(
        "",
        "rm+IFACE del+IFACE delete+IFACE remove+IFACE",
        "`limiter detach {iface}` detaches it",
    ),
    answer(
        "",
        "rm del delete remove",
        "`limiter deny del {address}`, `limiter allow del {address}` and `limiter penalty del {address}` take it \
         off a list; `limiter limit del {name}` switches a limit off; `limiter detach {iface}` detaches",
    ),
    answer("", "set rate pps ratelimit throttle", "{limit}"),
    answer(
        "|limit",
        "unlimit disable off stop none flush clear",
        "`limiter limit del {name}` switches a limit off; `limiter limit del NAME --src {address}` deletes that of a source",
    ),
    answer(
        "",
        "config conf configure edit",
        "`limiter policy show` prints the policy, `limiter policy apply {file}` puts a document in force; the \
         service reads /etc/limiter/policy.yaml and /etc/default/limiter",
    ),
    answer(
        "",
        "apply check diff explain confirm revert save schema validate",
        "the command is `limiter policy {word}{rest}`",
    ),
    answer("", "rollback undo", UNDO),
    answer(
        "",
        "pause resume",
        "`limiter monitor on` only counts what it would drop; `limiter monitor off` drops again",
    ),
    answer(
        "",
        "preset presets example examples",
        "`limiter policy example` lists the presets, and prints one by its name",
    ),
    answer(
        "",
        "bans banned blocks blocked denied",
        "`limiter penalty list` shows who is blocked, `limiter deny list` whose packets are always dropped",
    ),
    answer(
        "",
        "dropped capture tcpdump sniff",
        "`limiter drops` shows packets that are dropped; `limiter drops --pcap drops.pcap` writes them",
    ),
    answer(
        "",
        "attack attacks ddos flood",
        "`limiter top` shows the sources with the most drops, `limiter drops` what is dropped, `limiter watch` both as they change",
    ),
    answer("", "whois", "`limiter get {address}` shows what is known of a source"),
    answer("", "kick", "`limiter penalty add {addresses} --for {time}` blocks it for {time}"),
    answer(
        "",
        "new create port service protocol",
        "`limiter limit add NAME --match tcp:PORT --rate 100/s` limits what comes to a port; `limiter limit add --help` has more",
    ),
    answer(
        "",
        "packets rates",
        "`limiter watch` shows rates as they are; `limiter status` counters",
    ),
    answer("", "sources clients talkers", "`limiter top` shows the sources with the most drops"),
    answer(
        "",
        "interfaces ifaces iface ip link dev counters counter",
        "`limiter status` shows them",
    ),
    answer(
        "",
        "health",
        "`limiter doctor` checks whether all is well; `limiter status` shows counters",
    ),
    answer("", "live tail follow", "`limiter watch` shows rates and drops as they are"),
    answer("", "dump export backup", "`limiter policy show` prints the policy as a document"),
    answer("", "restore import", "`limiter policy apply {file}` puts a document in force"),
    answer("", "daemon serve service", "`limiter agent -i {iface}` runs until it is stopped"),
    answer("", "lookup find who", "`limiter get {address}` shows what is known of a source"),
    answer(
        "",
        "-v --verbose -d --debug",
        "`limiter --version` prints the version; `limiter status -j` has every number",
    ),
    answer(
        "",
        "IFACE",
        "`limiter attach {word}` attaches it; `limiter status` shows what is attached",
    ),
    answer(
        "",
        "ADDRESS",
        "`limiter get {address}` shows what is known of it; `limiter deny add {listed}` drops it",
    ),
    // Words after a command with subcommands.
    answer(
        "allow|deny",
        "ADDRESS",
        "`limiter {command} add {listed}` adds it; `limiter {command} del {addresses}` takes it off",
    ),
    answer(
        "penalty",
        "ADDRESS",
        "`limiter penalty add {addresses} --for {time}` blocks it for {time}",
    ),
    answer(
        "allow|deny",
        "set insert append new create",
        "`limiter {command} add {listed}` adds it",
    ),
    answer(
        "penalty",
        "set insert append new create ban block",
        "`limiter penalty add {addresses} --for {time}` blocks it for {time}",
    ),
    answer("allow|deny", "unban unblock undeny", "`limiter {command} del {address}` takes it off"),
    answer("penalty", "unban unblock lift end", "`limiter penalty del {address}` ends its block"),
    answer("limit", "change edit modify update", "{limit}"),
    answer("limit", "get info", "`limiter limit show {name}` shows the limit"),
    answer("limit", "*", "{named}"),
    answer(
        "policy",
        "edit set change",
        "`limiter policy show > {file}`, edit that, then `limiter policy diff {file}` and `limiter policy apply \
         {file} --confirm 60s`",
    ),
    answer(
        "policy",
        "reset flush clear rm del delete remove",
        "`echo 'version: 1' | limiter policy apply -` puts an empty policy in force; `limiter limit del {name}` \
         switches one limit off",
    ),
    answer("policy", "rollback undo restore back", UNDO),
    answer(
        "policy",
        "FILE",
        "`limiter policy check {word}` checks it; `limiter policy apply {word}` puts it in force",
    ),
    // Arguments.
    answer("limit show|limit del", "<NAME>", "`limiter limit list` lists the limits"),
    answer("attach", "--all -a", "`limiter attach '*'` attaches all Ethernet interfaces"),
    answer(
        "attach|detach|doctor",
        "-i --interface --iface --dev -d",
        "an interface is named without an option: `limiter {command} {iface}`",
    ),
    answer(
        "attach",
        "--dry-run -n --check",
        "`limiter doctor {iface}` checks whether it would work; `limiter attach {iface} --monitor` counts and \
         drops nothing",
    ),
    answer(
        "attach",
        "hw hardware offload offloaded xdpoffload",
        "`--mode native` is the fastest: limiter runs in the driver, and not on the card itself",
    ),
    answer(
        "attach",
        "unlimited unlimit none off",
        "`limiter attach {iface}` limits nothing until a limit is set",
    ),
    answer("attach", "dev", "an interface is named alone: `limiter attach {iface}`"),
    answer("attach", "RATE", "a rate has its option: `--pps {word}`"),
    answer("attach", "NUMBER", "a number is one word, such as `--pps 10000`"),
    answer("attach|detach|doctor", "help", "`limiter {command} --help` explains the command"),
    answer("attach", "<IFACE>...", "name an interface: `limiter attach {iface}`"),
    answer(
        "attach",
        "<--policy",
        "`--for` is about limits: `limiter attach {iface} --pps RATE --for TIME`",
    ),
    answer(
        "attach",
        "--pps",
        "a burst needs a rate: `limiter attach {iface} --pps RATE --burst {burst}`",
    ),
    answer("detach", "all", "`limiter detach --all` detaches all interfaces"),
    answer(
        "detach",
        "<IFACE>...",
        "name an interface, such as `limiter detach {iface}`; `limiter detach --all` detaches all",
    ),
    answer("limit set", "RATE ADDRESS <NAME> --rate", "{named}"),
    answer(
        "limit set",
        "--per",
        "a rate has its time with it, such as `--rate 100/s` or `--rate 5/min`",
    ),
    answer(
        "limit set",
        "deny block",
        "`limiter penalty add ADDRESS --for 1h` blocks a source; `--action drop` drops all that the \
         limit is about",
    ),
    answer("limit set|limit add", "ssh http https smtp ntp dns udp tcp icmp", "{named}"),
    answer("limit add", "NUMBER", "{named}"),
    answer("limit add", "RATE", "a rate has its option: `--rate {word}`"),
    answer(
        "limit set",
        "--open",
        "`limiter limit add {name}-open --match tcp:PORT --open {number}` makes a limit of open connections",
    ),
    answer("limit set", "none nothing", "`--action off` neither drops nor counts"),
    answer(
        "limit set",
        "ip ips address addr host client",
        "each source address has the limit `source`; {limit}",
    ),
    answer(
        "allow add|deny add",
        "TIME for",
        "a time has its option: `limiter {command} {addresses} --for {time}`",
    ),
    answer(
        "penalty add",
        "TIME for --for",
        "say for how long: `limiter penalty add {addresses} --for {time}`; `limiter deny add {addresses}` drops it \
         until it is deleted",
    ),
    answer(
        "penalty add",
        "NEGATIVE forever permanent always infinite infinity",
        "`limiter deny add {addresses}` drops it until it is deleted",
    ),
    answer("allow add|deny add", "NEGATIVE", "without `--for` it does not end"),
    answer(
        "allow add|deny add|penalty add",
        "until",
        "an end has its option: `--until 2027-01-31`",
    ),
    answer(
        "allow add|deny add|penalty add|allow del|deny del|penalty del",
        "HOSTPORT",
        "a list is about addresses, a limit about ports: `limiter limit add NAME --match src:{host} tcp:{number} --action drop`",
    ),
    answer(
        "allow add|deny add|penalty add",
        "ASN COUNTRY",
        "give its prefixes; a set of a policy reads them from a file: `sets: {{ name: {{ file: PATH }} }}`",
    ),
    answer(
        "allow add|deny add|allow del|deny del|penalty del",
        "-f --file --from-file --input",
        "a list comes by the standard input: `limiter {command} - < {list}`",
    ),
    answer(
        "penalty add",
        "-f --file --from-file --input",
        "a list comes by the standard input: `limiter penalty add - --for {time} < {list}`",
    ),
    answer(
        "penalty add",
        "FILE",
        "a list comes by the standard input: `limiter {command} - --for {time} < {word}`",
    ),
    answer(
        "allow add|deny add|allow del|deny del|penalty del",
        "FILE",
        "a list comes by the standard input: `limiter {command} - < {word}`",
    ),
    answer(
        "allow add|deny add|penalty add|allow del|deny del|penalty del|get|limit set",
        "HOST",
        "names are not looked up; give an address, as `getent ahosts {word}` prints it",
    ),
    answer(
        "allow del|deny del|penalty del",
        "--all all",
        "`limiter {group} flush` removes all entries that were set at run time",
    ),
    answer(
        "allow add|deny add|penalty add",
        "OF_REASON",
        "an option takes one word: put several in quotes, such as `--reason 'ssh brute force'`",
    ),
    answer(
        "get|policy explain",
        "IFACE",
        "`limiter status` shows interfaces; `limiter {command} ADDRESS` asks about a source",
    ),
    answer(
        "get",
        "source syn connection",
        "`limiter limit show {word}` shows the limit; `limiter get ADDRESS` asks about a source",
    ),
    answer("drops", "-n --number", "`limiter drops --count 20` ends after so many"),
    answer("drops", "-w --write -o --output FILE", "`limiter drops --pcap {file}` writes them"),
    answer("drops", "IFACE", "`limiter drops -i {word}` shows those that come in there"),
    answer("drops", "ADDRESS", "`limiter drops --source {word}` shows those of that source"),
    answer(
        "drops",
        "--port --dport --proto --protocol",
        "`limiter drops --pcap - | tcpdump -nr - port 53` has tcpdump choose among them",
    ),
    answer("top", "0", "the least number is 1"),
    answer("top", "NUMBER", "`limiter top -n {word}` lists so many"),
    answer(
        "top",
        "--order -s",
        "`limiter top --by rate` begins with those that send most now; `--by dropped|passed|packets|bytes` with others",
    ),
    answer(
        "status|top|watch|metrics",
        "IFACE",
        "`limiter {command}` is about all attached interfaces",
    ),
    answer("status", "--watch -w", "`limiter watch` shows it as it changes"),
    answer("status", "-v --verbose --all -a", "`limiter status -j` has every number"),
    answer("watch", "-n", "`limiter watch --interval {after}` sets the time between two readings"),
    answer("watch", "--top", "`limiter top -n {number}` lists so many sources"),
    answer(
        "agent",
        "start run enable",
        "`limiter agent -i {iface}` runs until it is stopped; `systemctl start limiter` starts the service",
    ),
    answer(
        "agent",
        "stop disable",
        "`systemctl stop limiter` stops the service; interfaces stay attached",
    ),
    answer(
        "agent",
        "status",
        "`systemctl status limiter` shows the service; `limiter status` what is attached",
    ),
    answer(
        "agent",
        "--port -p NUMBER LISTEN",
        "`limiter agent --listen 127.0.0.1:{number}` serves metrics to this host; a proxy may serve others",
    ),
    answer(
        "metrics",
        "--port -p --listen",
        "`limiter agent --listen 127.0.0.1:{number}` serves them; `limiter metrics` prints them once",
    ),
    answer("monitor", "status show get", "`limiter monitor` shows whether it is on"),
    answer(
        "test",
        "ADDRESS --src --dst",
        "`limiter test --src {any} --dst ADDRESS` asks about one packet; `limiter policy explain {any}` \
         about all of the source",
    ),
    answer("test", "DOCUMENT", "`limiter policy check {word}` checks it"),
    answer("test", "FILE", "`limiter test --pcap {word}` judges the packets of a file"),
];
