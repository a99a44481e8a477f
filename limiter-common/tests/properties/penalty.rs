//! Penalties, against a model that keeps the whole story of a source.

use core::cell::Cell;

use limiter_common::{
    algorithm::binding::Binding,
    base::word::Word,
    policy::penalty::{Block, Evidence, Offence, Penalty},
};
use proptest::prelude::*;

use super::{cases, magnitude};

fn unknown() -> Offence<Cell<u64>> {
    let [began, last, since, blocked, blocks] = [0; 5].map(Cell::new);
    Offence { began, last, since, blocked, blocks }
}

/// A source as somebody would tell of it who writes everything down.
#[derive(Default)]
struct Story {
    /// When it was over the limit since the last block.
    over: Vec<u64>,
    /// From when until when it was blocked, and in the how-many-eth time without a rest.
    blocks: Vec<(u64, u64, u32)>,
}

impl Story {
    fn exceed(&mut self, penalty: &Penalty, now: u64) {
        self.over.push(now);
        // The last times without a rest between two of them.
        let rest = |pair: &[u64]| pair[1] - pair[0] > penalty.rest();
        let begin = self.over.windows(2).rposition(rest).map_or(0, |at| at + 1);
        if now == self.over[begin] || now - self.over[begin] < penalty.after {
            return;
        }
        let number = match self.blocks.last() {
            Some((_, until, number)) if now.saturating_sub(*until) <= penalty.most => number + 1,
            _ => 1,
        };
        // Each is longer than the one before by the back-off, up to the longest, for 16 times.
        let factor = u128::from(penalty.backoff).pow((number - 1).min(16));
        let length = (u128::from(penalty.block) * factor).min(penalty.most.into());
        self.blocks.push((now, now + length as u64, number));
        self.over.clear();
    }
}

fn penalty() -> impl Strategy<Value = Penalty> {
    let time = || magnitude(55).prop_map(|time| time.clamp(1, Penalty::LONGEST));
    let short = magnitude(36).prop_map(|time| time.max(1));
    (prop_oneof![time(), short], time(), time(), 1..=Penalty::STEEPEST).prop_map(
        |(after, block, most, backoff)| {
            let most = most.max(block);
            Penalty { after, block, most, backoff, limit: 1, unproven: 0 }
        },
    )
}

/// Times between two packets over the limit: short, about a rest, about what the penalty knows.
fn steps() -> impl Strategy<Value = Vec<(u8, u64)>> {
    prop::collection::vec((0..8_u8, any::<u64>()), 1..200)
}

fn step(penalty: &Penalty, blocked: u64, now: u64, (kind, any): (u8, u64)) -> u64 {
    let near = any % 3;
    let before = |time: u64| time.saturating_sub(1) + near;
    match kind {
        0 => near,
        1 => any % Penalty::REST,
        2 => before(Penalty::REST),
        3 => before(penalty.after).min(Penalty::REST),
        4 => any % penalty.after.clamp(1, Penalty::REST),
        // A rest that ends the growth, or just does not.
        5 => before(blocked.saturating_sub(now) + penalty.most),
        6 => before(blocked.saturating_sub(now)),
        _ => any % (penalty.after / 4).clamp(1, Penalty::REST),
    }
}

