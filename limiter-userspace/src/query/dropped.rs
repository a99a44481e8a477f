//! What a sample of a dropped packet says.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, SystemTime},
};

use limiter_common::{
    base::address::Address,
    memory::sample::{SNAPPED, Sample},
    packet::{
        frame::Sighting,
        headers::{Fragment, Packet, Ports},
        parse::parse,
        reason::Reason,
    },
};

/// A packet that was dropped, or would have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// When it came in.
    pub time: SystemTime,
    /// The interface that it came in by; its slot if the name is not known.
    pub interface: String,
    /// Why it was dropped. [`Reason::Monitor`] if everything is only monitored, and no limit is known that it was over.
    pub reason: Reason,
    /// Whether it passed, as the limit or everything is only monitored.
    pub monitored: bool,
    /// The limit that it was over.
    pub limit: Option<String>,
    /// Bytes of the frame.
    pub bytes: u32,
    /// What was read of its headers.
    pub content: Content,
}

/// What is in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// An IP packet.
    Ip(Headers),
    /// Something else, with the type of Ethernet if the frame has one, or an IP packet whose source cannot be read.
    Other(Option<u16>),
}

/// The headers of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The IP protocol number.
    pub protocol: u8,
    /// The ports, if it has some that could be read.
    pub ports: Option<Ports>,
    /// The byte of TCP flags, if it could be read.
    pub flags: Option<u8>,
    /// The type of ICMP or ICMPv6, if it could be read.
    pub icmp: Option<u8>,
    /// Whether it is a fragment.
    pub fragment: bool,
}

/// The names of what samples have numbers of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Limits, with their layers and candidates, by their tally.
    pub limits: BTreeMap<u32, String>,
    /// Interfaces, by their slot.
    pub interfaces: BTreeMap<u32, String>,
}

impl Dropped {
    /// What a sample says. At `now`, the datapath's clock is at `clock`, in nanoseconds.
    pub fn of(sample: &Sample, names: &Names, now: SystemTime, clock: u64) -> Self {
        let counted = Reason::ALL.get(sample.reason as usize).copied().unwrap_or(Reason::Contended);
        let limit = names.limits.get(&sample.tally).cloned();
        let monitored = !counted.drops();
        // Only a limit lets a packet pass as one that conforms and shows it all the same.
        let is_over = monitored && (counted != Reason::Monitor || limit.is_some());
        let interface = names.interfaces.get(&sample.slot).cloned();
        let ago = Duration::from_nanos(clock.saturating_sub(sample.time));
        Self {
            time: now.checked_sub(ago).unwrap_or(now),
            interface: interface.unwrap_or_else(|| format!("slot {}", sample.slot)),
            reason: if is_over { Reason::Exceed } else { counted },
            monitored,
            limit,
            bytes: sample.bytes,
            content: Content::of(&captured(sample)),
        }
    }
}

/// The bytes of a frame that a sample has.
pub fn captured(sample: &Sample) -> Sighting<'_> {
    let captured = (sample.captured as usize).min(SNAPPED);
    let bytes = sample.data.get(..captured).unwrap_or_default();
    Sighting { bytes, total: (sample.bytes as usize).max(captured) }
}

impl Content {
    fn of(frame: &Sighting<'_>) -> Self {
        let mut packet = Packet::UNREADABLE;
        let is_ip = parse(frame, &mut packet).is_ok();
        let kind = frame.bytes.get(12..14).map(|kind| u16::from_be_bytes([kind[0], kind[1]]));
        let destination = Address { family: packet.source.family, words: packet.destination };
        match (IpAddr::try_from(packet.source), IpAddr::try_from(destination)) {
            (Ok(source), Ok(destination)) if is_ip => Self::Ip(Headers {
                source,
                destination,
                protocol: packet.protocol,
                ports: packet.port().map(|_| packet.ports),
                flags: packet.tcp_flags.get(),
                icmp: packet.icmp_type(),
                fragment: packet.fragment.get() != Fragment::Whole,
            }),
            _ => Self::Other(kind),
        }
    }

