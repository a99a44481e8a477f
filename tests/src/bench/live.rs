//! Measures frames per second over a wire between two hosts: a frame is made, sent and received on one CPU.
//!
//! The kernel does all of this in one system call; it receives in the softirq at the end of each batch. The
//! measured time is the one that the kernel reports for the call, without the time of other processes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use aya::{
    TestRunAttrs,
    programs::{TestRun as _, TestRunOptions, Xdp, XdpMode},
};
use limiter_common::{algorithm::rate::SECOND, packet::reason::Reason};
use limiter_tests::{
    packet::Frame,
    sandbox::{BPFFS, Sandbox},
    topology::{Host, Port, Topology},
};
use limiter_userspace::{
    datapath::{
        bpffs::Pins,
        instance::{Choice, Instance},
        interface::Interface,
        mode::Mode,
        sizes::Sizes,
    },
    policy::{Bucket, Builtin, Policy},
};

use super::{
    contest::{Contest, SCANT},
    load::{DROP, Load, NOP, SEND},
    sample::Figure,
};

/// Frames that the generator sends in one batch, well below the capacity of the wire.
const BATCH: u32 = 64;

/// The result of one contest.
#[derive(Clone, Debug)]
pub(crate) struct Throughput {
    /// The contest.
    pub(crate) contest: Contest,
    /// Frames received per second, dropped or not.
    pub(crate) rate: Figure,
    /// Frames sent in all rounds.
    pub(crate) sent: u64,
    /// Frames of these that were received.
    pub(crate) received: u64,
    /// Received frames that were not dropped; `None` if the receiver does not count them.
    pub(crate) passed: Option<u64>,
}

/// Measures every contest in `rounds` rounds of about `length`. The calling thread has to be pinned to one
/// CPU.
pub(crate) fn measure(
    sandbox: &Sandbox,
    rounds: usize,
    length: Duration,
) -> Result<Vec<Throughput>> {
    let mut rings = Contest::ALL
        .into_iter()
        .map(|contest| Ring::new(sandbox, contest))
        .collect::<Result<Vec<_>>>()?;
    for ring in &mut rings {
        ring.calibrate(length)?;
    }
    for _ in 0..rounds {
        for ring in &mut rings {
            ring.round()?;
        }
    }
    rings.into_iter().map(Ring::throughput).collect()
}

/// A contest on a wire of its own.
struct Ring {
    contest: Contest,
    topology: Topology,
    instance: Instance,
    load: Load,
    frame: Vec<u8>,
    frames: u32,
    start: Instant,
    /// Frames received before the start.
    early: u64,
    sent: u64,
    samples: Vec<f64>,
}

impl Ring {
    fn new(sandbox: &Sandbox, contest: Contest) -> Result<Self> {
        let topology = Topology::new(sandbox)?;
        let Topology { client, router, client_port, router_port } = &topology;
        let pins = Pins::new(format!("{BPFFS}/{}", contest.id()));
        let mut policy = Policy::default();
        if let Some(bucket) = contest.bucket() {
            policy.set_default(Builtin::Source, bucket)?;
        }
        let sizes = Sizes {
            sources: 1 << 16,
            buckets: 1 << 12,
            wide_states: 1 << 11,
            overrides: 1,
            further: false,
            buckets_made: false,
        };
        // A program can only be attached in the namespace of the interface.
        let receive = || -> Result<(Instance, Load)> {
            let mut instance = Instance::open_or_create(&pins, &sizes, &policy, None)?;
            let mut load = Load::new(&pins, 1, &[NOP, DROP, SEND])?;
            match contest {
                Contest::Drop => attach(load.program_mut(DROP)?, router_port)?,
                Contest::Pass => attach(load.program_mut(NOP)?, router_port)?,
                Contest::Peer(_) => {}
                Contest::Over | Contest::LongOver | Contest::Within => {
                    let interface = Interface::find(&router_port.interface)?;
                    instance.attach(&interface, Choice::Only(Mode::Native))?;
                }
            }
            Ok((instance, load))
        };
        let (instance, mut load) = sandbox.inside(&router.namespace, receive)??;
        if let Contest::Peer(peer) = contest {
            router.merge_received(&router_port.interface)?;
            peer.limit(router)?;
        }
        // A veth interface accepts frames from the XDP program of its peer only if it has a program itself.
        let send = || attach(load.program_mut(NOP)?, client_port);
        sandbox.inside(&client.namespace, send)??;
        // The destination MAC address is that of another host, so the stack drops the frame early. Peers
        // behind the IP layer need the address of the router.
        let another = [2, 0, 0, 0, 0xff, 0xff];
        let behind = matches!(contest, Contest::Peer(peer) if peer.is_behind_ip());
        let frame = Frame::udp(client_port.v4, router_port.v4, 40_000, 53)
            .macs(client_port.mac, if behind { router_port.mac } else { another })
            .padded()
            .build();
        let early = received(router, router_port)?;
        Ok(Self {
            contest,
            topology,
            instance,
            load,
            frame,
            frames: 100_000,
            start: Instant::now(),
            early,
            sent: 0,
            samples: Vec::new(),
        })
    }

