//! Whether another proxy handed a request on, as its fields tell. That proxy is the peer of all its clients.

use std::net::IpAddr;

use http::{
    HeaderMap, HeaderValue,
    header::{FORWARDED, VIA},
};

use super::address::address;

/// The addresses that a request came by, apart by commas.
const FORWARDED_FOR: &str = "x-forwarded-for";
/// What only CDNs send.
const OF_CDNS: [&str; 4] = ["cdn-loop", "cf-connecting-ip", "true-client-ip", "fastly-client-ip"];

/// The fields that are asked about, in lower case.
pub(in crate::bridge) fn fields() -> impl Iterator<Item = &'static str> {
    OF_CDNS.into_iter().chain(["forwarded", "via", FORWARDED_FOR])
}

/// Whether a request of this source has the fields of a proxy other than the one that asks, which may tell the source itself.
pub(super) fn is_proxied(headers: &HeaderMap, source: IpAddr) -> bool {
    let is_other = |text: &[u8]| str::from_utf8(text).ok().and_then(host) != Some(source);
    OF_CDNS.iter().any(|name| headers.contains_key(*name))
        || elements(headers, FORWARDED_FOR, b",").any(is_other)
        || elements(headers, FORWARDED.as_str(), b",;").filter_map(node).any(is_other)
        || is_via_another(headers)
}

/// Whether `Via` names a proxy other than Caddy, which names itself when it asks. A second one is another one.
fn is_via_another(headers: &HeaderMap) -> bool {
    let mut all = elements(headers, VIA.as_str(), b",");
    let is_caddy = |entry: &[u8]| {
        let mut words = entry.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        words.nth(1) == Some(b"Caddy")
    };
    all.next().is_some_and(|first| !is_caddy(first) || all.next().is_some())
}

/// The parts of a field that are not empty, over all its lines. They are found as they are asked for: a client may send many.
fn elements<'a>(
    headers: &'a HeaderMap,
    name: &str,
    separators: &'static [u8],
) -> impl Iterator<Item = &'a [u8]> {
    let lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let parts = lines.flat_map(|line| line.split(|byte| separators.contains(byte)));
    parts.map(<[u8]>::trim_ascii).filter(|part| !part.is_empty())
}

/// The node of a pair `for=NODE` of `Forwarded`.
fn node(pair: &[u8]) -> Option<&[u8]> {
    let at = pair.iter().position(|byte| *byte == b'=')?;
    let (name, node) = (&pair[..at], pair[at + 1..].trim_ascii());
    let bare = node.strip_prefix(b"\"").unwrap_or(node);
    let bare = bare.strip_suffix(b"\"").unwrap_or(bare);
    name.trim_ascii().eq_ignore_ascii_case(b"for").then_some(bare)
}

/// The address of a text that may have a port too. `None` for what names none, such as `unknown`.
fn host(text: &str) -> Option<IpAddr> {
    let bare = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => host,
            _ => text,
        },
    };
    address(bare)
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn is_proxied(source: &str, lines: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            headers.append(HeaderName::from_static(name), value);
        }
        super::is_proxied(&headers, source.parse().unwrap())
    }

    #[test]
    fn the_fields_of_another_proxy_are_known() {
        for lines in [
            &[("x-forwarded-for", "203.0.113.9")][..],
            &[("x-forwarded-for", "192.0.2.9, 203.0.113.9")],
            &[("x-forwarded-for", "192.0.2.9"), ("x-forwarded-for", "203.0.113.9:80")],
            &[("x-forwarded-for", "unknown")],
            &[("x-forwarded-for", "\u{e9}")],
            &[("x-forwarded-for", "[192.0.2.9")],
            &[("forwarded", "for=203.0.113.9;proto=https")],
            &[("forwarded", "proto=https; For=\"[2001:db8::1]:80\"")],
            &[("forwarded", "for=192.0.2.9, for=_hidden")],
            &[("cdn-loop", "cloudflare")],
            &[("cf-connecting-ip", "203.0.113.9")],
            &[("true-client-ip", "203.0.113.9")],
            &[("fastly-client-ip", "203.0.113.9")],
            &[("via", "1.1 cdn")],
            &[("via", "1.1 cdn, 1.1 Caddy")],
            &[("via", "2.0 Caddy"), ("via", "1.1 Caddy")],
            &[("via", "1.1")],
        ] {
            assert!(is_proxied("192.0.2.9", lines), "{lines:?}");
        }
    }

    #[test]
    fn each_of_the_fields_is_asked_about() {
        for field in fields() {
            assert!(is_proxied("192.0.2.9", &[(field, "for=203.0.113.9")]), "{field}");
        }
    }

    #[test]
    fn a_proxy_that_tells_the_source_itself_is_no_other() {
        for lines in [
            &[][..],
            &[("x-forwarded-for", "192.0.2.9"), ("via", "1.1 Caddy")],
            &[("x-forwarded-for", "")],
            &[("x-forwarded-for", "192.0.2.9:51812, ::ffff:192.0.2.9")],
            &[("via", "3.0 Caddy")],
            &[("forwarded", "for=192.0.2.9;by=198.51.100.1;host=www.example")],
            &[("forwarded", "proto=https")],
            &[("user-agent", "via 203.0.113.9")],
        ] {
            assert!(!is_proxied("192.0.2.9", lines), "{lines:?}");
        }
        for text in ["2001:db8::9", "[2001:db8::9]", "[2001:db8::9]:80"] {
            assert!(!is_proxied("2001:db8::9", &[("x-forwarded-for", text)]), "{text}");
        }
    }
}
