//! Limits by key: packets that share a key share what a limit admits, and others do not.

use std::collections::HashMap;

use limiter_common::packet::reason::Reason;
use limiter_tests::program::{Neighbour, TestProgram, Verdict};
use limiter_userspace::policy::{
    KeyPrefix, Policy,
    model::{KeyPart, Layer, Limit},
};

use super::{
    Run, counted,
    define::{key, limit, policy_of, within},
    is_emulated, most,
    mutation::Random,
    program, seed,
    sent::{Part, Sent},
    tokens,
};

/// Packets sent under each policy.
const STEPS: u64 = 1_500;

/// A model: the charges to each key of each layer.
struct Naive {
    policy: Policy,
    layers: Vec<(Vec<KeyPart>, u64)>,
    charged: Vec<HashMap<Vec<Part>, u64>>,
    /// Packets that each layer admitted and refused.
    tallies: Vec<(u64, u64)>,
}

impl Naive {
    fn new(policy: Policy) -> Self {
        let of = |limit: &Limit| {
            let layers = limit.layers.iter().map(|layer| {
                let key = layer.key.as_ref().unwrap_or(&limit.key);
                (key.parts.clone(), layer.allowance.bucket().burst)
            });
            layers.collect::<Vec<_>>()
        };
        let layers: Vec<_> = policy.limits.iter().flat_map(of).collect();
        let charged = vec![HashMap::new(); layers.len()];
        let tallies = vec![(0, 0); layers.len()];
        Self { policy, layers, charged, tallies }
    }

    /// Decides about a packet. Nothing is refilled while time stands still, so a key has left what was not
    /// charged to it. The layers are in the order in which they are checked.
    fn decide(&mut self, sent: &Sent) -> Verdict {
        let keys: Vec<_> =
            self.layers.iter().map(|(parts, _)| sent.key(parts, &self.policy)).collect();
        for (place, key) in keys.iter().enumerate() {
            let Some(key) = key else { continue };
            let charged = self.charged[place].get(key).copied().unwrap_or(0);
            if charged >= self.layers[place].1 {
                self.tallies[place].1 += 1;
                return Verdict::Drop;
            }
        }
        for (place, key) in keys.into_iter().enumerate() {
            if let Some(key) = key {
                *self.charged[place].entry(key).or_default() += 1;
                self.tallies[place].0 += 1;
            }
        }
        Verdict::Pass
    }
}

/// An instance with two interfaces.
struct Two {
    first: TestProgram,
    second: Neighbour,
}

impl Two {
    fn new() -> Self {
        let first = program(&Policy::default());
        let second = first.neighbour(1).unwrap();
        Self { first, second }
    }

    fn run(&mut self, sent: &Sent) -> Verdict {
        let frame = sent.frame();
        if sent.slot == 0 { self.first.run(&frame) } else { self.second.run(&frame) }.unwrap()
    }
}

/// Sends random packets under a policy, whose limits must not have had the names before.
fn check(two: &mut Two, random: &mut Random, policy: Policy) {
    let names: Vec<_> = policy
        .limits
        .iter()
        .flat_map(|limit| (0..limit.layers.len()).map(|layer| limit.name_of_layer(layer)))
        .collect();
    let mut naive = Naive::new(policy);
    two.first.apply(&naive.policy).unwrap();
    for number in 0..most(STEPS) {
        let sent = Sent::any(random);
        let (verdict, expected) = (two.run(&sent), naive.decide(&sent));
        assert_eq!(verdict, expected, "packet {number}: {sent:?}");
    }
    for (name, expected) in names.iter().zip(&naive.tallies) {
        let tally = two.first.tally(name).unwrap();
        assert_eq!((tally.conform.packets, tally.over().packets), *expected, "{name}");
        let [admitted, refused] = [expected.0, expected.1];
        assert!(is_emulated() || admitted > 2, "{name}: {admitted} {refused}");
    }
}

/// A policy whose tenants have prefixes within each other.
fn with_tenants(limits: impl IntoIterator<Item = Limit>, random: &mut Random) -> Policy {
    let mut policy = policy_of(limits);
    for (name, prefixes) in [
        ("acme", &["10.0.0.0/23", "2001:db8::/32"][..]),
        ("beta", &["10.0.1.0/24", "2001:db8:1::/48"]),
        ("core", &["10.0.1.128/25", "2001:db8:1:1::/64", "192.0.2.0/24"]),
    ] {
        let mut prefixes: Vec<_> = prefixes.iter().map(|text| text.parse().unwrap()).collect();
        prefixes.sort_unstable();
        if random.below(4) > 0 {
            policy.tenants.insert(name.to_owned(), prefixes);
        }
    }
    policy
}

