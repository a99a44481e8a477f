//! The request that a proxy asks about, as its headers tell of it.
//!
//! The proxy must set these headers itself, whatever its client sends:
//!
//! | header | meaning |
//! |---|---|
//! | `X-Real-IP` | the source: an address, exactly once |
//! | `X-Original-Method`, `X-Original-URI`, `Host` | method, path and host, as nginx is configured to tell them |
//! | `X-Forwarded-Method`, `X-Forwarded-Uri`, `X-Forwarded-Host` | the same, as Caddy and Traefik tell them |
//!
//! Envoy's `ext_authz` asks with the method and the target of the request itself, behind a prefix, and tells the host as nginx
//! does.
//!
//! A client may send headers of the kind that its proxy does not set. So a request with both kinds is refused.

use std::net::IpAddr;

use http::{
    HeaderMap,
    header::{COOKIE, HOST, HeaderName, HeaderValue},
};

use super::{address::address, fault::Fault, held::Turn, proxied::is_proxied};
use crate::{
    bridge::request::{Request, Told},
    policy::{
        Policy,
        model::{AttributeSource, Field, Idempotency},
        units::{host_of, path_of, quoted},
    },
};

/// The header with the source.
const SOURCE: &str = "x-real-ip";
/// Method and target, in the two kinds.
const ORIGINAL: [&str; 2] = ["x-original-method", "x-original-uri"];
const FORWARDED: [&str; 2] = ["x-forwarded-method", "x-forwarded-uri"];
/// The host of the second kind.
const FORWARDED_HOST: &str = "x-forwarded-host";

/// The request that is asked about.
#[derive(Debug)]
pub(in crate::bridge) struct Asked<'h> {
    method: Option<String>,
    host: Option<String>,
    path: Option<String>,
    source: IpAddr,
    told: Headers<'h>,
}

impl<'h> Asked<'h> {
    /// Reads it from the headers of a request to the bridge, which asks the limits of these names, or all of them.
    ///
    /// # Errors
    /// [`Fault`] for headers that the client, and not the proxy, may have set.
    pub(super) fn read(headers: &'h HeaderMap, limits: Vec<String>) -> Result<Self, Fault> {
        let source = source(headers)?;
        let is_forwarded = FORWARDED.iter().any(|name| headers.contains_key(*name));
        if is_forwarded && ORIGINAL.iter().any(|name| headers.contains_key(*name)) {
            return Err(Fault::BothKinds);
        }
        let [[method, target], host] = match is_forwarded {
            true => [FORWARDED, [FORWARDED_HOST; 2]],
            false => [ORIGINAL, [HOST.as_str(); 2]],
        };
        let method = only(headers, method)?.map(|it| it.to_ascii_uppercase());
        let target = only(headers, target)?;
        let target = target.map(|it| path_of(&it).ok_or(Fault::BadPath)).transpose()?;
        let host = only(headers, host[0])?.map(|it| host_of(&it));
        Ok(Self { method, host, path: target, source, told: Headers::new(headers, limits) })
    }

    /// Reads it from a request to the bridge that has the method and the target, whatever headers tell of them.
    ///
    /// # Errors
    /// [`Fault`] for headers that the client, and not the proxy, may have set, and for a path that services understand
    /// differently.
    pub(super) fn forwarded(
        method: &str,
        target: &str,
        headers: &'h HeaderMap,
    ) -> Result<Self, Fault> {
        Self::told(source(headers)?, Some(method), Some(target), headers)
    }

    /// The request of this source that a proxy tells of by itself, and not by headers; `headers` are those of the client.
    ///
    /// # Errors
    /// [`Fault::BadPath`], and [`Fault::Several`] for several hosts.
    pub(in crate::bridge) fn told(
        source: IpAddr,
        method: Option<&str>,
        target: Option<&str>,
        headers: &'h HeaderMap,
    ) -> Result<Self, Fault> {
        let path = target.map(|it| path_of(it).ok_or(Fault::BadPath)).transpose()?;
        Ok(Self {
            method: method.map(str::to_ascii_uppercase),
            host: only(headers, HOST.as_str())?.map(|it| host_of(&it)),
            path,
            source: source.to_canonical(),
            told: Headers::new(headers, Vec::new()),
        })
    }

    /// The same, whose answer may be held back.
    pub(super) fn waiting(mut self, turn: &'h Turn<'h>) -> Self {
        self.told.turn = Some(turn);
        self
    }

