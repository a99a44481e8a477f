//! A load of questions: each asker asks, waits for the answer, and asks again.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    task::{JoinSet, yield_now},
};

use super::super::sample::quantile;

/// Asks one question after the other.
pub(super) trait Ask: 'static {
    /// Asks the question of this number and waits for the answer. Returns the number of answers: more than 1 if several
    /// questions were sent at once.
    fn ask(&mut self, number: u64) -> impl Future<Output = Result<u64>> + Send;
}

/// What askers saw.
pub(super) struct Seen {
    pub(super) answers: u64,
    pub(super) time: Duration,
    /// Seconds until an answer, sorted.
    latencies: Vec<f64>,
}

impl Seen {
    /// So many answers within a time, and the seconds until each of them or of those to a question, in any order.
    pub(super) fn new(answers: u64, time: Duration, mut latencies: Vec<f64>) -> Self {
        latencies.sort_by(f64::total_cmp);
        Self { answers, time, latencies }
    }

    /// Microseconds until each answer.
    pub(super) fn latencies(&self) -> impl Iterator<Item = f64> {
        self.latencies.iter().map(|seconds| 1e6 * seconds)
    }

    /// Answers per second.
    pub(super) fn rate(&self) -> f64 {
        self.answers as f64 / self.time.as_secs_f64()
    }

    /// Questions per second; several that are sent at once are one.
    pub(super) fn questions(&self) -> f64 {
        self.latencies.len() as f64 / self.time.as_secs_f64()
    }

    /// The latency that this share of the answers did not exceed, in microseconds.
    pub(super) fn latency(&self, share: f64) -> f64 {
        1e6 * quantile(&self.latencies, share)
    }
}

/// Has all askers ask for `length`: as fast as answers come, or at `rate` questions per second altogether. Latency then counts from
/// when a question was due, so that a server that is late for one is late for those after it.
pub(super) async fn drive<A: Ask + Send>(
    askers: &mut Vec<A>,
    length: Duration,
    rate: Option<f64>,
) -> Result<Seen> {
    let count = askers.len() as u64;
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for (place, mut asker) in askers.drain(..).enumerate() {
        tasks.spawn(async move {
            let (mut answers, mut latencies) = (0, Vec::new());
            for number in (place as u64..).step_by(count as usize) {
                let due = match rate {
                    Some(rate) => begin + Duration::from_secs_f64(number as f64 / rate),
                    None => Instant::now(),
                };
                // Timers are too coarse.
                while Instant::now() < due {
                    yield_now().await;
                }
                if due.duration_since(begin) >= length {
                    break;
                }
                answers += asker.ask(number).await?;
                latencies.push(due.elapsed().as_secs_f64());
            }
            anyhow::Ok((asker, answers, latencies))
        });
    }
    let (mut all, mut latencies) = (0, Vec::new());
    while let Some(task) = tasks.join_next().await {
        let (asker, answers, own) = task??;
        askers.push(asker);
        all += answers;
        latencies.extend(own);
    }
    Ok(Seen::new(all, begin.elapsed(), latencies))
}

/// A connection that is asked by `write`, and whose answers `read` finds.
pub(super) struct Connection<S> {
    pub(super) stream: S,
    /// Writes the questions of this number, and returns how many these are.
    pub(super) write: fn(u64, &mut Vec<u8>) -> u64,
    /// The length of the first answer; `None` if it is not whole.
    pub(super) read: fn(&[u8]) -> Result<Option<usize>>,
    pub(super) buffer: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Ask for Connection<S> {
    async fn ask(&mut self, number: u64) -> Result<u64> {
        self.buffer.clear();
        let questions = (self.write)(number, &mut self.buffer);
        self.stream.write_all(&self.buffer).await.context("cannot ask")?;
        self.wait(questions).await?;
        Ok(questions)
    }
}

impl<S: AsyncRead + Unpin> Connection<S> {
    /// Waits for so many answers.
    pub(super) async fn wait(&mut self, answers: u64) -> Result<()> {
        self.buffer.clear();
        let (mut left, mut at) = (answers, 0);
        while left > 0 {
            match (self.read)(self.buffer.get(at..).unwrap_or_default())? {
                Some(length) => (at, left) = (at + length, left - 1),
                None => {
                    let read = self.stream.read_buf(&mut self.buffer).await;
                    if read.context("cannot read the answer")? == 0 {
                        bail!("the server closed the connection");
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{io::duplex, runtime::Builder};

    use super::*;

    #[test]
    fn each_question_waits_for_its_answer_and_is_counted() {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (stream, mut server) = duplex(64);
            tokio::spawn(async move {
                let mut byte = [0];
                while server.read_exact(&mut byte).await.is_ok() {
                    server.write_all(&[byte[0], 0]).await.unwrap();
                }
            });
            let write = |number: u64, to: &mut Vec<u8>| {
                to.extend([number as u8; 3]);
                3
            };
            let read = |received: &[u8]| Ok((received.len() >= 2).then_some(2));
            let connection = Connection { stream, write, read, buffer: Vec::new() };
            let mut askers = vec![connection];
            // Ten questions are due before the end, at 0, 1, … 9 ms.
            let seen = drive(&mut askers, Duration::from_millis(10), Some(1_000.0)).await.unwrap();
            assert_eq!((seen.answers, seen.latencies.len(), askers.len()), (30, 10, 1));
        });
    }
}
