//! Frames of SPOP 2.0, the protocol of HAProxy's Stream Processing Offload Engine (`doc/SPOE.txt` of HAProxy 2.6, section 3).

use super::{
    Fault,
    value::{Reader, Value, write_counted, write_integer, write_number, write_text},
};

/// The most bytes of a frame, without its length. HAProxy offers the size of its buffers, 16 KiB unless it is told otherwise.
pub(super) const MOST: u32 = 1 << 20;
/// The fewest that a peer may offer.
const FEWEST: u64 = 256;
/// The version that is spoken.
const VERSION: &str = "2.0";
/// The capability to ask several questions before one is answered.
const PIPELINING: &str = "pipelining";
/// A frame that is whole.
const FIN: u32 = 1;
/// The type of an action that sets a variable, and the number of its arguments.
const SET_VARIABLE: [u8; 2] = [1, 3];
/// Variables of a transaction: a request and its response.
const TRANSACTION: u8 = 2;

/// The type of a frame.
mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const DISCONNECT: u8 = 2;
    pub(super) const NOTIFY: u8 = 3;
    pub(super) const AGENT_HELLO: u8 = 101;
    pub(super) const AGENT_DISCONNECT: u8 = 102;
    pub(super) const ACK: u8 = 103;
}

/// What HAProxy sends.
#[derive(Debug)]
pub(super) enum Frame<'f> {
    /// It begins a conversation.
    Hello {
        /// The most bytes of a frame, in both directions.
        most: u32,
        /// Whether it only looks if somebody answers, and ends the conversation then.
        is_check: bool,
        /// Whether it asks on before it is answered, and takes answers in any order.
        pipelines: bool,
    },
    /// It asks about a stream.
    Notify { id: Id, messages: Messages<'f> },
    /// It ends the conversation.
    Disconnect,
}

/// The stream that is asked about, and the number of the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id {
    stream: u64,
    frame: u64,
}

/// The messages of a frame, with their arguments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Messages<'f>(Reader<'f>);

impl<'f> Frame<'f> {
    /// Reads a frame without its length.
    ///
    /// # Errors
    /// [`Fault`], of which HAProxy is told before the connection ends.
    pub(super) fn read(bytes: &'f [u8]) -> Result<Self, Fault> {
        let mut reader = Reader(bytes);
        let kind = reader.byte()?;
        let flags = u32::from_be_bytes(reader.array()?);
        let id = Id { stream: reader.integer()?, frame: reader.integer()? };
        if flags & FIN == 0 {
            return Err(Fault::FRAGMENTED);
        }
        match kind {
            kind::HELLO => hello(reader),
            kind::NOTIFY => Ok(Self::Notify { id, messages: Messages(reader) }),
            kind::DISCONNECT => Ok(Self::Disconnect),
            _ => Err(Fault::INVALID),
        }
    }
}

/// What is told at the beginning.
fn hello(mut reader: Reader<'_>) -> Result<Frame<'_>, Fault> {
    let (mut versions, mut most, mut is_check, mut pipelines) = (None, None, false, false);
    while !reader.is_empty() {
        match (reader.name()?, reader.value()?) {
            ("supported-versions", value) => versions = value.text(),
            ("max-frame-size", Value::Integer(size)) => most = Some(size),
            ("healthcheck", value) => is_check = value == Value::Boolean(true),
            ("capabilities", value) => {
                let mut capabilities = value.text().unwrap_or_default().split(',');
                pipelines = capabilities.any(|capability| capability.trim() == PIPELINING);
            }
            _ => {}
        }
    }
    let mut versions = versions.ok_or(Fault::NO_VERSION)?.split(',');
    if !versions.any(|version| version.trim() == VERSION) {
        return Err(Fault::OTHER_VERSION);
    }
    let most = most.ok_or(Fault::NO_SIZE)?;
    if most < FEWEST {
        return Err(Fault::BAD_SIZE);
    }
    Ok(Frame::Hello { most: most.min(MOST.into()) as u32, is_check, pipelines })
}

impl<'f> Messages<'f> {
    /// Calls a function with the name of each message, and the name and value of each of its arguments.
    ///
    /// # Errors
    /// [`Fault`] for one that cannot be read.
    pub(super) fn each(self, mut of: impl FnMut(&'f str, &'f str, Value<'f>)) -> Result<(), Fault> {
        let Self(mut reader) = self;
        while !reader.is_empty() {
            let message = reader.name()?;
            for _ in 0..reader.byte()? {
                of(message, reader.name()?, reader.value()?);
            }
        }
        Ok(())
    }
}

/// Appends the answer to a hello. With `pipelines`, answers come in any order.
pub(super) fn write_hello(to: &mut Vec<u8>, most: u32, pipelines: bool) {
    write(to, kind::AGENT_HELLO, Id { stream: 0, frame: 0 }, |to| {
        write_counted(to, b"version");
        write_text(to, VERSION);
        write_counted(to, b"max-frame-size");
        write_number(to, most);
        write_counted(to, b"capabilities");
        write_text(to, if pipelines { PIPELINING } else { "" });
    });
}

/// Appends the end of a conversation, and why it ends.
pub(super) fn write_disconnect(to: &mut Vec<u8>, fault: Fault) {
    write(to, kind::AGENT_DISCONNECT, Id { stream: 0, frame: 0 }, |to| {
        write_counted(to, b"status-code");
        write_number(to, fault.code);
        write_counted(to, b"message");
        write_text(to, fault.message);
    });
}

/// What a variable of a transaction is set to.
pub(super) enum Set<'v> {
    Text(&'v str),
    Number(u32),
}

/// Appends the answer to a question: variables of the transaction that HAProxy sets.
pub(super) fn write_answer<'v>(
    to: &mut Vec<u8>,
    id: Id,
    variables: impl IntoIterator<Item = (&'v str, Set<'v>)>,
) {
    write(to, kind::ACK, id, |to| {
        for (name, value) in variables {
            to.extend_from_slice(&SET_VARIABLE);
            to.push(TRANSACTION);
            write_counted(to, name.as_bytes());
            match value {
                Set::Text(text) => write_text(to, text),
                Set::Number(number) => write_number(to, number),
            }
        }
    });
}

/// Appends a frame with its length.
fn write(to: &mut Vec<u8>, kind: u8, id: Id, payload: impl FnOnce(&mut Vec<u8>)) {
    let start = to.len();
    to.extend_from_slice(&[0; 4]);
    to.push(kind);
    to.extend_from_slice(&FIN.to_be_bytes());
    write_integer(to, id.stream);
    write_integer(to, id.frame);
    payload(to);
    let length = (to.len() - start - 4) as u32;
    if let Some(place) = to.get_mut(start..start + 4) {
        place.copy_from_slice(&length.to_be_bytes());
    }
}
