//! Every interleaving of a few packets and of a change of policy, by the model checker.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use limiter_common::{
    binding::{Binding, Bucket, Standing, bind},
    gcra::{Gcra, Refusal},
    limit::{LIMITS, Limit},
    plan::{Plan, State},
    rate::Rate,
    reason::Reason,
    word::Word,
};
use loom::{
    model::Builder,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
};

/// The time of every packet: what races then is the same for all.
const NOW: u64 = 77_000_000_000;

/// Runs `model` in every order of its steps that takes the processor from a thread `preemptions`
/// times at most.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

/// A word of an entry and what the entry must stay bound to, as the kernel half has it.
#[derive(Clone, Copy)]
struct Cell<'a> {
    entry: &'a Entry,
    place: usize,
    bound: Binding,
}

impl Word for Cell<'_> {
    fn load(&self) -> u64 {
        self.entry.words[self.place].load()
    }

    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        self.entry.words[self.place].compare_exchange(current, new)
    }

    fn bound(&self) -> bool {
        self.entry.binding.load() == self.bound.0
    }
}

/// A word that no binding is asked for.
struct Plain(AtomicU64);

impl Word for Plain {
    fn load(&self) -> u64 {
        self.0.load(SeqCst)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> u64 {
        self.0.compare_exchange(current, new, SeqCst, SeqCst).unwrap_or_else(|found| found)
    }
}

/// The state of a source.
struct Entry {
    binding: Plain,
    words: [Plain; LIMITS],
    scales: [Plain; LIMITS],
}

impl Entry {
    fn new(binding: Binding, words: [u64; LIMITS], scales: [u64; LIMITS]) -> Arc<Self> {
        let plain = |word| Plain(AtomicU64::new(word));
        Arc::new(Self {
            binding: plain(binding.0),
            words: words.map(plain),
            scales: scales.map(plain),
        })
    }

    fn values(&self) -> [u64; LIMITS] {
        self.words.each_ref().map(Word::load)
    }
}

/// The entry as a packet found it.
struct Found<'a> {
    entry: &'a Entry,
    bound: Binding,
}

impl<'a> State for Found<'a> {
    type Word = Cell<'a>;

    fn find(&mut self, limit: Limit) -> Option<Cell<'a>> {
        Some(Cell { entry: self.entry, place: limit.index(), bound: self.bound })
    }

    fn create(&mut self, _: Limit) -> Option<Cell<'a>> {
        None
    }
}

fn bucket(packets: u64, burst: u64) -> Gcra {
    Rate::per_second(packets).bucket(burst).unwrap()
}

/// A plan of buckets with so many tokens, each at another rate.
fn plan(tokens: [u64; LIMITS]) -> Plan {
    let mut plan = Plan { active: 0b111, ..Plan::default() };
    for (place, tokens) in tokens.into_iter().enumerate() {
        plan.limits[place] = bucket(1_000 << (place * 4), tokens);
    }
    plan
}

fn full(plan: &Plan) -> [u64; LIMITS] {
    plan.limits.map(|gcra| gcra.full(NOW))
}

fn scales(plan: &Plan) -> [u64; LIMITS] {
    plan.limits.map(|gcra| gcra.scale().0)
}

/// The words of full buckets after so many packets.
fn after(plan: &Plan, packets: [u64; LIMITS]) -> [u64; LIMITS] {
    let mut words = full(plan);
    for ((word, gcra), packets) in words.iter_mut().zip(plan.limits).zip(packets) {
        *word += packets * gcra.interval;
    }
    words
}

/// A thread with two packets and two with one each, at a bucket of `tokens` and a unit or none.
fn one_bucket(tokens: u64, unit: u64) {
    let gcra = bucket(1_000, 5);
    let begin = gcra.full(NOW) + (5 - tokens) * gcra.interval - unit;
    let word = Arc::new(Plain(AtomicU64::new(begin)));
    let send = |packets: usize| {
        let word = Arc::clone(&word);
        move || {
            let conform = |_: &usize| {
                let look = gcra.look(&*word, NOW);
                look.and_then(|look| gcra.charge(&*word, look, NOW))
                    .inspect_err(|refusal| assert_eq!(*refusal, Refusal::Exceed))
                    .is_ok()
            };
            (0..packets).filter(conform).count() as u64
        }
    };
    let others = [thread::spawn(send(1)), thread::spawn(send(1))];
    let mut admitted = send(2)();
    for other in others {
        admitted += other.join().unwrap();
    }
    // Part of a token is enough for one packet, and for one only.
    assert_eq!(admitted, (tokens + unit).min(4));
    assert_eq!(word.load(), begin + admitted * gcra.interval);
}