    /// The source, if that could be read.
    pub const fn source(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(headers) => Some(headers.source),
            Self::Other(_) => None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use limiter_common::{memory::sample::Sampling, packet::protocol::TCP};

    use super::*;
    use crate::query::frame::Sketch;

    /// A sample of this frame.
    pub(crate) fn sample(frame: &[u8], reason: Reason, tally: u32) -> Sample {
        let mut data = [0xee; SNAPPED];
        let captured = frame.len().min(SNAPPED);
        data[..captured].copy_from_slice(&frame[..captured]);
        let (bytes, captured) = (frame.len() as u32, captured as u32);
        let reason = reason.index() as u32;
        Sample { time: 5_000, bytes, captured, reason, tally, slot: 1, unused: 0, data }
    }

    /// A SYN of IPv4.
    pub(crate) fn syn() -> Vec<u8> {
        let [source, destination] = ["192.0.2.7", "198.51.100.1"].map(|text| text.parse().unwrap());
        let sketch = Sketch::new(source, destination, TCP);
        Sketch { ports: [40_000, 22], flags: 2, ..sketch }.build().unwrap()
    }

    pub(crate) fn names() -> Names {
        Names {
            limits: [(3, "ssh".to_owned())].into(),
            interfaces: [(1, "eth0".to_owned())].into(),
        }
    }

    fn of(sample: &Sample) -> Dropped {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(9);
        Dropped::of(sample, &names(), now, 1_000_005_000)
    }

    #[test]
    fn a_sample_tells_who_sent_what_and_why_it_was_dropped() {
        let dropped = of(&sample(&syn(), Reason::Exceed, 3));
        assert_eq!(dropped.time, SystemTime::UNIX_EPOCH + Duration::from_secs(8));
        assert_eq!((dropped.interface.as_str(), dropped.bytes), ("eth0", 60));
        assert_eq!((dropped.reason, dropped.limit.as_deref()), (Reason::Exceed, Some("ssh")));
        assert!(!dropped.monitored);
        let Content::Ip(headers) = dropped.content else { panic!("{dropped:?}") };
        assert_eq!(headers.source.to_string(), "192.0.2.7");
        assert_eq!(headers.ports, Some(Ports { source: 40_000, destination: 22 }));
        assert_eq!((headers.flags, headers.icmp, headers.fragment), (Some(2), None, false));
    }

    #[test]
    fn what_is_only_monitored_is_marked_with_what_would_drop_it() {
        let none = Sampling::NO_LIMIT;
        for (counted, tally, reason, monitored) in [
            (Reason::Deny, none, Reason::Deny, false),
            (Reason::Monitor, none, Reason::Monitor, true),
            (Reason::Monitor, 3, Reason::Exceed, true),
            (Reason::Conform, 3, Reason::Exceed, true),
            (Reason::Fragment, 4, Reason::Exceed, true),
        ] {
            let dropped = of(&sample(&syn(), counted, tally));
            assert_eq!((dropped.reason, dropped.monitored), (reason, monitored), "{counted:?}");
        }
    }

    #[test]
    fn any_bytes_are_a_sample() {
        let mut arp = vec![0; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        let content = of(&sample(&arp, Reason::NonIpExceed, 9)).content;
        assert_eq!((content.source(), content), (None, Content::Other(Some(0x0806))));
        let mut odd = sample(&[], Reason::Deny, 9);
        assert_eq!(of(&odd).content, Content::Other(None));
        (odd.captured, odd.bytes, odd.reason, odd.slot) = (u32::MAX, 1, u32::MAX, 7);
        let dropped = of(&odd);
        assert_eq!((dropped.interface.as_str(), dropped.reason), ("slot 7", Reason::Contended));
        assert_eq!(captured(&odd).bytes.len(), SNAPPED);
    }

    #[test]
    fn long_frames_are_read_by_their_begin() {
        let mut frame = syn();
        frame.resize(1_500, 0);
        let dropped = of(&sample(&frame, Reason::Exceed, 3));
        assert_eq!(dropped.bytes, 1_500);
        assert_eq!(dropped.content.source().unwrap().to_string(), "192.0.2.7");
    }
}
