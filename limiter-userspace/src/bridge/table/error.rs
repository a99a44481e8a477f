//! Why a table cannot be opened.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::{error::Failure, output::number::grouped};

/// Why a table cannot be opened.
#[derive(Debug, Error)]
pub enum TableError {
    /// The directory of its file is not there.
    #[error("there is no directory {} for the state in {}", .directory.display(), .path.display())]
    NoDirectory {
        /// The file.
        path: PathBuf,
        /// The directory.
        directory: PathBuf,
    },
    /// The file would be on a disk, which an answer could wait for.
    #[error("{} is not on a file system in memory, and answers would wait for its disk", .path.display())]
    OnDisk {
        /// The file.
        path: PathBuf,
    },
    /// Another process has the table.
    #[error("another process has the state in {}", .path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file has something else.
    #[error("{} holds no state of limiter", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The path leads to something that is no regular file, such as a symbolic link.
    #[error("{} is no regular file", .path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file belongs to another user.
    #[error("{} belongs to another user (id {user})", .path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// The user.
        user: u32,
    },
    /// The file system has no room for the table.
    #[error("there is no room for the {} MiB of {}", bytes.div_ceil(1 << 20), .path.display())]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// The bytes that the table takes.
        bytes: usize,
    },
    /// More keys than a table can have.
    #[error("a table has room for {} keys, not for {}", grouped(*most as u64), grouped(*keys as u64))]
    TooManyKeys {
        /// The number that was asked for.
        keys: usize,
        /// The largest number.
        most: usize,
    },
    /// A system call failed.
    #[error("cannot {action} {}: {source}", .path.display())]
    System {
        /// What was to be done.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
}

impl TableError {
    pub(super) fn system(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::System { action, path: path.to_owned(), source }
    }
}

impl Failure for TableError {
    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::NoDirectory { directory, .. } => format!(
                "make it: mkdir -m 700 {}; it should be on tmpfs, as what is below /run is",
                directory.display()
            ),
            Self::OnDisk { .. } => {
                "give a file on a tmpfs, such as one below /run; in a container, mount one there"
                    .to_owned()
            }
            Self::InUse { .. } => {
                "stop that process first, or give this one another file".to_owned()
            }
            Self::Foreign { .. } | Self::NotAFile { .. } => "give another path".to_owned(),
            Self::Owner { .. } => "give another path, or run as that user".to_owned(),
            Self::NoSpace { .. } => {
                "ask for fewer keys, or give the file system more room".to_owned()
            }
            Self::TooManyKeys { most, .. } => format!("ask for {most} keys at most"),
            Self::System { .. } => return None,
        })
    }
}