    /// Refuses what the policy cannot be held to: a header or cookie of an attribute that occurs more than once, and a path or
    /// a method that limits ask for and the proxy does not tell.
    ///
    /// # Errors
    /// [`Fault::Ambiguous`] and [`Fault::Untold`].
    pub(super) fn check(&self, policy: &Policy) -> Result<(), Fault> {
        let headers = self.told.headers;
        let knows_repeats = || policy.on_requests.iter().any(|limit| limit.idempotency.is_some());
        if headers.get_all(Idempotency::HEADER).iter().nth(1).is_some() && knows_repeats() {
            return Err(Fault::Ambiguous { what: quoted("headers idempotency-key") });
        }
        for attribute in policy.attributes.values() {
            let (kind, name, count) = match &attribute.from {
                AttributeSource::Header(name) => {
                    ("headers", name, headers.get_all(name.as_str()).iter().count())
                }
                AttributeSource::Cookie(name) => {
                    let cookies = self.told.header(COOKIE.as_str()).unwrap_or_default();
                    let named = cookies.split(';').filter(|pair| {
                        pair.split_once('=').is_some_and(|(own, _)| own.trim() == name)
                    });
                    ("cookies", name, named.count())
                }
                AttributeSource::Path(_) | AttributeSource::Descriptor => continue,
            };
            if count > 1 {
                return Err(Fault::Ambiguous { what: quoted(&format!("{kind} {name}")) });
            }
        }
        let asks = |is_it: &dyn Fn(&Field) -> bool| {
            policy.on_requests.iter().any(|limit| limit.fields().any(is_it))
        };
        let is_of_path = |field: &Field| match field {
            Field::Path => true,
            Field::Attribute(name) => policy
                .attributes
                .get(name)
                .is_some_and(|it| matches!(it.from, AttributeSource::Path(_))),
            Field::Method | Field::Host | Field::Domain => false,
        };
        if self.path.is_none() && asks(&is_of_path) {
            return Err(Fault::Untold { what: "path" });
        }
        if self.method.is_none() && asks(&|field| *field == Field::Method) {
            return Err(Fault::Untold { what: "method" });
        }
        Ok(())
    }

    /// The source.
    pub(in crate::bridge) const fn source(&self) -> IpAddr {
        self.source
    }

    /// Whether it has the fields of a proxy other than the one that asks.
    pub(super) fn is_proxied(&self) -> bool {
        is_proxied(self.told.headers, self.source)
    }

    /// The same, for the decision.
    pub(super) fn request(&self) -> Request<'_> {
        Request {
            method: self.method.as_deref(),
            host: self.host.as_deref(),
            path: self.path.as_deref(),
            domain: "",
            source: Some(self.source),
            told: &self.told,
        }
    }
}

/// The address that the proxy tells.
fn source(headers: &HeaderMap) -> Result<IpAddr, Fault> {
    let mut all = headers.get_all(SOURCE).iter();
    let value = all.next().ok_or(Fault::NoSource)?;
    if all.next().is_some() {
        return Err(Fault::SeveralSources);
    }
    let text = String::from_utf8_lossy(value.as_bytes());
    address(&text).ok_or_else(|| Fault::BadSource { value: quoted(&text) })
}

/// The value of a header that occurs at most once.
fn only(headers: &HeaderMap, name: &'static str) -> Result<Option<String>, Fault> {
    let mut all = headers.get_all(name).iter();
    let first = all.next().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    match all.next() {
        Some(_) => Err(Fault::Several { name }),
        None => Ok(first),
    }
}

/// The headers of a client.
#[derive(Debug)]
struct Headers<'h> {
    headers: &'h HeaderMap,
    /// The values that are not there as they are to be read: of a `Cookie` that occurs more than once, and of what is no
    /// UTF-8.
    others: Vec<(HeaderName, String)>,
    /// The names of the limits that are asked; all of them if there is none.
    limits: Vec<String>,
    /// Without one, the answer is not held back.
    turn: Option<&'h Turn<'h>>,
}

impl<'h> Headers<'h> {
    fn new(headers: &'h HeaderMap, limits: Vec<String>) -> Self {
        let mut others = Vec::new();
        let lossy = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let cookies: Vec<String> = headers.get_all(COOKIE).iter().map(lossy).collect();
        if cookies.len() > 1 {
            others.push((COOKIE, cookies.join("; ")));
        }
        for name in headers.keys() {
            let first = headers.get(name);
            if let Some(value) = first.filter(|it| str::from_utf8(it.as_bytes()).is_err()) {
                others.push((name.clone(), lossy(value)));
            }
        }
        Self { headers, others, limits, turn: None }
    }
}

