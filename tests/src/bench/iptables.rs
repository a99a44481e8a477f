//! A limit per source with the iptables match `hashlimit`.

use anyhow::{Context as _, Result, ensure};
use limiter_tests::topology::Host;

/// The first rule drops packets over the limit. The second counts packets within it and drops them too, so
/// that the stack sends no answers.
const RULES: [&str; 2] = [
    "-m hashlimit --hashlimit-name bench --hashlimit-mode srcip --hashlimit-above 1000/sec \
     --hashlimit-burst 200 --hashlimit-htable-size 65536 --hashlimit-htable-max 65536 \
     --hashlimit-htable-expire 60000 -j DROP",
    "-j DROP",
];

/// Installs the limit for packets that come in by `eth0` of a host.
pub(crate) fn limit(host: &Host) -> Result<()> {
    for rule in RULES {
        let rule = format!("-w -t raw -A PREROUTING -i eth0 {rule}");
        run(host, "iptables-legacy", &rule)?;
    }
    Ok(())
}

/// The number of frames that were within the limit.
pub(crate) fn passed(host: &Host) -> Result<u64> {
    let listing = run(host, "iptables-legacy-save", "-c -t raw")?;
    within(&listing).context("iptables-legacy-save shows no counter of what is within the limit")
}

fn run(host: &Host, program: &str, arguments: &str) -> Result<String> {
    let output = host
        .command(program)
        .args(arguments.split_whitespace())
        .output()
        .with_context(|| format!("cannot run {program} (Debian package iptables)"))?;
    let cause = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed: {}", cause.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The packet count of the rule without a match, in the output of `iptables-save -c`.
fn within(listing: &str) -> Option<u64> {
    let mut rules = listing.lines().filter(|line| line.contains(" -A PREROUTING "));
    let rule = rules.find(|line| !line.contains("hashlimit"))?;
    rule.strip_prefix('[')?.split_once(':')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_of_what_is_within_the_limit_is_found() {
        let over =
            "[90:4140] -A PREROUTING -i eth0 -m hashlimit --hashlimit-above 1000/sec -j DROP";
        let rest = "*raw\n:PREROUTING ACCEPT [7:8]\n:OUTPUT ACCEPT [0:0]";
        let listing = format!("{rest}\n{over}\n[210:9660] -A PREROUTING -i eth0 -j DROP\nCOMMIT\n");
        assert_eq!(within(&listing), Some(210));
        assert_eq!(within(&format!("{rest}\n{over}\nCOMMIT\n")), None);
        assert_eq!(within(""), None);
    }
}
