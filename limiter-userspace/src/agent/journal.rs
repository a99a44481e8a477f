//! Events in the journal of systemd, with a priority and fields of their own.

use std::{
    env,
    fs::File,
    io,
    os::{
        fd::AsFd,
        unix::{fs::MetadataExt as _, net::UnixDatagram},
    },
    path::Path,
};

use serde_json::Value;

use super::event::Dated;

/// Where the journal takes entries.
const SOCKET: &str = "/run/systemd/journal/socket";
/// What systemd says of the stream that it connected, as `DEVICE:INODE`.
const VARIABLE: &str = "JOURNAL_STREAM";

/// The journal, by its native protocol.
#[derive(Debug)]
pub struct Journal(UnixDatagram);

impl Journal {
    /// The journal, if that is what `output` is connected to.
    pub fn behind(output: impl AsFd) -> Option<Self> {
        let said = env::var(VARIABLE).ok()?;
        let file = File::from(output.as_fd().try_clone_to_owned().ok()?);
        let metadata = file.metadata().ok()?;
        let is_it = said == format!("{}:{}", metadata.dev(), metadata.ino());
        if is_it { Self::at(Path::new(SOCKET)).ok() } else { None }
    }

    fn at(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(Self(socket))
    }

    /// Tells an event.
    ///
    /// # Errors
    /// What the system says, also of an event that is too long for one datagram.
    pub fn tell(&self, dated: &Dated) -> io::Result<()> {
        self.0.send(&entry(dated)).map(drop)
    }
}

/// An entry of the journal: fields, each on a line, or with its length before it where it has several.
fn entry(dated: &Dated) -> Vec<u8> {
    let event = &dated.event;
    let mut entry = Vec::new();
    let mut field = |name: &str, value: &str| {
        entry.extend(name.as_bytes());
        if value.contains('\n') {
            entry.push(b'\n');
            entry.extend((value.len() as u64).to_le_bytes());
        } else {
            entry.push(b'=');
        }
        entry.extend(value.as_bytes());
        entry.push(b'\n');
    };
    field("MESSAGE", &event.to_string());
    field("PRIORITY", &event.priority().to_string());
    field("SYSLOG_IDENTIFIER", "limiter");
    field("LIMITER_EVENT", event.name());
    let json = serde_json::to_value(dated).unwrap_or_default();
    for (key, value) in json.as_object().into_iter().flatten() {
        let value = match value {
            // The message and its hint are in MESSAGE, and the journal has the time.
            _ if matches!(&**key, "schema" | "event" | "time" | "message" | "hint") => continue,
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            // Of a limit, its name.
            Value::Object(of) => match of.get("name").and_then(Value::as_str) {
                Some(name) => name.to_owned(),
                None => continue,
            },
            Value::Null | Value::Array(_) => continue,
        };
        field(&format!("LIMITER_{}", key.to_ascii_uppercase()), &value);
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{agent::event::Event, datapath::mode::Mode, error::Error};

    fn of(event: Event) -> Vec<u8> {
        entry(&Dated { unix: 7, event })
    }

    #[test]
    fn an_event_has_a_priority_and_fields() {
        let attached =
            Event::Attached { interface: "eth0".to_owned(), mode: Mode::Native, fallback: None };
        assert_eq!(
            String::from_utf8(of(attached)).unwrap(),
            "MESSAGE=eth0: attached, native\nPRIORITY=6\nSYSLOG_IDENTIFIER=limiter\n\
             LIMITER_EVENT=attached\nLIMITER_INTERFACE=eth0\nLIMITER_MODE=native\n"
        );
        let released = Event::Released {
            source: "192.0.2.9".to_owned(),
            lasted: std::time::Duration::from_secs(2),
            dropped: Some(34),
        };
        let text = String::from_utf8(of(released)).unwrap();
        for line in ["LIMITER_SOURCE=192.0.2.9", "LIMITER_SECONDS=2.0", "LIMITER_DROPPED=34"] {
            assert!(text.lines().any(|it| it == line), "{line} in {text}");
        }
    }

    /// What was told by an agent must not be able to add fields.
    #[test]
    fn several_lines_are_one_value() {
        let error = Error::Object { action: "a".to_owned(), reason: "b\nPRIORITY=0".to_owned() };
        let message = Event::Failed(error).to_string();
        let error = Error::Object { action: "a".to_owned(), reason: "b\nPRIORITY=0".to_owned() };
        let bytes = of(Event::Failed(error));
        let mut expected = b"MESSAGE\n".to_vec();
        expected.extend((message.len() as u64).to_le_bytes());
        expected.extend(message.as_bytes());
        expected.extend(b"\nPRIORITY=3\nSYSLOG_IDENTIFIER=limiter\nLIMITER_EVENT=failed\n");
        assert_eq!(bytes, expected);
    }

    #[test]
    fn an_entry_arrives_whole() {
        let path = env::temp_dir().join(format!("limiter-journal-{}", std::process::id()));
        let taken = UnixDatagram::bind(&path).unwrap();
        let journal = Journal::at(&path).unwrap();
        journal.tell(&Dated { unix: 7, event: Event::Started }).unwrap();
        let mut bytes = [0; 512];
        let length = taken.recv(&mut bytes).unwrap();
        assert_eq!(bytes[..length], of(Event::Started));
        std::fs::remove_file(path).unwrap();
        // Without the variable of systemd, or with that of another stream, it is no journal.
        assert!(Journal::behind(io::stdout()).is_none() || env::var(VARIABLE).is_ok());
    }
}
