//! A request, as a proxy tells of it.

use std::net::IpAddr;

/// A request that is decided about. Properties that a proxy did not tell of are `None`.
pub struct Request<'r> {
    /// The method, in upper case.
    pub method: Option<&'r str>,
    /// The host that was asked for, in lower case, without the port.
    pub host: Option<&'r str>,
    /// The path, without the query.
    pub path: Option<&'r str>,
    /// The domain of Envoy; empty for HTTP.
    pub domain: &'r str,
    /// The address that the limits take for the source: of the client, as the proxy says.
    pub source: Option<IpAddr>,
    /// What else the proxy told.
    pub told: &'r dyn Told,
}

impl Request<'static> {
    /// A request of a source, of which nothing else is known.
    pub(super) fn of(source: IpAddr) -> Self {
        let source = Some(source);
        Self { method: None, host: None, path: None, domain: "", source, told: &() }
    }
}

/// What a proxy told of a request: the headers of the client, and the entries of a descriptor.
pub trait Told {
    /// The value of the first header of this name, which is in lower case.
    fn header(&self, name: &str) -> Option<&str>;

    /// The value of the entry with this key, of a descriptor.
    fn entry(&self, key: &str) -> Option<&str>;

    /// Takes room for an answer that is held back, of a request that a limit counts by this key (a digest). Returns whether there
    /// is some: without it, the request is refused.
    fn hold(&self, _key: u64) -> bool {
        true
    }

    /// The limit that limits with `override: allow` take in place of their own: a number, and the nanoseconds that it is for.
    fn limit(&self) -> Option<(u64, u64)> {
        None
    }

    /// Whether a limit of this name is asked.
    fn asks(&self, _limit: &str) -> bool {
        true
    }
}

/// Nothing was told.
impl Told for () {
    fn header(&self, _: &str) -> Option<&str> {
        None
    }

    fn entry(&self, _: &str) -> Option<&str> {
        None
    }
}
