//! What a valid policy does not protect from, and what to change for that.
//!
//! Only `limiter policy check` prints these caveats. None of them is an error: the policy is in force.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use limiter_common::{
    algorithm::{
        concurrent::Concurrent,
        rate::{Rate, SECOND},
    },
    packet::protocol::TCP,
};

use super::{
    cover::Cover,
    model::{
        Allowance, GlobalMode, Key, KeyPart, Limit, Mode, OfRequests, Penalty, Policy, Unproven,
    },
    tables::{Dearest, dearest},
};

/// A way to get past limits of a policy, or harm that they can do to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caveat {
    /// The names of the limits concerned, in the order of the policy.
    pub limits: Vec<String>,
    /// What can happen.
    pub message: String,
    /// What to change.
    pub remedy: String,
}

/// Returns the caveats of a policy, each once with all limits that it concerns.
pub fn caveats(policy: &Policy) -> Vec<Caveat> {
    let all =
        [allowed, washing, sockets, spoofing, unprovable, elsewhere, single, dropping, costly];
    all.iter().filter_map(|caveat| caveat(policy)).collect()
}

/// The caveat for the limits that `is_about` selects; `None` if it selects none.
fn about(
    policy: &Policy,
    is_about: impl Fn(&Limit) -> bool,
    message: impl Into<String>,
    remedy: impl Into<String>,
) -> Option<Caveat> {
    let limits: Vec<String> =
        policy.limits.iter().filter(|it| is_about(it)).map(|it| it.name.clone()).collect();
    let told = !limits.is_empty();
    told.then(|| Caveat { limits, message: message.into(), remedy: remedy.into() })
}

/// An `allow` list with every address of a family, for ever: nothing of it is ever limited.
fn allowed(policy: &Policy) -> Option<Caveat> {
    let lasting = policy.allow.iter().filter(|listed| listed.until.is_none());
    let prefixes = lasting.flat_map(|listed| policy.prefixes(&listed.whom)).copied();
    let cover = Cover::of(prefixes.collect());
    let has = |prefix: IpNet| cover.around(prefix).is_some();
    let message = match (has(Ipv4Net::default().into()), has(Ipv6Net::default().into())) {
        (true, true) => "no limit has an effect: `allow` has every address",
        (true, false) => "no limit has an effect on IPv4: `allow` has every address of it",
        (false, true) => "no limit has an effect on IPv6: `allow` has every address of it",
        (false, false) => return None,
    };
    about(policy, |_| true, message, "allow only the sources that are to be without limits")
}

/// Whether a limit can drop packets that are over its rate.
fn enforces(policy: &Policy, limit: &Limit) -> bool {
    policy.mode != GlobalMode::Monitor && limit.mode == Mode::Enforce && !limit.is_off()
}

/// The table of sliding logs and open connections is small: a flood with more than a packet of each key fills it, and new keys
/// share one state. The caveat is omitted if another enforced limit, whose state is elsewhere, is about the same packets.
fn washing(policy: &Policy) -> Option<Caveat> {
    let parts = |key: &Key| key.parts.clone();
    let is_kept = |allowance: &Allowance, key: &Key| {
        let is_wide =
            matches!(allowance, Allowance::SlidingLog { .. } | Allowance::Concurrent { .. });
        let few = |part: &KeyPart| matches!(part, KeyPart::Tenant | KeyPart::Interface);
        !is_wide || parts(key).iter().all(few)
    };
    let is_forgotten = |limit: &Limit| {
        let layers = limit.layers.iter();
        layers.enumerate().any(|(place, it)| !is_kept(&it.allowance, limit.key_of_layer(place)))
    };
    let holds = |limit: &Limit, other: &Limit| {
        enforces(policy, other)
            && !is_forgotten(other)
            && !other.layers.is_empty()
            && other.count == limit.count
            && (other.matching == limit.matching || other.conditions() == 0)
    };
    let is_about = |limit: &Limit| {
        enforces(policy, limit)
            && is_forgotten(limit)
            && !policy.limits.iter().any(|other| holds(limit, other))
    };
    about(
        policy,
        is_about,
        "a flood of several packets from each of very many made-up addresses fills the table of its states, and newcomers then \
         share 128 places at most",
        "put a token_bucket with `key: source` or `key: all` beside it, or raise --wide-states",
    )
}

