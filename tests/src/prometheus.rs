//! Runs a real Prometheus server for a test, with bounded resources, on a host of the test.

use std::{
    env, fs,
    fs::File,
    io::{self, Read as _, Write as _},
    net::TcpStream,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::{process, topology::Host};

/// The environment variable with the folder of `prometheus` and `promtool`.
pub const VARIABLE: &str = "LIMITER_PROMETHEUS";

/// The address that the server listens on, on its host.
const ADDRESS: &str = "127.0.0.1:9090";
/// How long the server may take to be ready.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(20);
/// CPU time that the server may use, in seconds.
const TIME: u64 = 120;
/// Address space that the server may map, in bytes. Most of it is never touched.
const MEMORY: u64 = 4 << 30;

/// Returns the path of a program of Prometheus: in the folder of [`VARIABLE`], else where `cargo xtask setup`
/// unpacks it.
///
/// # Errors
/// Fails if there is no such file.
pub fn program(name: &str) -> Result<PathBuf> {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR"));
    let unpacked = unpacked.join("../target/tools/prometheus/usr/bin");
    let folder = env::var_os(VARIABLE).map_or(unpacked, PathBuf::from);
    folder.join(name).canonicalize().with_context(|| {
        format!("there is no {name} in {}: run `cargo xtask setup`", folder.display())
    })
}

/// Runs `promtool` in `folder` with `input` on standard input, and returns what it wrote.
///
/// # Errors
/// Fails if it cannot be run, or with its output if the exit code is not 0.
pub fn promtool(folder: &Path, arguments: &[&str], input: &str) -> Result<String> {
    let mut command = Command::new(program("promtool")?);
    command.args(arguments).current_dir(folder).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().context("cannot run promtool")?;
    if let Some(mut stdin) = process.stdin.take() {
        stdin.write_all(input.as_bytes()).context("cannot write to promtool")?;
    }
    let output = process.wait_with_output().context("cannot wait for promtool")?;
    let [said, complaint] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    ensure!(output.status.success(), "promtool {}:\n{said}{complaint}", arguments.join(" "));
    Ok(said + &complaint)
}

/// A running server. It is killed when this is dropped, or when the thread that started it ends.
#[derive(Debug)]
pub struct Prometheus {
    process: Child,
    host: Host,
}

impl Prometheus {
    /// Starts the server with `prometheus.yaml` of `folder`, which also gets its data, and waits until it is
    /// ready.
    ///
    /// # Errors
    /// Fails if the server cannot be run, ends, or is not ready after 60 s; the message has its log.
    pub fn start(host: &Host, folder: &Path) -> Result<Self> {
        let mut command = host.command(program("prometheus")?.to_str().context("not UTF-8")?);
        // Absolute paths, because the sandbox changes the working directory.
        let path = folder.display();
        command.arg(format!("--config.file={path}/prometheus.yaml"));
        command.arg(format!("--storage.tsdb.path={path}/data"));
        command.args(["--storage.tsdb.wal-segment-size=10MB", "--log.level=warn"]);
        command.arg(format!("--web.listen-address={ADDRESS}"));
        command.env("GOMAXPROCS", "1").env("GOMEMLIMIT", "256MiB").stdin(Stdio::null());
        let log = folder.join("log");
        command.stdout(Stdio::null()).stderr(File::create(&log).context("cannot make a log")?);
        // SAFETY: between fork and exec it makes system calls and nothing else.
        unsafe { command.pre_exec(bound) };
        let process = command.spawn().context("cannot run prometheus")?;
        let mut server = Self { process, host: host.clone() };
        let start = Instant::now();
        while server.get("/-/ready").is_err() {
            if let Some(status) = server.process.try_wait()? {
                bail!("prometheus ended, {status}: {}", fs::read_to_string(&log)?);
            }
            ensure!(start.elapsed() < PATIENCE, "not ready: {}", fs::read_to_string(&log)?);
            thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    /// Evaluates an expression now, and returns its samples.
    ///
    /// # Errors
    /// Fails if the server does not answer or rejects the expression.
    pub fn query(&self, expression: &str) -> Result<Vec<Sample>> {
        let data = self.ask("query", &[("query", expression)])?;
        let samples = data["result"].as_array().context("no vector")?.iter();
        samples
            .map(|sample| {
                let value = sample["value"][1].as_str().context("no value")?;
                Ok(Sample { labels: sample["metric"].clone(), value: value.parse()? })
            })
            .collect()
    }

    /// Sends a query to `/api/v1/` and the name `what`, and returns the `data` of the answer.
    ///
    /// # Errors
    /// Fails if the server does not answer or reports an error.
    pub fn ask(&self, what: &str, parameters: &[(&str, &str)]) -> Result<Value> {
        let parameters: Vec<String> =
            parameters.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let answer = self.get(&format!("/api/v1/{what}?{}", parameters.join("&")))?;
        let mut answer: Value = serde_json::from_str(&answer).context("no JSON")?;
        ensure!(answer["status"] == "success", "{parameters:?}: {}", answer["error"]);
        Ok(answer["data"].take())
    }

    fn get(&self, path: &str) -> Result<String> {
        get(&self.host, ADDRESS, path)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        process::kill(&mut self.process);
    }
}

/// A sample of an instant vector.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its labels, by name.
    pub labels: Value,
    /// Its value.
    pub value: f64,
}

/// Sends a GET request for `path` to a server on a host, and returns the body of the answer, whatever its
/// status.
///
/// # Errors
/// Fails if the server does not answer in time or the answer is not UTF-8.
pub fn get(host: &Host, address: &str, path: &str) -> Result<String> {
    let connect = || TcpStream::connect(address);
    let mut stream = host.namespace.inside(connect)?.context("cannot connect")?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    Ok(body.to_owned())
}

/// Percent-encodes every byte of a query value.
fn escaped(value: &str) -> String {
    value.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// Sets the resource limits of this process.
fn bound() -> io::Result<()> {
    for (what, most) in [(libc::RLIMIT_CPU, TIME), (libc::RLIMIT_AS, MEMORY)] {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: a structure that outlives the call.
        if unsafe { libc::setrlimit(what, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
