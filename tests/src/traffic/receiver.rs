//! Counts the frames that arrive at an interface.

use std::{
    collections::BTreeMap,
    io,
    mem::{size_of, zeroed},
    net::IpAddr,
    panic::resume_unwind,
    ptr,
    thread::{self, JoinHandle},
};

use anyhow::{Context as _, Result, ensure};

use super::{pace::Stop, packet_socket::PacketSocket};
use crate::{
    packet::{ACK, IPV4, IPV6, SYN, network_layer},
    sandbox::Namespace,
    topology::Port,
};

/// Frames received in one system call.
const BATCH: usize = 64;
/// Bytes of a frame that are inspected: enough for Ethernet, VLAN tags, IPv6 and TCP.
const LENGTH: usize = 128;
/// Size of the receive buffer, in bytes.
const BUFFER: i32 = 256 << 20;
/// After so long without a frame, no frame is in flight any more.
const PATIENCE: libc::timeval = libc::timeval { tv_sec: 0, tv_usec: 50_000 };

/// The origin of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// The source address.
    pub source: IpAddr,
    /// The VLAN number of the outer tag; `None` without a tag.
    pub vlan: Option<u16>,
}

impl Flow {
    /// Whether the source is in the prefix of `length` bits that `address` belongs to.
    #[must_use]
    pub fn is_within(&self, address: IpAddr, length: u8) -> bool {
        let common = match (address, self.source) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            _ => return false,
        };
        common >= length.into()
    }
}

/// A number of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Frames.
    pub packets: u64,
    /// Bytes, from the Ethernet header on, without the outer tag.
    pub bytes: u64,
    /// The frames among them that are TCP SYNs without ACK, not counting those behind IPv6 extension headers.
    pub syns: u64,
}

/// Counts of the frames that arrived.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    /// IP packets, by origin.
    pub flows: BTreeMap<Flow, Count>,
    /// Frames that are not IP.
    pub others: u64,
}

impl Arrivals {
    /// The sum of all flows for which `wanted` returns true.
    pub fn sum(&self, wanted: impl Fn(&Flow) -> bool) -> Count {
        let counts = self.flows.iter().filter(|(flow, _)| wanted(flow)).map(|(_, count)| count);
        counts.fold(Count::default(), |sum, count| Count {
            packets: sum.packets + count.packets,
            bytes: sum.bytes + count.bytes,
            syns: sum.syns + count.syns,
        })
    }

    /// The sum of all flows from a source address, with any VLAN tag or none.
    pub fn from(&self, source: impl Into<IpAddr>) -> Count {
        let source = source.into();
        self.sum(|flow| flow.source == source)
    }

    fn add(&mut self, frame: &[u8], length: u64, vlan: Option<u16>) {
        let Some((source, syn)) = describe(frame) else {
            self.others += 1;
            return;
        };
        let count = self.flows.entry(Flow { source, vlan }).or_default();
        count.packets += 1;
        count.bytes += length;
        count.syns += u64::from(syn);
    }
}

/// The source address of an IP packet, and whether it is a TCP SYN without ACK; `None` if it is not IP.
fn describe(frame: &[u8]) -> Option<(IpAddr, bool)> {
    let (family, at) = network_layer(frame)?;
    let datagram = frame.get(at..)?;
    let (source, protocol, behind): (IpAddr, _, _) = match family {
        IPV4 => {
            let header = datagram.first_chunk::<20>()?;
            let source: [u8; 4] = header[12..16].try_into().ok()?;
            (source.into(), header[9], 4 * usize::from(header[0] & 0x0f))
        }
        IPV6 => {
            let header = datagram.first_chunk::<40>()?;
            let source: [u8; 16] = header[8..24].try_into().ok()?;
            (source.into(), header[6], 40)
        }
        _ => return None,
    };
    let flags = if protocol == 6 { datagram.get(behind + 13).copied() } else { None };
    Some((source, flags.is_some_and(|flags| flags & (SYN | ACK) == SYN)))
}

/// A running count.
#[derive(Debug)]
pub struct Receiver {
    stop: Stop,
    thread: JoinHandle<Result<Arrivals>>,
}

impl Receiver {
    /// Starts counting the frames that come in at `port` of `namespace`. If an XDP program in native mode is
    /// attached there, these are the frames that it passes.
    ///
    /// # Errors
    /// Fails if a system call fails. Needs CAP_NET_RAW and CAP_NET_ADMIN.
    pub fn start(namespace: &Namespace, port: &Port) -> Result<Self> {
        let socket = PacketSocket::receiving(namespace, port, BUFFER, PATIENCE)?;
        let stop = Stop::default();
        let seen = stop.clone();
        Ok(Self { stop, thread: thread::spawn(move || receive(&socket, &seen)) })
    }

    /// Waits until no more frames arrive, and returns the counts.
    ///
    /// # Errors
    /// Fails if a system call fails, or if the buffer overflowed.
    pub fn finish(self) -> Result<Arrivals> {
        self.stop.stop();
        self.thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// A buffer for the auxiliary data of a frame, aligned like its header.
#[repr(C)]
#[derive(Clone, Copy)]
union Control {
    header: libc::cmsghdr,
    room: [u8; 64],
}

fn receive(socket: &PacketSocket, stop: &Stop) -> Result<Arrivals> {
    let mut arrivals = Arrivals::default();
    let mut frames = [[0_u8; LENGTH]; BATCH];
    let mut controls = [Control { room: [0; 64] }; BATCH];
    // SAFETY: plain old data, for which zeros are valid.
    let mut parts: [libc::iovec; BATCH] = unsafe { zeroed() };
    // SAFETY: the same.
    let mut messages: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
    loop {
        for (((message, part), frame), control) in
            messages.iter_mut().zip(&mut parts).zip(&mut frames).zip(&mut controls)
        {
            *part = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: LENGTH };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = ptr::from_mut(control).cast();
            message.msg_hdr.msg_controllen = size_of::<Control>() as _;
        }
        let flags = libc::MSG_TRUNC | libc::MSG_WAITFORONE;
        // SAFETY: that many messages, whose parts and controls outlive the call.
        let received = unsafe {
            libc::recvmmsg(socket.raw(), messages.as_mut_ptr(), BATCH as _, flags, ptr::null_mut())
        };
        let Ok(received) = usize::try_from(received) else {
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock if stop.is_stopped() => break,
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => continue,
                _ => return Err(error).context("cannot receive frames"),
            }
        };
        for (message, frame) in messages.iter().zip(&frames).take(received) {
            let length = message.msg_len as usize;
            let frame = frame.get(..length.min(LENGTH)).unwrap_or_default();
            arrivals.add(frame, length as u64, vlan(&message.msg_hdr));
        }
    }
    let lost = socket.dropped().context("cannot read the statistics of a packet socket")?;
    ensure!(lost == 0, "the receiver lost {lost} frames: the machine is too slow for this rate");
    Ok(arrivals)
}

/// The VLAN number of the tag that the kernel removed from a frame; `None` if there was none.
fn vlan(message: &libc::msghdr) -> Option<u16> {
    // SAFETY: the kernel filled in the control data that the message points to.
    let header = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    if (header.cmsg_level, header.cmsg_type) != (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
        return None;
    }
    // SAFETY: the header announces data of this type, which may be unaligned.
    let data = unsafe { libc::CMSG_DATA(header).cast::<libc::tpacket_auxdata>().read_unaligned() };
    let there = data.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
    there.then_some(data.tp_vlan_tci & 0x0fff)
}
