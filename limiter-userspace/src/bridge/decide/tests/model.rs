//! Compares decisions with a naive model: a map from each key to its state, and each limit by itself.

use limiter_common::algorithm::{
    kind::Kind,
    meter::Meter,
    policer::{Decision, Policer as _},
};
use proptest::{prelude::*, sample::select};

use super::*;

/// A state of the model.
#[derive(Clone, Debug)]
enum State {
    Word(u64),
    /// The times of the events.
    Log(Vec<u64>),
    /// The times at which open requests came, by their numbers.
    Open(Vec<(usize, u64)>),
}

/// A limit with one layer, and its states.
struct Naive {
    limit: RequestLimit,
    meter: Meter,
    states: BTreeMap<String, State>,
    conform: u64,
}

impl Naive {
    fn new(limit: &RequestLimit) -> Self {
        let meter = limit.layers[0].allowance.meter(1).unwrap();
        Self { limit: limit.clone(), meter, states: BTreeMap::new(), conform: 0 }
    }

    fn key(&self, asked: &Asked) -> Option<String> {
        let part = |part: &RequestKeyPart| match part {
            RequestKeyPart::Source => asked.source.map(|source| source.to_string()),
            RequestKeyPart::SourcePrefix { .. } => asked.source.map(|source| match source {
                IpAddr::V4(source) => format!("{:?}", &source.octets()[..3]),
                IpAddr::V6(source) => format!("{:?}", &source.octets()[..6]),
            }),
            RequestKeyPart::Tenant => None,
            RequestKeyPart::Field(Field::Method) => Some(asked.method.to_owned()),
            RequestKeyPart::Field(_) => asked.headers.0.get("x-user-id").cloned(),
        };
        let parts: Option<Vec<String>> = self.limit.key.parts.iter().map(part).collect();
        parts.map(|parts| parts.join("|"))
    }

    /// The state after a request; `None` if it has no room. `Err` if the limit is not about it.
    fn look(
        &self,
        asked: &Asked,
        (number, hits): (usize, u64),
        now: u64,
    ) -> Result<(String, Option<State>), ()> {
        let method = self.limit.matching.fields.get(&Field::Method);
        if method.is_some_and(|patterns| !patterns.iter().any(|it| it.accepts(asked.method))) {
            return Err(());
        }
        let key = self.key(asked).ok_or(())?;
        if let Allowance::Concurrent { limit, idle } = self.limit.layers[0].allowance {
            let mut open = match self.states.get(&key) {
                Some(State::Open(open)) => open.clone(),
                _ => Vec::new(),
            };
            open.retain(|(_, time)| is_open(idle, *time, now));
            let fits = open.len() as u64 + hits <= limit;
            open.extend((0..hits).map(|_| (number, now)));
            return Ok((key, fits.then_some(State::Open(open))));
        }
        let Allowance::SlidingLog { limit, window } = self.limit.layers[0].allowance else {
            let word = match self.states.get(&key) {
                Some(State::Word(word)) => *word,
                _ => self.meter.fresh(now),
            };
            let quota = match self.meter.kind() {
                Kind::Bucket => self.meter.gcra.left(0),
                _ => self.meter.gcra.depth,
            };
            let next = match self.meter.decide(word, now, hits) {
                Decision::Conform(next) if hits <= quota => Some(State::Word(next)),
                _ => None,
            };
            return Ok((key, next));
        };
        let mut times = match self.states.get(&key) {
            Some(State::Log(times)) => times.clone(),
            _ => Vec::new(),
        };
        times.retain(|time| now - time < window);
        times.extend((0..hits).map(|_| now));
        let fits = times.len() as u64 <= limit;
        Ok((key, fits.then_some(State::Log(times))))
    }
}

/// Whether a request that came at `time` is open still at `now`, if nobody told its end: times are kept in ticks of 2^24 ns, and
/// are up to an eighth of `idle` younger than the last packet where there are several.
const fn is_open(idle: u64, time: u64, now: u64) -> bool {
    (now >> 24) - (time >> 24) <= (idle >> 24) + (idle >> 27) + 2
}

fn allowance() -> impl Strategy<Value = Allowance> {
    let rate = (1..50_u64, 1..100_u64)
        .prop_map(|(packets, seconds)| Rate { packets, period: seconds * SECOND });
    (0..8, rate, 1..8_u64).prop_map(|(kind, rate, burst)| {
        let window = rate.period;
        match kind {
            0 => Allowance::TokenBucket { rate, burst },
            1 => Allowance::LeakyBucket { rate, depth: burst },
            2 => Allowance::Gcra { rate, tolerance: rate.period / rate.packets * (burst - 1) },
            3 => Allowance::FixedWindow { limit: burst, window },
            4 => Allowance::SlidingWindow { limit: burst, window },
            5 => Allowance::SlidingLog { limit: burst, window },
            _ => Allowance::Concurrent { limit: burst, idle: window },
        }
    })
}

