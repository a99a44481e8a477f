//! A model of the program with exact buckets.

use std::{collections::HashMap, net::IpAddr};

use limiter_common::{
    abi::counters::{Counters, LimitTally},
    base::{address::Address, tally::Tally},
    memory::cache::Cached,
    packet::reason::Reason,
};
use limiter_tests::{
    model::{self, Exact as _},
    program::{TestProgram, Verdict},
    reference::{Reference, ReferenceFragment, UNKNOWN_PROTOCOL, control},
};
use limiter_userspace::policy::{Bucket, Builtin};

use super::{
    BUILTINS, compiled, limit_tallies,
    naive::{List, Naive},
};

/// A frame, and how the reference parser reads it.
pub(super) struct Sample {
    pub(super) frame: Vec<u8>,
    pub(super) what: Reference,
}

type Connection = (IpAddr, IpAddr, (u16, u16), u8);

/// The model: its state, and the counts that the program must have.
pub(super) struct Model {
    policy: Naive,
    /// The limits in the order in which they are checked.
    order: Vec<Builtin>,
    /// The buckets of each source; `None` stands for frames whose source cannot be read.
    sources: HashMap<Option<IpAddr>, Source>,
    /// The buckets of connections; only admitted packets create one.
    connections: HashMap<Option<Connection>, model::Bucket>,
    pub(super) counters: Counters,
    pub(super) limits: [LimitTally; BUILTINS],
    /// Packets that a limit of the source refused, and that of the connection would have. So are those that find a bucket lost, as
    /// the clock went far back: a CPU that remembers a refusal looks at no bucket, which is lost until a later packet then.
    either: Tally,
}

struct Source {
    buckets: [Option<model::Bucket>; BUILTINS],
    /// When its packets were refused. Those of before a bucket was lost last may be remembered by a CPU, or in another slot of it,
    /// which does not hear that the bucket has room: see [`Cached::holds`].
    refused: Vec<u64>,
    remembered: Vec<u64>,
    passed: Tally,
    dropped: Tally,
}

/// The frame counters and the tallies of the built-in limits.
pub(super) fn counts(program: &TestProgram) -> (Counters, [LimitTally; BUILTINS]) {
    (program.counters().unwrap(), limit_tallies(program))
}

fn add(tally: &mut Tally, bytes: u64) {
    tally.packets += 1;
    tally.bytes += bytes;
}

fn full(bucket: Bucket, now: u64) -> model::Bucket {
    let Bucket { rate, burst } = bucket;
    model::Bucket::new(rate.packets.into(), rate.period.into(), burst, now)
}

/// Decides about a packet to which the limits in `applies` apply: all are charged, or none. Inline limits are
/// checked before that of the connection. The order shows when the clock went far back: a limit that is lost is reset even
/// if one before it refuses.
///
/// # Errors
/// The place of the first limit that refuses the packet.
fn admit(
    buckets: &mut [Option<model::Bucket>; BUILTINS],
    order: &[Builtin],
    applies: [bool; BUILTINS],
    now: u64,
) -> Result<(), usize> {
    let mut refused = None;
    for place in order.iter().map(|limit| *limit as usize).filter(|place| applies[*place]) {
        // Those after one that refused are not checked.
        let asked = refused.is_none_or(|first| place < first);
        let Some(bucket) = buckets[place].as_mut().filter(|_| asked) else { continue };
        match bucket.look(now, 1) {
            model::Verdict::Admit => continue,
            model::Verdict::Refuse => {}
            model::Verdict::Lose => bucket.lose(now),
        }
        refused = Some(place);
    }
    if let Some(place) = refused {
        return Err(place);
    }
    let charged = buckets.iter_mut().zip(applies).filter(|(_, applies)| *applies);
    charged.filter_map(|(bucket, _)| bucket.as_mut()).for_each(|bucket| bucket.charge(now, 1));
    Ok(())
}

