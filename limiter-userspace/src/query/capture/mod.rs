//! Files of captured packets: pcap in either byte order and resolution, and pcapng.
//!
//! The memory that a file takes does not depend on the lengths that it states: a packet or block that is
//! longer than any real one is a fault.

mod link;
mod open;
pub mod write;

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use pcap_parser::{
    Block, LegacyPcapBlock, PcapError, PcapHeader,
    nom::{Err as Parsing, IResult, Needed},
    parse_block_be, parse_block_le, parse_pcap_frame, parse_pcap_frame_be,
    parse_pcap_frame_modified, parse_pcap_header,
};

use self::link::Link;
use super::{error::InquiryError, frame::Sighting};

/// The most bytes of a packet in a file: tcpdump's own bound (`MAXIMUM_SNAPLEN`).
const LONGEST: usize = 1 << 18;
/// The most bytes of a block in a pcapng file: Wireshark's own bound (`MAX_BLOCK_SIZE`).
const LONGEST_BLOCK: usize = 1 << 24;
/// The most interfaces of a section in a pcapng file.
const MOST_INTERFACES: usize = 1 << 12;
/// Bytes of the header of a pcap file.
const HEADER: usize = 24;
/// Bytes that are read from a file at once.
const PIECE: usize = 1 << 16;
/// The type of the first block of a pcapng file, which reads the same in both byte orders.
const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// The option of an interface in a pcapng file that states the length of the frame checksum in bytes.
const CHECKSUM_OPTION: u16 = 13;

type Parsed<'a, T> = IResult<&'a [u8], T, PcapError<&'a [u8]>>;

/// A parser of a packet in a pcap file, with its header.
type Record = fn(&[u8]) -> Parsed<'_, LegacyPcapBlock<'_>>;

/// A capture file that is read from its beginning to its end.
pub struct Capture<R = Box<dyn Read>> {
    path: PathBuf,
    input: Input<R>,
    format: Format,
    /// The number of packets that were read.
    packets: u64,
    /// The packet that was read last, as a frame of Ethernet.
    frame: Vec<u8>,
    /// Whether a compressed file ended before its end.
    is_cut: bool,
}

enum Format {
    Pcap {
        record: Record,
        /// Bytes of the header of each packet.
        header: usize,
        interface: Interface,
    },
    Next {
        big_endian: bool,
        interfaces: Vec<Interface>,
    },
}

/// What a file says of the packets of an interface.
#[derive(Clone, Copy)]
struct Interface {
    link: Link,
    /// Bytes of the checksum at the end of each frame. It is cut off, as an XDP program never sees it.
    checksum: usize,
    /// The most bytes of a packet that were captured; 0 if that is unknown.
    snapped: usize,
    /// The unit of times, as pcapng has it: a negative power of 10, or of 2 if the highest bit is set.
    resolution: u8,
}

/// What a step through a file came upon.
enum Step {
    /// A packet, which is in [`Capture::frame`] now: its time in nanoseconds and its length in bytes.
    Packet(u64, usize),
    /// A block that is no packet.
    Other,
    /// A packet or block of which this many bytes are missing.
    Incomplete(usize),
    /// A packet or block that cannot be.
    Fault(String),
    /// A packet of a link type that cannot be read.
    Refused(Link),
}

impl<R: Read> Capture<R> {
    /// Reads the header of a file; `path` is for messages.
    ///
    /// # Errors
    /// [`InquiryError::Capture`] if the file cannot be read, [`InquiryError::Format`] if it is no
    /// pcap or pcapng file, or a pcap file of a link type that cannot be read.
    pub fn new(path: &Path, reader: R) -> Result<Self, InquiryError> {
        let input = Input { reader, buffer: Vec::new(), at: 0 };
        let format = Format::Next { big_endian: false, interfaces: Vec::new() };
        let (path, frame) = (path.to_path_buf(), Vec::new());
        let mut capture = Self { path, input, format, packets: 0, frame, is_cut: false };
        while capture.input.left().len() < HEADER && capture.more()? {}
        let begin = capture.input.left();
        if begin.starts_with(&SECTION) {
            return Ok(capture);
        }
        let (left, header) = match parse_pcap_header(begin) {
            Ok((rest, header)) => (rest.len(), header),
            Err(_) if begin.is_empty() => return Err(capture.broken("is empty")),
            Err(Parsing::Incomplete(_)) if begin.len() >= SECTION.len() => {
                return Err(capture.broken("ends within its header"));
            }
            Err(_) => return Err(capture.broken("is no capture file: neither pcap nor pcapng")),
        };
        capture.input.keep(left);
        capture.format = capture.pcap(&header)?;
        Ok(capture)
    }