/// Open connections that end on another host: there is no socket here to look up.
fn sockets(policy: &Policy) -> Option<Caveat> {
    let is_concurrent = |limit: &Limit| {
        let of = |it| matches!(it, Allowance::Concurrent { .. });
        enforces(policy, limit) && limit.allowances().any(of)
    };
    let seconds = Concurrent::CLOSING / SECOND;
    about(
        policy,
        is_concurrent,
        format!(
            "of connections that end on another host or in another network namespace, a FIN or a \
             reset, also a forged one, gives the place away after {seconds} s of silence"
        ),
        "attach where the sockets are, or count new connections beside it",
    )
}

/// Penalties with `unproven: block`: forged packets have their source blocked.
fn spoofing(policy: &Policy) -> Option<Caveat> {
    about(
        policy,
        |limit| has_penalty(policy, limit, Unproven::Block),
        "packets with a forged source can have that source blocked, with its open connections",
        "put sources that must not be cut off on the `allow` list, or remove `unproven: block`",
    )
}

/// Whether a limit drops packets and has a penalty with this setting of `unproven`.
fn has_penalty(policy: &Policy, limit: &Limit, unproven: Unproven) -> bool {
    let is_such = |penalty: &Penalty| penalty.unproven == unproven;
    let drops =
        enforces(policy, limit) || policy.mode != GlobalMode::Monitor && limit.mode == Mode::Drop;
    drops && limit.penalty.as_ref().is_some_and(is_such)
}

/// The names of the limits whose penalties only packets with a proof begin.
pub(crate) fn asking_for_proof(policy: &Policy) -> Vec<&str> {
    let limits = policy.limits.iter();
    let asking = limits.filter(|limit| has_penalty(policy, limit, Unproven::Ignore));
    asking.map(|limit| limit.name.as_str()).collect()
}

/// Whether a limit can match a segment of a TCP connection. Only such a segment proves that its source is not
/// forged.
fn can_be_proven(limit: &Limit) -> bool {
    let of = &limit.matching;
    (of.protocols.is_empty() || of.protocols.contains(&TCP))
        && of.icmp_types.is_empty()
        && of.fragments != Some(true)
}

/// Penalties that need a proof, of limits whose packets can have none.
fn unprovable(policy: &Policy) -> Option<Caveat> {
    about(
        policy,
        |limit| has_penalty(policy, limit, Unproven::Ignore) && !can_be_proven(limit),
        "its penalty blocks nobody: only packets of TCP connections prove that their source is not forged",
        "remove the penalty, or accept forged sources by `unproven: block` in it",
    )
}

/// Penalties that need a proof: they block only peers of connections to this host.
fn elsewhere(policy: &Policy) -> Option<Caveat> {
    about(
        policy,
        |limit| has_penalty(policy, limit, Unproven::Ignore) && can_be_proven(limit),
        "its penalty blocks sources of TCP connections that end on this host, in the network namespace of the interface, \
         and nobody else",
        "to block others too, accept forged sources by `unproven: block` in it",
    )
}

/// Slow token buckets with a burst of 1: they admit two packets at once as soon as the second token begins to
/// fill.
fn single(policy: &Policy) -> Option<Caveat> {
    let is_single = |allowance| {
        // At more than one a second, two packets at once make no difference.
        let is_slow = |rate: Rate| rate.packets.saturating_mul(SECOND) <= rate.period;
        matches!(allowance, Allowance::TokenBucket { rate, burst: 1 } if is_slow(rate))
    };
    about(
        policy,
        |limit| enforces(policy, limit) && limit.allowances().any(is_single),
        "a burst of 1 admits 2 packets at once as soon as part of the second token is there",
        "`algorithm: leaky_bucket` with `depth: 1` admits 1, and half the rate of a source just above it",
    )
}

/// Limits that refuse requests, and whose reserve has no room for a request: its client is not told 429.
fn dropping(policy: &Policy) -> Option<Caveat> {
    let is_small = |limit: &Limit| {
        let request = OfRequests::request(&limit.count);
        let mut most = limit.allowances().map(|allowance| allowance.bucket().burst);
        most.any(|most| OfRequests::reserve(most, request) < request)
    };
    about(
        policy,
        |limit| enforces(policy, limit) && limit.requests == OfRequests::Enforce && is_small(limit),
        "packets are dropped before a client is told 429: `requests: enforce` keeps half of the burst at most, and a request takes 10 \
         packets (15,000 bytes, 1 connection)",
        "give it a burst of 50 packets, and of 20 at least (30,000 bytes, 2 connections)",
    )
}

