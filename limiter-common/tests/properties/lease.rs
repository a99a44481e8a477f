//! Open connections in virtual time, on two CPUs, against a set.

use std::collections::HashMap;

use limiter_common::{
    algorithm::{
        bounds::BoundsError,
        concurrent::{Concurrent, Look, Signal, Socket},
        meter::Meter,
        policer::Refusal,
        rate::SECOND,
    },
    base::slots::Slots as _,
};

use super::{
    random::Random,
    row::{Plain, Row},
};

const SEED: u64 = 0x6c65_6173_6573_7331;
/// The unit of the times that are kept.
const TICK: u64 = 1 << 24;

/// A connection that has a slot.
#[derive(Clone, Copy)]
struct Open {
    /// The tick that its slot says.
    kept: u64,
    /// When its last packet came.
    last: u64,
    closing: bool,
}

/// The connections, without any place.
#[derive(Default)]
struct Model(HashMap<u32, Open>);

/// The silence that is allowed.
fn silence(leases: Concurrent, closing: bool) -> u64 {
    if closing { leases.idle.min(Concurrent::CLOSING) } else { leases.idle }
}

/// The age of a slot's time, in ticks, up to which it is kept.
fn kept(leases: Concurrent, closing: bool) -> u64 {
    let silence = silence(leases, closing);
    silence / TICK + silence / 8 / TICK + 2
}

/// Whether a connection is there still by its silence, if that of a closing one counts so.
fn lives(leases: Concurrent, open: &Open, closing: bool, now: u64) -> bool {
    let lives = now / TICK <= open.kept + kept(leases, closing);
    let [silent, allowed] = [now.saturating_sub(open.last), silence(leases, closing)];
    // What the documentation promises of it.
    if closing == open.closing {
        assert!(lives || silent > allowed);
        assert!(!lives || silent <= allowed + allowed / 8 + 3 * TICK);
    }
    lives
}

impl Model {
    fn expire(&mut self, leases: Concurrent, now: u64) {
        self.0.retain(|_, open| lives(leases, open, false, now));
    }

    /// Those that are closing and have no socket here give up their places, as they are needed.
    fn make_room(&mut self, leases: Concurrent, now: u64) {
        self.0.retain(|_, open| lives(leases, open, open.closing, now));
    }

    /// How many count as open.
    fn fill(&self, leases: Concurrent, now: u64) -> u64 {
        self.0.values().filter(|open| lives(leases, open, open.closing, now)).count() as u64
    }

    fn conforms(&self, leases: Concurrent, tag: u32, signal: Signal) -> bool {
        let room = (self.0.len() as u64) < leases.limit;
        self.0.contains_key(&tag) || signal == Signal::Reset || room
    }

    fn charge(&mut self, leases: Concurrent, tag: u32, signal: Signal, now: u64) {
        if signal == Signal::Reset && !self.0.contains_key(&tag) {
            return;
        }
        let new = Open { kept: now / TICK, last: now, closing: signal == Signal::Finish };
        let open = self.0.entry(tag).or_insert(new);
        let closing = match signal {
            Signal::Open => false,
            Signal::Finish | Signal::Reset => true,
            Signal::Data => open.closing,
        };
        let age = (now / TICK).saturating_sub(open.kept);
        if closing != open.closing || age > silence(leases, closing) / 8 / TICK {
            open.kept = open.kept.max(now / TICK);
        }
        open.last = open.last.max(now);
        open.closing = closing;
    }
}

fn any_leases(random: &mut Random, idle: u64) -> Concurrent {
    Concurrent::new(random.between(1, 128), idle).unwrap()
}

fn any_signal(random: &mut Random) -> Signal {
    match random.below(20) {
        0..=4 => Signal::Open,
        5 => Signal::Reset,
        6 => Signal::Finish,
        _ => Signal::Data,
    }
}

fn look(
    leases: Concurrent,
    row: &Row,
    tag: u32,
    signal: Signal,
    now: u64,
) -> Result<Look, Refusal> {
    let before = row.values();
    let look = leases.look(row, tag, signal, now);
    assert_eq!(before, row.values(), "a look writes nothing");
    look
}

