//! A call of Envoy without a server: for the fuzz target `descriptors`.

use std::sync::Arc;

use prost::Message as _;

use super::{
    super::{answer::Answer, decide::Decider},
    Call, Code, MOST_ITEMS, RateLimitRequest,
};
use crate::policy::Policy;

/// Reads a `RateLimitRequest`, decides about its descriptors at `now` in nanoseconds, and writes the answer.
///
/// # Panics
/// Where the answer is not as Envoy needs it.
pub fn read(decider: &mut Decider, policy: &Arc<Policy>, message: &[u8], now: u64) {
    let Ok(message) = RateLimitRequest::decode(message) else { return };
    let answered = Call::read(&message).map(|call| {
        call.answer(None, 0, |items| {
            let mut answers = vec![Answer::default(); items.len()];
            decider.decide_all(items, now, &mut answers);
            (answers, Arc::clone(policy))
        })
    });
    match answered {
        Ok((response, verdict)) => {
            let statuses = &response.statuses;
            assert!(statuses.len() == message.descriptors.len() && statuses.len() <= MOST_ITEMS);
            let is_over = response.overall_code() == Code::OverLimit;
            assert_eq!(is_over, verdict.refusal().is_some());
            assert_eq!(is_over, statuses.iter().any(|it| it.code() == Code::OverLimit));
            let written = response.encode_to_vec();
            assert_eq!(
                super::messages::RateLimitResponse::decode(&*written).as_ref(),
                Ok(&response)
            );
        }
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
}
