//! The setup for scrapes: a policy, traffic, and a Prometheus with short intervals.

use std::{
    fs, io,
    os::fd::{FromRawFd as _, OwnedFd},
    path::Path,
    thread,
    time::Duration,
};

use limiter_tests::{
    packet::Frame,
    topology::Topology,
    traffic::{Sender, Stop},
};

/// Packets sent per second.
const RATE: u64 = 2_000;

/// A policy that produces every metric; `name` is the name of a limit.
pub(super) fn policy(name: &str) -> String {
    format!(
        "version: 1\n\
         allow: [198.51.100.0/24]\n\
         deny: [192.0.2.4]\n\
         limits:\n\
         - {{name: source, key: source, rate: 50/s, burst: 20, candidate: {{rate: 5/s, burst: 5}}, \
         penalty: {{after: 2s, block: 1m, unproven: block}}}}\n\
         - {{name: {name}, key: all, action: monitor, rate: 100/s}}\n\
         - {{name: pair, key: [source, destination], rate: 1/min, burst: 10k}}\n"
    )
}

/// Sends until it is dropped: from sources in `192.0.2.0/24`, of which the first sends most.
pub(super) struct Traffic {
    stop: Stop,
    thread: Option<thread::JoinHandle<()>>,
}

impl Traffic {
    pub(super) fn start(hosts: &Topology) -> Self {
        let (from, to) = (&hosts.client_port, &hosts.router_port);
        let frame = Frame::udp([192, 0, 2, 1], to.v4, 1, 9).payload(18).macs(from.mac, to.mac);
        let sender = Sender::new(&hosts.client.namespace, from, RATE, frame.build()).unwrap();
        let mut sender = sender.edited(|number, frame| {
            // The last byte of the source address.
            frame[29] = if number % 4 == 0 { 1 + (number / 4 % 16) as u8 } else { 1 };
        });
        let stop = Stop::default();
        let told = stop.clone();
        let thread = thread::spawn(move || {
            sender.send(Duration::from_secs(600), &told).unwrap();
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.stop();
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// Makes the kernel measure the run time of programs until the result is dropped.
pub(super) fn count_costs() -> OwnedFd {
    const BPF_ENABLE_STATS: libc::c_int = 32;
    // Type 0 (`BPF_STATS_RUN_TIME`).
    let attributes = [0_u32; 16];
    // SAFETY: attributes of this length, zeroed beyond what the command reads.
    let descriptor = unsafe {
        let size = size_of_val(&attributes);
        libc::syscall(libc::SYS_bpf, BPF_ENABLE_STATS, attributes.as_ptr(), size)
    };
    assert!(descriptor >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the call succeeded and gave a new descriptor to us alone.
    unsafe { OwnedFd::from_raw_fd(descriptor as i32) }
}

/// Copies the shipped files to a folder, with all intervals and waiting times shortened.
pub(super) fn hasten(folder: &Path) {
    let shipped = |name: &str| fs::read_to_string(super::shipped().join(name)).unwrap();
    let configuration = shipped("prometheus.yaml");
    assert_eq!(configuration.matches("_interval: 15s").count(), 2);
    let configuration = configuration.replace("_interval: 15s", "_interval: 1s");
    fs::write(folder.join("prometheus.yaml"), configuration).unwrap();
    let rules = shipped("limiter.rules.yaml").replace("interval: 1m", "interval: 1s");
    let hastened = rules.lines().map(|line| match line.trim_start().starts_with("for: ") {
        true => "        for: 0s",
        false => line,
    });
    let rules: Vec<&str> = hastened.collect();
    fs::write(folder.join("limiter.rules.yaml"), rules.join("\n")).unwrap();
}
