//! Cases of traffic that limits are there for: botnets, and loads near a limit and over it.

use anyhow::Result;
use limiter_common::{
    algorithm::rate::{Rate, SECOND},
    packet::reason::Reason,
};
use limiter_tests::packet::Frame;

use super::{
    case::{Case, SOURCE4, Sources, TARGET4, short},
    outcome::Outcome,
    setting::Setting,
};

/// The numbers of sources of a botnet.
const BOTNETS: [u32; 3] = [1 << 8, 1 << 12, 1 << 16];

/// Rates of limits that frames pass and exceed in turn, as they are offered a little faster, and the names of those.
const NEAR: [(u64, &str); 4] =
    [(500_000, "500k"), (1_000_000, "1M"), (3_000_000, "3M"), (6_000_000, "6M")];

/// Rates of limits that each packet of a new source meets, and the names of those.
const NEW: [(Rate, &str); 3] = [
    (Rate::per_second(1_000), "1 kpps"),
    (Rate::per_second(10_000), "10 kpps"),
    (Rate { packets: 5, period: 60 * SECOND }, "5/min"),
];

/// What is over a limit nearly always, but within it when that admits the next packet.
pub(crate) const OVER: Outcome = Outcome::Most(&[Reason::Exceed], &[Reason::Conform]);

/// The cases.
pub(crate) fn cases() -> Result<Vec<Case>> {
    let udp = Frame::udp(SOURCE4, TARGET4, 40_000, 53);
    let mut cases = Vec::new();
    for number in BOTNETS {
        let id = format!("botnet_{}", short(number).replace(' ', ""));
        let name = format!("{} real sources at random, all over 1/min", short(number));
        let case = Case::new(id, name, Setting::Botnet(number), &udp)?;
        cases.push(Case { outcome: OVER, ..case.of(Sources::Tracked(number)) });
    }
    for (rate, short) in NEAR {
        let (id, name) = (format!("near_{short}"), format!("offered near a limit of {short}/s"));
        let case = Case::new(id, name, Setting::PerSecond(rate), &udp)?;
        // The loop of a slow CPU is within the highest.
        let outcome = Outcome::Most(&[Reason::Conform, Reason::Exceed], &[]);
        cases.push(Case { outcome, ..case });
    }
    for (rate, short) in [(10_000, "10 kpps"), (100_000, "100 kpps")] {
        let id = format!("over_{}", short.replace(' ', ""));
        let name = format!("known source, over a limit of {short}");
        let case = Case::new(id, name, Setting::PerSecond(rate), &udp)?;
        cases.push(Case { outcome: OVER, ..case });
    }
    for (rate, short) in NEW {
        let id = format!("new_source_{}", short.replace(' ', "").replace('/', "_"));
        let name = format!("new source every packet, full table, {short}, default burst");
        let case = Case::new(id, name, Setting::SpoofedRate(rate), &udp)?;
        // A made-up source may come twice.
        let outcome = Outcome::Most(&[Reason::Conform], &[Reason::Exceed]);
        cases.push(Case { outcome, ..case.of(Sources::MadeUp) });
    }
    Ok(cases)
}
