//! Changes the source address of a built frame, for senders with many addresses.

use std::net::IpAddr;

use super::{IPV4, IPV6, MPLS, PPPOE, TAGS};

/// Replaces the source address by `source` and updates the checksums incrementally, without reading the
/// payload. The transport checksum is updated for TCP, UDP and ICMPv6 directly behind the IP header; not
/// behind extension headers.
///
/// Returns `false` and leaves the frame unchanged if it is too short or of the other address family.
#[must_use]
pub fn set_source(frame: &mut [u8], source: IpAddr) -> bool {
    let family = if source.is_ipv4() { IPV4 } else { IPV6 };
    let Some((_, network)) = network_layer(frame).filter(|&(found, _)| found == family) else {
        return false;
    };
    let datagram = &mut frame[network..];
    match source {
        IpAddr::V4(source) => {
            let Some(header) = datagram.first_chunk::<20>() else {
                return false;
            };
            let (protocol, later) = (header[9], header[6] & 0x1f != 0 || header[7] != 0);
            let behind = 4 * usize::from(header[0] & 0x0f);
            let old = replace(datagram, 12, source.octets());
            amend(datagram, 10, &old, &source.octets());
            if !later {
                amend_transport(datagram, protocol, behind, &old, &source.octets());
            }
        }
        IpAddr::V6(source) => {
            let Some(header) = datagram.first_chunk::<40>() else {
                return false;
            };
            let protocol = header[6];
            let old = replace(datagram, 8, source.octets());
            amend_transport(datagram, protocol, 40, &old, &source.octets());
        }
    }
    true
}

/// Returns the ethertype behind all VLAN tags, PPPoE and MPLS labels, and the offset of the bytes behind it.
/// `None` if the frame is too short.
#[must_use]
pub fn network_layer(frame: &[u8]) -> Option<(u16, usize)> {
    let word = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let mut at = 12;
    while TAGS.contains(&word(at)?) {
        at += 4;
    }
    let mut ether_type = word(at)?;
    at += 2;
    if ether_type == PPPOE {
        let first = *frame.get(at + 6)?;
        let is_short = first & 1 == 1;
        let protocol = if is_short { first.into() } else { word(at + 6)? };
        at += if is_short { 7 } else { 8 };
        ether_type = match protocol {
            0x21 => IPV4,
            0x57 => IPV6,
            0x281 => MPLS,
            _ => return Some((PPPOE, at)),
        };
    }
    if ether_type == MPLS {
        while frame.get(at + 2)? & 1 == 0 {
            at += 4;
        }
        at += 4;
        ether_type = match frame.get(at)? >> 4 {
            4 => IPV4,
            6 => IPV6,
            _ => MPLS,
        };
    }
    Some((ether_type, at))
}

fn replace<const N: usize>(datagram: &mut [u8], at: usize, new: [u8; N]) -> [u8; N] {
    let mut old = new;
    old.swap_with_slice(&mut datagram[at..at + N]);
    old
}

fn amend_transport(datagram: &mut [u8], protocol: u8, behind: usize, old: &[u8], new: &[u8]) {
    match protocol {
        6 => amend(datagram, behind + 16, old, new),
        17 if datagram.get(behind + 6..behind + 8) != Some(&[0, 0]) => {
            amend(datagram, behind + 6, old, new);
            // 0 would mean "no checksum" (RFC 768).
            if let Some(checksum @ [0, 0]) = datagram.get_mut(behind + 6..behind + 8) {
                checksum.fill(0xff);
            }
        }
        58 => amend(datagram, behind + 2, old, new),
        _ => {}
    }
}

/// Updates the checksum at `at` after the bytes `old`, which it covers, were replaced by `new` (RFC 1624).
fn amend(datagram: &mut [u8], at: usize, old: &[u8], new: &[u8]) {
    let Some(checksum) = datagram.get_mut(at..at + 2) else {
        return;
    };
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], pair[1]]));
    let mut sum = 0xffff - word(checksum);
    for (old, new) in old.chunks_exact(2).zip(new.chunks_exact(2)) {
        sum += 0xffff - word(old) + word(new);
    }
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    checksum.copy_from_slice(&(!sum as u16).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Extension, Frame, SYN};

    const TO4: [u8; 4] = [198, 51, 100, 1];
    const TO6: [u16; 8] = [0x2001, 0xdb8, 0, 1, 0, 0, 0, 1];

    #[test]
    fn a_rewritten_frame_is_the_one_built_with_that_address() {
        for step in 0..2_000_u32 {
            let from4 = [10, step.to_be_bytes()[2], step.to_be_bytes()[3], 7];
            let from6 = [0x2001, 0xdb8, step as u16, 2, 3, 4, 5, 0xffff - step as u16];
            let build = |from4: [u8; 4], from6: [u16; 8]| {
                [
                    Frame::udp(from4, TO4, 1, 2).payload(18).build(),
                    Frame::udp(from4, TO4, 1, 2).tag(0x88a8, 3).tag(0x8100, 4).build(),
                    Frame::tcp(from4, TO4, 1, 2, SYN).options(&[1; 12]).padded().build(),
                    Frame::udp(from4, TO4, 1, 2).payload(3).tag(0x8100, 4).pppoe().build(),
                    Frame::udp(from4, TO4, 1, 2).payload(3).pppoe().labels(2).build(),
                    Frame::udp(from6, TO6, 1, 2).payload(3).compressed_pppoe().build(),
                    Frame::udp(from6, TO6, 1, 2).payload(3).labels(4).build(),
                    Frame::echo(from4, TO4, 1, 2).payload(5).build(),
                    Frame::ip(from4, TO4, 17).fragment(9, 1, false).payload(24).build(),
                    Frame::udp(from6, TO6, 1, 2).payload(19).build(),
                    Frame::tcp(from6, TO6, 1, 2, SYN).tag(0x9100, 5).build(),
                    Frame::echo(from6, TO6, 1, 2).build(),
                    Frame::ip(from6, TO6, 59).extension(Extension::routing(1)).build(),
                ]
            };
            let mut frames = build([192, 0, 2, 1], [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]);
            for (frame, built) in frames.iter_mut().zip(build(from4, from6)) {
                let done = set_source(frame, IpAddr::from(from4))
                    || set_source(frame, IpAddr::from(from6));
                assert!(done);
                assert_eq!(*frame, built);
            }
        }
    }

    #[test]
    fn another_family_or_a_short_frame_stays_as_it_is() {
        let frame = Frame::udp([192, 0, 2, 1], TO4, 1, 2).build();
        for length in 0..34 {
            let mut short = frame[..length].to_vec();
            assert!(!set_source(&mut short, IpAddr::from(TO4)));
            assert_eq!(short, frame[..length]);
        }
        let mut same = frame.clone();
        assert!(!set_source(&mut same, IpAddr::from(TO6)));
        assert!(!set_source(&mut Frame::other(0x0806, [0; 28]).build(), IpAddr::from(TO4)));
        assert_eq!(same, frame);
    }
}