    /// What the header of a pcap file says.
    fn pcap(&self, header: &PcapHeader) -> Result<Format, InquiryError> {
        /// A flag in the word of the link type: its highest four bits are valid, and hold the length of
        /// the frame checksum in 16-bit words.
        const CHECKSUM: u32 = 1 << 26;
        if header.version_major != 2 {
            let version = header.version_major;
            return Err(self.broken(&format!("is of the pcap format {version}, not 2")));
        }
        let word = header.network.0.cast_unsigned();
        let link = Link::of(word & (CHECKSUM - 1));
        if !link.is_read() {
            return Err(self.refused(link));
        }
        let (record, size): (Record, usize) =
            match (header.is_modified_format(), header.is_bigendian()) {
                (true, _) => (parse_pcap_frame_modified, 24),
                (false, true) => (parse_pcap_frame_be, 16),
                (false, false) => (parse_pcap_frame, 16),
            };
        let checksum = if word & CHECKSUM != 0 { 2 * (word >> 28) as usize } else { 0 };
        let resolution = if header.is_nanosecond_precision() { 9 } else { 6 };
        let interface = Interface { link, checksum, snapped: 0, resolution };
        Ok(Format::Pcap { record, header: size, interface })
    }

    /// Returns the next packet and the time of its capture in nanoseconds, by the clock of its
    /// interface; `None` at the end. A packet without an Ethernet header gets one.
    ///
    /// # Errors
    /// [`InquiryError::Capture`] if the file cannot be read, [`InquiryError::Cut`] if it ends
    /// within a packet, [`InquiryError::Format`] if it states an impossible length, or has a packet of a link type that cannot be read.
    pub fn read(&mut self) -> Result<Option<(u64, Sighting<'_>)>, InquiryError> {
        loop {
            match self.step() {
                Step::Packet(time, total) => {
                    self.packets += 1;
                    let bytes = &self.frame[..self.frame.len().min(total)];
                    return Ok(Some((time, Sighting { bytes, total })));
                }
                Step::Other => {}
                Step::Incomplete(missing)
                    if missing.saturating_add(self.input.left().len()) > self.longest() =>
                {
                    let number = self.packets + 1;
                    return Err(self.broken(&format!("is broken: packet {number} is too long")));
                }
                Step::Incomplete(_) => {
                    if self.more()? {
                        continue;
                    }
                    if self.input.left().is_empty() && !self.is_cut {
                        return Ok(None);
                    }
                    let (path, packet) = (self.path.clone(), self.packets + 1);
                    return Err(InquiryError::Cut { path, packet });
                }
                Step::Fault(fault) => {
                    let number = self.packets + 1;
                    return Err(self.broken(&format!("is broken: packet {number} {fault}")));
                }
                Step::Refused(link) => return Err(self.refused(link)),
            }
        }
    }

    /// Takes the next packet or block out of the buffer.
    fn step(&mut self) -> Step {
        let Self { input, format, frame, .. } = self;
        let bytes = input.left();
        let (step, left) = match format {
            Format::Pcap { record, interface, .. } => match record(bytes) {
                Ok((rest, packet)) => {
                    let time = (u64::from(packet.ts_sec), u64::from(packet.ts_usec));
                    let unit = 10_u64.pow(u32::from(9 - interface.resolution.min(9)));
                    let time = time.0 * 1_000_000_000 + time.1 * unit;
                    let total = packet.origlen as usize;
                    (interface.packet(time, packet.data, total, frame), rest.len())
                }
                Err(error) => return unparsed(&error),
            },
            Format::Next { big_endian, interfaces } => {
                // A section says its own byte order, and the parser reads it in either.
                let parse = if *big_endian { parse_block_be } else { parse_block_le };
                match parse(bytes) {
                    Ok((rest, block)) => {
                        (of_block(&block, big_endian, interfaces, frame), rest.len())
                    }
                    Err(error) => return unparsed(&error),
                }
            }
        };
        input.keep(left);
        step
    }

    /// The most bytes of a packet with its header, or of a block.
    const fn longest(&self) -> usize {
        match self.format {
            Format::Pcap { header, .. } => header + LONGEST,
            Format::Next { .. } => LONGEST_BLOCK,
        }
    }

    /// Reads a piece more of the file. Returns whether there was more.
    fn more(&mut self) -> Result<bool, InquiryError> {
        match self.input.more() {
            Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => {
                self.is_cut = true;
                Ok(false)
            }
            read => read.map_err(|cause| InquiryError::Capture { path: self.path.clone(), cause }),
        }
    }

    fn refused(&self, link: Link) -> InquiryError {
        let remedy =
            "capture on the interface that limiter is attached to: `tcpdump -i IFACE -w FILE`";
        let fault = format!("has packets of link type {link}, which are not read");
        self.fault(&fault, remedy.to_owned())
    }

