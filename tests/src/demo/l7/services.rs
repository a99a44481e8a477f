//! What runs on the router: the agent, the bridge, nginx and the service behind it.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Read as _},
    net::{IpAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Error, Result, anyhow, ensure};
use limiter_tests::{
    http::{exchange, request, serve},
    process::{kill, terminate},
};
use limiter_userspace::output::stream::Output;
use serde_json::Value;

use crate::stage::{GLANCE, Stage, show};

/// The port at which the printed configuration listens.
pub(super) const PORT: u16 = 8080;
/// Where the printed configuration has the service.
const SERVICE: &str = "127.0.0.1:8000";
/// The folder of policy, sockets and configuration. The sandbox has `/var/lib` in memory, and it goes with it.
const FOLDER: &str = "/var/lib/demo";
/// The environment variable with the folder of nginx.
const NGINX: &str = "LIMITER_NGINX";
/// How long a service may take to begin.
const PATIENCE: Duration = Duration::from_secs(20);

/// The running services; they are stopped when this is dropped.
pub(super) struct Services {
    // In this order they are stopped.
    _nginx: Process,
    _bridge: Process,
    _agent: Process,
    events: Receiver<Value>,
}

impl Services {
    /// Starts all of them, prints the commands, and waits until a request is limited.
    pub(super) fn start(stage: &Stage, output: &mut Output) -> Result<Self> {
        serve(&stage.hosts.router.namespace, SERVICE)?;
        let policy = format!("--policy {FOLDER}/policy.yaml");
        let agent = format!("-j agent -i eth0 {policy} --control unix:{FOLDER}/agent.sock");
        let (mut agent, events) = Process::of(stage, "agent", &agent, output)?;
        agent.wait_for(&events, &["answering", "attached"])?;
        let listen = format!("--listen unix:{FOLDER}/bridge.sock");
        let bridge = format!("-j bridge {policy} {listen} --agent unix:{FOLDER}/agent.sock");
        let (mut bridge, events) = Process::of(stage, "bridge", &bridge, output)?;
        bridge.wait_for(&events, &["applied"])?;
        let config = format!("bridge config nginx {policy} {listen}");
        show(&format!("{config} > limiter.conf"), output)?;
        write(stage, "limiter.conf", &stage.limiter.run(&config).done()?.stdout)?;
        let nginx = nginx(stage)?;
        Ok(Self { _nginx: nginx, _bridge: bridge, _agent: agent, events })
    }

    /// The peers of which the bridge has told since the last call that they were blocked.
    pub(super) fn blocks(&self) -> impl Iterator<Item = IpAddr> {
        let is_block = |event: &Value| event["event"] == "pushed" && event["result"] == "blocked";
        let events = self.events.try_iter().filter(is_block);
        events.filter_map(|event| event["peer"].as_str()?.parse().ok())
    }
}

/// A running process, which is stopped when this is dropped.
struct Process {
    name: &'static str,
    child: Child,
}

impl Process {
    /// Starts a `limiter` command that prints its events, and prints the command.
    fn of(
        stage: &Stage,
        name: &'static str,
        arguments: &str,
        output: &mut Output,
    ) -> Result<(Self, Receiver<Value>)> {
        show(arguments, output)?;
        let mut child = stage.limiter.run(arguments).to(Stdio::piped()).start()?;
        let stdout = child.stdout.take().context("the output is no pipe")?;
        let (sender, events) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line);
                if event.map_or(true, |event| sender.send(event).is_err()) {
                    break;
                }
            }
        });
        Ok((Self { name, child }, events))
    }

    /// Waits for the events with these names, in any order.
    fn wait_for(&mut self, events: &Receiver<Value>, names: &[&str]) -> Result<()> {
        let mut missing = names.to_vec();
        while !missing.is_empty() {
            match events.recv_timeout(PATIENCE) {
                Ok(event) => missing.retain(|name| event["event"] != *name),
                Err(_) => return Err(self.failure()),
            }
        }
        Ok(())
    }

    /// Ends it, and returns an error with what it wrote to the standard error.
    fn failure(&mut self) -> Error {
        kill(&mut self.child);
        let mut words = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            // What could be read is better than nothing.
            let _: std::io::Result<usize> = stderr.read_to_string(&mut words);
        }
        anyhow!("the {} did not begin: {}", self.name, words.trim_end())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            // It can only fail for a process that is gone.
            let _: std::io::Result<_> = terminate(&mut self.child);
        }
    }
}

/// Writes a file in the sandbox, into the folder of the services.
pub(super) fn write(stage: &Stage, name: &str, text: &str) -> Result<()> {
    let router = &stage.hosts.router;
    let write = || {
        fs::create_dir_all(FOLDER)?;
        fs::write(Path::new(FOLDER).join(name), text)
    };
    router
        .sandbox
        .inside(&router.namespace, write)?
        .with_context(|| format!("cannot write {FOLDER}/{name}"))
}

/// Starts nginx, and waits until it asks the bridge.
fn nginx(stage: &Stage) -> Result<Process> {
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|of| format!("{of}_temp_path {FOLDER}/{of};\n"))
        .concat();
    // As one process, so that no worker is left however this process ends.
    let main = format!(
        "daemon off;\nmaster_process off;\npid {FOLDER}/nginx.pid;\nerror_log stderr;\nevents {{}}\n\
         http {{\naccess_log off;\n{paths}include {FOLDER}/limiter.conf;\n}}\n"
    );
    write(stage, "nginx.conf", &main)?;
    let router = &stage.hosts.router;
    let mut command = router.command(program()?.to_str().context("the path is not UTF-8")?);
    command.args(["-e", "stderr", "-c", &format!("{FOLDER}/nginx.conf")]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().context("cannot run nginx")?;
    let mut nginx = Process { name: "server nginx", child };
    let begin = Instant::now();
    while !is_limiting(stage)? {
        let has_ended = nginx.child.try_wait().context("cannot wait for nginx")?.is_some();
        if has_ended || begin.elapsed() > PATIENCE {
            return Err(nginx.failure());
        }
        thread::sleep(GLANCE);
    }
    Ok(nginx)
}

/// Whether a request of the router itself is decided about by the bridge.
fn is_limiting(stage: &Stage) -> Result<bool> {
    let connect = || TcpStream::connect(("127.0.0.1", PORT));
    let Ok(mut stream) = stage.hosts.router.namespace.inside(connect)? else {
        return Ok(false);
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    let reply = exchange(&mut stream, request("GET /login", &["Connection: close"]))?;
    Ok(reply.field("ratelimit").is_some())
}

/// nginx, in the folder that `cargo xtask demo` names, or where Debian installs it.
fn program() -> Result<PathBuf> {
    let folder = env::var_os(NGINX).map_or_else(|| "/usr/sbin".into(), PathBuf::from);
    let program = folder.join("nginx");
    ensure!(
        program.is_file(),
        "there is no {}: run `cargo xtask demo --l7`, which unpacks it, or name its folder in {NGINX}",
        program.display()
    );
    Ok(program)
}
