//! Writing packets to a pcap file, which tcpdump and Wireshark read.

use std::{
    io::{self, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use limiter_common::memory::sample::SNAPPED;

use crate::query::frame::Sighting;

/// A pcap file of Ethernet frames, with times in nanoseconds.
pub struct Writer<W: Write>(W);

impl<W: Write> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(mut file: W) -> io::Result<Self> {
        /// The number that says that times have nanoseconds, and in which byte order numbers are.
        const MAGIC: u32 = 0xa1b2_3c4d;
        /// `LINKTYPE_ETHERNET`.
        const ETHERNET: u32 = 1;
        file.write_all(&MAGIC.to_ne_bytes())?;
        file.write_all(&[2_u16, 4].map(u16::to_ne_bytes).concat())?;
        file.write_all(&[0, 0, SNAPPED as u32, ETHERNET].map(u32::to_ne_bytes).concat())?;
        Ok(Self(file))
    }

    /// Writes a packet.
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&mut self, time: SystemTime, frame: &Sighting<'_>) -> io::Result<()> {
        let time = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let of = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        // The format has 32 bits for seconds.
        let seconds = time.as_secs() as u32;
        let words = [seconds, time.subsec_nanos(), of(frame.bytes.len()), of(frame.total)];
        self.0.write_all(&words.map(u32::to_ne_bytes).concat())?;
        self.0.write_all(frame.bytes)
    }

    /// Writes what is kept in a buffer.
    ///
    /// # Errors
    /// What the system says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use super::*;
    use crate::query::capture::Capture;

    #[test]
    fn what_is_written_is_read_back() {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file).unwrap();
        let time = Duration::from_nanos(1_234_567_890_123_456_789);
        writer.write(UNIX_EPOCH + time, &Sighting { bytes: &[7; 60], total: 1_514 }).unwrap();
        writer.write(UNIX_EPOCH, &Sighting::whole(&[])).unwrap();
        writer.flush().unwrap();
        let mut capture = Capture::new(Path::new("x.pcap"), &file[..]).unwrap();
        let (read, frame) = capture.read().unwrap().unwrap();
        assert_eq!(u128::from(read), time.as_nanos());
        assert_eq!((frame.bytes, frame.total), (&[7; 60][..], 1_514));
        assert_eq!(capture.read().unwrap().unwrap().1.total, 0);
        assert!(capture.read().unwrap().is_none());
    }
}
