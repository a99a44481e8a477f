//! Questions of HAProxy, by SPOP 2.0.

use anyhow::{Context as _, Result, ensure};

use super::decisions::{known, random};

/// Questions that are sent at once.
const PIPELINED: u64 = 16;

/// The types of frames.
const HELLO: u8 = 1;
const NOTIFY: u8 = 3;
const AGENT_HELLO: u8 = 101;
const ACK: u8 = 103;

/// The types of values.
const UINT32: u8 = 3;
const IPV4: u8 = 6;
const STRING: u8 = 8;
const BINARY: u8 = 9;

/// Integers below take one byte.
const LONG: u64 = 240;

/// The frame that begins a conversation.
pub(super) fn hello(_: u64, to: &mut Vec<u8>) -> u64 {
    let mut payload = Vec::new();
    counted(&mut payload, b"supported-versions");
    text(&mut payload, "2.0");
    counted(&mut payload, b"max-frame-size");
    payload.push(UINT32);
    integer(&mut payload, 16_380);
    frame(to, HELLO, 0, &payload);
    1
}

/// Questions about requests of random known sources.
pub(super) fn questions(number: u64, to: &mut Vec<u8>) -> u64 {
    for id in 1..=PIPELINED {
        let mut payload = Vec::new();
        counted(&mut payload, b"limiter-request");
        payload.push(4);
        counted(&mut payload, b"source");
        if let std::net::IpAddr::V4(source) = known(random(number * PIPELINED + id)) {
            payload.push(IPV4);
            payload.extend_from_slice(&source.octets());
        }
        counted(&mut payload, b"method");
        text(&mut payload, "GET");
        counted(&mut payload, b"target");
        text(&mut payload, "/search?q=1");
        counted(&mut payload, b"headers");
        payload.push(BINARY);
        let mut headers = Vec::new();
        for part in ["host", "www.example", "", ""] {
            counted(&mut headers, part.as_bytes());
        }
        counted(&mut payload, &headers);
        frame(to, NOTIFY, id, &payload);
    }
    PIPELINED
}

/// The length of an answer.
pub(super) fn answer(received: &[u8]) -> Result<Option<usize>> {
    let Some((length, rest)) = received.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    let Some(frame) = rest.get(..length) else { return Ok(None) };
    let kind = *frame.first().context("an empty frame")?;
    ensure!([AGENT_HELLO, ACK].contains(&kind), "a frame of type {kind}");
    let passes = kind == AGENT_HELLO || contains(frame, &status(204));
    ensure!(passes, "the request did not pass");
    Ok(Some(4 + length))
}

/// The variable `status` of an answer.
fn status(status: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    counted(&mut bytes, b"status");
    bytes.push(UINT32);
    integer(&mut bytes, status);
    bytes
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|at| at == part)
}

/// Appends a frame that is whole, with its length.
fn frame(to: &mut Vec<u8>, kind: u8, id: u64, payload: &[u8]) {
    let mut frame = vec![kind, 0, 0, 0, 1];
    integer(&mut frame, id);
    integer(&mut frame, u64::from(kind == NOTIFY));
    frame.extend_from_slice(payload);
    to.extend_from_slice(&(frame.len() as u32).to_be_bytes());
    to.extend_from_slice(&frame);
}

fn text(to: &mut Vec<u8>, text: &str) {
    to.push(STRING);
    counted(to, text.as_bytes());
}

fn counted(to: &mut Vec<u8>, bytes: &[u8]) {
    integer(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// Appends an integer as the protocol has it: the first byte has 4 bits, the others 7.
fn integer(to: &mut Vec<u8>, value: u64) {
    if value < LONG {
        to.push(value as u8);
        return;
    }
    to.push(value as u8 | 0xf0);
    let mut rest = (value - LONG) >> 4;
    while rest >= 0x80 {
        to.push(rest as u8 | 0x80);
        rest = (rest - 0x80) >> 7;
    }
    to.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_encoded_as_the_specification_shows() {
        for (value, encoded) in
            [(239, &[239][..]), (240, &[240, 0]), (2_287, &[255, 127]), (2_288, &[240, 128, 0])]
        {
            let mut bytes = Vec::new();
            integer(&mut bytes, value);
            assert_eq!(bytes, encoded);
        }
    }
}
