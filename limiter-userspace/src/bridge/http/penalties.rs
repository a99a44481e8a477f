//! `/v1/penalties`: asks the agent to block sources, to end that, and for whom it blocks. The bridge adds nothing to it.

use std::{net::IpAddr, time::Duration};

use hyper::{Request, body::Incoming, header::CONTENT_TYPE};

use super::{Fault, Peer, Reply, Service, settle::read};

/// The path of all penalties.
const ALL: &str = "/v1/penalties";
/// The longest body that is handed on, in bytes: a thousand penalties.
const LONGEST: usize = 512 << 10;
/// How long the agent may take.
const PATIENCE: Duration = Duration::from_secs(5);

impl Service {
    /// Hands a request on to the agent.
    pub(super) async fn penalties(
        &self,
        request: Request<Incoming>,
        peer: Peer,
    ) -> Result<Reply, Fault> {
        // The agent trusts the bridge, which so has to know who asks.
        let Peer::User(_) = peer else { return Err(Fault::NoUser) };
        self.check(peer)?;
        let method = request.method().clone();
        let target = match request.uri().path().strip_prefix(ALL).unwrap_or_default() {
            "" => ALL.to_owned(),
            one => {
                let address = one.trim_start_matches('/').parse::<IpAddr>();
                let address =
                    address.map_err(|_| Fault::parameter("ADDRESS", "give an address"))?;
                format!("{ALL}/{address}")
            }
        };
        let body = read(request.into_body(), LONGEST, PATIENCE).await?;
        let answer = self.agent.ask(method, &target, body, PATIENCE).await;
        let answer = answer.map_err(|error| Fault::Agent { error: error.to_string() })?;
        let mut reply = Reply::new(answer.status().as_u16());
        if let Some(kind) = answer.headers().get(CONTENT_TYPE) {
            reply.headers.insert(CONTENT_TYPE, kind.clone());
        }
        reply.body = answer.into_body();
        Ok(reply)
    }
}
