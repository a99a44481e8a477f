//! A load in turns. Figures are medians of them, as other work on the machine disturbs some.

use std::time::Duration;

use anyhow::Result;

use super::{
    super::sample::{median, quantile},
    load::{Ask, Seen, drive},
    server::{Scheduled, Scheduling},
};

/// How long a turn is. It is the same in each run: the 99th percentile of a short turn shows pauses that are too short for that of a
/// long one.
pub(super) const TURN: Duration = Duration::from_millis(100);

/// What was seen in the turns of a load.
pub(super) struct Turns {
    turns: Vec<Turn>,
    /// Microseconds until each answer.
    latencies: Vec<f64>,
}

/// What was seen in one of them.
struct Turn {
    /// Answers per second, and questions.
    rate: f64,
    questions: f64,
    /// The share of a CPU that the server took.
    cpu: f64,
    /// Microseconds until half of the answers, and until 99 % of them.
    latency: [f64; 2],
    /// The parts of the time that the server and the asking thread waited for a CPU.
    waited: [f64; 2],
}

/// The figures of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    /// Answers per second, and questions; several that are sent at once are one.
    pub(super) rate: f64,
    pub(super) questions: f64,
    /// The share of a CPU that the server took.
    pub(super) cpu: f64,
    /// Microseconds until half of the answers.
    pub(super) p50: f64,
    /// Microseconds until 99 % of the answers: the median of the turns, and their quartiles.
    pub(super) p99: f64,
    pub(super) quartiles: [f64; 2],
    /// The same of all turns as one, so that it shows pauses that most turns are without.
    pub(super) p99_of_all: f64,
    /// The parts of all the time that the server and the asking thread waited for a CPU that did other work.
    pub(super) waited: [f64; 2],
}

impl Turns {
    /// None yet.
    pub(super) const fn new() -> Self {
        Self { turns: Vec::new(), latencies: Vec::new() }
    }

    /// Has askers ask for a turn, as [`drive`] does.
    pub(super) async fn turn<A: Ask + Send>(
        &mut self,
        server: &impl Scheduling,
        askers: &mut Vec<A>,
        rate: Option<f64>,
    ) -> Result<()> {
        let before = both(server)?;
        let seen = drive(askers, TURN, rate).await?;
        self.add(&seen, before, both(server)?);
        Ok(())
    }

    /// Adds a turn, of a server and of the thread that asked it, before and after.
    pub(super) fn add(&mut self, seen: &Seen, before: [Scheduled; 2], after: [Scheduled; 2]) {
        let time = seen.time.as_secs_f64();
        let share = |of: fn(&Scheduled) -> Duration| {
            [0, 1].map(|at| of(&after[at]).saturating_sub(of(&before[at])).as_secs_f64() / time)
        };
        self.turns.push(Turn {
            rate: seen.rate(),
            questions: seen.questions(),
            cpu: share(|it| it.ran)[0],
            latency: [0.5, 0.99].map(|share| seen.latency(share)),
            waited: share(|it| it.waited),
        });
        self.latencies.extend(seen.latencies());
    }

    /// The figures so far.
    pub(super) fn figures(&mut self) -> Figures {
        self.latencies.sort_by(f64::total_cmp);
        let all = |of: fn(&Turn) -> f64| self.turns.iter().map(of).collect::<Vec<_>>();
        let mut p99 = all(|turn| turn.latency[1]);
        p99.sort_by(f64::total_cmp);
        let mean = |of| all(of).iter().sum::<f64>() / self.turns.len() as f64;
        Figures {
            rate: median(&all(|turn| turn.rate)),
            questions: median(&all(|turn| turn.questions)),
            cpu: median(&all(|turn| turn.cpu)),
            p50: median(&all(|turn| turn.latency[0])),
            p99: median(&p99),
            quartiles: [0.25, 0.75].map(|share| quantile(&p99, share)),
            p99_of_all: quantile(&self.latencies, 0.99),
            waited: [mean(|turn| turn.waited[0]), mean(|turn| turn.waited[1])],
        }
    }
}

/// What the scheduler did with a server, and with this thread.
pub(super) fn both(server: &impl Scheduling) -> Result<[Scheduled; 2]> {
    Ok([server.scheduled()?, Scheduled::of_this_thread()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_most_turns_are_without_shows_in_all_of_them() {
        let mut turns = Turns::new();
        for turn in 0..9 {
            let of = |late| if turn == 4 && late < 100 { 5e-3 } else { 1e-4 };
            let latencies = (0..1_000).map(of).collect();
            let scheduled = |ran, waited| {
                let [ran, waited] = [ran, waited].map(Duration::from_millis);
                Scheduled { ran, waited }
            };
            let before = [scheduled(10, 1), scheduled(500, 0)];
            let after = [scheduled(60, 1), scheduled(560, if turn == 4 { 36 } else { 0 })];
            turns.add(&Seen::new(1_000, TURN, latencies), before, after);
        }
        let seen = turns.figures();
        assert_eq!((seen.rate, seen.cpu), (10_000.0, 0.5));
        let near = |measured: f64, expected: f64| (measured - expected).abs() < 1e-6;
        assert!(near(seen.p99, 100.0) && near(seen.quartiles[1], 100.0), "{seen:?}");
        assert!(near(seen.p99_of_all, 5_000.0), "{seen:?}");
        assert!(near(seen.waited[0], 0.0) && near(seen.waited[1], 0.04), "{seen:?}");
    }
}
