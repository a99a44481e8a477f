//! The description of the machine that the figures are from.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, SystemTime},
};

use limiter_userspace::output::timestamp::utc;
use serde_json::{Value, json};

/// A load average above this makes the figures doubtful.
const BUSY: f64 = 0.5;

/// Facts about the machine, as far as they can be read.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    facts: Vec<(&'static str, String)>,
    load: Option<f64>,
}

impl Machine {
    /// Reads the facts of this machine; `cpu` is the CPU that is measured on.
    pub(crate) fn look(cpu: usize) -> Self {
        let kernel = text("/proc/sys/kernel/osrelease").unwrap_or_default();
        let model = text("/proc/cpuinfo").and_then(|info| {
            let line = info.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        });
        let cpus = text("/sys/devices/system/cpu/online");
        let average = text("/proc/loadavg");
        let load = average.as_ref().and_then(|text| text.split_whitespace().next()?.parse().ok());
        let clock = text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let facts = [
            ("date", Some(utc(SystemTime::now()))),
            ("cpu", model),
            ("cpus", cpus.map(|cpus| format!("{cpus} online, measured on {cpu}"))),
            ("tick", ticks(&kernel)),
            ("kernel", Some(kernel)),
            ("clock", clock),
            ("mitigations", mitigations()),
            ("load", average),
        ];
        let facts = facts.into_iter().filter_map(|(name, fact)| Some((name, fact?))).collect();
        Self { facts, load }
    }

    /// The known facts, with their names.
    pub(crate) fn facts(&self) -> &[(&'static str, String)] {
        &self.facts
    }

    /// The fact with this name; `None` if it is not known.
    pub(crate) fn fact(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|(found, _)| *found == name).map(|(_, fact)| fact.as_str())
    }

    /// The facts as JSON.
    pub(crate) fn json(&self) -> Value {
        let facts = self.facts.iter().map(|(name, fact)| ((*name).to_owned(), json!(fact)));
        Value::Object(facts.collect())
    }

    /// Warnings about states of the machine that distort figures.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(load) = self.load.filter(|load| *load > BUSY) {
            warnings.push(format!(
                "the load average was {load} at the start: other work made these figures worse"
            ));
        }
        if text("/proc/sys/kernel/bpf_stats_enabled").is_some_and(|value| value != "0") {
            warnings.push(
                "kernel.bpf_stats_enabled is on, which makes every run of a program slower"
                    .to_owned(),
            );
        }
        if text("/proc/sys/net/core/bpf_jit_enable").is_some_and(|value| value == "0") {
            warnings.push(
                "net.core.bpf_jit_enable is 0: these are figures of the interpreter".to_owned(),
            );
        }
        warnings
    }
}

/// The time that the hypervisor had CPUs of this machine do other work since it started, of all CPUs; `None` if it is not told.
pub(crate) fn stolen() -> Option<Duration> {
    /// The kernel counts here in hundredths of a second, whatever its tick.
    const UNIT: Duration = Duration::from_millis(10);
    let counts = text("/proc/stat")?;
    // After the word `cpu` and seven others.
    let count: u32 = counts.lines().next()?.split_whitespace().nth(8)?.parse().ok()?;
    Some(UNIT * count)
}

/// The frequency of the timer interrupt (`CONFIG_HZ`), from the configuration of the kernel.
fn ticks(kernel: &str) -> Option<String> {
    let configuration = text(format!("/boot/config-{kernel}")).or_else(|| {
        let output = Command::new("zcat").arg("/proc/config.gz").output().ok()?;
        String::from_utf8(output.stdout).ok()
    })?;
    let hz = configuration.lines().find_map(|line| line.strip_prefix("CONFIG_HZ="))?;
    Some(format!("{hz} Hz"))
}

/// The CPU vulnerabilities that affect this machine, with the mitigation of each.
fn mitigations() -> Option<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/devices/system/cpu/vulnerabilities").ok()?.flatten() {
        let Some(state) = text(entry.path()).filter(|state| state != "Not affected") else {
            continue;
        };
        let state = state.strip_prefix("Mitigation: ").unwrap_or(&state).to_owned();
        found.push(format!("{}: {state}", entry.file_name().display()));
    }
    found.sort();
    Some(found.join(" | "))
}

/// The trimmed text of a file; `None` if it cannot be read.
fn text(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}
