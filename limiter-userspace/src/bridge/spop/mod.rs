//! The answers to HAProxy, by SPOP 2.0, the protocol of its Stream Processing Offload Engine.
//!
//! HAProxy asks by a message `limiter-request`. It gives places back by a message `limiter-release`, whose argument `lease` is
//! what the variable of this name had. The answer to the first sets variables of the transaction:
//!
//! | variable | type | meaning |
//! |---|---|---|
//! | `status` | number | 204 for a request that passes, 429 or 403 for one that is refused, 400 for one that no limit can be held to |
//! | `limit` | text | the limit that refuses it |
//! | `degrade` | text | the limits that have the service do less for one that passes |
//! | `lease` | text | the [places](super::lease) that the request took |
//! | `source` | text | what the kernel has left for the source |
//! | `body` | text | the body of a refusal, `application/problem+json` |
//! | `ratelimit`, `retry_after`, … | text | the [fields](super::fields) of the answer, with `_` for `-` |

mod asked;
mod frame;
mod value;

use std::{
    future::poll_fn,
    io, iter,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    select,
    task::JoinSet,
    time::timeout,
};

use self::{
    asked::{Message, Told, read},
    frame::{Frame, Id, MOST, Set, write_answer, write_disconnect, write_hello},
};
use super::{
    end::ended,
    fields::{degraded, exceeded, fields, problem, random, seconds_to_wait},
    http::{Accepted, Decision, PATIENCE, Service, Timed},
    in_force::Untold,
    listener::{Peer, Stream},
};
use crate::query;

/// How long a conversation may be silent between questions: HAProxy ends it itself before.
const SILENCE: Duration = Duration::from_secs(300);
/// How much is read at once, in bytes.
const READ: usize = 16 << 10;
/// The most questions of a connection that wait for the agent at once.
const ASKING: usize = 256;
/// The length of a frame, before it.
const LENGTH: usize = 4;

/// Why a conversation ends, as HAProxy is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fault {
    /// The status code of SPOP.
    code: u32,
    message: &'static str,
}

impl Fault {
    const NORMAL: Self = Self { code: 0, message: "the bridge ends" };
    const LATE: Self = Self { code: 2, message: "a frame came late" };
    const TOO_LARGE: Self = Self { code: 3, message: "the frame is larger than was agreed" };
    const INVALID: Self = Self { code: 4, message: "the frame is invalid" };
    const NO_VERSION: Self = Self { code: 5, message: "supported-versions is missing" };
    const NO_SIZE: Self = Self { code: 6, message: "max-frame-size is missing" };
    const OTHER_VERSION: Self = Self { code: 8, message: "only SPOP 2.0 is spoken" };
    const BAD_SIZE: Self = Self { code: 9, message: "max-frame-size is too small" };
    const FRAGMENTED: Self = Self { code: 10, message: "fragments are not taken" };
    const UNTRUSTED: Self =
        Self { code: 99, message: "this user may not ask: name it with --trusted" };
}

/// Answers the questions of a connection: those about whose sources the agent is asked when it has answered, all others at once.
pub(super) async fn converse(mut connection: Accepted) {
    let mut ended = pin!(ended(connection.end.clone()));
    let mut conversation = Conversation::default();
    let mut answers = Vec::new();
    let fault = loop {
        let took = conversation.take(connection.service(), connection.peer, &mut answers).await;
        if !answers.is_empty() {
            let written = timeout(PATIENCE, write(&mut *connection.stream, &answers)).await;
            if !matches!(written, Ok(Ok(()))) {
                return;
            }
            answers.clear();
            conversation.untold.drain(..).for_each(Untold::tell);
        }
        match took {
            Ok(Next::Frame) => {}
            Ok(Next::End) => return,
            Err(fault) => break fault,
        }
        let patience = if conversation.is_silent() { SILENCE } else { PATIENCE };
        let Conversation { received, asking, untold, .. } = &mut conversation;
        received.reserve(READ);
        let (is_full, is_asking) = (asking.len() >= ASKING, !asking.is_empty());
        let read = timeout(patience, connection.stream.read_buf(received));
        let read = select! {
            biased;
            // First, as one that never falls silent would have no end else.
            () = &mut ended => break Fault::NORMAL,
            Some(answer) = asking.join_next(), if is_asking => match answer {
                Ok((answer, places)) => {
                    answers.extend(answer);
                    untold.extend(places);
                    continue;
                }
                // It panicked.
                Err(_) => return,
            },
            read = read, if !is_full => read,
        };
        match read {
            Ok(Ok(1..)) => {}
            // HAProxy is gone.
            Ok(Ok(0) | Err(_)) => return,
            Err(_) => break Fault::LATE,
        }
    };
    // What was asked before is answered still.
    while let Some(answer) = conversation.asking.join_next().await {
        let (answer, places) = answer.unwrap_or_default();
        answers.extend(answer);
        conversation.untold.extend(places);
    }
    write_disconnect(&mut answers, fault);
    // Whoever does not read it learns that the connection ended.
    let written = timeout(PATIENCE, write(&mut *connection.stream, &answers)).await;
    if matches!(written, Ok(Ok(()))) {
        conversation.untold.drain(..).for_each(Untold::tell);
    }
}

/// Writes frames. TLS may keep some of them back until it is told to hand them on.
async fn write(stream: &mut dyn Stream, frames: &[u8]) -> io::Result<()> {
    stream.write_all(frames).await?;
    stream.flush().await
}

/// What a conversation waits for.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// The rest of a frame, or another one.
    Frame,
    /// Nothing: it is over.
    End,
}

