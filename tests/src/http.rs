//! A client and a service of HTTP/1.1, as simple as tests need them.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead as _, BufReader, Read, Write},
    net::TcpListener,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::Result;

use crate::sandbox::Namespace;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its fields by their names in lower case; of several, the last.
    pub fields: BTreeMap<String, String>,
    /// Its body.
    pub body: String,
}

impl Reply {
    /// A field, by its name in lower case.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(|value| &**value)
    }
}

/// The text of a request without a body: `line` is the method and the target, `fields` are whole lines.
#[must_use]
pub fn request(line: &str, fields: &[&str]) -> String {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    format!("{line} HTTP/1.1\r\nHost: www.example\r\n{fields}\r\n")
}

/// Sends a request and reads the answer. The connection may be used again.
///
/// # Errors
/// Fails if the connection ends before the answer does, or if that is not HTTP.
pub fn exchange(stream: &mut (impl Read + Write), request: impl AsRef<[u8]>) -> io::Result<Reply> {
    stream.write_all(request.as_ref())?;
    let mut reader = BufReader::new(stream);
    let mut line = || -> io::Result<String> {
        let mut line = String::new();
        match reader.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    };
    let bad = |line: &str| io::Error::new(io::ErrorKind::InvalidData, line.to_owned());
    let first = line()?;
    let status =
        first.split(' ').nth(1).and_then(|it| it.parse().ok()).ok_or_else(|| bad(&first))?;
    let mut fields = BTreeMap::new();
    loop {
        let line = line()?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| bad(&line))?;
        fields.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length =
        fields.get("content-length").map_or(Ok(0), |it| it.parse()).map_err(|_| bad("length"))?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Reply { status, fields, body: String::from_utf8_lossy(&body).into_owned() })
}

/// Serves at an address of a host as long as the process runs: each request is answered with its method, its target and its
/// body. That of the target `/fails` has the status 500, and those of `/degraded`, `/leased` and `/sourced` tell the headers
/// `X-Limiter-Degrade`, `X-Limiter-Lease` and `X-Limiter-Source`. A request to `/held?NAME` is answered once there was one to `/go?NAME`.
///
/// # Errors
/// Fails if the address cannot be bound.
pub fn serve(server: &Namespace, address: &'static str) -> Result<()> {
    let listener = server.inside(|| TcpListener::bind(address))??;
    let gone = Arc::new(Gone::default());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let gone = Arc::clone(&gone);
            thread::spawn(move || {
                // Whoever asks notices by itself that the connection broke.
                let _: io::Result<()> = answer(stream, &gone);
            });
        }
    });
    Ok(())
}

/// The names of the requests that are not held any more.
#[derive(Default)]
struct Gone {
    names: Mutex<BTreeSet<String>>,
    changed: Condvar,
}

impl Gone {
    /// Lets a request go.
    fn go(&self, name: &str) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        self.changed.notify_all();
    }

    /// Waits until a request may go.
    fn wait(&self, name: &str) {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let is_held = |names: &mut BTreeSet<String>| !names.contains(name);
        let _: Result<_, _> = self.changed.wait_timeout_while(names, PATIENCE, is_held);
    }
}

fn answer(stream: std::net::TcpStream, gone: &Gone) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut to = stream;
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line.trim_end().is_empty() {
                break;
            }
            lines.push(line.trim_end().to_owned());
        }
        let named = |name: &str| {
            lines.iter().find_map(|line| {
                let (it, value) = line.split_once(':')?;
                it.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            })
        };
        let length = named("content-length").and_then(|it| it.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let first = lines.first().map_or("", |line| line.trim_end_matches(" HTTP/1.1"));
        let first = first.trim_end_matches(" HTTP/1.0");
        let status = if first.ends_with("/fails") { 500 } else { 200 };
        if let Some((_, name)) = first.split_once("/held?") {
            gone.wait(name);
        }
        if let Some((_, name)) = first.split_once("/go?") {
            gone.go(name);
        }
        let told = |field: &str| named(field).unwrap_or_else(|| "none".to_owned());
        let text = match first.rsplit_once('/') {
            Some((_, "degraded")) => told("x-limiter-degrade"),
            Some((_, "leased")) => told("x-limiter-lease"),
            Some((_, "sourced")) => told("x-limiter-source"),
            _ => format!("{first} {}", String::from_utf8_lossy(&body)),
        };
        write!(to, "HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n{text}", text.len())?;
    }
}
