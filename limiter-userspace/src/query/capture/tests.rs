use super::*;
use crate::error::Failure as _;

/// A file with these packets, each with its length on the wire.
fn file(big: bool, magic: u32, link: u32, packets: &[(&[u8], u32)]) -> Vec<u8> {
    let word = |word: u32| if big { word.to_be_bytes() } else { word.to_le_bytes() };
    let half = |half: u16| if big { half.to_be_bytes() } else { half.to_le_bytes() };
    let mut bytes = word(magic).to_vec();
    bytes.extend([half(2), half(4)].concat());
    bytes.extend([word(0), word(0), word(65_535), word(link)].concat());
    for (packet, total) in packets {
        let captured = packet.len() as u32;
        bytes.extend([word(1), word(2), word(captured), word(*total)].concat());
        bytes.extend(*packet);
    }
    bytes
}

fn read(bytes: &[u8]) -> Result<Vec<(Vec<u8>, usize)>, String> {
    let told = |error: InquiryError| format!("{error}; {}", error.remedy().unwrap_or_default());
    let mut capture = Capture::new(Path::new("x.pcap"), bytes).map_err(told)?;
    let mut packets = Vec::new();
    while let Some((_, Sighting { bytes, total })) = capture.read().map_err(told)? {
        packets.push((bytes.to_vec(), total));
    }
    Ok(packets)
}

/// Bytes of the header of a packet.
const RECORD: usize = 16;

const PACKETS: [(&[u8], u32); 3] = [(&[1, 2, 3], 3), (&[], 1_514), (&[7; 60], 9_000)];

#[test]
fn files_of_either_byte_order_and_resolution_are_read() {
    let expected: Vec<_> =
        PACKETS.iter().map(|(bytes, total)| (bytes.to_vec(), *total as usize)).collect();
    for magic in [0xa1b2_c3d4, 0xa1b2_3c4d] {
        for big in [false, true] {
            let read = read(&file(big, magic, 1, &PACKETS));
            assert_eq!(read.unwrap(), expected, "{magic:x} {big}");
        }
    }
    assert_eq!(read(&file(true, 0xa1b2_c3d4, 1, &[])).unwrap(), []);
}

#[test]
fn times_are_read_in_either_resolution() {
    for (magic, expected) in [(0xa1b2_c3d4, 1_000_002_000), (0xa1b2_3c4d, 1_000_000_002)] {
        for big in [false, true] {
            let bytes = file(big, magic, 1, &PACKETS);
            let mut capture = Capture::new(Path::new("x.pcap"), &bytes[..]).unwrap();
            let (time, _) = capture.read().unwrap().unwrap();
            assert_eq!(time, expected, "{magic:x} {big}");
        }
    }
}

#[test]
fn the_checksum_of_a_frame_is_none_of_it() {
    let packets = [(&[1, 2, 3, 4, 5, 6, 7][..], 7), (&[1, 2, 3, 4, 5, 6, 7], 9), (&[], 2)];
    let expected = [(vec![1, 2, 3], 3), (vec![1, 2, 3, 4, 5], 5), (vec![], 0)];
    assert_eq!(read(&file(false, 0xa1b2_c3d4, 0x2400_0001, &packets)).unwrap(), expected);
    // Without the flag, the length of the checksum is not valid.
    let whole = read(&file(false, 0xa1b2_c3d4, 0x2000_0001, &packets[..1])).unwrap();
    assert_eq!(whole, [(vec![1, 2, 3, 4, 5, 6, 7], 7)]);
}

#[test]
fn a_file_that_is_cut_anywhere_says_so() {
    let whole = file(false, 0xa1b2_c3d4, 1, &PACKETS);
    let ends = [HEADER, HEADER + RECORD + 3, HEADER + 2 * RECORD + 3, whole.len()];
    for length in 0..=whole.len() {
        let read = read(&whole[..length]);
        assert_eq!(read.is_ok(), ends.contains(&length), "{length}: {read:?}");
    }
    assert!(read(&whole[..30]).unwrap_err().contains("ends within packet 1"));
}