#[test]
fn what_is_left_is_given_out_exactly_once() {
    for (tokens, unit) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)] {
        check(3, move || one_bucket(tokens, unit));
    }
}

/// Three packets at a source, the last of which is no SYN.
fn several_limits(tokens: [u64; LIMITS]) {
    const ALL: u64 = 0b111;
    const NO_SYN: u64 = 0b101;
    let plan = plan(tokens);
    let bound = Binding::new(1, 0);
    let entry = Entry::new(bound, full(&plan), scales(&plan));
    let send = |applies| {
        let entry = Arc::clone(&entry);
        move || plan.decide(applies, &mut Found { entry: &entry, bound }, NOW)
    };
    let others = [thread::spawn(send(ALL)), thread::spawn(send(NO_SYN))];
    let first = send(ALL)();
    let [second, plain] = others.map(|other| other.join().unwrap());

    let [syns, plain] = [[first, second].iter().filter(|verdict| verdict.is_ok()).count(), {
        usize::from(plain.is_ok())
    }]
    .map(|count| count as u64);
    let [connection, syn, source] = tokens;
    // None admitted twice, and refused packets are as if they never came.
    assert_eq!(entry.values(), after(&plan, [syns + plain, syns, syns + plain]));
    assert!(syns <= syn && syns + plain <= source.min(connection));
    for verdict in [first, second] {
        assert!(!matches!(verdict, Err(Reason::Contended | Reason::Conform)), "{verdict:?}");
    }
}

#[test]
fn a_packet_is_charged_to_all_limits_or_to_none() {
    for tokens in [[3, 2, 1], [1, 2, 3], [3, 1, 2], [2, 2, 2], [3, 3, 3]] {
        check(2, move || several_limits(tokens));
    }
}

/// A packet under the epoch in force: the entry is found or brought up to date, and charged.
fn packet(entry: &Entry, epoch: u32, plan: &Plan) -> Result<(), Reason> {
    let seen = Binding(entry.binding.load());
    let bound = match seen.standing(epoch) {
        Standing::Current => Some(seen),
        Standing::Behind | Standing::Locked => refresh(entry, Binding::new(epoch, 0), plan),
    };
    // A newer epoch would have another plan; the caller has none that is newer.
    let bound = bound.filter(|bound| bound.epoch() == epoch).ok_or(Reason::Contended)?;
    of_source(plan, entry, bound)
}

fn of_source(plan: &Plan, entry: &Entry, bound: Binding) -> Result<(), Reason> {
    plan.decide(Limit::Syn.bit() | Limit::Source.bit(), &mut Found { entry, bound }, NOW)
}

/// The limits whose buckets are in the entry of a source.
const OF_SOURCE: [Limit; 2] = [Limit::Syn, Limit::Source];

fn refresh(entry: &Entry, target: Binding, plan: &Plan) -> Option<Binding> {
    let buckets = OF_SOURCE
        .map(Limit::index)
        .map(|place| Bucket { word: &entry.words[place], scale: &entry.scales[place] });
    let limits = OF_SOURCE.map(|limit| &plan.limits[limit.index()]);
    bind(&&entry.binding, target, &buckets, limits, NOW)
}

/// A policy of these buckets and the one that replaces it, with other shifts.
fn policies() -> (Plan, Plan) {
    let old = plan([1, 4, 8]);
    let mut new = old;
    new.limits[Limit::Syn.index()] = bucket(7, 5);
    new.limits[Limit::Source.index()] = bucket(50_000_000, 30);
    (old, new)
}

/// The words of `old` after so many packets, carried over, after so many more under `new`.
fn carried(old: &Plan, new: &Plan, before: u64, since: u64) -> [u64; LIMITS] {
    let mut words = after(old, [before; LIMITS]);
    for place in OF_SOURCE.map(Limit::index) {
        let (from, to, word) = (old.limits[place], new.limits[place], &mut words[place]);
        *word = to.carry(*word, from.scale(), NOW) + since * to.interval;
    }
    words
}

