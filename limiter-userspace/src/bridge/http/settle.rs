//! `/v1/charge` and `/v1/refund`: what is charged, or given back, after the fact.

use std::time::Duration;

use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::{
    HeaderMap, Request,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
};
use tokio::time::timeout;

use super::{
    PATIENCE, Peer, Reply, Service,
    body::{BudgetSchema, Settled},
    budget::{Question, told},
    fault::Fault,
};
use crate::{bridge::decide::Settlement, query};

/// The most bytes of a body.
const MOST: usize = 64 << 10;

impl Service {
    /// Charges a limit, or gives back what it was charged, and tells what it has left.
    pub(super) async fn settle(
        &self,
        request: Request<Incoming>,
        peer: Peer,
        settlement: Settlement,
    ) -> Result<Reply, Fault> {
        self.check(peer)?;
        if !is_json(request.headers()) {
            return Err(Fault::BadType);
        }
        let bytes = read(request.into_body(), MOST, PATIENCE).await?;
        let body = Settled::read(&bytes)?;
        let policy = self.in_force.policy();
        let question = Question::of(&policy, &body)?;
        if policy.on_requests.iter().any(|limit| limit.name == body.limit && limit.is_of_open()) {
            return Err(Fault::OfOpen { limit: body.limit });
        }
        let (is_about, answer, policy) =
            self.in_force.settle(&question.request(), question.cost, settlement, query::now());
        if !is_about {
            return Err(Fault::NotAbout { limit: body.limit });
        }
        let schema = match settlement {
            Settlement::Charge => BudgetSchema::Charge,
            Settlement::Refund => {
                if let Some(holder) = &self.holder {
                    holder.given_back(question.request().source, &answer);
                }
                BudgetSchema::Refund
            }
        };
        let mut reply = Reply::new(200);
        reply.json("application/json", &told(schema, &policy, &answer));
        Ok(reply)
    }
}

/// Whether a body is of JSON. Pages of other sites may have a browser send other types to a loopback address, and not this one.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split_once(';').map_or(kind, |(kind, _)| kind);
    kind.trim().eq_ignore_ascii_case("application/json")
}

/// Reads a body of [`MOST`] bytes at most that comes within a time.
pub(super) async fn read(body: Incoming, most: usize, patience: Duration) -> Result<Bytes, Fault> {
    let late = |_| Fault::Late { seconds: patience.as_secs() };
    let read = timeout(patience, Limited::new(body, most).collect()).await.map_err(late)?;
    read.map(http_body_util::Collected::to_bytes).map_err(|error| {
        match error.downcast_ref::<LengthLimitError>() {
            Some(_) => Fault::TooLong { most },
            None => Fault::BadBody { error: error.to_string() },
        }
    })
}
