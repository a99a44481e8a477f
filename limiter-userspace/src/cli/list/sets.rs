//! Sets of run-time entries, which `--replace SET` replaces as a whole.
//!
//! Such a set is mostly a feed that a timer fetches. So what a broken feed looks like is refused.

use ipnet::IpNet;
use thiserror::Error;

use crate::{
    error::{Failure, INVALID, Result},
    policy::{
        Layered, List,
        guard::{Harm, Host, harm_of_set},
        units::quoted,
    },
};

/// Why a set is not replaced.
#[derive(Debug, Error)]
enum SetError {
    #[error("set {set} is not replaced: the new list is empty")]
    Empty { list: &'static str, set: String },
    #[error("set {set} is not replaced: the new list {harm}")]
    Harm { list: &'static str, set: String, harm: Harm },
}

impl Failure for SetError {
    fn exit_code(&self) -> u8 {
        INVALID
    }

    fn remedy(&self) -> Option<String> {
        // What an entry by hand covers is nothing new.
        let by_hand = |list: &str, what: &dyn std::fmt::Display| {
            format!("check the list; if it is meant, do this first: `limiter {list} add {what}`")
        };
        Some(match self {
            Self::Empty { list, set } => {
                format!("check the list; `limiter {list} flush --set {set}` empties the set")
            }
            Self::Harm { list, set, harm } => match harm {
                Harm::Everything(prefix) | Harm::Network(prefix) => by_hand(list, prefix),
                Harm::Address(address) | Harm::Gateway(address) => by_hand(list, address),
                Harm::Share(_) => format!(
                    "check the list; if it is meant, add it without `--replace`: `limiter {list} \
                     add -`"
                ),
                Harm::Loss { .. } => format!(
                    "check that the list is whole; if so, empty the set first: `limiter {list} \
                     flush --set {set}`"
                ),
            },
        })
    }
}

/// Checks the name of a set.
pub(super) fn name(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if text.is_empty() || text.len() > 64 || !text.bytes().all(is_plain) {
        return Err(format!("{} is no name: give letters, digits, _, - and .", quoted(text)));
    }
    Ok(text.to_owned())
}

/// The same prefixes, if there are any to replace a set by.
pub(super) fn some(list: List, set: &str, prefixes: Vec<IpNet>) -> Result<Vec<IpNet>> {
    if prefixes.is_empty() {
        return Err(SetError::Empty { list: list.name(), set: set.to_owned() }.into());
    }
    Ok(prefixes)
}

/// Checks at `now` (seconds of Unix time) that a set of a list may be replaced by these prefixes.
pub(super) fn check(
    (list, set): (List, &str),
    layered: Layered<'_>,
    prefixes: &[IpNet],
    host: &Host,
    now: u64,
) -> Result<()> {
    let Layered { policy, run_time } = layered;
    let document = policy.list(list).iter().filter(|it| !it.is_over(now));
    let document = document.flat_map(|it| policy.prefixes(&it.whom)).copied();
    let entries = || run_time.list(list).filter(|it| !it.exception && !it.is_over(now));
    let known = document.chain(entries().map(|it| it.prefix));
    let of_set = entries().filter(|it| it.set.as_deref() == Some(set));
    let before: Vec<IpNet> = of_set.map(|it| it.prefix).collect();
    match harm_of_set(known, &before, prefixes, host) {
        Some(harm) => Err(SetError::Harm { list: list.name(), set: set.to_owned(), harm }.into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Layers, Policy, run_time::Entry, units::parse_addresses};

    #[test]
    fn a_feed_that_would_cut_this_host_off_is_refused_until_it_is_listed_by_hand() {
        let host = Host {
            addresses: ["198.51.100.7".parse().unwrap()].into(),
            gateways: ["198.51.100.1".parse().unwrap()].into(),
            networks: ["10.9.0.0/16".parse().unwrap()].into(),
        };
        let mut layers = Layers::default();
        let check = |layers: &Layers, text: &str| {
            let prefixes = parse_addresses(text).unwrap();
            check((List::Deny, "feed"), layers.view(), &prefixes, &host, 0)
        };
        for (text, words, remedy) in [
            ("0.0.0.0/0", "newly has 0.0.0.0/0, every address", "`limiter deny add 0.0.0.0/0`"),
            ("198.51.100.7", "an address of this host", "`limiter deny add 198.51.100.7`"),
            ("198.51.100.0/30", "a gateway of this host", "`limiter deny add 198.51.100.1`"),
            ("10.0.0.0/8", "a network that this host is on", "`limiter deny add 10.9.0.0/16`"),
            ("0.0.0.0-255.255.255.254", "198.51.100.7, an address", "198.51.100.7`"),
            ("64.0.0.0-127.255.255.254", "more than an eighth of", "`limiter deny add -`"),
        ] {
            let error = check(&layers, text).unwrap_err();
            let told = error.to_string();
            assert!(told.starts_with("set feed is not replaced: the new list newly "), "{told}");
            assert!(told.contains(words), "{text}: {told}");
            assert!(error.remedy().unwrap().ends_with(remedy), "{text}: {:?}", error.remedy());
            assert_eq!(error.exit_code(), INVALID);
        }
        check(&layers, "198.51.100.8-198.51.100.77").unwrap();
        let by_hand = Entry::new(List::Deny, "198.51.100.7/32".parse().unwrap());
        layers.run_time.put(&Policy::default(), by_hand, 0).unwrap();
        check(&layers, "198.51.100.7").unwrap();
    }

    #[test]
    fn a_set_keeps_half_of_what_it_covers() {
        let mut layers = Layers::default();
        let of = |count: u8| -> Vec<IpNet> {
            (0..count).map(|at| IpNet::from(std::net::IpAddr::from([192, 0, 2, 2 * at]))).collect()
        };
        let check = |layers: &Layers, prefixes: &[IpNet], now| {
            check((List::Deny, "feed"), layers.view(), prefixes, &Host::default(), now)
        };
        let of_feed = |prefix| Entry {
            set: Some("feed".into()),
            until: Some(60),
            ..Entry::new(List::Deny, prefix)
        };
        let entries = of(40).into_iter().map(of_feed).collect();
        layers.run_time.add(&Policy::default(), entries, 0).unwrap();
        let told = check(&layers, &of(19), 0).unwrap_err().to_string();
        assert!(told.ends_with("loses more than half of its entries: 40 before, 19 now"), "{told}");
        check(&layers, &of(20), 0).unwrap();
        check(&layers, &["192.0.2.0/24".parse().unwrap()], 0).unwrap();
        check(&layers, &of(19), 60).unwrap();
    }
}
