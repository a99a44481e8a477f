//! Sources whose requests a limit refuses one and all until a known time.

use ipnet::IpNet;
use proptest::{prelude::*, sample::select};

use super::{
    model::{any_limit, events},
    *,
};
use crate::{
    bridge::rules::Named,
    policy::model::{Idempotency, Penalty},
};

/// The prefix that is held as one, of this source.
fn prefix(source: IpAddr, holds: KeyPrefix) -> IpNet {
    let source = IpNet::from(source);
    IpNet::new(source.addr(), holds.length_for(&source)).unwrap().trunc()
}

/// What a limit on sources says that lets one request pass a minute, after that request.
fn holds(limit: RequestLimit, change: impl FnOnce(&mut Policy)) -> Option<KeyPrefix> {
    let mut policy = policy(&[limit]);
    change(&mut policy);
    let mut decider = decider(&policy);
    let asked = Asked::default();
    assert!(decider.passes(&asked, NOW));
    let answer = decider.ask(&asked, NOW + 1);
    if policy.mode == GlobalMode::Monitor || policy.on_requests[0].mode == Mode::Monitor {
        assert_eq!(answer.verdict, Verdict::Pass);
        return answer.held().and_then(|held| held.holds);
    }
    assert_eq!(answer.verdict, Verdict::Limited);
    answer.held().and_then(|held| held.holds)
}

#[test]
fn a_limit_on_all_requests_of_a_source_holds_it() {
    let each = || by_source("a", Allowance::SlidingLog { limit: 1, window: 60 * SECOND });
    assert_eq!(holds(each(), |_| ()), Some(KeyPrefix { ipv4: 32, ipv6: 64 }));
    let prefix = [RequestKeyPart::SourcePrefix { ipv4: 24, ipv6: 48 }];
    let wide = || limit("a", &prefix, each().layers[0].allowance);
    assert_eq!(holds(wide(), |_| ()), Some(KeyPrefix { ipv4: 24, ipv6: 48 }));
    let bucket = by_source("a", per_minute(1, 1));
    let mut decider = decider(&policy(&[bucket]));
    assert_eq!(decider.admitted(&Asked::default(), NOW), 1);
    let held = decider.ask(&Asked::default(), NOW).held().map(|held| held.wait);
    assert!(held.is_some_and(|wait| wait > 0));
}

#[test]
fn a_limit_that_may_let_a_request_pass_holds_nobody() {
    type Change = fn(&mut RequestLimit);
    let log = Allowance::SlidingLog { limit: 1, window: 60 * SECOND };
    let each = || by_source("a", log);
    let changes: [(&str, Change); 8] = [
        ("match", |it| {
            let get = vec![Pattern::Exact("GET".to_owned())];
            it.matching.fields.insert(Field::Method, get);
        }),
        ("key", |it| it.key.parts = vec![]),
        ("another part", |it| it.key.parts.push(RequestKeyPart::Field(Field::Method))),
        ("cost", |it| it.cost.values = BTreeMap::from([("GET".to_owned(), 1)])),
        ("override", |it| {
            let fields = BTreeMap::from([(Field::Path, Pattern::Exact("/free".to_owned()))]);
            it.overrides.push(RequestOverride { whom: None, fields, layers: None });
        }),
        ("penalty", |it| it.penalty = Some(Penalty::new(SECOND, SECOND))),
        ("idempotency", |it| it.idempotency = Some(Idempotency { window: SECOND })),
        ("open", |it| {
            it.layers[0].allowance = Allowance::Concurrent { limit: 1, idle: 60 * SECOND };
        }),
    ];
    for (what, change) in changes {
        let mut limit = each();
        change(&mut limit);
        assert_eq!(holds(limit, |_| ()), None, "{what}");
    }
    assert_eq!(holds(each(), |policy| policy.mode = GlobalMode::Monitor), None);
    assert_eq!(holds(RequestLimit { mode: Mode::Monitor, ..each() }, |_| ()), None);
    let delayed = Allowance::LeakyBucket { rate: Rate { packets: 1, period: SECOND }, depth: 1 };
    let delayed = RequestLimit { delay: Some(SECOND / 2), ..by_source("a", delayed) };
    assert_eq!(holds(delayed, |_| ()), None);
    // It never passes.
    let mut decider = decider(&policy(&[by_source("a", log)]));
    let mut answer = Answer::default();
    decider.peek(&Asked::default().request(), 2, NOW, &mut answer);
    assert_eq!((answer.verdict, answer.held()), (Verdict::Limited, None));
}