fn assert_bound(entry: &Entry, target: Binding, plan: &Plan) {
    assert_eq!(Binding(entry.binding.load()), target);
    for place in OF_SOURCE.map(Limit::index) {
        assert_eq!(entry.scales[place].load(), plan.limits[place].scale().0);
    }
}

/// A packet that found the entry under the old policy, while the new policy's first binds it.
fn old_packet_and_new(others: usize) {
    let (old, new) = policies();
    let entry = Entry::new(Binding::new(1, 0), after(&old, [1; LIMITS]), scales(&old));
    let late = thread::spawn({
        let entry = Arc::clone(&entry);
        move || of_source(&old, &entry, Binding::new(1, 0))
    });
    let send = || {
        let entry = Arc::clone(&entry);
        move || packet(&entry, 2, &new)
    };
    let spawned: Vec<_> = (1..others).map(|_| thread::spawn(send())).collect();
    let mut verdicts = vec![send()()];
    verdicts.extend(spawned.into_iter().map(|packet| packet.join().unwrap()));
    let late = late.join().unwrap();

    assert_bound(&entry, Binding::new(2, 0), &new);
    let since = verdicts.iter().filter(|verdict| verdict.is_ok()).count() as u64;
    let before = 1 + u64::from(late.is_ok());
    // A packet whose entry was marked when it had paid in part is not refunded: what it paid is
    // another policy's by then. So such a bucket may have less than it should, by one packet.
    let spent = if late == Err(Reason::Contended) { before + 1 } else { before };
    let [exact, spent] = [before, spent].map(|before| carried(&old, &new, before, since));
    for place in OF_SOURCE.map(Limit::index) {
        let word = entry.words[place].load();
        assert!(word == exact[place] || word == spent[place], "bucket {place}: {word}");
    }
}

#[test]
fn state_follows_a_change_of_policy_exactly_once() {
    check(3, || old_packet_and_new(1));
    check(2, || old_packet_and_new(2));
}

#[test]
fn a_new_entry_gives_one_burst() {
    check(2, || {
        let plan = plan([1, 1, 1]);
        let entry = Entry::new(Binding(0), [0; LIMITS], [0; LIMITS]);
        let send = || {
            let entry = Arc::clone(&entry);
            move || packet(&entry, 1, &plan)
        };
        let other = thread::spawn(send());
        let verdicts = [send()(), other.join().unwrap(), packet(&entry, 1, &plan)];
        assert_bound(&entry, Binding::new(1, 0), &plan);
        assert_eq!(verdicts.iter().filter(|verdict| verdict.is_ok()).count(), 1);
        let exact = after(&plan, [1; LIMITS]);
        for place in OF_SOURCE.map(Limit::index) {
            assert_eq!(entry.words[place].load(), exact[place]);
        }
    });
}

/// Two changes at once, across the wrap of the epoch, and a packet from before both.
#[test]
fn an_older_policy_never_binds_over_a_newer() {
    check(2, || {
        let (first, second) = policies();
        let third = plan([9, 9, 9]);
        let oldest = Binding::new(u32::MAX - 1, 0);
        let entry = Entry::new(oldest, after(&first, [1; LIMITS]), scales(&first));
        let others = [(u32::MAX, second), (0, third)].map(|(epoch, plan)| {
            let entry = Arc::clone(&entry);
            thread::spawn(move || packet(&entry, epoch, &plan))
        });
        let late = of_source(&first, &entry, oldest);
        let [middle, newest] = others.map(|other| other.join().unwrap());
        assert!([late, middle].iter().all(|it| matches!(it, Ok(()) | Err(Reason::Contended))));
        // Who gives up waiting leaves the entry behind; the next packet brings it up to date.
        let charged = newest.is_ok() || packet(&entry, 0, &third).is_ok();
        assert!(charged, "tokens are left, and nobody else is there");
        assert_bound(&entry, Binding::new(0, 0), &third);
        for place in OF_SOURCE.map(Limit::index) {
            let (gcra, word) = (third.limits[place], entry.words[place].load());
            let ahead = word - gcra.full(NOW);
            assert!(ahead > gcra.interval && ahead <= gcra.depth, "bucket {place}: {ahead}");
        }
    });
}
