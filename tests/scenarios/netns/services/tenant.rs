//! Tenants: groups of prefixes, each with one budget.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};

use limiter_tests::traffic::Receiver;

use super::{Counts, applied, assert_within, end, totals, used};
use crate::netns::{Net, send};

const SECOND: Duration = Duration::from_secs(1);

/// A tenant with three prefixes; another tenant has a part of one of them.
const POLICY: &str = r#"
tenants:
  acme: { cidrs: [198.51.100.0/24, 192.0.2.0/25, "2001:db8:ac::/48"] }
  lab: { cidrs: [198.51.100.128/26] }
limits:
  - name: share
    key: tenant
    rate: 2k pps
    burst: 200
    overrides:
      - { tenant: lab, rate: 500 pps, burst: 50 }"#;

/// One address in each prefix of `acme`; in the first prefix, one on each side of `lab`.
const ACME: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 127)),
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 192)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xac, 0xffff, 0, 0, 0, 1)),
];
/// The first and the last address of `lab`.
const LAB: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(198, 51, 100, 128)), IpAddr::V4(Ipv4Addr::new(198, 51, 100, 191))];
/// Addresses next to the prefixes.
const OUTSIDE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 128)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xad, 0, 0, 0, 0, 1)),
];

#[test]
fn the_prefixes_of_a_tenant_share_one_budget() {
    let net = applied(POLICY);
    // All sources send for two seconds, then one of them alone. It finds no budget of its own.
    let sources = [&ACME[..], &LAB, &OUTSIDE].concat();
    let mut senders: Vec<_> =
        sources.iter().map(|source| net.sender(2_500, net.udp(*source))).collect();
    let receiver = Receiver::start(&net.hosts.router.namespace, &net.hosts.router_port).unwrap();
    let start = Instant::now();
    let sent = send(&mut senders, 2 * SECOND, |_| {});
    let arrived_until = start.elapsed();
    let arrivals = receiver.finish().unwrap();
    let arrived = |sources: &[IpAddr]| -> u64 {
        sources.iter().map(|source| arrivals.from(*source).packets).sum()
    };

    let [acme, lab] = [arrived(&ACME), arrived(&LAB)];
    let (of_acme, of_lab) = (&sent[..ACME.len()], &sent[ACME.len()..][..LAB.len()]);
    // Part of a token is enough for a packet, and the last frames may still be in flight.
    assert_within(acme, (2e3, 200, 2), of_acme, arrived_until);
    assert_within(lab, (5e2, 50, 2), of_lab, arrived_until);
    let outside = &sent[ACME.len() + LAB.len()..];
    for (source, sent) in OUTSIDE.iter().zip(outside) {
        assert_eq!(arrivals.from(*source).packets, sent.packets, "{source} is of no tenant");
    }

    // Sources outside are not counted either.
    let offered: u64 = of_acme.iter().chain(of_lab).map(|sent| sent.packets).sum();
    assert_eq!(Counts::of(&net, "share").packets(), (acme + lab, offered - acme - lab));
    for (source, sent) in sources.iter().zip(&sent) {
        let report = net.json(&format!("get {source} -j"));
        let passed = arrivals.from(*source).packets;
        let packets = totals(&report).map(|(packets, _)| packets);
        assert_eq!(packets, [passed, sent.packets - passed], "{source}");
    }
    end(&net);
}

#[test]
fn what_one_prefix_used_up_is_gone_for_the_others() {
    let net = applied(&POLICY.replace("2k pps", "5/min").replace("500 pps", "5/min"));
    // `burst: 200` at five a minute: almost nothing is refilled meanwhile.
    let offer = |source: IpAddr| {
        let mut senders = [net.sender(1_000, net.udp(source))];
        let (sent, arrivals) = net.flood(&mut senders, SECOND * 3 / 20, |_| {});
        assert_eq!(sent[0].packets, 150);
        arrivals.from(source).packets
    };
    let start = Instant::now();
    assert_eq!(offer(ACME[0]), 150);
    // The use is that of the whole tenant, also for a source that never sent. Part of a token is refilled.
    let (spent, most) = used(&net, &ACME[3].to_string(), "share");
    assert!((140..=150).contains(&spent) && most == 200, "{spent} of {most}");
    let passed: u64 = ACME[1..].iter().map(|source| offer(*source)).sum();
    let most = 50.0 + start.elapsed().as_secs_f64() * 5.0 / 60.0 + 1.0;
    assert!(passed >= 50 && (passed as f64) < most, "{passed}, less than {most:.2} may");
    assert_tenant(&net, &ACME, Some("acme"));

    // The longest prefix decides about the tenant, and the other tenant has used nothing yet.
    assert_eq!(used(&net, &LAB[0].to_string(), "share"), (0, 50));
    let start = Instant::now();
    let passed = offer(LAB[0]) + offer(LAB[1]);
    let most = 50.0 + start.elapsed().as_secs_f64() * 5.0 / 60.0 + 1.0;
    assert!(passed >= 50 && (passed as f64) < most, "{passed}, less than {most:.2} may");
    assert_tenant(&net, &LAB, Some("lab"));

    assert_eq!(OUTSIDE.map(offer), [150, 150]);
    assert_tenant(&net, &OUTSIDE, None);
    end(&net);
}

/// Asserts the tenant of these sources, and that the limit applies only to sources with a tenant.
#[track_caller]
fn assert_tenant(net: &Net, sources: &[IpAddr], tenant: Option<&str>) {
    for source in sources {
        let report = net.json(&format!("get {source} -j"));
        assert_eq!(report["tenant"].as_str(), tenant, "{report}");
        let limits = report["limits"].as_array().unwrap();
        assert_eq!(limits.len(), usize::from(tenant.is_some()), "{report}");
    }
}