proptest! {
    #![proptest_config(cases(6_000))]

    /// While it is blocked its packets are dropped before they come to a limit.
    #[test]
    fn blocks_are_those_of_the_whole_story(
        penalty in penalty(), begin in magnitude(60), steps in steps(),
    ) {
        let (offence, mut story) = (unknown(), Story::default());
        // Time begins at 1: at 0 nothing is known.
        let mut now = begin + 1;
        for one in steps {
            let blocked = offence.blocked.load();
            now += step(&penalty, blocked, now, one);
            if now > u64::MAX / 4 {
                break;
            }
            if now < blocked {
                continue;
            }
            let until = penalty.exceed(&offence, now);
            story.exceed(&penalty, now);
            let [blocked, blocks] = [&offence.blocked, &offence.blocks].map(Word::load);
            let expected = story.blocks.last().map_or((0, 0), |&(_, until, number)| {
                (until, u64::from(number))
            });
            prop_assert_eq!((blocked, blocks), expected, "at {}", now);
            prop_assert_eq!(until, blocked);
        }
    }

    /// What is found out later, in any order and more than once, blocks a source once if it was over the limit for long
    /// enough without a rest, and never otherwise.
    #[test]
    fn what_is_proven_later_counts_at_its_time(
        penalty in penalty(),
        begin in magnitude(60),
        steps in steps(),
        order in prop::collection::vec((any::<prop::sample::Index>(), 0..9_usize), 1..60),
    ) {
        let mut times = vec![begin + 1];
        for one in steps {
            let now = times[times.len() - 1];
            times.push(now + step(&penalty, 0, now, one));
        }
        times.retain(|time| *time < u64::MAX / 4);
        let has_rest = |at: usize| times[at + 1] - times[at] > penalty.rest();
        let spans: Vec<(u64, u64)> = order
            .iter()
            .map(|(first, more)| {
                let first = first.index(times.len());
                let most = (first + more).min(times.len() - 1);
                let last = (first..most).find(|at| has_rest(*at)).unwrap_or(most);
                (times[first], times[last])
            })
            .collect();
        // The longest time without a rest, of all that was noted.
        let mut sorted = spans.clone();
        sorted.sort_unstable();
        let (mut longest, mut run) = (0, sorted[0]);
        for (from, to) in sorted {
            run = if from > run.1 && from - run.1 > penalty.rest() {
                (from, to)
            } else {
                (run.0, run.1.max(to))
            };
            longest = longest.max(run.1 - run.0);
        }
        let (offence, now) = (unknown(), times[times.len() - 1]);
        for (from, to) in spans.iter().chain(&spans) {
            let until = penalty.exceed_from(&offence, *from, *to, now);
            prop_assert_eq!(until, offence.blocked.load());
        }
        let blocks = offence.blocks.load();
        prop_assert!(blocks <= u64::from(longest >= penalty.after), "{} of {}", blocks, longest);
        // Nothing makes the latest one forgotten.
        let is_latest_enough = spans.iter().max().is_some_and(|(from, to)| to - from >= penalty.after);
        prop_assert!(blocks == 1 || !is_latest_enough, "{:?}", spans);
    }

    #[test]
    fn a_block_grows_by_the_backoff_up_to_the_longest(
        penalty in penalty(), blocks in prop_oneof![0..40_u64, any::<u64>()],
    ) {
        let factor = u128::from(penalty.backoff).pow(blocks.saturating_sub(1).min(16) as u32);
        let expected = (u128::from(penalty.block) * factor).min(penalty.most.into());
        prop_assert_eq!(u128::from(penalty.length(blocks)), expected);
    }

    /// Under another penalty a block ends when that could have ended it, and at no other time.
    #[test]
    fn a_block_is_no_longer_than_the_penalty_in_force_makes_it(
        made in penalty(), in_force in penalty(), begin in magnitude(60), later in magnitude(60),
    ) {
        let made = Penalty { after: 1, ..made };
        let offence = unknown();
        for now in [begin + 1, begin + 2] {
            made.exceed(&offence, now);
        }
        let [since, blocked] = [&offence.since, &offence.blocked].map(Word::load);
        prop_assert_eq!(since, begin + 2);
        let until = in_force.until(since, blocked);
        prop_assert_eq!(until, blocked.min(since + in_force.most));
        let in_force = Penalty { after: Penalty::LONGEST, ..in_force };
        let next = begin.saturating_add(2 + later);
        prop_assert_eq!(in_force.exceed(&offence, next), until);
    }

    /// The entry of a source has it to 256 ns, for the policy that it is bound to and as long as it is
    /// not given away.
    #[test]
    fn a_block_is_of_its_binding(
        until in magnitude(62),
        longer in magnitude(62),
        epoch: u32,
        (other, given_away) in prop_oneof![(any::<u8>(), Just(0)), (Just(0), 0..16_u8)],
    ) {
        let binding = Binding::new(epoch, 3);
        let word = Cell::new(Block::new(until, binding).0);
        prop_assert_eq!(Block(word.load()).until(binding), until & !0xff);
        let mut other = Binding::new(epoch.wrapping_add(u32::from(other)), 3);
        for _ in 0..given_away {
            other = Binding::new(other.epoch(), 3).like(other.vacated(epoch));
        }
        if other != binding {
            prop_assert_eq!(Block(word.load()).until(other), 0);
        }
        let extended = if other == binding { until.max(longer) } else { until };
        // That a proof is awaited makes a block neither longer nor shorter, and is of the binding too.
        Block::await_proof(&word, true, other);
        prop_assert_eq!(Block(word.load()).awaits_proof(binding), other == binding);
        prop_assert_eq!(Block(word.load()).until(binding), until & !0xff);
        Block::extend(&word, longer, other);
        prop_assert_eq!(Block(word.load()).awaits_proof(binding), other == binding);
        prop_assert_eq!(Block(word.load()).until(binding), extended & !0xff);
        Block::await_proof(&word, false, other);
        prop_assert!(!Block(word.load()).awaits_proof(binding));
        prop_assert_eq!(Block(word.load()).until(binding), extended & !0xff);
    }

    /// A clock that went back blocks nobody.
    #[test]
    fn nobody_is_blocked_by_a_clock_that_went_back(
        penalty in penalty(), now in magnitude(60), back in magnitude(60),
    ) {
        let offence = unknown();
        penalty.exceed(&offence, now.max(1));
        penalty.exceed(&offence, now.max(1).saturating_sub(back).max(1));
        prop_assert_eq!(offence.blocks.load(), 0);
    }
}

/// A socket that has seen the end of its handshake, and is not left in TIME_WAIT.
#[test]
fn few_states_of_a_socket_prove_something() {
    let full: Vec<u32> = (0..200).filter(|state| Evidence::is_full(*state)).collect();
    assert_eq!(full, [1, 4, 5, 8, 9, 11]);
}