    /// Sends frames and returns how many were received per second.
    fn send(&mut self, frames: u32) -> Result<f64> {
        let before = self.received()?;
        let send =
            || transmit(self.load.program(SEND)?, &self.topology.client_port, &self.frame, frames);
        let nanoseconds = self.topology.client.namespace.inside(send)??;
        let received = self.received()? - before;
        self.sent += u64::from(frames);
        ensure!(received > 0, "{}: no frame arrived", self.contest.name());
        Ok(received as f64 * 1e9 / (f64::from(frames) * nanoseconds))
    }

    /// Frames received since the start.
    fn received(&self) -> Result<u64> {
        Ok(received(&self.topology.router, &self.topology.router_port)? - self.early)
    }

    /// Finds the number of frames that take about `length`, which also warms up caches.
    fn calibrate(&mut self, length: Duration) -> Result<()> {
        let rate = self.send(self.frames)?;
        self.frames = (rate * length.as_secs_f64()) as u32;
        Ok(())
    }

    fn round(&mut self) -> Result<()> {
        let rate = self.send(self.frames)?;
        self.samples.push(rate);
        Ok(())
    }

    /// The number of passed frames; `None` if the receiver does not count them.
    fn passed(&mut self) -> Result<Option<u64>> {
        match self.contest {
            Contest::Drop | Contest::Pass => Ok(None),
            Contest::Peer(peer) => peer.passed(&self.topology.router).map(Some),
            Contest::Over | Contest::LongOver | Contest::Within => {
                let instance = &mut self.instance;
                let attached = move || instance.attached();
                let namespace = &self.topology.router.namespace;
                let attached = self.topology.router.sandbox.inside(namespace, attached)??;
                let snapshot = self.instance.maps().snapshot(&attached)?;
                let packets = |reason: Reason| snapshot.reasons[reason.index()].packets;
                let passing = Reason::ALL.into_iter().filter(|reason| !reason.drops());
                Ok(Some(passing.map(packets).sum()))
            }
        }
    }

    /// Checks that the frames had the outcome of the contest, and returns the result.
    fn throughput(mut self) -> Result<Throughput> {
        let (received, passed) = (self.received()?, self.passed()?);
        let name = self.contest.name();
        if let Some(passed) = passed {
            let seconds = self.start.elapsed().as_secs_f64();
            let Bucket { rate, burst } = self.contest.bucket().unwrap_or(SCANT);
            let period = rate.period as f64 / SECOND as f64;
            let most = seconds / period * rate.packets as f64 + burst as f64;
            match self.contest {
                Contest::Within => {
                    ensure!(passed == received, "{name}: {passed} of {received} frames passed");
                }
                _ => ensure!(
                    passed >= burst && (passed as f64) <= most * 1.01,
                    "{name}: {passed} frames passed, where at most {most:.0} may"
                ),
            }
        }
        let rate = Figure::of(&self.samples);
        Ok(Throughput { contest: self.contest, rate, sent: self.sent, received, passed })
    }
}

/// The number of frames that came in by a port.
fn received(host: &Host, port: &Port) -> Result<u64> {
    let link = host.ip_json(&["link", "show", "dev", &port.interface])?;
    link[0]["stats64"]["rx"]["packets"]
        .as_u64()
        .with_context(|| format!("ip shows no statistics of {}", port.interface))
}

/// Attaches a program to an interface in the namespace of this thread, until the program is dropped.
fn attach(program: &mut Xdp, port: &Port) -> Result<()> {
    program
        .attach_to_if_index(port.index, XdpMode::Driver)
        .with_context(|| format!("cannot attach to {}", port.interface))?;
    Ok(())
}

/// Makes the kernel generate frames and run a program on them, as if they came in by `port`. Returns the
/// nanoseconds per frame.
fn transmit(program: &Xdp, port: &Port, frame: &[u8], frames: u32) -> Result<f64> {
    // `struct xdp_md`: data, data_end, data_meta, interface index, receive queue, and egress interface.
    let context = [0, frame.len() as u32, 0, port.index, 0, 0].map(u32::to_ne_bytes);
    let options = TestRunOptions {
        data_in: Some(frame),
        ctx_in: Some(context.as_flattened()),
        repeat: frames,
        attrs: TestRunAttrs::new().xdp_live_frames(BATCH),
        ..Default::default()
    };
    let result =
        program.test_run(options).context("the kernel does not send frames (it can since 5.18)")?;
    // The kernel reports whole nanoseconds, rounded down.
    Ok(result.duration.as_nanos() as f64 + 0.5)
}
