//! Cases of hostile traffic: botnets, and loads near a limit and over it.

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

/// Numbers of sources in a botnet.
const BOTNETS: [u32; 3] = [1 << 8, 1 << 12, 1 << 16];

/// Rates of limits that are slightly exceeded, so that frames pass and exceed in turn, with their names.
const NEAR: [(u64, &str); 4] =
    [(500_000, "500k"), (1_000_000, "1M"), (3_000_000, "3M"), (6_000_000, "6M")];

/// Rates of limits under which every packet comes from a new source, with their names.
const NEW: [(Rate, &str); 3] = [
    (Rate::per_second(1_000), "1 kpps"),
    (Rate::per_second(10_000), "10 kpps"),
    (Rate { packets: 5, period: 60 * SECOND }, "5/min"),
];

/// Nearly every frame exceeds the limit; one conforms whenever a token is refilled.
pub(crate) const OVER: Outcome = Outcome::Most(&[Reason::Exceed], &[Reason::Conform]);

/// Builds the cases.
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
        // A slow CPU generates fewer frames than the highest limit admits.
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
        // A random source may occur twice.
        let outcome = Outcome::Most(&[Reason::Conform], &[Reason::Exceed]);
        cases.push(Case { outcome, ..case.of(Sources::MadeUp) });
    }
    Ok(cases)
}
