//! What is known of a source: `/v1/source`, and the refusal of requests for which the kernel has too little left.

use std::{net::IpAddr, time::Duration};

use hyper::{
    Method, StatusCode,
    body::Bytes,
    header::{HeaderValue, RETRY_AFTER},
};
use serde_json::Value;

use super::{
    Fault, Peer, Reply, Service,
    address::address,
    body::Source,
    reply::{LIMIT, SOURCE, STATUS},
};
use crate::{
    bridge::{
        answer::{RequestFill, Standing},
        client::{ClientError, accepted},
        fields::{exceeded, seconds_to_wait},
        kernel::Left,
    },
    policy::{Policy, document::request_key_name, model::name_of_layer},
    query,
};

/// How long the agent may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// The answer to a request of a source that a limit on packets has too little left for. Nothing is charged for it.
pub(super) fn refused(over: &Left, deny: u16, jitter: u32) -> Reply {
    let mut reply = Reply::new(deny);
    reply.json("application/problem+json", &exceeded(vec![over.limit.clone()]));
    if let Some(seconds) = seconds_to_wait(over.wait, jitter) {
        reply.headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    reply.headers.insert(STATUS, HeaderValue::from(429));
    reply.insert(LIMIT, &over.limit);
    reply.insert(SOURCE, &over.to_string());
    reply
}

impl Service {
    /// Tells what limits on requests and on packets have left for a source. What the agent does not tell is `null`.
    pub(super) async fn source(&self, text: &str, peer: Peer) -> Result<Reply, Fault> {
        self.check(peer)?;
        let source = address(text).ok_or_else(|| Fault::parameter("ADDRESS", "give an address"))?;
        let (packets, unknown) = match self.ask_about(source).await {
            Ok(packets) => (packets, None),
            Err(error) => (Value::Null, Some(error.to_string())),
        };
        let (standings, policy) = self.in_force.of_source(source, query::now());
        let requests = standings.iter().filter_map(|it| fill(&policy, it));
        let told = Source {
            schema: "limiter.bridge_source/1",
            source,
            requests: requests.collect(),
            packets,
            packets_unknown: unknown,
        };
        let mut reply = Reply::new(200);
        reply.json("application/json", &told);
        Ok(reply)
    }

    /// What the agent tells of a source; `null` if it knows nothing of it.
    async fn ask_about(&self, source: IpAddr) -> Result<Value, ClientError> {
        let target = format!("/v1/source/{source}");
        let answer = self.agent.ask(Method::GET, &target, Bytes::new(), PATIENCE).await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(Value::Null);
        }
        let broken = |error: serde_json::Error| ClientError::Broken(error.to_string());
        serde_json::from_slice(&accepted(answer)?).map_err(broken)
    }
}

/// What a limit of a policy has left.
fn fill(policy: &Policy, it: &Standing) -> Option<RequestFill> {
    let limit = policy.on_requests.get(it.limit)?;
    let seconds = |time: u64| time as f64 / 1e9;
    Some(RequestFill {
        name: name_of_layer(&limit.name, it.layer),
        key: request_key_name(limit.key_of_layer(it.layer), policy.key_prefix),
        mode: limit.mode.name().to_owned(),
        quota: it.quota,
        window: seconds(it.window),
        left: it.left,
        wait: (it.wait < u64::MAX).then(|| seconds(it.wait)),
        refills: seconds(it.refills),
    })
}
