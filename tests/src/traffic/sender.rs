//! Sending frames at a pace.

use std::{
    io,
    mem::zeroed,
    panic::resume_unwind,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::{
    pace::{Pace, Stop},
    packet_socket::PacketSocket,
};
use crate::{sandbox::Namespace, topology::Port};

/// Frames sent in one system call.
const BATCH: usize = 32;

/// Edits a frame, given its number, before it is sent.
type Edit = Box<dyn FnMut(u64, &mut Vec<u8>) + Send>;

/// Sends one frame, or variations of it, at a pace.
pub struct Sender {
    socket: PacketSocket,
    frame: Vec<u8>,
    per_second: u64,
    edit: Option<Edit>,
}

/// The result of sending.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Frames that the interface accepted.
    pub packets: u64,
    /// How often the queue of the interface was full. The frame was then sent again; it counts once.
    pub refused: u64,
    /// The time just before the first frame.
    pub start: Instant,
    /// The time from `start` until after the last frame.
    pub time: Duration,
    /// The part of `time` in which the machine [did not run](Pace::paused) the sender.
    pub paused: Duration,
}

impl Sent {
    /// The result of a pace that sent so many frames and ends now.
    #[must_use]
    pub fn until_now(pace: &Pace, packets: u64) -> Self {
        let (start, paused) = (pace.start(), pace.paused());
        Self { packets, refused: 0, start, time: start.elapsed(), paused }
    }

    /// The number of these frames that a limit admits, if all come from one source and exceed the limit
    /// throughout.
    #[must_use]
    pub fn admitted(&self, per_second: f64, burst: u64) -> u64 {
        let admitted = burst as f64 + per_second * self.time.as_secs_f64();
        (admitted as u64).min(self.packets)
    }

    /// `time` without `paused`.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.time.saturating_sub(self.paused)
    }
}

impl Sender {
    /// A sender of `frame` through `port` of `namespace`, `per_second` frames each second.
    ///
    /// # Errors
    /// Fails if a system call fails. Needs CAP_NET_RAW.
    pub fn new(
        namespace: &Namespace,
        port: &Port,
        per_second: u64,
        frame: Vec<u8>,
    ) -> Result<Self> {
        let socket = PacketSocket::sending(namespace, port)?;
        Ok(Self { socket, frame, per_second, edit: None })
    }

    /// Sets a function that edits each frame before it is sent. It receives the number of the frame, from 0
    /// on, and the bytes of an earlier frame.
    #[must_use]
    pub fn edited(mut self, edit: impl FnMut(u64, &mut Vec<u8>) + Send + 'static) -> Self {
        self.edit = Some(Box::new(edit));
        self
    }

    /// Sends for `length`, or until `stop` is set.
    ///
    /// # Errors
    /// Fails if a system call fails. A full queue is no error.
    pub fn send(&mut self, length: Duration, stop: &Stop) -> Result<Sent> {
        let mut frames = vec![self.frame.clone(); BATCH];
        let mut pace = Pace::new(self.per_second, length);
        let mut sent = Sent::until_now(&pace, 0);
        loop {
            let count = pace.wait(BATCH, stop);
            if count == 0 {
                return Ok(sent);
            }
            let batch = &mut frames[..count];
            if let Some(edit) = &mut self.edit {
                for (number, frame) in (sent.packets..).zip(&mut *batch) {
                    edit(number, frame);
                }
            }
            let refused = transmit(&self.socket, batch).context("cannot send frames")?;
            let refused = sent.refused + refused;
            sent = Sent { refused, ..Sent::until_now(&pace, sent.packets + count as u64) };
        }
    }
}

/// Sends all frames and returns how often the queue was full.
fn transmit(socket: &PacketSocket, frames: &mut [Vec<u8>]) -> io::Result<u64> {
    // SAFETY: plain old data, for which zeros are valid.
    let mut parts: [libc::iovec; BATCH] = unsafe { zeroed() };
    // SAFETY: the same.
    let mut messages: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
    for ((frame, part), message) in frames.iter_mut().zip(&mut parts).zip(&mut messages) {
        *part = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
        message.msg_hdr.msg_iov = part;
        message.msg_hdr.msg_iovlen = 1;
    }
    let mut refused = 0;
    let mut left = messages.get_mut(..frames.len()).unwrap_or_default();
    while !left.is_empty() {
        let count = left.len() as libc::c_uint;
        // SAFETY: that many messages, which point to frames that outlive the call.
        let sent = unsafe { libc::sendmmsg(socket.raw(), left.as_mut_ptr(), count, 0) };
        if let Ok(sent) = usize::try_from(sent) {
            left = left.get_mut(sent..).unwrap_or_default();
            continue;
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENOBUFS) => {
                refused += 1;
                thread::yield_now();
            }
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
    }
    Ok(refused)
}

/// Runs all senders at once, each on a thread of its own, and waits for them.
///
/// # Errors
/// The first error of any of them.
pub fn send_together(senders: &mut [Sender], length: Duration, stop: &Stop) -> Result<Vec<Sent>> {
    thread::scope(|scope| {
        let threads: Vec<_> = senders
            .iter_mut()
            .map(|sender| scope.spawn(move || sender.send(length, stop)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}
