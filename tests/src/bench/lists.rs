//! Measures commands that edit a long run-time list, from the start of the process to its end.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use limiter_tests::{command::Limiter, sandbox::Sandbox, topology::Host};
use serde_json::{Value, json};

use super::sample::median;

/// Addresses that one command lists.
const MANY: u32 = 100_000;
/// How often each command is measured.
const TIMES: u8 = 9;

/// The median time of each command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lists {
    /// `deny add -` of 100,000 addresses.
    pub(crate) many: Duration,
    /// `deny add` of the first address after that.
    pub(crate) first: Duration,
    /// `deny add` of one address more, after two others.
    pub(crate) one: Duration,
}

/// Runs the commands on a host of their own.
pub(crate) fn measure(sandbox: &Sandbox) -> Result<Lists> {
    let host = Host::new(sandbox, "lists")?;
    let limiter = Limiter::new(&host)?;
    limiter.run("attach lo --pps 10kpps").done()?;
    let address = |number: u32| Ipv4Addr::from(u32::from_be_bytes([11, 0, 0, 0]) + number * 7);
    let feed: String = (0..MANY).map(|number| format!("{}\n", address(number))).collect();
    let time = |arguments: &str, input: &str, said: &str| -> Result<f64> {
        let command = limiter.run(arguments).input(input.as_bytes())?;
        let start = Instant::now();
        let outcome = command.done()?;
        let took = start.elapsed();
        ensure!(outcome.stdout.starts_with(said), "{outcome}");
        Ok(took.as_secs_f64())
    };
    let (mut many, mut first, mut one) = (Vec::new(), Vec::new(), Vec::new());
    for number in 1..=TIMES {
        many.push(time("deny add -", &feed, "deny: 100,000 prefixes added\n")?);
        let more = |net: u8| {
            let more = format!("192.0.{net}.{number}");
            time(&format!("deny add {more}"), "", &format!("deny: {more}/32\n"))
        };
        first.push(more(1)?);
        more(2)?;
        one.push(more(3)?);
        limiter.run("deny flush").done()?;
    }
    let median = |times: &[f64]| Duration::from_secs_f64(median(times));
    Ok(Lists { many: median(&many), first: median(&first), one: median(&one) })
}

impl Lists {
    /// One line of the report.
    pub(crate) fn text(&self) -> String {
        let [many, first, one] = [self.many, self.first, self.one].map(|time| time.as_millis());
        format!(
            "lists       {MANY} addresses in one `deny add` in {many} ms, the first one more in {first} ms, a later one in {one} ms"
        )
    }

    /// The times as JSON.
    pub(crate) fn json(&self) -> Value {
        json!({
            "addresses": MANY,
            "add_all_ms": self.many.as_secs_f64() * 1e3,
            "add_first_more_ms": self.first.as_secs_f64() * 1e3,
            "add_one_more_ms": self.one.as_secs_f64() * 1e3,
        })
    }
}
