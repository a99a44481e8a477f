//! A TCP service that greets and echoes lines.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::{Ipv6Addr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::pace::Stop;
use crate::sandbox::Namespace;

/// How often the stop flag is checked while no connection comes.
const NAP: Duration = Duration::from_millis(2);
/// How often a silent connection checks the stop flag.
const DOZE: Duration = Duration::from_millis(50);

/// A TCP service. Dropping it stops the service and closes its connections.
#[derive(Debug)]
pub struct Service {
    accepted: Arc<AtomicU64>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Listens on `port` of all addresses. Each connection gets the greeting, if it is not empty, and then
    /// each of its own lines back.
    ///
    /// # Errors
    /// Fails if the port cannot be bound.
    pub fn start(server: &Namespace, port: u16, greeting: &'static str) -> Result<Self> {
        Self::start_as(0, server, port, greeting)
    }

    /// The same, by a process whose connections are of this user.
    ///
    /// # Errors
    /// Fails if the port cannot be bound.
    pub fn start_as(
        user: u32,
        server: &Namespace,
        port: u16,
        greeting: &'static str,
    ) -> Result<Self> {
        let listen = || {
            let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener: io::Result<TcpListener> = server.inside(listen)?;
        let listener = listener.with_context(|| format!("cannot listen at port {port}"))?;
        let (accepted, stop) = (Arc::<AtomicU64>::default(), Stop::default());
        let (count, seen) = (Arc::clone(&accepted), stop.clone());
        let accept = move || {
            // SAFETY: it has no pointers, and is about this thread alone, which ends with the service.
            unsafe { libc::setfsuid(user) };
            accept(&listener, greeting, &count, &seen);
        };
        let thread = thread::spawn(accept);
        Ok(Self { accepted, stop, thread: Some(thread) })
    }

    /// The number of connections accepted so far. A connection whose greeting was received is included.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has printed its message already.
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, greeting: &str, accepted: &AtomicU64, stop: &Stop) {
    thread::scope(|scope| {
        while !stop.is_stopped() {
            let Ok((stream, _)) = listener.accept() else {
                thread::sleep(NAP);
                continue;
            };
            accepted.fetch_add(1, Ordering::Relaxed);
            // An error on a connection ends only that connection.
            scope.spawn(move || serve(stream, greeting, stop).unwrap_or_default());
        }
    });
}

/// Sends the greeting, then echoes lines until the other side closes.
fn serve(stream: TcpStream, greeting: &str, stop: &Stop) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(DOZE))?;
    stream.set_write_timeout(Some(DOZE))?;
    let mut input = BufReader::new(stream);
    if !greeting.is_empty() {
        input.get_mut().write_all(format!("{greeting}\n").as_bytes())?;
    }
    let mut line = Vec::new();
    while !stop.is_stopped() {
        match input.read_until(b'\n', &mut line) {
            Ok(0) => return Ok(()),
            Ok(_) if line.ends_with(b"\n") => {
                input.get_mut().write_all(&line)?;
                line.clear();
            }
            Ok(_) => {}
            // A timeout in the middle of a line keeps the part that was read.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
