//! Questions of HTTP/1.1.

use std::io::Write as _;

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

/// Asks for a page.
pub(super) fn page(_: u64, to: &mut Vec<u8>) -> u64 {
    to.extend_from_slice(b"GET /page HTTP/1.1\r\nHost: www.example\r\n\r\n");
    1
}

/// The length of an answer that lets the request pass.
pub(super) fn answer(received: &[u8]) -> Result<Option<usize>> {
    let Some(end) = received.windows(4).position(|at| at == b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
    ensure!(head.starts_with("http/1.1 20"), "the request did not pass: {head}");
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
        assert!(answer(b"HTTP/1.1 429 Too Many Requests\r\n\r\n").is_err());
    }
}