fn every_key() -> Vec<Vec<KeyPart>> {
    use KeyPart::{Connection, Destination, DestinationPort, Interface, Source, Tenant};
    vec![
        vec![Source],
        vec![within(24, 64)],
        vec![within(32, 48)],
        vec![within(0, 0)],
        vec![Destination],
        vec![DestinationPort],
        vec![Connection],
        vec![Tenant],
        vec![Interface],
        vec![],
        vec![Tenant, DestinationPort],
        vec![Source, DestinationPort],
        vec![Source, Destination],
        vec![within(24, 48), Destination],
        vec![Destination, DestinationPort],
        vec![Source, Interface],
        vec![Tenant, Destination, DestinationPort, Interface],
    ]
}

#[test]
fn packets_that_share_a_key_share_a_budget() {
    let seed = seed();
    let mut two = Two::new();
    for (run, parts) in (0..).zip(every_key()) {
        for key_prefix in [KeyPrefix { ipv4: 32, ipv6: 64 }, KeyPrefix { ipv4: 25, ipv6: 128 }] {
            let mut random = Random::new(seed, run);
            let name = format!("limit-{run}-{}", key_prefix.ipv4);
            // For some keys, about half of their packets exceed the burst.
            let burst = 1 + random.below(60) as u64;
            let limits = [limit(&name, &parts, tokens(burst))];
            let policy = Policy { key_prefix, ..with_tenants(limits, &mut random) };
            let _run = Run { seed, run, of: &policy.clone() };
            if policy.tenants.is_empty() && parts.contains(&KeyPart::Tenant) {
                // Without tenants the limit applies to no packet.
                two.first.apply(&policy).unwrap();
                let passes = |_| two.run(&Sent::any(&mut random)) == Verdict::Pass;
                assert!((0..200).all(passes));
                continue;
            }
            check(&mut two, &mut random, policy);
        }
    }
    two.first.check_accounts().unwrap();
    assert_eq!(counted(&two.first, Reason::Contended), 0);
}

/// A ladder: limits on the address itself, its network and its site count together, and each may refuse.
#[test]
fn a_ladder_counts_by_all_its_prefixes_at_once() {
    let seed = seed();
    let mut two = Two::new();
    for run in 0..8 {
        let mut random = Random::new(seed, run);
        let steps: [(KeyPart, u64); 3] = [
            (within(32, 128), 1 + random.below(30) as u64),
            (within(25, 64), 20 + random.below(60) as u64),
            (within(24, 48), 60 + random.below(200) as u64),
        ];
        let layers = steps.map(|(part, burst)| Layer {
            allowance: tokens(burst).into(),
            key: Some(key(&[part])),
        });
        let name = format!("ladder-{run}");
        let ladder = Limit { layers: layers.to_vec(), ..limit(&name, &[steps[0].0], tokens(1)) };
        let _run = Run { seed, run, of: &ladder.clone() };
        check(&mut two, &mut random, policy_of([ladder]));
    }
    two.first.check_accounts().unwrap();
}

/// Several limits with different keys apply to each packet. A packet that one refuses is charged to none.
#[test]
fn limits_by_different_keys_are_charged_together() {
    use KeyPart::{Connection, Destination, DestinationPort, Interface, Source, Tenant};
    let seed = seed();
    let mut two = Two::new();
    for run in 0..8 {
        let mut random = Random::new(seed, run);
        // In the order in which they are checked.
        let keys: [&[KeyPart]; 7] = [
            &[Source],
            &[Connection],
            &[within(24, 48)],
            &[Tenant],
            &[Destination],
            &[DestinationPort],
            &[Interface],
        ];
        let limits: Vec<_> = keys
            .iter()
            .zip([20, 4, 60, 200, 250, 400, 600])
            .map(|(parts, about)| {
                let burst = (1 + about / 2 + random.below(about)) as u64;
                limit(&format!("limit-{run} by {:?}", key(parts)), parts, tokens(burst))
            })
            .collect();
        let policy = with_tenants(limits, &mut random);
        let _run = Run { seed, run, of: &policy.clone() };
        check(&mut two, &mut random, policy);
    }
    two.first.check_accounts().unwrap();
}
