//! A limit per source with nftables.

use std::{io::Write as _, process::Stdio};

use anyhow::{Context as _, Result, bail};
use limiter_tests::topology::Host;
use serde_json::Value;

/// Rules at the ingress hook of the interface. Elements need a timeout, or the first sources would fill the
/// set for ever. The counter counts packets within the limit.
pub(crate) const INGRESS: &str = r#"table netdev bench {
    counter passed { }
    set sources { type ipv4_addr; size 65536; flags dynamic,timeout; timeout 1m; }
    chain ingress {
        type filter hook ingress device "eth0" priority 0; policy accept;
        update @sources { ip saddr limit rate over 1000/second burst 200 packets } drop
        counter name passed
    }
}
"#;

/// Rules before routing, with the priority of `raw`, before connection tracking. Packets within the limit are
/// counted and dropped too, so that the stack sends no answers.
pub(crate) const PREROUTING: &str = r#"table ip bench {
    counter passed { }
    set sources { type ipv4_addr; size 65536; flags dynamic,timeout; timeout 1m; }
    chain prerouting {
        type filter hook prerouting priority raw; policy accept;
        iifname "eth0" update @sources { ip saddr limit rate over 1000/second burst 200 packets } drop
        iifname "eth0" counter name passed drop
    }
}
"#;

/// Loads rules on a host.
pub(crate) fn limit(host: &Host, rules: &str) -> Result<()> {
    let mut nft = host.command("nft");
    nft.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut nft = nft.spawn().context("cannot run nft (Debian package nftables)")?;
    if let Some(mut stdin) = nft.stdin.take() {
        stdin.write_all(rules.as_bytes()).context("cannot write to nft")?;
    }
    let output = nft.wait_with_output().context("cannot wait for nft")?;
    if !output.status.success() {
        bail!("nft failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// The number of frames within the limit, from the table of this family.
pub(crate) fn passed(host: &Host, family: &str) -> Result<u64> {
    let mut nft = host.command("nft");
    nft.args(["-j", "list", "counter", family, "bench", "passed"]);
    let output = nft.output().context("cannot run nft")?;
    let listing: Value = serde_json::from_slice(&output.stdout).context("nft printed no JSON")?;
    listing["nftables"]
        .as_array()
        .and_then(|objects| objects.iter().find_map(|object| object.get("counter")))
        .and_then(|counter| counter["packets"].as_u64())
        .context("nft shows no counter")
}
