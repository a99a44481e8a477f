//! What a policy that is as it may be does not keep out, and what would.
//!
//! It is told by `limiter policy check` alone: it is of the policy's making, and no fault of it.

use limiter_common::{
    algorithm::{
        concurrent::Concurrent,
        rate::{Rate, SECOND},
    },
    packet::protocol::TCP,
};

use super::{
    model::{Allowance, GlobalMode, Key, KeyPart, Limit, Mode, Penalty, Policy, Unproven},
    tables::{Dearest, dearest},
};

/// Something that gets past limits of a policy, or is done to others by them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caveat {
    /// The limits that it is about, in the order of the policy.
    pub limits: Vec<String>,
    /// What it is.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

/// The caveats of a policy, each once for all limits that it is about.
pub fn caveats(policy: &Policy) -> Vec<Caveat> {
    let all = [washing, sockets, spoofing, unprovable, elsewhere, single, costly];
    all.iter().filter_map(|caveat| caveat(policy)).collect()
}

/// That of the limits for which there is something to tell.
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

/// Whether a limit drops anything.
fn enforces(policy: &Policy, limit: &Limit) -> bool {
    policy.mode != GlobalMode::Monitor && limit.mode == Mode::Enforce && !limit.is_off()
}

/// Logs and open connections by other keys than the source make room for those of newer ones.
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
        "who sends from very many made-up addresses has it forget what others have used",
        "beside it, a token_bucket with `key: source` or `key: all` holds",
    )
}

/// Open connections are those of sockets on this host.
fn sockets(policy: &Policy) -> Option<Caveat> {
    let is_concurrent = |limit: &Limit| {
        let of = |it: &Allowance| matches!(it, Allowance::Concurrent { .. });
        enforces(policy, limit) && limit.layers.iter().any(|layer| of(&layer.allowance))
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

/// Blocks are earned in the name of others.
fn spoofing(policy: &Policy) -> Option<Caveat> {
    about(
        policy,
        |limit| has_penalty(policy, limit, Unproven::Block),
        "packets with a forged source can have that source blocked, with its open connections",
        "put who must not be cut off on the `allow` list, or take `unproven: block` out",
    )
}

/// Whether a limit blocks sources, and what refused packets count for that nothing proves.
fn has_penalty(policy: &Policy, limit: &Limit, unproven: Unproven) -> bool {
    let is_such = |penalty: &Penalty| penalty.unproven == unproven;
    enforces(policy, limit) && limit.penalty.as_ref().is_some_and(is_such)
}

/// The limits with a penalty that only packets of connections to this host begin.
pub(crate) fn asking_for_proof(policy: &Policy) -> Vec<&str> {
    let limits = policy.limits.iter();
    let asking = limits.filter(|limit| has_penalty(policy, limit, Unproven::Ignore));
    asking.map(|limit| limit.name.as_str()).collect()
}

/// Whether packets of a limit can be of a TCP connection, which alone proves that a source is not forged.
fn can_be_proven(limit: &Limit) -> bool {
    let of = &limit.matching;
    (of.protocols.is_empty() || of.protocols.contains(&TCP))
        && of.icmp_types.is_empty()
        && of.fragments != Some(true)
}

/// Blocks that nothing can begin.
fn unprovable(policy: &Policy) -> Option<Caveat> {
    about(
        policy,
        |limit| has_penalty(policy, limit, Unproven::Ignore) && !can_be_proven(limit),
        "its penalty blocks nobody: only packets of TCP connections prove that their source is not forged",
        "take the penalty out, or accept forged sources by `unproven: block` in it",
    )
}

/// Blocks that only connections to this host begin.
fn elsewhere(policy: &Policy) -> Option<Caveat> {
    about(
        policy,
        |limit| has_penalty(policy, limit, Unproven::Ignore) && can_be_proven(limit),
        "its penalty blocks sources of TCP connections that end on this host, in the network namespace of the interface, \
         and nobody else",
        "where others are to be blocked, accept forged sources by `unproven: block` in it",
    )
}

/// A bucket of one packet admits two in a moment.
fn single(policy: &Policy) -> Option<Caveat> {
    let is_single = |allowance: &Allowance| {
        // Those that come more often are no two in any length of time that matters.
        let is_slow = |rate: Rate| rate.packets.saturating_mul(SECOND) <= rate.period;
        matches!(allowance, Allowance::TokenBucket { rate, burst: 1 } if is_slow(*rate))
    };
    about(
        policy,
        |limit| {
            let mut layers = limit.layers.iter();
            enforces(policy, limit) && layers.any(|layer| is_single(&layer.allowance))
        },
        "a burst of 1 admits 2 at once as soon as a part of the next is there",
        "`algorithm: leaky_bucket` with `depth: 1` admits 1, and half the rate of a source just above it",
    )
}

/// The dearest packet takes long enough for a flood of it to use a CPU up.
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

    /// The limits of each caveat of a document, with a word of what it says.
    fn told(limits: &str) -> Vec<String> {
        let text = format!("version: 1\ntenants: {{acme: {{cidrs: [192.0.2.0/24]}}}}\n{limits}");
        let policy = parse("policy", text.as_bytes(), &mut |_| unreachable!("no files")).unwrap();
        let words =
            ["made-up", "reset", "forged source can", "blocks nobody", "nobody else", "burst of 1"];
        let word = |caveat: &Caveat| {
            let is_said = |word: &&str| caveat.message.contains(*word);
            words.into_iter().find(is_said).unwrap().to_owned()
        };
        // What packets cost is another matter.
        let is_other = |caveat: &Caveat| !caveat.message.contains("of a CPU");
        let all: Vec<_> = caveats(&policy).into_iter().filter(is_other).collect();
        assert!(all.iter().all(|caveat| !caveat.remedy.is_empty()));
        all.iter().map(|caveat| format!("{}: {}", word(caveat), caveat.limits.join(" "))).collect()
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
        }
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
        assert_eq!(of(1), None);
        assert_eq!(of(2), Some(vec!["n".to_owned()]));
    }
}
