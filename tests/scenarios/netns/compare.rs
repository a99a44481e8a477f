//! The trial of other limiters that `docs/compare.md` shows, repeated.

use std::{fs, io::Write as _, net::Ipv4Addr, path::Path, process::Stdio, thread, time::Duration};

use limiter_tests::packet::set_source;

use super::{Net, v4};

/// Another limiter on the router, of 10 packets a second for each source, with room for 1,000 sources.
trait Other {
    /// Sets a limit of this rate and burst, in place of the one before.
    fn limit(&self, net: &Net, per_second: u32, burst: u32);
    /// The packets that passed so far.
    fn passed(&self, net: &Net) -> u64;
}

struct Nftables;
struct Hashlimit;

/// Runs a program on the router with a text on its standard input. Returns what it prints.
fn run(net: &Net, program: &str, arguments: &str, text: &str) -> String {
    let mut command = net.hosts.router.command(program);
    command.args(arguments.split_whitespace()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    let [said, errors] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(output.status.success(), "{program} {arguments}: {said}{errors}");
    said
}

impl Other for Nftables {
    fn limit(&self, net: &Net, per_second: u32, burst: u32) {
        let table = "table ip tried {
            counter passed { }
            set m { type ipv4_addr; size 1000; flags dynamic,timeout; timeout 60s; }
            chain first { type filter hook prerouting priority raw; }
        }";
        let over = format!("ip saddr limit rate over {per_second}/second burst {burst} packets");
        let rules = format!(
            "{table}\nflush chain ip tried first\nadd rule ip tried first update @m {{ {over} }} drop\n\
             add rule ip tried first counter name passed drop\n"
        );
        run(net, "nft", "-f -", &rules);
    }

    fn passed(&self, net: &Net) -> u64 {
        let listing = run(net, "nft", "-j list counter ip tried passed", "");
        let listing: serde_json::Value = serde_json::from_str(&listing).unwrap();
        let objects = listing["nftables"].as_array().unwrap();
        objects.iter().find_map(|it| it["counter"]["packets"].as_u64()).unwrap()
    }
}

impl Other for Hashlimit {
    fn limit(&self, net: &Net, per_second: u32, burst: u32) {
        let rule = format!(
            "-m hashlimit --hashlimit-name tried --hashlimit-mode srcip --hashlimit-htable-size 500 \
             --hashlimit-htable-max 1000 --hashlimit-above {per_second}/sec --hashlimit-burst {burst} -j DROP"
        );
        let is_first = !run(net, "iptables-legacy-save", "-t raw", "").contains("tried");
        let place = if is_first { "-A PREROUTING" } else { "-R PREROUTING 1" };
        run(net, "iptables-legacy", &format!("-w -t raw {place} {rule}"), "");
        if is_first {
            run(net, "iptables-legacy", "-w -t raw -A PREROUTING -p udp -j DROP", "");
        }
    }

    fn passed(&self, net: &Net) -> u64 {
        let listing = run(net, "iptables-legacy-save", "-c -t raw", "");
        let rule = listing.lines().find(|line| line.contains("PREROUTING -p udp -j DROP"));
        let (packets, _) = rule.unwrap().split_once(':').unwrap();
        packets.trim_start_matches('[').parse().unwrap()
    }
}

/// The rows of the page: what was sent, and how much of it passed nftables and hashlimit.
fn shown() -> Vec<(String, [u64; 2])> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/compare.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("| sent | nftables passed | hashlimit passed |\n").unwrap();
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let number = |cell: &str| cell.replace(',', "").parse().unwrap();
        (cells[1].to_owned(), [number(cells[2]), number(cells[3])])
    };
    rows.map(row).collect()
}

/// How much of what each row sends passes.
fn tried(other: &dyn Other) -> Vec<u64> {
    let net = Net::new();
    let passed = |source: Ipv4Addr, packets: u64, is_one_each: bool| {
        let before = other.passed(&net);
        let sender = net.sender(10_000, net.udp(source));
        let mut sender = sender.edited(move |number, frame| {
            let source = u32::from(source) + if is_one_each { number as u32 } else { 0 };
            assert!(set_source(frame, Ipv4Addr::from(source).into()));
        });
        let length = Duration::from_micros(100 * packets);
        assert_eq!(sender.send(length, &Default::default()).unwrap().packets, packets);
        other.passed(&net) - before
    };
    let wait = |seconds| thread::sleep(Duration::from_secs(seconds));
    other.limit(&net, 10, 10);
    let [first, later, others] = [v4(10), v4(11), Ipv4Addr::new(10, 0, 0, 1)];
    let mut all =
        vec![passed(first, 200, false), passed(others, 5_000, true), passed(later, 200, false)];
    wait(1);
    all.push(passed(first, 200, false));
    other.limit(&net, 1_000, 100);
    wait(2);
    all.push(passed(first, 200, false));
    all
}

#[test]
fn other_limiters_do_what_the_page_says() {
    let (shown, others): (_, [&dyn Other; 2]) = (shown(), [&Nftables, &Hashlimit]);
    assert_eq!(shown.len(), 5);
    let tried = others.map(tried);
    for (row, (what, passed)) in shown.iter().enumerate() {
        for (of, shown) in passed.iter().enumerate() {
            // A token of 10/s comes in while packets are sent, or is not whole yet.
            assert!(
                tried[of][row].abs_diff(*shown) <= 1,
                "{what}: {tried:?} instead of {passed:?}"
            );
        }
    }
}