/// Of a capture that is cut at its end, plain or compressed, what is whole is read before the error.
#[test]
fn what_is_before_a_cut_is_read() {
    let packets: Vec<(Vec<u8>, u32)> =
        (0..20_000_u32).map(|at| (at.wrapping_mul(at).to_le_bytes().repeat(15), 60)).collect();
    let packets: Vec<_> = packets.iter().map(|(bytes, total)| (bytes.as_slice(), *total)).collect();
    let next = packets
        .iter()
        .map(|(packet, total)| enhanced(false, 5, packet, *total))
        .collect::<Vec<_>>();
    type Pack = fn(&[u8]) -> Vec<u8>;
    let pack: [(&str, Pack); 3] =
        [("plain", <[u8]>::to_vec), ("gzip", open::tests::gzip), ("zstd", open::tests::zstd)];
    for whole in [file(false, 0xa1b2_c3d4, 1, &packets), section(false, 1, &[], &next)] {
        for (name, pack) in pack {
            let bytes = pack(&whole);
            for end in [bytes.len() - 1, bytes.len() - 20, 3 * bytes.len() / 4] {
                let reader = open::plain(io::Cursor::new(bytes[..end].to_vec())).unwrap();
                let mut capture = Capture::new(Path::new("x.pcap"), reader).unwrap();
                let mut read = 0;
                let error = loop {
                    match capture.read() {
                        Ok(Some(_)) => read += 1,
                        Ok(None) => panic!("{name}, {end}: the cut is not told"),
                        Err(error) => break error,
                    }
                };
                assert!(read > 500, "{name}, {end}: {read}");
                assert_eq!(error.to_string(), format!("x.pcap ends within packet {}", read + 1));
            }
        }
    }
}

#[test]
fn other_files_are_refused_with_the_remedy() {
    for (bytes, words) in [
        (
            file(false, 0xa1b2_c3d4, 127, &PACKETS),
            &["link type 127 (IEEE 802.11 with radiotap headers)", "tcpdump -i IFACE"][..],
        ),
        (file(false, 0xa1b2_c3d5, 1, &PACKETS), &["no capture file"]),
        (b"GIF89a".to_vec(), &["no capture file", "tcpdump -w"]),
        (Vec::new(), &["empty"]),
    ] {
        let told = read(&bytes).unwrap_err();
        assert!(words.iter().all(|word| told.contains(word)), "{words:?}: {told}");
    }
}

#[test]
fn a_length_that_cannot_be_takes_no_memory() {
    for (captured, total) in [(u32::MAX, u32::MAX), (LONGEST as u32 + 1, u32::MAX), (9, 8)] {
        let mut bytes = file(false, 0xa1b2_c3d4, 1, &[]);
        bytes.extend([[0; 8].as_slice(), &captured.to_le_bytes(), &total.to_le_bytes()].concat());
        bytes.extend([0; 64]);
        let told = read(&bytes).unwrap_err();
        assert!(told.contains("broken: packet 1"), "{told}");
    }
}

/// A block of a pcapng file in little-endian byte order, or in the other one.
fn block(big: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let word = |word: u32| if big { word.to_be_bytes() } else { word.to_le_bytes() };
    let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
    let length = word((12 + body.len() + padding.len()) as u32);
    [&word(kind), &length, body, &padding, &length].concat()
}

/// The blocks of a section: its header, one interface of this link type, and what follows.
fn section(big: bool, link: u16, options: &[u8], blocks: &[Vec<u8>]) -> Vec<u8> {
    let word = |word: u32| if big { word.to_be_bytes() } else { word.to_le_bytes() };
    let half = |half: u16| if big { half.to_be_bytes() } else { half.to_le_bytes() };
    let header = [&word(0x1a2b_3c4d)[..], &half(1), &half(0), &[0xff; 8]].concat();
    let interface = [&half(link)[..], &half(0), &word(64), options].concat();
    let begin = [block(big, 0x0a0d_0d0a, &header), block(big, 1, &interface)].concat();
    [begin, blocks.concat()].concat()
}

/// An enhanced packet block of the first interface.
fn enhanced(big: bool, units: u64, packet: &[u8], total: u32) -> Vec<u8> {
    let word = |word: u32| if big { word.to_be_bytes() } else { word.to_le_bytes() };
    let (high, low, captured) = ((units >> 32) as u32, units as u32, packet.len() as u32);
    let words = [0, high, low, captured, total].map(word).concat();
    block(big, 6, &[&words, packet].concat())
}

#[test]
fn pcapng_of_either_byte_order_is_read() {
    let expected: Vec<_> =
        PACKETS.iter().map(|(bytes, total)| (bytes.to_vec(), *total as usize)).collect();
    let of = |big| {
        let packets = PACKETS.map(|(packet, total)| enhanced(big, 5, packet, total));
        // A block of names in between is no packet.
        let names = block(big, 4, &[0; 4]);
        section(big, 1, &[], &[names, packets.concat()])
    };
    assert_eq!(read(&of(false)).unwrap(), expected);
    assert_eq!(read(&of(true)).unwrap(), expected);
    // A file may have several sections, each with a byte order of its own.
    let both = [expected.clone(), expected].concat();
    assert_eq!(read(&[of(true), of(false)].concat()).unwrap(), both);
}

