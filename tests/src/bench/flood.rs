//! Cases of traffic that limits are there for: botnets, and loads near a limit and over it.

use anyhow::Result;
use limiter_common::reason::Reason;
use limiter_tests::packet::Frame;

use super::{
    case::{Case, SOURCE4, Sources, TARGET4, short},
    outcome::Outcome,
    setting::Setting,
};

/// The numbers of sources of a botnet.
const BOTNETS: [u32; 3] = [1 << 8, 1 << 12, 1 << 16];

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
    Ok(cases)
}
