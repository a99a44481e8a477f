//! Traffic through ordinary sockets.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    panic::resume_unwind,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::{
    connection,
    pace::{Pace, Stop},
    sender::Sent,
};
use crate::sandbox::Namespace;

/// Sends from `client` to `to`, an address of `server`, over one TCP connection, at up to `bytes_per_second`.
/// Returns the bytes per second that arrived.
///
/// # Errors
/// Fails if a system call fails.
pub fn transfer(
    client: &Namespace,
    server: &Namespace,
    to: IpAddr,
    bytes_per_second: u64,
    length: Duration,
) -> Result<f64> {
    let listener = server.inside(|| TcpListener::bind((to, 0)))?.context("cannot listen")?;
    let address = listener.local_addr()?;
    thread::scope(|scope| {
        let receiving = scope.spawn(|| count_bytes(&listener));
        let sent = client.inside(|| push_bytes(address, bytes_per_second, length))?;
        if sent.is_err() {
            // Ends the `accept` call of the listener, which would otherwise wait for ever.
            server.inside(|| TcpStream::connect(address))?.context("cannot end the listener")?;
        }
        let received = receiving.join().unwrap_or_else(|panic| resume_unwind(panic));
        sent.with_context(|| format!("cannot send to {address}"))?;
        Ok(received?)
    })
}

/// Accepts one connection and returns the bytes per second that it carried.
fn count_bytes(listener: &TcpListener) -> io::Result<f64> {
    let (mut stream, _) = listener.accept()?;
    let start = Instant::now();
    let (mut buffer, mut bytes) = (vec![0; 64 << 10], 0);
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(bytes as f64 / start.elapsed().as_secs_f64().max(f64::MIN_POSITIVE)),
            count => bytes += count,
        }
    }
}

fn push_bytes(address: SocketAddr, bytes_per_second: u64, length: Duration) -> io::Result<()> {
    const CHUNK: usize = 16 << 10;
    const PATIENCE: Duration = Duration::from_secs(10);
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut pace = Pace::new(bytes_per_second / CHUNK as u64, length);
    let chunk = [0x5a; CHUNK];
    while pace.wait(1, &Stop::default()) > 0 {
        stream.write_all(&chunk)?;
    }
    Ok(())
}

/// Opens connections from `client` to `to` at a pace, without waiting for answers, and closes them all at the
/// end. Each connection sends one SYN if `length` is less than a second, after which the kernel repeats it.
///
/// # Errors
/// Fails if a system call fails.
pub fn storm(
    client: &Namespace,
    to: SocketAddr,
    per_second: u64,
    length: Duration,
) -> Result<Sent> {
    let begin = || {
        let mut pace = Pace::new(per_second, length);
        let mut connections = Vec::new();
        while pace.wait(1, &Stop::default()) > 0 {
            connections.push(connection::begin(None, to)?);
        }
        Ok(Sent::until_now(&pace, connections.len() as u64))
    };
    let result: io::Result<Sent> = client.inside(begin)?;
    result.with_context(|| format!("cannot begin connections to {to}"))
}

/// Sends UDP datagrams of 18 bytes from `client` to `to` at a pace.
///
/// # Errors
/// Fails if a system call fails. A closed port is no error.
pub fn datagrams(
    client: &Namespace,
    to: SocketAddr,
    per_second: u64,
    length: Duration,
) -> Result<Sent> {
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let send = || {
        // The socket is not connected, so that an ICMP error for one datagram does not fail the next call.
        let socket = UdpSocket::bind((any, 0))?;
        let mut pace = Pace::new(per_second, length);
        let mut packets = 0;
        while pace.wait(1, &Stop::default()) > 0 {
            socket.send_to(&[0x5a; 18], to)?;
            packets += 1;
        }
        Ok(Sent::until_now(&pace, packets))
    };
    let result: io::Result<Sent> = client.inside(send)?;
    result.with_context(|| format!("cannot send datagrams to {to}"))
}
