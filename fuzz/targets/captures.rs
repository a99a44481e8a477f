//! A pcap or pcapng file: any bytes are packets or are told what is wrong with them. No packet has more bytes than the file, and
//! each is read by the parser of the datapath.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use limiter_common::packet::{headers::Packet, parse::parse};
use limiter_userspace::query::capture::Capture;

fuzz_target!(|file: &[u8]| {
    let Ok(mut capture) = Capture::new(Path::new("file.pcap"), file) else { return };
    let mut left = file.len();
    loop {
        match capture.read() {
            Ok(Some((_, sighting))) => {
                left =
                    left.checked_sub(sighting.bytes.len()).expect("a packet longer than the file");
                assert!(sighting.bytes.len() <= sighting.total);
                let mut packet = Packet::UNREADABLE;
                let _ = parse(&sighting, &mut packet);
            }
            Ok(None) => break,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                break;
            }
        }
    }
});