impl Model {
    /// The counts go on from those of the program.
    pub(super) fn new(policy: Naive, program: &TestProgram) -> Self {
        let (sources, connections) = (HashMap::new(), HashMap::new());
        let (counters, limits) = counts(program);
        let in_force = program.maps().policy().unwrap();
        let names = in_force.limits.iter().map(|limit| limit.name.as_str());
        let mut order: Vec<_> = names.filter_map(Builtin::by_name).collect();
        order.sort_by_key(|limit| compiled(program, *limit).override_column);
        let either = Tally::default();
        Self { policy, order, sources, connections, counters, limits, either }
    }

    /// Decides about a packet. What the program decided, `verdict`, tells only whether a CPU remembers a refusal that it may.
    pub(super) fn decide(&mut self, sample: &Sample, now: u64, verdict: Verdict) -> Verdict {
        let bytes = sample.frame.len() as u64;
        let name = sample.what.reason();
        let conform = Reason::ALL.into_iter().find(|reason| reason.name() == name).unwrap();
        if conform == Reason::TooDeep {
            return self.settle(conform, bytes);
        }
        if control(&sample.frame).is_some() {
            // The budgets of control traffic are far larger than what a run uses.
            return self.settle(Reason::Control, bytes);
        }
        let (source, connection, may_open) = match sample.what {
            Reference::NonIp => {
                add(&mut self.counters.reasons[conform.index()], bytes);
                return Verdict::Pass;
            }
            Reference::Unreadable | Reference::TooDeep => (None, None, true),
            Reference::Ip {
                source: source @ IpAddr::V6(_),
                destination,
                fragment: ReferenceFragment::Later(offset),
                ..
            } => {
                // In IPv6, only the first fragment tells the protocol.
                let connection = (source, destination, (0, 0), UNKNOWN_PROTOCOL);
                (Some(self.policy.key(source)), Some(connection), offset == 1)
            }
            Reference::Ip { source, destination, ports, protocol, may_open, .. } => {
                let connection = (source, destination, ports, protocol);
                (Some(self.policy.key(source)), Some(connection), may_open)
            }
        };
        let listed = source.and_then(|source| self.policy.listed(source));
        let stated = Builtin::ALL.map(|limit| self.policy.bucket(limit, source));
        let source = self.sources.entry(source).or_insert_with(|| Source {
            buckets: stated.map(|bucket| bucket.map(|bucket| full(bucket, now))),
            refused: Vec::new(),
            remembered: Vec::new(),
            passed: Tally::default(),
            dropped: Tally::default(),
        });
        if let Some(list) = listed {
            let reason = match list {
                List::Allow => Reason::Allow,
                List::Deny => Reason::Deny,
                List::Block => Reason::Penalty,
            };
            let dropped = reason.drops() && !self.policy.monitor;
            add(if dropped { &mut source.dropped } else { &mut source.passed }, bytes);
            return self.settle(reason, bytes);
        }
        let mut buckets = source.buckets.clone();
        let known = self.connections.get(&connection).cloned();
        let exists = known.is_some();
        let place = Builtin::Connection as usize;
        buckets[place] = stated[place].map(|bucket| known.unwrap_or_else(|| full(bucket, now)));

        let applies = Builtin::ALL.map(|limit| limit != Builtin::Syn || may_open);
        let is_lost = buckets.iter().flatten().any(|it| it.look(now, 1) == model::Verdict::Lose);
        let before = buckets.clone();
        let mut decision = admit(&mut buckets, &self.order, applies, now);
        if is_lost {
            source.remembered.append(&mut source.refused);
        }
        let holds = |since: &u64| (*since..since.saturating_add(Cached::LONGEST)).contains(&now);
        if decision.is_ok() && verdict == Verdict::Drop && source.remembered.iter().any(holds) {
            add(&mut self.either, bytes);
            (decision, buckets) = (Err(Builtin::Source as usize), before);
        }
        if decision.is_err() {
            source.refused.push(now);
        }
        // A connection of which no packet was admitted leaves no state.
        if let Some(bucket) = &buckets[place]
            && (exists || decision.is_ok())
        {
            self.connections.insert(connection, bucket.clone());
        }
        let near =
            buckets.each_ref().map(|bucket| bucket.as_ref().is_some_and(|it| it.is_near(now)));
        source.buckets = buckets;
        let reason = match decision {
            Ok(()) => {
                add(&mut source.passed, bytes);
                for place in
                    (0..BUILTINS).filter(|place| applies[*place] && stated[*place].is_some())
                {
                    add(&mut self.limits[place].conform, bytes);
                    if near[place] {
                        add(&mut self.limits[place].near, bytes);
                    }
                }
                conform
            }
            Err(place) => {
                let by_connection = &source.buckets[Builtin::Connection as usize];
                if is_lost
                    || place != Builtin::Connection as usize
                        && by_connection
                            .as_ref()
                            .is_some_and(|it| it.look(now, 1) != model::Verdict::Admit)
                {
                    add(&mut self.either, bytes);
                }
                let monitored = self.policy.monitor;
                add(if monitored { &mut source.passed } else { &mut source.dropped }, bytes);
                let limit = &mut self.limits[place];
                add(if monitored { &mut limit.monitored } else { &mut limit.exceed }, bytes);
                Reason::Exceed
            }
        };
        self.settle(reason, bytes)
    }

