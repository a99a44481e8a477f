//! The runtime socket of HAProxy: a command and its answer by each connection.

use std::{io, net::IpAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;
use thiserror::Error;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time::timeout,
};

use super::{Options, entries::Text};

/// How long HAProxy may take for a command.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most bytes of a command: it fits into a buffer of HAProxy, 16 KiB unless `tune.bufsize` says something else.
const LONGEST: usize = 14_000;
/// The most bytes of an answer that are read.
const ANSWER: u64 = 4_096;
/// What it answers about a key that is not there.
const NO_KEY: &str = "Key not found.";
/// What it answers about a map that no rule of it has.
const NO_MAP: &str = "Unknown map identifier";

/// Why the map was not written.
#[derive(Debug, Error)]
pub(super) enum MapError {
    /// Nobody takes commands.
    #[error("cannot write the map of HAProxy: nobody answers at unix:{socket}: {source}")]
    Away { socket: String, source: io::Error },
    /// It takes too long.
    #[error("cannot write the map of HAProxy: no answer at unix:{socket} within {} s", PATIENCE.as_secs())]
    Late { socket: String },
    /// HAProxy refuses.
    #[error("cannot write the map {map} of HAProxy at unix:{socket}: it answers {answer:?}")]
    Refused { map: String, socket: String, answer: String },
}

impl MapError {
    /// What to do about it.
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            Self::Away { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "let the user of the bridge write to the socket: `user` of `stats socket`"
            }
            Self::Away { .. } => {
                "start HAProxy with the `stats socket` that `limiter bridge config haproxy --haproxy-socket` prints"
            }
            Self::Refused { answer, .. } if answer.starts_with(NO_MAP) => {
                "name the map in --haproxy-map as in the configuration of HAProxy"
            }
            Self::Late { .. } | Self::Refused { .. } => {
                "look into the log of HAProxy; the socket needs no more than `level user`"
            }
        }
    }
}

/// The socket, and the map that is written by it.
pub(super) struct RuntimeSocket {
    path: PathBuf,
    map: String,
}

impl RuntimeSocket {
    pub(super) fn new(options: &Options) -> Self {
        Self { path: options.socket.clone(), map: options.map.clone() }
    }

    /// Removes all entries.
    pub(super) async fn clear(&self) -> Result<(), MapError> {
        self.run(format!("clear map {}\n", self.map)).await
    }

    /// Removes entries. Those that are not there are no error.
    pub(super) async fn remove(&self, keys: &[IpNet]) -> Result<(), MapError> {
        let commands = keys.iter().map(|key| format!("del map {} {}", self.map, written(key)));
        for commands in batches(commands, ';') {
            self.run(commands + "\n").await?;
        }
        Ok(())
    }

    /// Adds entries whose keys are not there.
    pub(super) async fn add(&self, texts: &[Text]) -> Result<(), MapError> {
        let lines = texts.iter().map(|Text { key, value }| format!("{} {value}", written(key)));
        for lines in batches(lines, '\n') {
            // An empty line ends it.
            self.run(format!("add map {} <<\n{lines}\n\n", self.map)).await?;
        }
        Ok(())
    }

    async fn run(&self, command: String) -> Result<(), MapError> {
        let socket = || self.path.display().to_string();
        let exchange = async {
            let mut stream = UnixStream::connect(&self.path).await?;
            stream.write_all(command.as_bytes()).await?;
            let mut answer = Vec::new();
            stream.take(ANSWER).read_to_end(&mut answer).await?;
            io::Result::Ok(answer)
        };
        let answer = match timeout(PATIENCE, exchange).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(source)) => return Err(MapError::Away { socket: socket(), source }),
            Err(_) => return Err(MapError::Late { socket: socket() }),
        };
        match complaint(&String::from_utf8_lossy(&answer)) {
            None => Ok(()),
            Some(answer) => {
                Err(MapError::Refused { map: self.map.clone(), socket: socket(), answer })
            }
        }
    }
}

/// Joins commands or lines, with a separator only between them: HAProxy complains about an empty command. Each batch is shorter than
/// [`LONGEST`].
fn batches(parts: impl Iterator<Item = String>, separator: char) -> Vec<String> {
    let mut batches: Vec<String> = Vec::new();
    for part in parts {
        match batches.last_mut() {
            Some(last) if last.len() + part.len() < LONGEST => {
                last.push(separator);
                last.push_str(&part);
            }
            _ => batches.push(part),
        }
    }
    batches
}

/// What HAProxy complains about in an answer; `None` if it did as it was told. It is silent then.
fn complaint(answer: &str) -> Option<String> {
    let mut lines = answer.lines().map(str::trim);
    lines
        .find(|line| !line.is_empty() && *line != NO_KEY)
        .map(|line| line.chars().take(200).collect())
}

/// A key as HAProxy has it. An IPv4 address is written in IPv6: else the key would be found for the sources `2002:…` of 6to4, too.
fn written(key: &IpNet) -> String {
    match key.addr() {
        IpAddr::V4(address) => format!("{}/{}", address.to_ipv6_mapped(), 96 + key.prefix_len()),
        IpAddr::V6(address) => format!("{address}/{}", key.prefix_len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_in_ipv6() {
        let keys = ["192.0.2.1/32", "192.0.2.0/24", "2001:db8::/64", "2001:db8::1/128"];
        let written = keys.map(|key| written(&key.parse().unwrap()));
        let expected =
            ["::ffff:192.0.2.1/128", "::ffff:192.0.2.0/120", "2001:db8::/64", "2001:db8::1/128"];
        assert_eq!(written, expected);
    }

    #[test]
    fn a_silent_answer_is_a_good_one() {
        for answer in ["", "\n", "\n\n", "Key not found.\n\n\n"] {
            assert_eq!(complaint(answer), None, "{answer:?}");
        }
        let unknown = "\nUnknown map identifier. Please use #<id> or <file>.\n\n";
        let complaint = complaint(unknown).unwrap();
        assert_eq!(complaint, unknown.trim());
        let (map, socket) = ("/m".to_owned(), "/s".to_owned());
        let error = MapError::Refused { map, socket, answer: complaint };
        assert!(error.to_string().contains("the map /m of HAProxy at unix:/s"), "{error}");
        assert!(error.remedy().contains("--haproxy-map"), "{}", error.remedy());
    }

    #[test]
    fn a_batch_fits_into_a_buffer() {
        let parts = || (0..1_000).map(|at| format!("{at} {}", "x".repeat(200)));
        let batches = batches(parts(), ';');
        assert!(batches.len() > 10 && batches.iter().all(|it| it.len() <= LONGEST));
        assert_eq!(batches.join(";"), parts().collect::<Vec<_>>().join(";"));
    }
}
