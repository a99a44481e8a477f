//! `/v1/release`: a request ended, which took places of limits that count how many are open.

use hyper::{HeaderMap, header::HeaderValue};

use super::{Fault, Peer, Reply, Service, reply::LEASE};
use crate::{bridge::lease::Leases, query};

impl Service {
    /// Gives the places of a request back. A second time does nothing, and is answered alike.
    pub(super) fn release(&self, headers: &HeaderMap, peer: Peer) -> Result<Reply, Fault> {
        self.check(peer)?;
        let mut told = headers.get_all(LEASE).iter();
        let lease = told.next().map(HeaderValue::to_str).and_then(Result::ok);
        let lease = lease.filter(|_| told.next().is_none());
        let leases = lease.unwrap_or_default().parse::<Leases>()?;
        self.in_force.release(&leases, query::now());
        Ok(Reply::new(204))
    }
}
