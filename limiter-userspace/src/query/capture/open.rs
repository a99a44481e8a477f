//! Opening captures: files, standard input, and either of them compressed with gzip or zstd.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Cursor, Read},
    path::Path,
};

use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};

use super::{Capture, PIECE};
use crate::{
    policy::document::{GZIP, Gunzip},
    query::error::InquiryError,
};

/// The path that stands for standard input.
const STDIN: &str = "-";
/// The bytes that a zstd file begins with (RFC 8878, 3.1).
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

impl Capture {
    /// Opens a file, or standard input if the path is `-`, and reads its header. What is compressed
    /// with gzip or zstd is told by its first bytes.
    ///
    /// # Errors
    /// As [`new`](Capture::new).
    pub fn open(path: &Path) -> Result<Self, InquiryError> {
        let unreadable = |cause| InquiryError::Capture { path: path.to_path_buf(), cause };
        if path == Path::new(STDIN) {
            let reader = plain(io::stdin()).map_err(unreadable)?;
            return Self::new(Path::new("standard input"), reader);
        }
        let reader = File::open(path).and_then(plain).map_err(unreadable)?;
        Self::new(path, reader)
    }
}

/// A reader of what a file holds, decompressed.
pub(super) fn plain(file: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut file = BufReader::with_capacity(PIECE, file);
    let mut begin = Vec::new();
    file.by_ref().take(ZSTD.len() as u64).read_to_end(&mut begin)?;
    let (gzip, zstd) = (begin.starts_with(GZIP), is_zstd(&begin));
    let whole = Cursor::new(begin).chain(file);
    Ok(match (gzip, zstd) {
        (true, _) => Box::new(Gunzip::new(whole)),
        (_, true) => Box::new(Frames::new(whole)),
        _ => Box::new(whole),
    })
}

/// Whether a file that begins so is one of zstd. It may begin with a frame that is to be skipped (RFC 8878, 3.1.2).
fn is_zstd(begin: &[u8]) -> bool {
    begin == ZSTD || matches!(begin, [0x50..=0x5f, 0x2a, 0x4d, 0x18])
}

/// A reader of a zstd file. It may have several frames, of which the decoder reads one, and frames that are to be skipped.
struct Frames<R: Read> {
    decoder: FrameDecoder,
    file: R,
    /// Whether the decoder has begun a frame and not given all of it.
    is_within: bool,
}

impl<R: BufRead> Frames<R> {
    fn new(file: R) -> Self {
        Self { decoder: FrameDecoder::new(), file, is_within: false }
    }

    /// The error of the decoder, or that the file ended before it.
    fn fault(&mut self, error: FrameDecoderError) -> io::Error {
        match self.file.fill_buf() {
            Ok([]) => io::ErrorKind::UnexpectedEof.into(),
            _ => io::Error::other(error),
        }
    }

    /// Compares the checksum of a frame that was read, if it has one, with that of what was read.
    fn check_sum(&self) -> io::Result<()> {
        let stated = self.decoder.get_checksum_from_data();
        if stated.is_some() && stated != self.decoder.get_calculated_checksum() {
            let damaged = "it is damaged: what it holds does not have the checksum at its end";
            return Err(io::Error::new(io::ErrorKind::InvalidData, damaged));
        }
        Ok(())
    }

    /// Begins the next frame that is not to be skipped. `false` if there is none.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.file.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.file) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = self.file.by_ref().take(length.into());
                    if io::copy(&mut skipped, &mut io::sink())? < length.into() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(self.fault(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() {
            if !self.is_within {
                self.is_within = self.begin()?;
                if !self.is_within {
                    break;
                }
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            self.is_within = !self.decoder.is_finished();
            if !self.is_within {
                self.check_sum()?;
            } else {
                let more = BlockDecodingStrategy::UptoBytes(buffer.len());
                if let Err(error) = self.decoder.decode_blocks(&mut self.file, more) {
                    return Err(self.fault(error));
                }
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{fs, io::Write as _};

    use flate2::{Compression, write::GzEncoder};
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut read = Vec::new();
        plain(Cursor::new(bytes.to_vec()))?.read_to_end(&mut read).map(|_| read)
    }

    pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
        compress_to_vec(bytes, CompressionLevel::Fastest)
    }

    #[test]
    fn what_is_compressed_is_told_by_its_first_bytes() {
        let bytes: Vec<u8> =
            (0..300_000_u32).map(|number| (number.wrapping_mul(number) >> 7) as u8).collect();
        for (name, pack) in [("gzip", gzip as fn(&[u8]) -> Vec<u8>), ("zstd", zstd)] {
            assert_eq!(read(&pack(&bytes)).unwrap(), bytes, "{name}");
            let parts = [pack(&bytes[..70_000]), pack(&bytes[70_000..])].concat();
            assert_eq!(read(&parts).unwrap(), bytes, "{name} of two parts");
            let packed = pack(&bytes);
            assert!(read(&packed[..packed.len() / 2]).is_err(), "{name}, cut");
        }
        let skipped = |length: u32| {
            let mut frame = vec![0x57, 0x2a, 0x4d, 0x18];
            frame.extend(length.to_le_bytes());
            frame.resize(8 + length as usize, 0xff);
            frame
        };
        let packed = zstd(&bytes);
        let parts = [&skipped(70_000)[..], &packed, &skipped(0), &packed, &skipped(4)].concat();
        assert_eq!(read(&parts).unwrap(), [&bytes[..], &bytes].concat(), "frames to skip");
        assert!(read(&parts[..parts.len() - 1]).is_err(), "cut within a frame to skip");
        let parts = [&gzip(&bytes)[..], &[0; 70_000]].concat();
        assert_eq!(read(&parts).unwrap(), bytes, "gzip filled up with zeros, as a tape has it");
        for short in [&b""[..], b"x", b"\x1f", &bytes] {
            assert_eq!(read(short).unwrap(), short);
        }
    }

    /// Each bit but those of the header of the frame, which may say that there is no checksum.
    #[test]
    fn a_flipped_bit_is_noticed() {
        const HEADER: usize = 6;
        let bytes: Vec<u8> = (0..300_u32).map(|it| (it.wrapping_mul(it) >> 5) as u8).collect();
        let packed = zstd(&bytes);
        assert_eq!(read(&packed).unwrap(), bytes);
        for bit in HEADER * 8..packed.len() * 8 {
            let mut damaged = packed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged).is_err(), "bit {bit} of {}", packed.len() * 8);
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        for path in ["/nowhere.pcap", "/"] {
            let error = Capture::open(Path::new(path)).err().unwrap();
            assert!(matches!(&error, InquiryError::Capture { .. }), "{error}");
            assert!(error.to_string().contains(path), "{error}");
        }
        let name = format!("limiter-capture-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, gzip(b"no capture")).unwrap();
        let error = Capture::open(&path).err().unwrap();
        fs::remove_file(&path).unwrap();
        assert!(error.to_string().contains("no capture file"), "{error}");
    }
}