/// The most expensive packet that the policy can be sent, if it takes a CPU more than 1 us.
fn costly(policy: &Policy) -> Option<Caveat> {
    const MOST: u64 = 1_000;
    let Dearest { packet, nanoseconds, limits } =
        dearest(policy).filter(|dearest| dearest.nanoseconds > MOST)?;
    let (micros, tenth) = (nanoseconds / 1_000, nanoseconds % 1_000 / 100);
    let thousands = 1_000_000 / nanoseconds;
    Some(Caveat {
        limits,
        message: format!(
            "a packet ({packet}) of a new source and connection takes about {micros}.{tenth} us of a CPU: \
             {thousands},000 a second use it up"
        ),
        remedy: "give them a narrower `match`, or `key: source` and `count: syns`".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::document::parse;

    /// The limits of each caveat of a document, with a keyword of its message.
    fn told(limits: &str) -> Vec<String> {
        let text = format!("version: 1\ntenants: {{acme: {{cidrs: [192.0.2.0/24]}}}}\n{limits}");
        let policy = parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap();
        let words = [
            "made-up",
            "reset",
            "forged source can",
            "blocks nobody",
            "nobody else",
            "burst of 1",
            "told 429",
        ];
        let word = |caveat: &Caveat| {
            let is_said = |word: &&str| caveat.message.contains(*word);
            words.into_iter().find(is_said).unwrap().to_owned()
        };
        // Costs have a test of their own.
        let is_other = |caveat: &Caveat| !caveat.message.contains("of a CPU");
        let all: Vec<_> = caveats(&policy).into_iter().filter(is_other).collect();
        assert!(all.iter().all(|caveat| !caveat.remedy.is_empty()));
        all.iter().map(|caveat| format!("{}: {}", word(caveat), caveat.limits.join(" "))).collect()
    }

    #[test]
    fn limits_of_whom_everybody_is_allowed_are_told() {
        let said = |allow: &str| {
            let text = format!("{allow}\nlimits: [{{name: a, key: source, rate: 5/s}}]");
            let text = format!("version: 1\n{text}");
            let policy =
                parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap();
            caveats(&policy).into_iter().map(|caveat| caveat.message).collect::<Vec<_>>()
        };
        let both = ["no limit has an effect: `allow` has every address"];
        assert_eq!(said("allow: [0.0.0.0/0, '::/0']"), both);
        assert_eq!(
            said("sets: {all: {cidrs: [0.0.0.0/1, 128.0.0.0/1, '::/0']}}\nallow: [all]"),
            both
        );
        let ipv4 = ["no limit has an effect on IPv4: `allow` has every address of it"];
        assert_eq!(said("allow: [0.0.0.0/0]"), ipv4);
        let none: [&str; 0] = [];
        assert_eq!(said("allow: [0.0.0.0/1, '::/1']"), none);
        assert_eq!(said("allow: [{src: 0.0.0.0/0, until: 2099-01-31T18:00:00Z}]"), none);
    }

    #[test]
    fn keys_that_can_be_washed_out_are_told() {
        let limit = |what: &str| told(&format!("limits: [{{name: a, rate: 5/s, {what}}}]"));
        let none: [&str; 0] = [];
        for kept in [
            "key: source",
            "key: all",
            "key: tenant",
            "key: all, algorithm: sliding_log",
            "key: source/24",
            "key: connection",
            "key: source, algorithm: sliding_window",
        ] {
            assert_eq!(limit(kept), none, "{kept}");
        }
        let forgotten = ["made-up: a"];
        for key in ["source/24", "source", "connection"] {
            let key = format!("key: {key}, algorithm: sliding_log");
            assert_eq!(limit(&key), forgotten, "{key}");
            assert_eq!(limit(&format!("{key}, action: monitor")), none, "{key}");
            let beside = format!("{key}}}, {{name: b, key: all, rate: 1kpps");
            assert_eq!(limit(&beside), none, "{key}");
            let beside =
                format!("{key}}}, {{name: b, key: all, match: {{protocol: tcp}}, rate: 9/s");
            assert_eq!(limit(&beside), forgotten, "{key}");
        }
        let ladder =
            "limits: [{name: a, key: source, layers: [{rate: 5/s}, {rate: 9/s, key: source/24}]}]";
        assert_eq!(told(ladder), none);
    }

    #[test]
    fn what_others_can_do_is_told_where_it_is_enforced() {
        let limit = |what: &str| told(&format!("limits: [{{name: a, key: source, {what}}}]"));
        let none: [&str; 0] = [];
        let open = "algorithm: concurrent, limit: 10";
        assert_eq!(limit(open), ["made-up: a", "reset: a"]);
        let penalty = "rate: 5/s, penalty: {after: 10s, block: 1m}";
        assert_eq!(limit(penalty), ["nobody else: a"]);
        for (which, expected) in [
            ("protocol: tcp", "nobody else"),
            ("protocol: [udp, tcp], ports: 53", "nobody else"),
            ("protocol: udp", "blocks nobody"),
            ("protocol: icmp", "blocks nobody"),
            ("protocol: tcp, fragments: true", "blocks nobody"),
        ] {
            let told = limit(&format!("match: {{{which}}}, {penalty}"));
            assert!(told.contains(&format!("{expected}: a")), "{which}: {told:?}");
        }
        let unproven = "rate: 5/s, penalty: {after: 10s, block: 1m, unproven: block}";
        assert_eq!(limit(unproven), ["forged source can: a"]);
        let unproven = format!("match: {{protocol: udp}}, {unproven}");
        assert_eq!(limit(&unproven), ["forged source can: a"]);
        for single in ["rate: 1/h, burst: 1", "rate: 5/min"] {
            assert_eq!(limit(single), ["burst of 1: a"], "{single}");
            let other = format!("rate: 9/s, burst: 9, overrides: [{{src: 192.0.2.1, {single}}}]");
            assert_eq!(limit(&other), ["burst of 1: a"], "{other}");
        }
        let override_alone = "algorithm: concurrent, overrides: [{src: 192.0.2.1, limit: 10}]";
        assert_eq!(limit(override_alone), ["reset: a"]);
        for fine in [
            "rate: 5/min, burst: 5",
            "rate: 5/min, burst: 1, algorithm: leaky_bucket, depth: 1",
            "rate: 10/s, burst: 1",
        ] {
            let fine = fine.replace(", burst: 1, algorithm", ", algorithm");
            assert_eq!(limit(&fine), none, "{fine}");
        }
        for what in [open, penalty, "rate: 1/h, burst: 1"] {
            assert_eq!(limit(&format!("{what}, action: monitor")), none, "{what}");
            let monitored = format!("mode: monitor\nlimits: [{{name: a, key: source, {what}}}]");
            assert_eq!(told(&monitored), none, "{what}");
        }
    }

    #[test]
    fn a_burst_without_room_for_a_refusal_is_told() {
        let limit = |requests: &str, what: &str| {
            let limit = format!("name: a, key: source, requests: {requests}, {what}");
            told(&format!("limits: [{{{limit}}}]"))
        };
        let none: [&str; 0] = [];
        for (small, enough) in [
            ("rate: 50 pps, burst: 19", "rate: 50 pps, burst: 20"),
            ("rate: 19/s, algorithm: fixed_window", "rate: 20/s, algorithm: fixed_window"),
            (
                "count: bytes, rate: 1 MB/s, burst: 29999 B",
                "count: bytes, rate: 1 MB/s, burst: 30 kB",
            ),
            ("count: syns, rate: 5/s, burst: 1", "count: syns, rate: 5/s, burst: 2"),
            (
                "layers: [{rate: 50 pps, burst: 9}, {rate: 20 pps, burst: 60}]",
                "layers: [{rate: 50 pps, burst: 50}, {rate: 20 pps, burst: 60}]",
            ),
            (
                "rate: 20/s, burst: 20, overrides: [{src: 192.0.2.1, rate: 20/s, burst: 19}]",
                "rate: 20/s, burst: 20, overrides: [{src: 192.0.2.1, rate: 20/s, burst: 20}]",
            ),
        ] {
            assert_eq!(limit("enforce", small), ["told 429: a"], "{small}");
            assert_eq!(limit("enforce", enough), none, "{enough}");
            assert_eq!(limit("advise", small), none, "{small}");
            assert_eq!(limit("enforce", &format!("{small}, action: monitor")), none, "{small}");
        }
    }

    #[test]
    fn a_packet_that_takes_over_a_microsecond_is_told() {
        let of = |layers: u32| {
            let layer = |number| format!("{{rate: {number}/s, burst: {}}}", 100 - number);
            let layers: Vec<String> = (1..=layers).map(layer).collect();
            let layers = layers.join(", ");
            let limit = format!("{{name: n, key: [source, destination], layers: [{layers}]}}");
            let text = format!("version: 1\nlimits: [{limit}]");
            let policy =
                parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap();
            costly(&policy).map(|caveat| caveat.limits)
        };
        assert_eq!(of(2), None);
        assert_eq!(of(3), Some(vec!["n".to_owned()]));
    }
}