#[test]
fn simple_packets_of_pcapng_are_as_long_as_was_captured() {
    let simple = |total: u32, data: &[u8]| block(false, 3, &[&total.to_le_bytes(), data].concat());
    let file = section(false, 1, &[], &[simple(3, &[1, 2, 3]), simple(1_514, &[7; 64])]);
    assert_eq!(read(&file).unwrap(), [(vec![1, 2, 3], 3), (vec![7; 64], 1_514)]);
}

#[test]
fn pcapng_states_the_unit_of_its_times_and_the_length_of_its_checksums() {
    // Times in microseconds if nothing is said, in nanoseconds, and in 1/1024 s.
    for (options, nanoseconds) in [
        (&[][..], 1_024_000),
        (&[9, 0, 1, 0, 9, 0, 0, 0], 1_024),
        (&[9, 0, 1, 0, 0x8a, 0, 0, 0], 1_000_000_000),
        (&[9, 0, 1, 0, 0x7f, 0, 0, 0], 0),
    ] {
        let file = section(false, 1, options, &[enhanced(false, 1_024, &[1; 60], 60)]);
        let mut capture = Capture::new(Path::new("x.pcapng"), &file[..]).unwrap();
        assert_eq!(capture.read().unwrap().unwrap().0, nanoseconds, "{options:?}");
    }
    let checksum = [13, 0, 1, 0, 4, 0, 0, 0];
    let file = section(false, 1, &checksum, &[enhanced(false, 0, &[1; 60], 64)]);
    assert_eq!(read(&file).unwrap(), [(vec![1; 60], 60)]);
}

#[test]
fn pcapng_that_is_cut_or_broken_says_so() {
    let blocks = PACKETS.map(|(packet, total)| enhanced(false, 5, packet, total));
    let whole = section(false, 1, &[], &blocks);
    let mut ends = vec![28, 28 + 20];
    for block in &blocks {
        ends.push(ends.last().unwrap() + block.len());
    }
    for length in 4..=whole.len() {
        let read = read(&whole[..length]);
        assert_eq!(read.is_ok(), ends.contains(&length), "{length}: {read:?}");
    }
    let mut of_no_interface = enhanced(false, 5, &[1; 60], 60);
    of_no_interface[8] = 1;
    for (blocks, words) in [
        (vec![of_no_interface], "interface 1, which is not there"),
        (vec![enhanced(false, 5, &[1; 60], 59)], "has 60 bytes of 59"),
        (vec![block(false, 6, &[0; 4]), block(false, 4, &[0; 60])], "packet 1 cannot be read"),
        (
            vec![[6_u32, u32::MAX - 3].map(u32::to_le_bytes).concat(), vec![0; 60]],
            "packet 1 is too long",
        ),
    ] {
        let told = read(&section(false, 1, &[], &blocks)).unwrap_err();
        assert!(told.contains(words), "{words}: {told}");
    }
    let radiotap = section(false, 127, &[], &[enhanced(false, 5, &[1; 60], 60)]);
    assert!(read(&radiotap).unwrap_err().contains("link type 127"));
    let interfaces = vec![block(false, 1, &[0; 8]); MOST_INTERFACES];
    assert!(read(&section(false, 1, &[], &interfaces)).unwrap_err().contains("4096 interfaces"));
}

#[test]
fn the_packet_headers_of_kuznetzov_are_read() {
    let mut bytes = file(false, 0xa1b2_cd34, 1, &[]);
    bytes.extend([1_u32, 2, 60, 90, 3, 0x0800].map(u32::to_le_bytes).concat());
    bytes.extend([7; 60]);
    assert_eq!(read(&bytes).unwrap(), [(vec![7; 60], 90)]);
    // With its number, but ordinary headers of packets: 8 bytes of the packet are taken for the header.
    let told = read(&file(false, 0xa1b2_cd34, 1, &[(&[7; 54], 54)])).unwrap_err();
    assert!(told.starts_with("x.pcap ends within packet 1; "), "{told}");
}

#[test]
fn packets_without_ethernet_headers_get_them() {
    let packet = [0x45_u8; 40];
    let expected = [&[0; 12][..], &[8, 0], &packet].concat();
    let raw = file(false, 0xa1b2_c3d4, 101, &[(&packet, 40)]);
    assert_eq!(read(&raw).unwrap(), [(expected.clone(), 54)]);
    let raw = section(false, 101, &[], &[enhanced(false, 0, &packet, 1_500)]);
    assert_eq!(read(&raw).unwrap(), [(expected, 1_514)]);
}
