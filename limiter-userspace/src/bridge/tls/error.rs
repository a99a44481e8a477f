//! Why mutual TLS is not to be had.

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::{agent::address::Address, error::Failure};

/// What is wrong with the files of mutual TLS, or with the options that name them.
#[derive(Debug, Error)]
pub enum TlsError {
    /// An address that other hosts reach, without the files.
    #[error("{address} is no loopback address, and whoever reaches it could name any source")]
    Needed {
        /// The address.
        address: String,
    },
    /// The files, without an address that other hosts reach.
    #[error(
        "--tls-cert is of no use: all addresses are Unix sockets or loopback addresses, which are asked without TLS"
    )]
    Unneeded,
    /// A file cannot be read.
    #[error("cannot read {}: {source}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// Users other than the owner and the group may read or write the private key.
    #[error("any user of this machine may use the private key {}: its mode is {mode:03o}", .file.display())]
    OpenKey {
        /// The file.
        file: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file has nothing of what it is to have.
    #[error("{} has no {what} in PEM", .file.display())]
    Empty {
        /// The file.
        file: PathBuf,
        /// What it lacks.
        what: &'static str,
    },
    /// A certificate or a key cannot be used.
    #[error("{}: {cause}", .file.display())]
    Unusable {
        /// The file.
        file: PathBuf,
        /// The error of the library.
        cause: String,
    },
    /// The key is of another certificate.
    #[error("{} is not the private key of {}", .key.display(), .certificate.display())]
    Mismatch {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
    },
}

impl TlsError {
    /// That an address needs the files.
    pub(in crate::bridge) fn needed(address: &Address) -> Self {
        Self::Needed { address: address.to_string() }
    }
}

impl Failure for TlsError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Needed { .. } | Self::Unneeded => 2,
            Self::Unreadable { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => 4,
                io::ErrorKind::PermissionDenied => 5,
                _ => 1,
            },
            _ => 1,
        }
    }

    fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Needed { .. } => {
                "give --tls-cert, --tls-key and --client-ca, by which proxies on other hosts are known; or unix:PATH, or a \
                 port of 127.0.0.1 or ::1, and run the bridge on the host of its proxy"
                    .to_owned()
            }
            Self::Unneeded => {
                "give --listen, --grpc or --spop an address that other hosts reach, or leave the files out".to_owned()
            }
            Self::Unreadable { file, source }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                let file = file.display();
                format!(
                    "the bridge gives up all capabilities before it reads it: chgrp {file} to the group of the bridge and \
                     chmod 640 {file}, and let it enter the folders above"
                )
            }
            Self::Unreadable { .. } => "give the path of a file in PEM".to_owned(),
            Self::OpenKey { file, .. } => format!("chmod o= {}", file.display()),
            Self::Empty { what, .. } => {
                format!("write the {what} to it, as `openssl` does; an encrypted key is not read")
            }
            Self::Unusable { .. } => "write a certificate of X.509 v3 or a key of ECDSA, Ed25519 or RSA".to_owned(),
            Self::Mismatch { .. } => "write the key and the certificate of one renewal".to_owned(),
        })
    }
}
