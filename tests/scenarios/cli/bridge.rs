//! The bridge: what it answers by itself, and what real proxies make of it.

mod auth;
mod documented;
mod floors;
mod held;
mod open;
mod openapi;
mod process;
mod proxies;
mod ratelimit;
mod settle;
mod shown;
mod steps;
mod tls;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use limiter_tests::{
    command::{Limiter, LimiterCommand},
    http::{Reply, exchange, request},
    process::{kill, signal},
};
use serde_json::Value;

use super::{Bench, Document};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Three requests to `/login` at once, and one each ten seconds, for each source.
const LOGIN: &str = "attributes:
  route: { path: { /login: login, \"*\": other } }
deny: [127.0.0.66]
limits:
  - name: login
    on: requests
    match: { route: login }
    key: source
    algorithm: leaky_bucket
    rate: 6/min
    depth: 3
    headers: [ietf, x-ratelimit, retry-after]
";

/// A running bridge; it is killed when this is dropped.
pub(super) struct Bridge {
    process: Child,
    events: Receiver<Value>,
    socket: PathBuf,
    /// Its events until its policy was in force.
    began: Vec<Value>,
}

impl Bridge {
    /// Starts a bridge on `bridge.sock` beside the document, and waits until its policy is in force.
    pub(super) fn start(bench: &Bench, document: &Document, arguments: &str) -> Self {
        Self::of(Self::command(bench, document, arguments), document)
    }

    fn command(bench: &Bench, document: &Document, arguments: &str) -> LimiterCommand {
        Self::command_of(&bench.limiter, document, arguments)
    }

    /// The same on the host that a command is bound to.
    fn command_of(limiter: &Limiter, document: &Document, arguments: &str) -> LimiterCommand {
        // Other users have to find the socket.
        let folder = document.path().parent().unwrap().to_owned();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
        let listen = format!("--listen unix:{}", socket(document).display());
        limiter.run(&document.in_place(&format!("-j bridge --policy FILE {listen} {arguments}")))
    }

    fn of(command: LimiterCommand, document: &Document) -> Self {
        let mut process = command.to(Stdio::piped()).start().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (sender, events) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let event: Value = serde_json::from_str(&line).unwrap();
                assert_eq!(event["schema"], "limiter.bridge/1");
                if sender.send(event).is_err() {
                    break;
                }
            }
        });
        let mut bridge = Self { process, events, socket: socket(document), began: Vec::new() };
        while bridge.began.last().is_none_or(|event| event["event"] != "applied") {
            bridge.began.push(bridge.next());
        }
        bridge
    }

    /// The next event.
    #[track_caller]
    fn next(&self) -> Value {
        self.events.recv_timeout(PATIENCE).unwrap()
    }

    /// The next event, which has to have this name.
    #[track_caller]
    fn expect(&self, name: &str) -> Value {
        let event = self.next();
        assert_eq!(event["event"], name, "{event}");
        event
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// The answer to a request of a process of root.
    #[track_caller]
    pub(super) fn ask(&self, line: &str, fields: &[&str]) -> Reply {
        exchange(&mut self.connect(), request(line, fields)).unwrap()
    }

    /// The answer to a request with a body.
    #[track_caller]
    fn post(&self, path: &str, fields: &[&str], body: &str) -> Reply {
        let length = format!("Content-Length: {}", body.len());
        let head = request(&format!("POST {path}"), &[fields, &[&length]].concat());
        exchange(&mut self.connect(), head + body).unwrap()
    }

    /// The answer to what a proxy asks about a request of a source.
    #[track_caller]
    fn auth(&self, source: &str, method: &str, target: &str) -> Reply {
        self.ask(
            "GET /v1/auth?deny=429",
            &[
                &format!("X-Real-IP: {source}"),
                &format!("X-Original-Method: {method}"),
                &format!("X-Original-URI: {target}"),
            ],
        )
    }

    fn signal(&self, number: i32) {
        signal(&self.process, number);
    }

    /// Stops it, and waits until each of its threads has stopped.
    fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let tasks = format!("/proc/{}/task", self.process.id());
        let goes_on = || {
            let tasks = fs::read_dir(&tasks).unwrap().map_while(Result::ok);
            let statuses = tasks.map_while(|it| fs::read_to_string(it.path().join("status")).ok());
            statuses.into_iter().any(|status| !status.contains("State:\tT"))
        };
        while goes_on() {
            thread::yield_now();
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        kill(&mut self.process);
    }
}

/// Where a bridge answers by gRPC.
fn grpc_socket(document: &Document) -> PathBuf {
    document.path().with_file_name("grpc.sock")
}

/// Where a bridge answers by SPOP.
fn spop_socket(document: &Document) -> PathBuf {
    document.path().with_file_name("spop.sock")
}

/// Waits until what a bridge with this state file leaves to the next one is like this.
#[track_caller]
fn wait_for_handover(state: &Path, is_so: impl Fn(&Value) -> bool) {
    let begin = std::time::Instant::now();
    let file = state.with_extension("handover");
    loop {
        let content = fs::read(&file).ok();
        let kept = content.and_then(|it| serde_json::from_slice::<Value>(&it).ok());
        if kept.as_ref().is_some_and(&is_so) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{kept:?}");
        thread::sleep(Duration::from_millis(100));
    }
}

fn socket(document: &Document) -> PathBuf {
    document.path().with_file_name("bridge.sock")
}