/// What was received, and what was agreed.
#[derive(Default)]
struct Conversation {
    received: Vec<u8>,
    /// The most bytes of a frame, once HAProxy has said hello.
    agreed: Option<u32>,
    /// The answers for which the agent was asked.
    asking: JoinSet<(Vec<u8>, Option<Untold>)>,
    /// The places of answers that are to be written.
    untold: Vec<Untold>,
}

impl Conversation {
    /// Whether nothing is awaited but the next question.
    const fn is_silent(&self) -> bool {
        self.agreed.is_some() && self.received.is_empty()
    }

    /// Answers the whole frames among what was received, as far as that takes no time. Others are being answered then, and not
    /// more than [`ASKING`]: the frames behind these stay.
    async fn take(
        &mut self,
        service: &Arc<Service>,
        peer: Peer,
        answers: &mut Vec<u8>,
    ) -> Result<Next, Fault> {
        let mut rest = &*self.received;
        while self.asking.len() < ASKING
            && let Some((length, behind)) = rest.split_first_chunk::<LENGTH>()
        {
            let length = u32::from_be_bytes(*length);
            if length > self.agreed.unwrap_or(MOST) {
                return Err(Fault::TOO_LARGE);
            }
            let Some((frame, behind)) = behind.split_at_checked(length as usize) else { break };
            rest = behind;
            match (Frame::read(frame)?, self.agreed) {
                (Frame::Hello { most, is_check, pipelines }, None) => {
                    if service.check(peer).is_err() {
                        return Err(Fault::UNTRUSTED);
                    }
                    write_hello(answers, most, pipelines);
                    self.agreed = Some(most);
                    if is_check {
                        return Ok(Next::End);
                    }
                }
                (Frame::Notify { id, messages }, Some(_)) => {
                    let asked = match read(messages)? {
                        Message::Request(asked) => asked,
                        Message::Release(lease) => {
                            let leases = lease.parse();
                            leases
                                .iter()
                                .for_each(|leases| service.in_force.release(leases, query::now()));
                            service
                                .tallies
                                .answered("release", if leases.is_ok() { 204 } else { 400 });
                            write_answer(answers, id, []);
                            continue;
                        }
                        Message::Other => {
                            write_answer(answers, id, []);
                            continue;
                        }
                    };
                    let mut answer = Box::pin(answer(Arc::clone(service), peer, id, asked));
                    match poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await {
                        Poll::Ready((answer, places)) => {
                            answers.extend(answer);
                            self.untold.extend(places);
                        }
                        Poll::Pending => drop(self.asking.spawn(answer)),
                    }
                }
                (Frame::Disconnect, _) => return Ok(Next::End),
                (Frame::Hello { .. }, Some(_)) | (Frame::Notify { .. }, None) => {
                    return Err(Fault::INVALID);
                }
            }
        }
        let read = self.received.len() - rest.len();
        self.received.drain(..read);
        Ok(Next::Frame)
    }
}

/// The frame that answers a question, and the places that it tells.
async fn answer(
    service: Arc<Service>,
    peer: Peer,
    id: Id,
    asked: Told,
) -> (Vec<u8>, Option<Untold>) {
    let mut places = None;
    let begin = Instant::now();
    let number = |status: u16| ("status", Set::Number(status.into()));
    let decision = match asked.question(peer) {
        Ok(question) => {
            let now = query::now();
            let decision = service.decide(&service.in_force.policy(), &question).await;
            if let (Some(holder), Ok(Decision::Answered(answer, policy, _))) =
                (&service.holder, &decision)
            {
                holder.answered(question.asked.source(), answer, policy, now);
            }
            decision
        }
        Err(fault) => Err(fault),
    };
    let (status, texts) = match decision {
        Ok(Decision::Answered(answer, policy, left)) => {
            let fields = fields(&policy, &answer, random()).into_iter();
            let mut texts: Vec<_> =
                fields.map(|(name, value)| (name.replace('-', "_"), value)).collect();
            let mut tell = |name: &str, text: Option<String>| {
                texts.extend(text.map(|text| (name.to_owned(), text)));
            };
            tell("limit", answer.limited_by(&policy).map(str::to_owned));
            tell("body", problem(&policy, &answer).map(|body| body.to_string()));
            tell("degrade", degraded(&policy, &answer));
            tell("lease", answer.leases.told());
            places = Some(service.in_force.untold(&answer)).filter(|_| !answer.leases.is_empty());
            tell("source", left.map(|left| left.to_string()));
            (answer.verdict.refusal().unwrap_or(204), texts)
        }
        Ok(Decision::Refused(over)) => {
            let mut texts = vec![
                ("body".to_owned(), exceeded(vec![over.limit.clone()]).to_string()),
                ("limit".to_owned(), over.limit.clone()),
                ("source".to_owned(), over.to_string()),
            ];
            let wait = seconds_to_wait(over.wait, random());
            texts.extend(wait.map(|seconds| ("retry_after".to_owned(), seconds.to_string())));
            (429, texts)
        }
        Err(fault) => (fault.status(), Vec::new()),
    };
    let variables = texts.iter().map(|(name, text)| (&**name, Set::Text(text)));
    let mut answer = Vec::new();
    write_answer(&mut answer, id, iter::once(number(status)).chain(variables));
    service.tallies.took(Timed::Spop, begin.elapsed());
    service.tallies.answered(Timed::Spop.name(), status);
    (answer, places)
}

#[cfg(test)]
mod tests;