impl Told for Headers<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.get(name)?;
        match self.others.iter().find(|(other, _)| other == name) {
            Some((_, text)) => Some(text),
            None => str::from_utf8(value.as_bytes()).ok(),
        }
    }

    fn entry(&self, _: &str) -> Option<&str> {
        None
    }

    fn hold(&self, key: u64) -> bool {
        self.turn.is_some_and(|turn| turn.take(key))
    }

    fn asks(&self, limit: &str) -> bool {
        self.limits.is_empty() || self.limits.iter().any(|it| it == limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = lines.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        });
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn both_kinds_of_headers_tell_the_same() {
        let original = headers(&[
            ("x-real-ip", "::ffff:192.0.2.9"),
            ("x-original-method", "post"),
            ("x-original-uri", "/Login?x=1"),
            ("host", "WWW.Example.:8080"),
            ("x-user-id", "7"),
            ("cookie", "a=1"),
            ("cookie", "sid=é"),
        ]);
        let forwarded = headers(&[
            ("x-real-ip", "192.0.2.9"),
            ("x-forwarded-method", "POST"),
            ("x-forwarded-uri", "/Login"),
            ("x-forwarded-host", "www.example"),
            ("host", "bridge"),
            ("x-user-id", "7"),
            ("cookie", "a=1; sid=é"),
        ]);
        for headers in [original, forwarded] {
            let asked = Asked::read(&headers, Vec::new()).unwrap();
            let request = asked.request();
            assert_eq!(request.source, Some("192.0.2.9".parse().unwrap()));
            assert_eq!(request.method, Some("POST"));
            assert_eq!(request.path, Some("/Login"));
            assert_eq!(request.host, Some("www.example"));
            assert_eq!(request.told.header("x-user-id"), Some("7"));
            assert_eq!(request.told.header("cookie"), Some("a=1; sid=é"));
            assert_eq!(request.told.header("x-none"), None);
        }
    }

    #[test]
    fn what_is_forwarded_tells_itself_of_the_request() {
        let lines = [
            ("x-real-ip", "192.0.2.9"),
            ("host", "WWW.Example:80"),
            ("x-original-uri", "/other"),
            ("x-forwarded-uri", "/other"),
        ];
        let headers = headers(&lines);
        let asked = Asked::forwarded("post", "/%4cogin?x=/y", &headers).unwrap();
        let request = asked.request();
        assert_eq!((request.method, request.path), (Some("POST"), Some("/Login")));
        assert_eq!(
            (request.host, request.source),
            (Some("www.example"), Some("192.0.2.9".parse().unwrap()))
        );
        let fault = |target| Asked::forwarded("GET", target, &headers).unwrap_err();
        assert!(matches!(fault("/a/../login"), Fault::BadPath));
        let none = Asked::forwarded("GET", "/", &HeaderMap::new()).unwrap_err();
        assert!(matches!(none, Fault::NoSource));
    }

    #[test]
    fn what_a_client_may_have_sent_is_refused() {
        let source = ("x-real-ip", "192.0.2.9");
        let fault = |lines: &[_]| Asked::read(&headers(lines), Vec::new()).unwrap_err();
        assert!(matches!(fault(&[]), Fault::NoSource));
        assert!(matches!(fault(&[source, source]), Fault::SeveralSources));
        for value in ["", "x", "192.0.2.9:80", "192.0.2.9, 198.51.100.1", "192.0.2", "é"] {
            assert!(matches!(fault(&[("x-real-ip", value)]), Fault::BadSource { .. }), "{value}");
        }
        for (one, other) in
            [("x-original-uri", "x-forwarded-uri"), ("x-original-method", "x-forwarded-uri")]
        {
            assert!(matches!(fault(&[source, (one, "/"), (other, "/")]), Fault::BothKinds));
        }
        let twice = fault(&[source, ("x-original-uri", "/"), ("x-original-uri", "/login")]);
        assert!(matches!(twice, Fault::Several { name: "x-original-uri" }));
    }

    #[test]
    fn bytes_that_are_no_text_hide_nothing() {
        let mut headers = headers(&[("x-real-ip", "fe80::1%eth0")]);
        headers.append(COOKIE, HeaderValue::from_bytes(b"a=\xff; sid=7").unwrap());
        let asked = Asked::read(&headers, Vec::new()).unwrap();
        assert_eq!(asked.request().told.header("cookie"), Some("a=\u{fffd}; sid=7"));
        assert_eq!(asked.request().source, Some("fe80::1".parse().unwrap()));
    }
}
