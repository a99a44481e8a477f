//! Files of captured packets: the classic pcap format, in either byte order, with times in
//! microseconds or nanoseconds.
//!
//! Only one packet is in memory at a time, whatever lengths the file states.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use super::{error::InquiryError, frame::Sighting};

/// The most bytes of a packet in a file: tcpdump's own bound (`MAXIMUM_SNAPLEN`).
const LONGEST: usize = 1 << 18;
const HEADER: usize = 24;
const RECORD: usize = 16;
/// `LINKTYPE_ETHERNET`.
const ETHERNET: u32 = 1;
/// A flag in the word of the link type: its highest four bits are valid, and hold the length of the
/// frame checksum in 16-bit words.
const CHECKSUM: u32 = 1 << 26;

/// A pcap file that is read from its beginning to its end.
pub struct Capture<R = BufReader<File>> {
    path: PathBuf,
    reader: R,
    /// Whether the numbers in the file have the other byte order than this machine.
    swapped: bool,
    /// Bytes of the checksum at the end of each frame. It is cut off, as an XDP program never sees
    /// it.
    checksum: usize,
    /// Nanoseconds in one unit of the second half of a time: 1 or 1000.
    unit: u64,
    /// The number of packets that were read.
    packets: u64,
    buffer: Vec<u8>,
}

impl Capture {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// [`InquiryError::Capture`] if the file cannot be read, [`InquiryError::Format`] if it is no
    /// pcap file of Ethernet frames.
    pub fn open(path: &Path) -> Result<Self, InquiryError> {
        let file = File::open(path)
            .map_err(|cause| InquiryError::Capture { path: path.to_path_buf(), cause })?;
        Self::new(path, BufReader::with_capacity(1 << 16, file))
    }
}

impl<R: Read> Capture<R> {
    /// Reads the header of a file; `path` is for messages.
    ///
    /// # Errors
    /// As [`open`](Capture::open).
    pub fn new(path: &Path, reader: R) -> Result<Self, InquiryError> {
        let (path, buffer) = (path.to_path_buf(), Vec::new());
        let (swapped, checksum, unit, packets) = (false, 0, 1_000, 0);
        let mut capture = Self { path, reader, swapped, checksum, unit, packets, buffer };
        let mut header = [0; HEADER];
        let read = capture.fill(&mut header)?;
        let [a, b, c, d, ..] = header;
        capture.swapped = match u32::from_ne_bytes([a, b, c, d]) {
            // The magic number for times in microseconds, and that for nanoseconds.
            0xa1b2_c3d4 | 0xa1b2_3c4d => false,
            0xd4c3_b2a1 | 0x4d3c_b2a1 => true,
            0x0a0d_0d0a => {
                let path = capture.path.display();
                let remedy = format!(
                    "convert it: `tcpdump -r {path} -w OTHER.pcap`, or `editcap -F pcap {path} OTHER.pcap`"
                );
                return Err(capture.fault("is in the format pcapng, not pcap", remedy));
            }
            _ if read == 0 => return Err(capture.broken("is empty")),
            _ => return Err(capture.broken("is no pcap file")),
        };
        if read < HEADER {
            return Err(capture.broken("ends within its header"));
        }
        if capture.word(&header) == 0xa1b2_3c4d {
            capture.unit = 1;
        }
        let version = capture.half(&header[4..]);
        if version != 2 {
            return Err(capture.broken(&format!("is of the pcap format {version}, not 2")));
        }
        let link = capture.word(&header[20..]);
        if link & CHECKSUM != 0 {
            capture.checksum = 2 * (link >> 28) as usize;
        }
        match link & (CHECKSUM - 1) {
            ETHERNET => Ok(capture),
            other => {
                let remedy = "capture on the interface that limiter is attached to: `tcpdump -i \
                              IFACE -w FILE`, and not on `any`";
                let fault = format!("has no Ethernet frames, but those of link type {other}");
                Err(capture.fault(&fault, remedy.to_owned()))
            }
        }
    }

    /// Returns the next packet, and the time of its capture in nanoseconds since 1970; `None` at
    /// the end.
    ///
    /// # Errors
    /// [`InquiryError::Capture`] if the file cannot be read, [`InquiryError::Format`] if it ends
    /// within a packet or states an impossible length.
    pub fn read(&mut self) -> Result<Option<(u64, Sighting<'_>)>, InquiryError> {
        let mut record = [0; RECORD];
        match self.fill(&mut record)? {
            0 => return Ok(None),
            RECORD => {}
            _ => return Err(self.cut()),
        }
        let [captured, total] = [8, 12].map(|at| self.word(&record[at..]) as usize);
        if captured > LONGEST || captured > total && total != 0 {
            let number = self.packets + 1;
            return Err(
                self.broken(&format!("is broken: packet {number} has {captured} bytes of {total}"))
            );
        }
        let [seconds, rest] = [0, 4].map(|at| u64::from(self.word(&record[at..])));
        let time = seconds * 1_000_000_000 + rest * self.unit;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(captured, 0);
        let read = self.fill(&mut buffer)?;
        self.buffer = buffer;
        if read < captured {
            return Err(self.cut());
        }
        self.packets += 1;
        let total = total.max(captured).saturating_sub(self.checksum);
        Ok(Some((time, Sighting { bytes: &self.buffer[..captured.min(total)], total })))
    }

    /// Fills the buffer, or less of it at the end of the file. Returns the number of bytes read.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, InquiryError> {
        let mut read = 0;
        while read < buffer.len() {
            match self.reader.read(&mut buffer[read..]) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => {
                    return Err(InquiryError::Capture { path: self.path.clone(), cause });
                }
            }
        }
        Ok(read)
    }

    fn word(&self, bytes: &[u8]) -> u32 {
        let word = bytes.first_chunk().map_or(0, |four| u32::from_ne_bytes(*four));
        if self.swapped { word.swap_bytes() } else { word }
    }

    fn half(&self, bytes: &[u8]) -> u16 {
        let half = bytes.first_chunk().map_or(0, |two| u16::from_ne_bytes(*two));
        if self.swapped { half.swap_bytes() } else { half }
    }

    fn cut(&self) -> InquiryError {
        self.broken(&format!("ends within packet {}", self.packets + 1))
    }

    fn broken(&self, fault: &str) -> InquiryError {
        let remedy = "give a file that `tcpdump -w FILE` wrote, and wait until it is done";
        self.fault(fault, remedy.to_owned())
    }

    fn fault(&self, fault: &str, remedy: String) -> InquiryError {
        InquiryError::Format { path: self.path.clone(), fault: fault.to_owned(), remedy }
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn other_files_are_refused_with_the_remedy() {
        for (bytes, words) in [
            (file(false, 0x0a0d_0d0a, 1, &PACKETS), &["pcapng", "editcap -F pcap x.pcap"][..]),
            (file(false, 0xa1b2_c3d4, 113, &PACKETS), &["link type 113", "tcpdump -i IFACE"]),
            (file(false, 0xa1b2_cd34, 1, &PACKETS), &["no pcap file"]),
            (b"GIF89a".to_vec(), &["no pcap file", "tcpdump -w"]),
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
            bytes.extend(
                [[0; 8].as_slice(), &captured.to_le_bytes(), &total.to_le_bytes()].concat(),
            );
            bytes.extend([0; 64]);
            let told = read(&bytes).unwrap_err();
            assert!(told.contains("broken: packet 1"), "{told}");
        }
    }
}
