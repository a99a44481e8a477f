//! Reads regular files of bounded size.

use std::{
    fs::{Metadata, OpenOptions},
    io::{self, BufRead, Read},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use flate2::bufread::GzDecoder;
use thiserror::Error;

use crate::policy::units::printable;

/// The largest document, in bytes: it has room for 64 of each of [`Policy::MOST_PREFIXES`], and the longest takes 54.
///
/// [`Policy::MOST_PREFIXES`]: crate::policy::Policy::MOST_PREFIXES
pub const DOCUMENT_BYTES: u64 = 64 << 20;
/// The largest file of a set, in bytes; also the limit for all set files of a policy together.
pub const SET_BYTES: u64 = 64 << 20;

/// Reads the file of a set. The argument is its path as in the document.
pub type SetFiles<'f> = dyn FnMut(&str) -> Result<Vec<u8>, FileError> + 'f;

/// Why a file was not read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FileError {
    /// The file cannot be opened or read.
    #[error("it cannot be read: {cause}")]
    Unreadable {
        /// The error of the system.
        cause: String,
    },
    /// The path leads to a directory, a pipe, a socket or a device.
    #[error("it is {what}")]
    NotAFile {
        /// The kind of file.
        what: &'static str,
    },
    /// The file was written while it was read.
    #[error("it changed while it was read")]
    Changing,
    /// The file has the first bytes of gzip, and cannot be unpacked.
    #[error("it cannot be unpacked as gzip: {cause}")]
    Packed {
        /// What the decoder says.
        cause: String,
    },
    /// The file is larger than the limit.
    #[error("it is larger than {} MiB", most >> 20)]
    TooLarge {
        /// The limit in bytes.
        most: u64,
    },
}

impl FileError {
    /// What the user can do about it.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "check that it is there and may be read by this user",
            Self::NotAFile { .. } => "give a regular file",
            Self::Changing => "write a new version under another name, and rename it",
            Self::Packed { .. } => "check that it is whole, such as by `gzip -t`",
            Self::TooLarge { .. } => "check that it is the right file",
        }
    }
}

/// Reads a regular file of at most `most` bytes.
///
/// The file is opened once, and its type and size are those of the open file, so it does not matter if the
/// path is changed meanwhile. Opening never blocks, not even on a pipe without a writer. A file that is written
/// while it is read is refused: part of it may be missing.
pub fn read_file(path: &Path, most: u64) -> Result<Vec<u8>, FileError> {
    let unreadable = |error: io::Error| FileError::Unreadable { cause: error.to_string() };
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut file =
        OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    let kind = metadata.file_type();
    if !kind.is_file() {
        let what = if kind.is_dir() {
            "a directory"
        } else if kind.is_fifo() {
            "a pipe"
        } else {
            "a device or a socket"
        };
        return Err(FileError::NotAFile { what });
    }
    if metadata.len() > most {
        return Err(FileError::TooLarge { most });
    }
    let bytes = read_up_to(&mut file, most).map_err(unreadable)?;
    if bytes.len() as u64 > most {
        return Err(FileError::TooLarge { most });
    }
    let now = file.metadata().map_err(unreadable)?;
    let written = |it: &Metadata| (it.len(), it.mtime(), it.mtime_nsec());
    if written(&now) != written(&metadata) || bytes.len() as u64 != now.len() {
        return Err(FileError::Changing);
    }
    Ok(bytes)
}

/// Unpacks a text that is compressed by gzip, to at most `most` bytes; any other text stays as it is.
///
/// # Errors
/// [`FileError::Packed`] and [`FileError::TooLarge`].
pub fn unpacked(text: Vec<u8>, most: u64) -> Result<Vec<u8>, FileError> {
    if !text.starts_with(GZIP) {
        return Ok(text);
    }
    let bytes = read_up_to(&mut Gunzip::new(text.as_slice()), most)
        .map_err(|error| FileError::Packed { cause: printable(&error.to_string(), 100) })?;
    if bytes.len() as u64 > most { Err(FileError::TooLarge { most }) } else { Ok(bytes) }
}

/// The bytes that a gzip file begins with (RFC 1952); neither a text nor a capture does.
pub const GZIP: &[u8] = &[0x1f, 0x8b];

