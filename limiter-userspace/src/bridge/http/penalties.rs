//! `/v1/penalties`: asks the agent to block sources, to end that, and for whom it blocks. The bridge adds
//! nothing to it but a proof that proves nothing, to blocks that others than root ask for without one.

use std::{net::IpAddr, time::Duration};

use hyper::{
    Request,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
};

use super::{Fault, Peer, Reply, Service, settle::read};
use crate::agent::control::request::Body;

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
        let Peer::User(user) = peer else { return Err(Fault::NoUser) };
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
        let body = asked_by(user, read(request.into_body(), LONGEST, PATIENCE).await?);
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

/// The body that the agent gets for a request of a user. The agent sees the user of the bridge in place of this one, and asks root
/// for no proof.
fn asked_by(user: u32, body: Bytes) -> Bytes {
    match Body::read(&body) {
        Ok(asked) if user != 0 => asked.with_proofs().to_string().into(),
        // The agent says what is wrong with one that it cannot read.
        _ => body,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_asks_without_a_proof() {
        let body = Bytes::from(r#"{"subject": "192.0.2.9", "for": 60}"#);
        assert_eq!(asked_by(0, body.clone()), body);
        let told: serde_json::Value = serde_json::from_slice(&asked_by(33, body)).unwrap();
        assert!(told["proof"].is_object(), "{told}");
        let wrong = Bytes::from("{");
        assert_eq!(asked_by(33, wrong.clone()), wrong);
    }
}
