//! A TCP service that answers.

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

/// How often it is seen that the service shall end.
const NAP: Duration = Duration::from_millis(2);
/// The same by a connection that is silent.
const DOZE: Duration = Duration::from_millis(50);

/// A TCP service, which ends with this value and with it all its connections.
#[derive(Debug)]
pub struct Service {
    accepted: Arc<AtomicU64>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Listens at a port of all addresses. Who connects hears the greeting, if it is not empty, and
    /// then each line that it sends.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(server: &Namespace, port: u16, greeting: &'static str) -> Result<Self> {
        let listen = || {
            let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener: io::Result<TcpListener> = server.inside(listen)?;
        let listener = listener.with_context(|| format!("cannot listen at port {port}"))?;
        let (accepted, stop) = (Arc::<AtomicU64>::default(), Stop::default());
        let (count, seen) = (Arc::clone(&accepted), stop.clone());
        let thread = thread::spawn(move || accept(&listener, greeting, &count, &seen));
        Ok(Self { accepted, stop, thread: Some(thread) })
    }

    /// Connections that were accepted so far. One is when its greeting was heard.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // What went wrong in it was told by it.
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
            // An end of any kind ends it.
            scope.spawn(move || serve(stream, greeting, stop).unwrap_or_default());
        }
    });
}

/// Greets and answers until the other side is done.
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
            // What came of the line is kept.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