/// A reader of a gzip file, decompressed. It may have several parts, and zeros behind the last, with which a tape is filled up:
/// gzip(1) leaves them out too.
pub struct Gunzip<R> {
    /// The decoder of the part that is read, and of the file behind it.
    part: Option<GzDecoder<R>>,
    /// The file, between two parts.
    file: Option<R>,
}

impl<R: BufRead> Gunzip<R> {
    /// A reader of a file from its beginning.
    pub const fn new(file: R) -> Self {
        Self { part: None, file: Some(file) }
    }
}

impl<R: BufRead> Read for Gunzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(part) = &mut self.part {
                let read = part.read(buffer)?;
                if read > 0 || buffer.is_empty() {
                    return Ok(read);
                }
                self.file = self.part.take().map(GzDecoder::into_inner);
            }
            let Some(mut file) = self.file.take() else { return Ok(0) };
            loop {
                let bytes = file.fill_buf()?;
                let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
                if bytes.is_empty() {
                    return Ok(0);
                }
                if zeros == 0 {
                    break;
                }
                file.consume(zeros);
            }
            self.part = Some(GzDecoder::new(file));
        }
    }
}

/// The path that stands for the standard input.
const STDIN: &str = "-";

/// Reads a document of at most [`DOCUMENT_BYTES`]: a regular file, or the standard input for the path `-`.
///
/// # Errors
/// [`FileError`] for what cannot be read, is no regular file, or has more bytes.
pub fn read_document(path: &Path) -> Result<Vec<u8>, FileError> {
    let most = DOCUMENT_BYTES;
    if path.as_os_str() != STDIN {
        return read_file(path, most);
    }
    let unreadable = |error: io::Error| FileError::Unreadable { cause: error.to_string() };
    let bytes = read_up_to(&mut io::stdin().lock(), most).map_err(unreadable)?;
    if bytes.len() as u64 > most { Err(FileError::TooLarge { most }) } else { Ok(bytes) }
}

/// The name of a document in messages.
pub fn document_name(path: &Path) -> String {
    if path.as_os_str() == STDIN { "<stdin>".to_owned() } else { path.display().to_string() }
}

/// Reads at most one byte more than `most`, which shows that there is more.
///
/// # Errors
/// What the reader says.
pub fn read_up_to(from: &mut dyn Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        sync::atomic::{AtomicBool, Ordering::Relaxed},
    };

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(text).unwrap();
        packed.finish().unwrap()
    }

    #[test]
    fn gzip_is_unpacked_to_a_bounded_size() {
        assert_eq!(unpacked(b"192.0.2.0/24".to_vec(), 4).unwrap(), b"192.0.2.0/24");
        let two = [packed(b"192.0.2.0/24\n"), packed(b"192.0.3.0/24\n")].concat();
        assert_eq!(unpacked(two.clone(), 26).unwrap(), b"192.0.2.0/24\n192.0.3.0/24\n");
        assert_eq!(unpacked(two, 25), Err(FileError::TooLarge { most: 25 }));
        let bomb = packed(&vec![b'\n'; 64 << 20]);
        assert!(bomb.len() < 1 << 20);
        assert_eq!(unpacked(bomb, 1 << 20), Err(FileError::TooLarge { most: 1 << 20 }));
        let whole = packed(b"192.0.2.0/24\n192.0.3.0/24\n");
        for cut in 2..whole.len() {
            let error = unpacked(whole[..cut].to_vec(), 100).unwrap_err();
            assert!(error.to_string().contains("cannot be unpacked as gzip"), "{cut}: {error}");
        }
    }

    #[test]
    fn a_file_that_is_being_written_is_refused() {
        let path = std::env::temp_dir().join(format!("limiter-written-{}", std::process::id()));
        std::fs::write(&path, vec![b'\n'; 1 << 20]).unwrap();
        assert_eq!(read_file(&path, 1 << 21).unwrap().len(), 1 << 20);
        let writes = AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut file = OpenOptions::new().append(true).open(&path).unwrap();
                while writes.load(Relaxed) && file.metadata().unwrap().len() < 1 << 26 {
                    file.write_all(b"192.0.2.0/24\n").unwrap();
                }
            });
            let refused = (0..1000).any(|_| read_file(&path, 1 << 27) == Err(FileError::Changing));
            writes.store(false, Relaxed);
            assert!(refused);
        });
        std::fs::remove_file(&path).unwrap();
    }
}
