//! Questions of HTTP/1.1.

use std::{
    io::Write as _,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context as _, Result, ensure};

use super::decisions::{known, random};

/// Asks `/v1/auth` as nginx does, about a request of a random known source.
pub(super) fn auth(number: u64, to: &mut Vec<u8>) -> u64 {
    let source = known(random(number));
    // Writing to memory cannot fail.
    let _: Result<_, _> = write!(
        to,
        "GET /v1/auth?deny=429 HTTP/1.1\r\nHost: www.example\r\nX-Real-IP: {source}\r\n\
         X-Original-Method: GET\r\nX-Original-URI: /search?q={number}\r\n\r\n"
    );
    1
}

/// Asks `/v1/auth` about a request of a user who never was there before.
pub(super) fn made_up(number: u64, to: &mut Vec<u8>) -> u64 {
    let user = MADE_UP.fetch_add(1, Ordering::Relaxed);
    let source = known(random(number));
    // Writing to memory cannot fail.
    let _: Result<_, _> = write!(
        to,
        "GET /v1/auth?deny=429 HTTP/1.1\r\nHost: www.example\r\nX-Real-IP: {source}\r\n\
         X-Original-Method: GET\r\nX-Original-URI: /search?q={number}\r\nX-User-Id: {user}\r\n\r\n"
    );
    1
}

/// Users that were made up.
static MADE_UP: AtomicU64 = AtomicU64::new(0);

/// Asks for a page.
pub(super) fn page(_: u64, to: &mut Vec<u8>) -> u64 {
    to.extend_from_slice(b"GET /page HTTP/1.1\r\nHost: www.example\r\n\r\n");
    1
}

/// The length of an answer that lets the request pass.
pub(super) fn answer(received: &[u8]) -> Result<Option<usize>> {
    length(received, &["20"])
}

/// The length of an answer, whether it lets the request pass or not.
pub(super) fn any(received: &[u8]) -> Result<Option<usize>> {
    length(received, &["20", "429"])
}

/// The length of an answer whose status begins with one of these.
fn length(received: &[u8], statuses: &[&str]) -> Result<Option<usize>> {
    let Some(end) = received.windows(4).position(|at| at == b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
    let status = head.strip_prefix("http/1.1 ").unwrap_or_default();
    let is_one = statuses.iter().any(|begin| status.starts_with(begin));
    ensure!(is_one, "the request did not pass: {head}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let body = length.map_or(Ok(0), str::parse::<usize>).context("a length that is no number")?;
    let whole = end + 4 + body;
    Ok((received.len() >= whole).then_some(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_with_its_body_and_has_to_pass() {
        let page = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage";
        let auth = b"HTTP/1.1 204 No Content\r\nRateLimit: x\r\n\r\n";
        for whole in [&page[..], &auth[..]] {
            for length in 0..whole.len() {
                assert_eq!(answer(&whole[..length]).unwrap(), None);
            }
            assert_eq!(answer(&[whole, page].concat()).unwrap(), Some(whole.len()));
        }
        let refused = b"HTTP/1.1 429 Too Many Requests\r\n\r\n";
        assert!(answer(refused).is_err());
        assert_eq!(any(refused).unwrap(), Some(refused.len()));
        assert!(any(b"HTTP/1.1 403 Forbidden\r\n\r\n").is_err());
    }
}