pub(super) fn any_limit() -> impl Strategy<Value = RequestLimit> {
    let key = select(vec![
        vec![],
        vec![RequestKeyPart::Source],
        vec![RequestKeyPart::SourcePrefix { ipv4: 24, ipv6: 48 }],
        vec![RequestKeyPart::Field(user())],
        vec![RequestKeyPart::Field(user()), RequestKeyPart::Source],
        vec![RequestKeyPart::Field(Field::Method)],
    ]);
    let mode = select(vec![Mode::Enforce, Mode::Enforce, Mode::Monitor]);
    (key, allowance(), mode, any::<bool>()).prop_map(|(key, allowance, mode, gets)| {
        let mut limit = RequestLimit { mode, ..limit("", &key, allowance) };
        if gets {
            let patterns = vec![Pattern::Exact("GET".to_owned())];
            limit.matching.fields.insert(Field::Method, patterns);
        }
        limit
    })
}

/// Requests, with what they cost and how much later they come than the one before, in nanoseconds.
pub(super) fn events() -> impl Strategy<Value = Vec<(Asked, u64, u64)>> {
    let source =
        select(vec!["192.0.2.1", "192.0.2.2", "198.51.100.1", "2001:db8::1", "2001:db8:0:1::1"]);
    let user = select(vec![None, Some("anna"), Some("bert"), Some("a-name-of-20-letters")]);
    let method = select(vec!["GET", "POST"]);
    let asked = (source, user, method).prop_map(|(source, user, method)| {
        let asked = Asked::from(source).method(method);
        user.map_or(asked.clone(), |user| asked.user(user))
    });
    let later = prop_oneof![Just(0), 0..10 * SECOND, 0..200 * SECOND];
    prop::collection::vec((asked, prop_oneof![4 => Just(1), 1 => 1..4_u64], later), 1..300)
}

/// Room for so many keys that it is as good as certain that no set is short of it.
const KEYS: usize = 1 << 17;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Each verdict is that of the model, and so is what each limit was charged. The table is dropped and opened again on the
    /// way, and the policy is applied again: neither changes a verdict.
    #[test]
    fn every_verdict_is_that_of_the_model(
        limits in prop::collection::vec(any_limit(), 1..6),
        events in events(),
        ends in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..300),
        restart in 0..300_usize,
    ) {
        let mut limits = limits;
        for (at, limit) in limits.iter_mut().enumerate() {
            limit.name = format!("limit-{at}");
        }
        let mut models: Vec<Naive> = limits.iter().map(Naive::new).collect();
        let directory = Directory::new();
        let policy = policy(&limits);
        // Each key has an entry: that a set has no room for one more of its limit is tested elsewhere.
        let open = || Decider::new(&policy, Table::open(&directory.file(), KEYS).unwrap()).unwrap();
        let mut decider = Some(open());
        let (mut now, mut answer) = (NOW, Answer::default());
        let mut told: Vec<(usize, Leases)> = Vec::new();
        for (at, (asked, hits, later)) in events.iter().enumerate() {
            now += later;
            if at == restart {
                drop(decider.take());
                models.iter_mut().for_each(|model| model.conform = 0);
                decider = Some(open());
            }
            let Some(decider) = &mut decider else { continue };
            if at % 16 == 0 {
                decider.apply(&policy).unwrap();
            }
            // Some request ends, which may have ended before.
            if let Some((ended, true)) = ends.get(at).filter(|_| !told.is_empty()) {
                let (number, leases) = ended.get(&told);
                let mut released = 0;
                for model in &mut models {
                    for state in model.states.values_mut() {
                        let State::Open(open) = state else { continue };
                        let before = open.len();
                        open.retain(|(own, _)| own != number);
                        released += (before - open.len()) as u64;
                    }
                }
                prop_assert!(decider.release(leases, now) >= released.min(1));
                prop_assert_eq!(decider.release(leases, now), 0);
            }
            decider.decide(&asked.request(), *hits, now, &mut answer);
            let looked: Vec<_> = models.iter().map(|it| it.look(asked, (at, *hits), now)).collect();
            let refuses = |(model, looked): (&Naive, &Result<(String, Option<State>), ()>)| {
                model.limit.mode == Mode::Enforce && matches!(looked, Ok((_, None)))
            };
            let passes = !models.iter().zip(&looked).any(refuses);
            let verdict = if passes { Verdict::Pass } else { Verdict::Limited };
            prop_assert_eq!(answer.verdict, verdict, "event {}: {:?}", at, asked);
            let takes = looked.iter().any(|looked| matches!(looked, Ok((_, Some(State::Open(_))))));
            prop_assert_eq!(!answer.leases.is_empty(), passes && takes);
            if !answer.leases.is_empty() {
                // As a proxy has it.
                told.push((at, answer.leases.to_string().parse().unwrap()));
            }
            for (model, looked) in models.iter_mut().zip(looked).filter(|_| passes) {
                if let Ok((key, Some(state))) = looked {
                    model.states.insert(key, state);
                    model.conform += 1;
                }
            }
        }
        let decider = decider.unwrap();
        for model in &models {
            prop_assert_eq!(decider.row(&model.limit.name).conform, model.conform);
        }
    }
}
