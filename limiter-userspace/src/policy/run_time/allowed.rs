//! What `allow` has, for programs that list others: they leave it out, where a longer prefix of theirs would decide.

use ipnet::IpNet;

use super::Layered;
use crate::policy::{cover::Cover, lists::List};

/// The prefixes that `allow` has at some time, in both layers.
pub struct Allowed {
    run_time: Cover<()>,
    document: Cover<()>,
    /// The entries of the document, if there are exceptions.
    entries: Vec<IpNet>,
    exceptions: Vec<IpNet>,
}

impl Layered<'_> {
    /// What `allow` has at `now`, in seconds of Unix time.
    pub fn allowed(self, now: u64) -> Allowed {
        let live = self.run_time.list(List::Allow).filter(|it| !it.is_over(now));
        let (exceptions, run_time): (Vec<_>, Vec<_>) = live.partition(|it| it.exception);
        let document = self.policy.allow.iter().filter(|it| !it.is_over(now));
        let document: Vec<IpNet> =
            document.flat_map(|it| self.policy.prefixes(&it.whom)).copied().collect();
        Allowed {
            run_time: Cover::of(run_time.into_iter().map(|it| it.prefix).collect()),
            document: Cover::of(document.clone()),
            entries: if exceptions.is_empty() { Vec::new() } else { document },
            exceptions: exceptions.into_iter().map(|it| it.prefix).collect(),
        }
    }
}

impl Allowed {
    /// Whether all sources of a prefix are on the list.
    pub fn has(&self, prefix: IpNet) -> bool {
        if self.run_time.around(prefix).is_some() {
            return true;
        }
        let around = self.exceptions.iter().filter(|it| it.contains(&prefix));
        match around.map(IpNet::prefix_len).max() {
            None => self.document.around(prefix).is_some(),
            // An exception hides the entries that are as long or shorter.
            Some(length) => {
                self.entries.iter().any(|it| it.contains(&prefix) && it.prefix_len() > length)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{
        Layers, Policy,
        model::{Listed, Whom},
        run_time::Entry,
    };

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn both_layers_count_and_exceptions_hide_what_the_document_has() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let listed = |text: &str, until| Listed { whom: Whom::Prefix(net(text)), until };
        let allow = vec![
            listed("192.0.2.0/24", None),
            listed("198.51.100.0/24", None),
            listed("198.51.100.9/32", None),
            listed("203.0.113.1/32", Some(NOW)),
        ];
        let mut layers =
            Layers { policy: Policy { allow, ..Policy::default() }, ..Layers::default() };
        let mut put = |text: &str, exception, until| {
            let entry = Entry { exception, until, ..Entry::new(List::Allow, net(text)) };
            layers.run_time.put(&layers.policy, entry, NOW - 10).unwrap();
        };
        put("198.51.100.0/24", true, None);
        put("203.0.113.8/29", false, Some(NOW + 1));
        put("203.0.113.2/32", false, Some(NOW));
        let allowed = layers.view().allowed(NOW);
        for (text, expected) in [
            ("192.0.2.0/24", true),
            ("192.0.2.9/32", true),
            ("192.0.0.0/16", false),
            ("198.51.100.8/32", false),
            ("198.51.100.9/32", true),
            ("203.0.113.1/32", false),
            ("203.0.113.2/32", false),
            ("203.0.113.9/32", true),
            ("2001:db8::/64", false),
        ] {
            assert_eq!(allowed.has(net(text)), expected, "{text}");
        }
    }
}