    fn broken(&self, fault: &str) -> InquiryError {
        let remedy =
            "give a file that `tcpdump -w FILE` or Wireshark wrote, and wait until it is done";
        self.fault(fault, remedy.to_owned())
    }

    fn fault(&self, fault: &str, remedy: String) -> InquiryError {
        InquiryError::Format { path: self.path.clone(), fault: fault.to_owned(), remedy }
    }
}

/// What a parser did not read.
fn unparsed(error: &Parsing<PcapError<&[u8]>>) -> Step {
    match error {
        Parsing::Incomplete(Needed::Size(missing)) => Step::Incomplete(missing.get()),
        Parsing::Incomplete(Needed::Unknown) => Step::Incomplete(1),
        Parsing::Error(_) | Parsing::Failure(_) => Step::Fault("cannot be read".to_owned()),
    }
}

/// Takes a block of a pcapng file for what it is.
fn of_block(
    block: &Block<'_>,
    big_endian: &mut bool,
    interfaces: &mut Vec<Interface>,
    frame: &mut Vec<u8>,
) -> Step {
    match block {
        Block::SectionHeader(section) => {
            *big_endian = section.big_endian();
            interfaces.clear();
            Step::Other
        }
        Block::InterfaceDescription(_) if interfaces.len() == MOST_INTERFACES => {
            Step::Fault(format!("comes after more than {MOST_INTERFACES} interfaces"))
        }
        Block::InterfaceDescription(stated) => {
            let checksum = stated.options.iter().find(|option| option.code.0 == CHECKSUM_OPTION);
            interfaces.push(Interface {
                link: Link::of(stated.linktype.0.cast_unsigned()),
                checksum: checksum.and_then(|it| it.value.first()).map_or(0, |it| (*it).into()),
                snapped: stated.snaplen as usize,
                resolution: stated.if_tsresol,
            });
            Step::Other
        }
        Block::EnhancedPacket(packet) => {
            let Some(interface) = interfaces.get(packet.if_id as usize) else {
                return Step::Fault(format!(
                    "is of interface {}, which is not there",
                    packet.if_id
                ));
            };
            let units = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            let Some(bytes) = packet.data.get(..packet.caplen as usize) else {
                return Step::Fault(format!("has {} bytes of its block", packet.caplen));
            };
            interface.packet(interface.nanoseconds(units), bytes, packet.origlen as usize, frame)
        }
        Block::SimplePacket(packet) => {
            let Some(interface) = interfaces.first() else {
                return Step::Fault("comes before its interface".to_owned());
            };
            let snapped = if interface.snapped == 0 { usize::MAX } else { interface.snapped };
            let total = packet.origlen as usize;
            let captured = packet.data.len().min(total).min(snapped);
            interface.packet(0, &packet.data[..captured], total, frame)
        }
        _ => Step::Other,
    }
}

impl Interface {
    /// Makes a frame of Ethernet of a packet, of which `total` bytes were on the wire.
    fn packet(self, time: u64, bytes: &[u8], total: usize, frame: &mut Vec<u8>) -> Step {
        let captured = bytes.len();
        if captured > LONGEST || captured > total && total != 0 {
            return Step::Fault(format!("has {captured} bytes of {total}"));
        }
        let total = total.max(captured).saturating_sub(self.checksum);
        let bytes = &bytes[..captured.min(total)];
        match self.link.make(bytes, total, frame) {
            Some(total) => Step::Packet(time, total),
            None => Step::Refused(self.link),
        }
    }

    /// A time in nanoseconds.
    fn nanoseconds(self, units: u64) -> u64 {
        let nanoseconds = u128::from(units) * 1_000_000_000;
        let power = u32::from(self.resolution & 0x7f);
        let time = match self.resolution & 0x80 {
            0 => 10_u128.checked_pow(power).map_or(0, |unit| nanoseconds / unit),
            _ => nanoseconds >> power,
        };
        u64::try_from(time).unwrap_or(u64::MAX)
    }
}

/// What was read of a file and is not used yet.
struct Input<R> {
    reader: R,
    buffer: Vec<u8>,
    /// Where the unused bytes begin.
    at: usize,
}

impl<R> Input<R> {
    fn left(&self) -> &[u8] {
        self.buffer.get(self.at..).unwrap_or_default()
    }

    /// Marks all bytes as used but the last ones.
    fn keep(&mut self, bytes: usize) {
        self.at = self.buffer.len().saturating_sub(bytes);
    }
}

impl<R: Read> Input<R> {
    /// Reads a piece more. Returns whether there was more.
    fn more(&mut self) -> io::Result<bool> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let before = self.buffer.len();
        self.buffer.resize(before + PIECE, 0);
        let read = loop {
            match self.reader.read(&mut self.buffer[before..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.buffer.truncate(before + *read.as_ref().unwrap_or(&0));
        Ok(read? > 0)
    }
}

#[cfg(test)]
mod tests;