/// One word is theirs, and any of them may get another.
#[test]
fn a_state_that_sources_share_holds_nobody() {
    let window = Allowance::FixedWindow { limit: 1, window: 60 * SECOND };
    let mut decider = decider(&policy(&[by_source("a", window)]));
    let sources: Vec<Asked> =
        (0..4_000_u32).map(|at| Asked::from(&IpAddr::from(at.to_be_bytes()).to_string())).collect();
    for asked in &sources {
        decider.ask(asked, NOW);
    }
    assert!(decider.counts().shared > 0);
    let held = |asked: &Asked, decider: &mut Decider| {
        let answer = decider.ask(asked, NOW);
        assert_eq!(answer.verdict, Verdict::Limited);
        answer.held().is_some()
    };
    let held = sources.iter().filter(|asked| held(asked, &mut decider)).count();
    assert!((512..=1_024).contains(&held), "{held} of {} sources", sources.len());
}

/// Limits of all kinds, some of which are about all requests of a source.
fn limits() -> impl Strategy<Value = Vec<RequestLimit>> {
    let more = select(vec![0, 0, 0, 0, 1, 2, 3, 4]);
    let limit = (any_limit(), more).prop_map(|(mut limit, more)| {
        match more {
            1 => {
                limit.cost.by = Some(Field::Method);
                limit.cost.values = BTreeMap::from([("POST".to_owned(), 3)]);
            }
            2 => {
                let fields = BTreeMap::from([(Field::Method, Pattern::Exact("POST".to_owned()))]);
                limit.overrides.push(RequestOverride { whom: None, fields, layers: None });
            }
            3 => {
                let whom = Whom::Prefix("2001:db8::/64".parse().unwrap());
                limit.matching.except_sources.push(whom);
            }
            4 => limit.missing = Missing::Refuse,
            _ => {}
        }
        limit
    });
    prop::collection::vec(limit, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whether sources that are held are asked about or not, the verdicts are the same: each would be refused, and what is refused
    /// is charged nothing. After a refund, they are not held any more.
    #[test]
    fn who_is_held_would_be_refused(
        mut limits in limits(),
        events in events(),
        settles in prop::collection::vec(0..20_u8, 300),
        is_allowed in any::<bool>(),
    ) {
        for (at, limit) in limits.iter_mut().enumerate() {
            limit.name = format!("limit-{at}");
        }
        let mut policy = policy(&limits);
        if is_allowed {
            let whom = Whom::Prefix("2001:db8::2/128".parse().unwrap());
            policy.allow.push(Listed { whom, until: None });
        }
        let named = Named::new(&policy).unwrap();
        let mut decider = Decider::new(&policy, Table::in_memory(1 << 14)).unwrap();
        let mut held: BTreeMap<IpNet, u64> = BTreeMap::new();
        let (mut now, mut answer) = (NOW, Answer::default());
        for ((asked, hits, later), settles) in events.iter().zip(settles) {
            // Others of a prefix ask, too.
            let mut asked = asked.clone();
            if asked.source == Some("2001:db8::1".parse().unwrap()) {
                let other = ["2001:db8::1", "2001:db8::2", "2001:db8::3"][usize::from(settles % 3)];
                asked.source = Some(other.parse().unwrap());
            }
            let (request, source) = (asked.request(), asked.source.unwrap());
            now += later;
            let settlement = match settles {
                0 | 1 => Some(Settlement::Refund),
                2 => Some(Settlement::Charge),
                _ => None,
            };
            if let Some(settlement) = settlement {
                decider.settle(&request, *hits, settlement, now, &mut answer);
                if settlement == Settlement::Refund {
                    for holds in answer.standings.iter().filter_map(|it| it.holds) {
                        held.remove(&prefix(source, holds));
                    }
                }
                continue;
            }
            decider.decide(&request, *hits, now, &mut answer);
            let is_held = held.iter().any(|(of, until)| of.contains(&source) && now < *until);
            prop_assert!(!is_held || answer.verdict != Verdict::Pass, "{:?}", asked);
            if let Some(of) = answer.held().filter(|_| *hits == 1) {
                let prefix = prefix(source, of.holds.unwrap());
                if named.is_one(&prefix) {
                    held.insert(prefix, now + of.wait);
                }
            }
        }
    }
}
