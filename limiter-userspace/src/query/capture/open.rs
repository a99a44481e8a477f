//! Opening captures: files, standard input, and either of them compressed with gzip or zstd.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Cursor, Read},
    path::Path,
};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use super::{Capture, PIECE};
use crate::query::error::InquiryError;

/// The path that stands for standard input.
const STDIN: &str = "-";
const GZIP: [u8; 2] = [0x1f, 0x8b];
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
fn plain(file: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut file = BufReader::with_capacity(PIECE, file);
    let mut begin = Vec::new();
    file.by_ref().take(ZSTD.len() as u64).read_to_end(&mut begin)?;
    let (gzip, zstd) = (begin.starts_with(&GZIP), begin == ZSTD);
    let whole = Cursor::new(begin).chain(file);
    Ok(match (gzip, zstd) {
        (true, _) => Box::new(MultiGzDecoder::new(whole)),
        (_, true) => Box::new(Frames { decoder: None, file: Some(whole) }),
        _ => Box::new(whole),
    })
}

/// A reader of a zstd file. It may have several frames, of which the decoder reads one.
struct Frames<R: Read> {
    /// The decoder of the frame that is read, and of the file behind it.
    decoder: Option<StreamingDecoder<R, FrameDecoder>>,
    /// The file, between two frames.
    file: Option<R>,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(decoder) = &mut self.decoder {
                let read = decoder.read(buffer)?;
                if read > 0 || buffer.is_empty() {
                    return Ok(read);
                }
                self.file = self.decoder.take().map(StreamingDecoder::into_inner);
            }
            let Some(mut file) = self.file.take() else { return Ok(0) };
            if file.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.decoder = Some(StreamingDecoder::new(file).map_err(io::Error::other)?);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _};

    use flate2::{Compression, write::GzEncoder};
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut read = Vec::new();
        plain(Cursor::new(bytes.to_vec()))?.read_to_end(&mut read).map(|_| read)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
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
        for short in [&b""[..], b"x", b"\x1f", &bytes] {
            assert_eq!(read(short).unwrap(), short);
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
