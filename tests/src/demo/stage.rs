//! The hosts of the demonstration, and the commands run on them.

use std::{
    fs,
    io::Read as _,
    panic::resume_unwind,
    path::Path,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::{
    command::Limiter,
    leak::Footprint,
    process,
    sandbox::{BPFFS, Sandbox},
    topology::Topology,
    traffic::{Arrivals, Receiver, Sender, Sent, Stop},
};
use limiter_userspace::output::{stream::Output, tone::Tone};

use crate::{interrupt, picture, senders::Actor};

/// How often the demonstration checks for Ctrl-C.
pub(crate) const GLANCE: Duration = Duration::from_millis(20);

/// Two hosts, with the limiter on one of them.
pub(crate) struct Stage {
    /// The hosts.
    pub(crate) hosts: Topology,
    /// The `limiter` command on the router.
    pub(crate) limiter: Limiter,
}

/// The frames that were sent and that arrived.
pub(crate) struct Run {
    /// What each sender sent, in their order.
    pub(crate) sent: Vec<Sent>,
    /// The frames that arrived, by flow.
    pub(crate) arrivals: Arrivals,
    /// Frames that the wire lost.
    pub(crate) lost: u64,
}

impl Stage {
    pub(crate) fn new() -> Result<Self> {
        let hosts = Topology::new(&Sandbox::new()?)?;
        let limiter = Limiter::new(&hosts.router)?;
        Ok(Self { hosts, limiter })
    }

    /// Runs a `limiter` command and prints it with its output.
    pub(crate) fn limiter(&self, arguments: &str, output: &mut Output) -> Result<()> {
        show(arguments, output)?;
        let outcome = self.limiter.run(arguments).done()?;
        for line in outcome.stderr.lines().chain(outcome.stdout.lines()) {
            writeln!(output, "  {line}")?;
        }
        Ok(())
    }

    /// The kernel objects of the instance.
    pub(crate) fn footprint(&self) -> Result<Footprint> {
        Footprint::of(&self.hosts.router, format!("{BPFFS}/limiter"))
    }

    /// Runs all senders for `length` while `limiter watch` shows the traffic, or draws its `picture`. Returns
    /// `None` if the user asks to end.
    pub(crate) fn run(
        &self,
        senders: &mut [(Actor, Sender)],
        length: Duration,
        picture: Option<&Path>,
        output: &mut Output,
    ) -> Result<Option<Run>> {
        let Topology { client, router, client_port, router_port } = &self.hosts;
        let receiver = Receiver::start(&router.namespace, router_port)?;
        let lost_before = client.lost(&client_port.interface)?;
        // A picture shows what is while all send.
        let watched =
            if picture.is_some() { length.as_secs().max(3) - 2 } else { length.as_secs() };
        let arguments = format!("watch --for {watched}s");
        show(&arguments, output)?;
        output.flush()?;
        let mut watch = match picture {
            Some(_) => self.on_a_terminal(&arguments)?,
            None => self.limiter.run(&arguments).start()?,
        };
        let screen = picture.and_then(|_| watch.stdout.take()).map(|mut stdout| {
            thread::spawn(move || {
                let mut received = Vec::new();
                stdout.read_to_end(&mut received).map(|_| received)
            })
        });
        let (stop, start) = (Stop::default(), Instant::now());
        let (sent, left) = thread::scope(|scope| {
            let threads: Vec<_> = senders
                .iter_mut()
                .map(|(_, sender)| scope.spawn(|| sender.send(length, &stop)))
                .collect();
            let mut left = false;
            while threads.iter().any(|thread| !thread.is_finished()) {
                // `limiter watch` reads Ctrl-C as a key of its terminal, so its early end means that the user
                // wants to leave.
                let ended = watch.try_wait().is_ok_and(|status| status.is_some());
                let ended = ended && picture.is_none() && start.elapsed() < length;
                if interrupt::is_asked() || ended {
                    left = true;
                    stop.stop();
                }
                thread::sleep(GLANCE);
            }
            let sent: Result<Vec<Sent>> = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect();
            (sent, left)
        });
        finish(watch, left)?;
        if let (Some(file), Some(screen)) = (picture, screen) {
            let received = screen.join().unwrap_or_else(|panic| resume_unwind(panic));
            picture::draw(&received.context("cannot read from script")?, file)?;
        }
        let arrivals = receiver.finish()?;
        let sent = sent?;
        let refused: u64 = sent.iter().map(|sent| sent.refused).sum();
        let lost = client.lost(&client_port.interface)? - lost_before;
        Ok((!left).then_some(Run { sent, arrivals, lost: lost.saturating_sub(refused) }))
    }
}

impl Stage {
    /// Starts a `limiter` command on a terminal of its own, whose output is that of the process.
    fn on_a_terminal(&self, arguments: &str) -> Result<Child> {
        let limiter = self.limiter.path().display();
        let line = format!(
            "stty rows {} columns {}; exec '{limiter}' {arguments}",
            picture::ROWS,
            picture::COLUMNS
        );
        let mut script = self.hosts.router.command("script");
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        script.env_remove("LIMITER_BPFFS").env_remove("NO_COLOR");
        script.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8");
        script.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        script.spawn().context("cannot run script (Debian package bsdutils)")
    }
}

/// Waits for `limiter watch`, which ends by itself; with `ask` it is told to end.
fn finish(mut watch: Child, ask: bool) -> Result<()> {
    if ask && watch.try_wait()?.is_none() {
        process::signal(&watch, libc::SIGTERM);
    }
    let status = watch.wait().context("cannot wait for limiter watch")?;
    let mut said = String::new();
    if let Some(mut stderr) = watch.stderr.take() {
        stderr.read_to_string(&mut said).context("cannot read what limiter watch said")?;
    }
    ensure!(status.success(), "limiter watch failed ({status}):\n{}", said.trim_end());
    Ok(())
}

/// Prints a `limiter` command that is run.
pub(crate) fn show(arguments: &str, output: &mut Output) -> Result<()> {
    writeln!(output)?;
    output.toned(Tone::Strong, &format!("$ limiter {arguments}"))?;
    Ok(writeln!(output)?)
}

/// The interface of the default route, else `eth0`.
pub(crate) fn default_interface() -> String {
    let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let default = routes.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let interface = fields.next()?;
        (fields.next()? == "00000000").then(|| interface.to_owned())
    });
    default.unwrap_or_else(|| "eth0".to_owned())
}