fn run(random: &mut Random, steps: u64) {
    let (row, mut model) = (Row::new(), Model::default());
    // The ticks must not wrap within a run.
    let idle = random.between(SECOND, Concurrent::LONGEST / 20);
    let mut leases = any_leases(random, idle);
    let names = leases.limit * 2 + 3;
    let mut now = random.between(0, 1 << 62);
    // A packet that was looked at on another CPU.
    let mut other: Option<(Look, u32, Signal)> = None;
    for _ in 0..steps {
        // A packet is decided under one policy.
        if other.is_none() && random.once_in(400) {
            leases = any_leases(random, idle);
        }
        // What is looked at and charged has one time.
        if other.is_none() {
            now = step(random, now, leases);
        }
        model.expire(leases, now);
        if random.once_in(4) {
            let fill = model.fill(leases, now);
            assert_eq!(leases.fill(&row, now), fill);
            assert_eq!(leases.wait(&row, now) == 0, fill < leases.limit);
        }
        if let Some((look, tag, signal)) = other.filter(|_| random.once_in(3)) {
            other = None;
            let expected = model.conforms(leases, tag, signal);
            let before = row.values();
            let charged = leases.charge(&row, look, tag, signal, now);
            if charged.is_ok() && before != row.values() {
                assert!(expected);
                model.charge(leases, tag, signal, now);
                // Two slots taken at once become one, and a FIN that took the other is forgotten.
                let of = |slot: &u64| Concurrent::tag_of(*slot) == tag;
                let slot = row
                    .values()
                    .into_iter()
                    .filter(of)
                    .min_by_key(|slot| ((now / TICK) as u32).wrapping_sub(*slot as u32));
                if let (Some(slot), Some(open)) = (slot, model.0.get_mut(&tag)) {
                    open.closing &= slot >> 32 & 1 == 1;
                }
            } else {
                // A look at a slot that nothing had to be written to stands, whatever came in
                // between: as if the packet came before that.
                assert_eq!(charged.is_ok(), expected || charged == Ok(look));
            }
        }
        let tag = Concurrent::tag((random.below(names) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let signal = any_signal(random);
        if !model.conforms(leases, tag, signal) {
            assert!(leases.look(&row, tag, signal, now).is_err());
            make_room(leases, &row, now, |_| Socket::None);
            model.make_room(leases, now);
        }
        let expected = model.conforms(leases, tag, signal);
        let look = look(leases, &row, tag, signal, now);
        assert_eq!(look.is_ok(), expected, "{leases:?}: {signal:?}");
        let Ok(look) = look else { continue };
        if random.once_in(12) && signal != Signal::Reset {
            other.get_or_insert((look, tag, signal));
            continue;
        }
        let charged = leases.charge(&row, look, tag, signal, now).unwrap();
        if random.once_in(12) && signal != Signal::Reset {
            Concurrent::refund(&row, charged);
        } else {
            model.charge(leases, tag, signal, now);
        }
    }
}

/// Has the sockets of those looked up that are to be, as the program does when there is no place.
fn make_room(leases: Concurrent, row: &Row, now: u64, socket: impl Fn(u32) -> Socket) {
    for place in 0..Concurrent::MOST {
        let slot = row.load(place);
        if leases.is_due(slot, now) {
            leases.answer(row, place, slot, socket(Concurrent::tag_of(slot)), now);
        }
    }
}

fn step(random: &mut Random, now: u64, leases: Concurrent) -> u64 {
    now + match random.below(12) {
        0..=5 => random.below(leases.idle / leases.limit / 2 + 1),
        6 => random.below(leases.idle / 4),
        7 => random.below(2 * TICK),
        8 if random.once_in(8) => random.below(2 * leases.idle),
        _ => 0,
    }
}

#[test]
fn a_table_admits_as_a_set_does() {
    for number in 0..600 {
        run(&mut Random::new(SEED, number), 1_800);
    }
}

/// The connection of a number.
fn tag(number: u32) -> u32 {
    Concurrent::tag(u64::from(number) << 34)
}

fn packet(leases: Concurrent, row: &Row, number: u32, signal: Signal, now: u64) -> bool {
    host_packet(leases, row, number, signal, now, &HashMap::new())
}

/// A packet that comes to a host which has sockets of these connections, by their numbers.
fn host_packet(
    leases: Concurrent,
    row: &Row,
    number: u32,
    signal: Signal,
    now: u64,
    sockets: &HashMap<u32, Socket>,
) -> bool {
    let socket = |name| {
        let it = sockets.iter().find(|it| tag(*it.0) == name);
        it.map_or(Socket::None, |it| *it.1)
    };
    let look = leases.look(row, tag(number), signal, now).or_else(|_| {
        make_room(leases, row, now, socket);
        leases.look(row, tag(number), signal, now)
    });
    let charged = look.and_then(|look| leases.charge(row, look, tag(number), signal, now));
    if let Ok(charged) = charged
        && charged.closes()
        && socket(tag(number)) != Socket::None
    {
        Concurrent::keep_socket(row, charged);
    }
    charged.is_ok()
}

#[test]
fn connections_get_in_up_to_the_limit_and_stay() {
    let (row, leases) = (Row::new(), Concurrent::new(3, 60 * SECOND).unwrap());
    let sends = |number, signal, second: u64| packet(leases, &row, number, signal, second * SECOND);
    assert!([1, 2, 3].into_iter().all(|number| sends(number, Signal::Open, 1)));
    assert!(
        !sends(4, Signal::Open, 1) && !sends(4, Signal::Data, 1) && !sends(4, Signal::Finish, 1)
    );
    assert!([1, 2, 3].into_iter().all(|number| sends(number, Signal::Data, 50)));
    // A reset frees no slot at once, whoever sent it.
    assert!(sends(4, Signal::Reset, 51), "it buys nothing");
    assert!(!sends(4, Signal::Open, 51));
    assert!(sends(2, Signal::Reset, 51) && !sends(4, Signal::Open, 51));
    // One that is closing is gone after 10 s, others after their time, and then an eighth.
    assert!(!sends(4, Signal::Open, 61));
    assert!(sends(4, Signal::Open, 63) && !sends(2, Signal::Data, 63));
    assert!(sends(1, Signal::Finish, 64) && !sends(2, Signal::Open, 74));
    assert!(sends(2, Signal::Open, 76) && !sends(1, Signal::Data, 76));
    assert!(!sends(1, Signal::Open, 50 + 60));
    assert!(sends(1, Signal::Open, 50 + 68));
}

/// On a host that has the sockets, these decide, and neither what a packet says nor a silence that
/// is shorter than that of open ones.
#[test]
fn a_closing_connection_keeps_its_place_as_long_as_its_socket_is_there() {
    let (row, leases) = (Row::new(), Concurrent::new(2, 60 * SECOND).unwrap());
    let mut sockets = HashMap::from([(1, Socket::Held), (2, Socket::Held)]);
    let sends = |sockets: &HashMap<u32, Socket>, number, signal, millis: u64| {
        host_packet(leases, &row, number, signal, millis * SECOND / 1_000, sockets)
    };
    assert!([1, 2].into_iter().all(|number| sends(&sockets, number, Signal::Open, 0)));
    assert!(sends(&sockets, 1, Signal::Reset, 1) && sends(&sockets, 2, Signal::Finish, 1));
    for second in (0..240).step_by(15) {
        assert!(!sends(&sockets, 3, Signal::Open, 2 + second * 1_000), "{second} s");
    }
    assert!(sends(&sockets, 1, Signal::Data, 240_000), "it has its place");
    sockets.insert(1, Socket::Left);
    assert!(
        sends(&sockets, 3, Signal::Open, 240_100) && !sends(&sockets, 1, Signal::Data, 240_100)
    );
    assert!(!sends(&sockets, 4, Signal::Open, 240_200));
    sockets.remove(&2);
    assert!(sends(&sockets, 4, Signal::Open, 240_300));
    // What is over when the next one comes is never in its way.
    for number in 10..300 {
        let at = 250_000 + u64::from(number);
        assert!(sends(&sockets, 4, Signal::Data, at));
        sockets.insert(3, Socket::Held);
        assert!(sends(&sockets, 3, Signal::Finish, at));
        sockets.remove(&3);
        assert!(sends(&sockets, number, Signal::Open, at));
        sockets.insert(number, Socket::Held);
        assert!(sends(&sockets, number, Signal::Reset, at));
        sockets.insert(number, Socket::Left);
        assert!(sends(&sockets, 3, Signal::Open, at));
    }
}

/// Where nobody can tell any more by what to look its socket up, a connection has its place as long as one whose socket
/// is elsewhere: it may be there still.
#[test]
fn a_connection_whose_socket_cannot_be_looked_up_has_its_place_for_a_while() {
    let (row, leases) = (Row::new(), Concurrent::new(1, 60 * SECOND).unwrap());
    let unknown = HashMap::from([(1, Socket::Unknown)]);
    let sends = |number, signal, second: u64| {
        host_packet(leases, &row, number, signal, second * SECOND, &unknown)
    };
    assert!(sends(1, Signal::Open, 1) && sends(1, Signal::Finish, 1));
    assert!(!sends(2, Signal::Open, 2) && !sends(2, Signal::Open, 10));
    // It goes on.
    assert!(sends(1, Signal::Data, 10) && !sends(2, Signal::Open, 19));
    assert!(sends(2, Signal::Open, 23) && !sends(1, Signal::Data, 23));
}

/// A limit that is asked later may refuse what says that it is done, and whose socket was found by then.
#[test]
fn an_end_that_is_refused_after_all_is_none() {
    let (row, leases) = (Row::new(), Concurrent::new(1, 60 * SECOND).unwrap());
    for (number, opens) in [(1, true), (2, false)] {
        if opens {
            assert!(packet(leases, &row, number, Signal::Open, SECOND));
        }
        let before = row.values();
        let look = leases.look(&row, tag(number), Signal::Finish, SECOND).unwrap();
        let charged = leases.charge(&row, look, tag(number), Signal::Finish, SECOND).unwrap();
        Concurrent::keep_socket(&row, charged);
        assert_ne!(row.values(), before);
        Concurrent::refund(&row, charged);
        assert_eq!(row.values(), before, "{number}");
        // The next one does not find it there.
        row.store(0, 0);
    }
}

/// What says that it is done before it has a socket may have one later.
#[test]
fn a_reset_ahead_of_its_connection_frees_no_place() {
    let (row, leases) = (Row::new(), Concurrent::new(1, 60 * SECOND).unwrap());
    let (none, held) = (HashMap::new(), HashMap::from([(1, Socket::Held)]));
    assert!(host_packet(leases, &row, 1, Signal::Open, SECOND, &none));
    assert!(host_packet(leases, &row, 1, Signal::Reset, SECOND, &none));
    for second in (2..100).step_by(5) {
        assert!(!host_packet(leases, &row, 2, Signal::Open, second * SECOND, &held), "{second} s");
    }
    assert!(host_packet(leases, &row, 2, Signal::Open, 100 * SECOND, &none));
}

#[test]
fn a_connection_that_begins_anew_is_not_closing() {
    let (row, leases) = (Row::new(), Concurrent::new(1, 60 * SECOND).unwrap());
    let sends = |number, signal, second: u64| packet(leases, &row, number, signal, second * SECOND);
    assert!(sends(1, Signal::Open, 1) && sends(1, Signal::Finish, 2) && sends(1, Signal::Open, 3));
    assert!(!sends(2, Signal::Open, 40));
}

/// A connection that ends on a host that had its socket.
fn end(leases: Concurrent, row: &Row, number: u32) {
    let sockets = HashMap::from([(number, Socket::Left)]);
    assert!(host_packet(leases, row, number, Signal::Reset, SECOND, &sockets));
}

#[test]
fn a_lowered_limit_lets_nobody_new_in_until_enough_have_ended() {
    let (row, wide) = (Row::new(), Concurrent::new(8, 60 * SECOND).unwrap());
    let narrow = Concurrent { limit: 3, ..wide };
    assert!((0..8).all(|number| packet(wide, &row, number, Signal::Open, SECOND)));
    assert!((0..8).all(|number| packet(narrow, &row, number, Signal::Data, SECOND)));
    for ended in 0..5 {
        end(narrow, &row, ended);
        assert!(!packet(narrow, &row, 9, Signal::Open, SECOND), "{} are open", 7 - ended);
    }
    end(narrow, &row, 5);
    assert!(packet(narrow, &row, 9, Signal::Open, SECOND));
    assert!(!packet(narrow, &row, 10, Signal::Open, SECOND));
    assert_eq!(narrow.fill(&row, SECOND), 3);
}

#[test]
fn the_wait_ends_when_the_first_silent_connection_goes() {
    for begin in [0, 1, 12_345_678_901, 1 << 57] {
        let (row, leases) = (Row::new(), Concurrent::new(2, 60 * SECOND).unwrap());
        assert!(packet(leases, &row, 1, Signal::Open, begin));
        assert_eq!(leases.wait(&row, begin), 0);
        assert!(packet(leases, &row, 2, Signal::Open, begin + SECOND));
        let now = begin + 7 * SECOND;
        let wait = leases.wait(&row, now);
        assert!(leases.look(&row, tag(3), Signal::Open, now + wait - 1).is_err());
        assert!(leases.look(&row, tag(3), Signal::Open, now + wait).is_ok());
        let rest = leases.rest(&row, now);
        assert!(rest > wait, "the second one goes later");
        assert_eq!((leases.fill(&row, now + rest - 1), leases.fill(&row, now + rest)), (1, 0));
        assert_eq!(leases.rest(&row, now + rest), 0);
    }
}

#[test]
fn a_clock_that_went_far_back_gives_every_place_up() {
    let (row, leases) = (Row::new(), Concurrent::new(2, 60 * SECOND).unwrap());
    let now = 5_000 * SECOND;
    assert!(
        packet(leases, &row, 1, Signal::Open, now) && packet(leases, &row, 2, Signal::Open, now)
    );
    // A CPU whose clock is behind by less than a second.
    assert!(packet(leases, &row, 1, Signal::Data, now - SECOND + 1));
    assert!(!packet(leases, &row, 3, Signal::Open, now - SECOND + 1));
    assert_eq!(leases.fill(&row, now / 2), 0);
    assert!(packet(leases, &row, 3, Signal::Open, now / 2));
    assert!(packet(leases, &row, 1, Signal::Data, now / 2));
    assert!(!packet(leases, &row, 2, Signal::Data, now / 2), "the limit holds");
}

#[test]
fn a_key_owes_as_long_as_it_has_a_connection() {
    for idle in [SECOND, 7 * SECOND, 100 * SECOND, Concurrent::LONGEST] {
        let (word, row) = (Plain::default(), Row::new());
        let leases = Concurrent::new(5, idle).unwrap();
        let measure = Meter::of_concurrent(leases).measure();
        let owes = |now| measure.owes(word.get(), now) != 0;
        let (mut now, step) = (1_000 * SECOND, idle / 23);
        assert!(measure.is_wide() && !owes(now));
        for number in 0..100 {
            assert!(leases.stamp(&word, now), "nobody else is there");
            assert!(packet(leases, &row, 9, Signal::Data, now));
            now += step * (number % 5);
            assert!(owes(now));
        }
        while leases.fill(&row, now) != 0 {
            assert!(owes(now), "{idle}: it has its place still");
            now += step;
        }
        now += idle / 4 + SECOND;
        assert!(!owes(now), "{idle}: and not for much longer");
    }
}

#[test]
fn leases_keep_their_bounds() {
    assert_eq!(Concurrent::new(0, SECOND), Err(BoundsError::NoLimit));
    assert_eq!(Concurrent::new(129, SECOND), Err(BoundsError::TooMany));
    assert_eq!(Concurrent::new(1, SECOND - 1), Err(BoundsError::TooShort));
    assert_eq!(Concurrent::new(1, Concurrent::LONGEST + 1), Err(BoundsError::TooLong));
    assert!(
        [0, 1, 2, 1 << 34, u64::MAX]
            .into_iter()
            .all(|hash| matches!(Concurrent::tag(hash), 1..=0x3fff_ffff))
    );
    let row = Row::new();
    assert!(!packet(Concurrent::default(), &row, 1, Signal::Open, 0));
    assert_eq!(Concurrent::default().wait(&row, 0), u64::MAX);
}