    /// Counts a frame. Under a policy that only monitors, a frame that would be dropped passes.
    fn settle(&mut self, reason: Reason, bytes: u64) -> Verdict {
        let monitored = self.policy.monitor && reason.drops();
        let reason = if monitored { Reason::Monitor } else { reason };
        add(&mut self.counters.reasons[reason.index()], bytes);
        if reason.drops() { Verdict::Drop } else { Verdict::Pass }
    }

    /// Compares the counts of frames and limits with those of the program. A packet that is refused by a limit of the source
    /// and by that of its connection may be counted under the latter, for a moment after that refused another one.
    pub(super) fn check_counts(&self, program: &TestProgram, when: &str) {
        let (counters, mut limits) = counts(program);
        let [mut moved, mut bytes] = [0; 2];
        for (of, limit) in limits.iter_mut().zip(&self.limits).take(Builtin::Connection as usize) {
            moved += limit.exceed.packets.cast_signed() - of.exceed.packets.cast_signed();
            bytes += limit.exceed.bytes.cast_signed() - of.exceed.bytes.cast_signed();
            of.exceed = limit.exceed;
        }
        let Tally { packets: most, bytes: most_bytes } = self.either;
        let is_known = moved.unsigned_abs() <= most && bytes.unsigned_abs() <= most_bytes;
        assert!(is_known, "{moved} packets and {bytes} bytes of {:?} {when}", self.either);
        let connection = &mut limits[Builtin::Connection as usize].exceed;
        connection.packets = connection.packets.wrapping_add_signed(-moved);
        connection.bytes = connection.bytes.wrapping_add_signed(-bytes);
        assert_eq!((counters, limits), (self.counters, self.limits), "{when}");
    }

    /// Compares all counts with those of the program.
    pub(super) fn check(&self, program: &TestProgram) {
        self.check_counts(program, "at the end");
        for (key, source) in &self.sources {
            let entry = match key {
                Some(key) => program.source(&Address::from(*key)).unwrap().unwrap(),
                None => program.unreadable().unwrap(),
            };
            assert_eq!((entry.passed, entry.dropped), (source.passed, source.dropped), "{key:?}");
        }
        let sources = self.sources.keys().flatten().count();
        assert_eq!(program.maps().talkers(0).unwrap().1.tracked, sources as u64);
        let connections = self.connections.len();
        assert_eq!(program.maps().buckets().unwrap().tracked, connections as u64);
    }
}
