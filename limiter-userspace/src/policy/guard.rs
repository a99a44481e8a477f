//! Refuses changes of set files that would cut this host off, or empty a long list.
//!
//! Files of sets come from feeds, and feeds break: one gains `0.0.0.0/0`, or is empty after a failed
//! download. What the document itself lists is what the operator meant, and is never refused.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{
    List,
    model::{Policy, Whom},
    shadowed::FromFiles,
    units::printable,
};
use crate::policy::cover::Cover;

/// Entries from which on a list may not lose more than half of them.
pub const LONG: usize = 20;
/// A change may newly cover at most one in this many unicast addresses of a family.
const SHARE: u128 = 8;

/// The addresses by which this host is reached, without loopback and link-local ones: ordinary lists of
/// bogons contain those.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The host's own addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// The gateways of its routes.
    pub gateways: BTreeSet<IpAddr>,
    /// The networks that it reaches without a gateway.
    pub networks: BTreeSet<IpNet>,
}

impl Host {
    /// What blocking a source would cut off: an address of this host, loopback ones too, or a gateway.
    pub(crate) fn cut_off_by(&self, source: &IpNet) -> Option<Harm> {
        let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
        if source.addr().is_loopback() {
            return Some(Harm::Address(source.addr()));
        }
        let mut own = loopback.iter().chain(&self.addresses);
        let own = own.find(|own| source.contains(*own)).map(|own| Harm::Address(*own));
        let gateway = || self.gateways.iter().find(|it| source.contains(*it));
        own.or_else(|| gateway().map(|gateway| Harm::Gateway(*gateway)))
    }
}

/// The reasons why a change of set files is refused; at least one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Refusal(Vec<Reason>);

impl Refusal {
    /// The reasons: one for each refused tenant, and for each refused set in each list that names it.
    pub fn reasons(&self) -> &[Reason] {
        &self.0
    }
}

/// Why the file of a set or a tenant is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The set or the tenant in words, such as "set `bad`, in `deny`,".
    group: String,
    /// What a change of its file would do.
    pub harm: Harm,
}

/// The harm of a changed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// The file newly covers every address of a family, by a prefix of length 0.
    Everything(IpNet),
    /// The file newly covers an address of this host.
    Address(IpAddr),
    /// The file newly covers a gateway of this host.
    Gateway(IpAddr),
    /// The file newly covers a network that this host is on.
    Network(IpNet),
    /// The file newly covers more than an eighth of the unicast addresses of IPv4, or of IPv6: the family's
    /// name.
    Share(&'static str),
    /// A long list loses more than half of its entries.
    Loss {
        /// Entries before.
        before: usize,
        /// Entries after.
        after: usize,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the file of {} {}", self.group, self.harm)
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Everything(prefix) => write!(f, "newly has {prefix}, every address"),
            Self::Address(address) => write!(f, "newly covers {address}, an address of this host"),
            Self::Gateway(address) => write!(f, "newly covers {address}, a gateway of this host"),
            Self::Network(network) => {
                write!(f, "newly covers {network}, a network that this host is on")
            }
            Self::Share(family) => {
                write!(f, "newly covers more than an eighth of the unicast addresses of {family}")
            }
            Self::Loss { before, after } => {
                write!(f, "loses more than half of its entries: {before} before, {after} now")
            }
        }
    }
}

/// Checks the change from `old`, the policy in force, to `new`. `files` are the sets and tenants of `new`
/// that have files; sets are checked in each of `allow`, `deny` and the penalties that names them. Without
/// `old`, before the first policy, [`Harm::Share`] and [`Harm::Loss`] are not checked.
///
/// # Errors
/// A [`Refusal`] with all reasons.
pub fn guard(
    old: Option<&Policy>,
    new: &Policy,
    files: &FromFiles,
    host: &Host,
) -> Result<(), Refusal> {
    let mut reasons = Vec::new();
    for list in [List::Allow, List::Deny, List::Penalty] {
        let names: BTreeSet<&String> = new
            .list(list)
            .iter()
            .filter_map(|entry| match &entry.whom {
                Whom::Set(name) if files.sets.contains_key(name) => Some(name),
                _ => None,
            })
            .collect();
        if names.is_empty() {
            continue;
        }
        let before = old.into_iter().flat_map(|old| {
            old.list(list).iter().flat_map(|entry| old.prefixes(&entry.whom).iter().copied())
        });
        let written =
            new.list(list).iter().flat_map(|entry| files.certain(&entry.whom, new).iter().copied());
        let known = Known::new(before.chain(written), old.is_some());
        for name in names {
            let group = format!("set `{}`, in `{}`,", printable(name, 64), list.key());
            let before = old.and_then(|old| old.sets.get(name)).map(Vec::as_slice);
            let sets = (before, new.sets.get(name).map(Vec::as_slice));
            let certain = files.sets.get(name).map_or(&[][..], Vec::as_slice);
            reasons.extend(known.judge(sets, certain, host).map(|harm| Reason { group, harm }));
        }
    }
    if !files.tenants.is_empty() {
        let before = old.into_iter().flat_map(|old| old.tenants.values().flatten().copied());
        let written =
            new.tenants.keys().flat_map(|name| files.certain_of_tenant(name, new).iter().copied());
        let known = Known::new(before.chain(written), old.is_some());
        let names: BTreeSet<&String> = files.tenants.keys().collect();
        for name in names {
            let group = format!("tenant `{}`", printable(name, 64));
            let before = old.and_then(|old| old.tenants.get(name)).map(Vec::as_slice);
            let both = (before, new.tenants.get(name).map(Vec::as_slice));
            let certain = files.certain_of_tenant(name, new);
            reasons.extend(known.judge(both, certain, host).map(|harm| Reason { group, harm }));
        }
    }
    if reasons.is_empty() { Ok(()) } else { Err(Refusal(reasons)) }
}

/// Returns the harm of a set of run-time entries whose prefixes change from `before` to `after`, in a list
/// that has `known` in both layers; `None` if there is none.
pub fn harm_of_set(
    known: impl Iterator<Item = IpNet>,
    before: &[IpNet],
    after: &[IpNet],
    host: &Host,
) -> Option<Harm> {
    Known::new(known, true).judge((Some(before), Some(after)), &[], host)
}

/// Parts prefixes that are to be new on a list, which has `known`, into those without harm and those with it. Each of the
/// latter has its harm, which is never [`Harm::Loss`].
pub fn without_harm(
    known: impl Iterator<Item = IpNet>,
    mut prefixes: Vec<IpNet>,
    host: &Host,
) -> (Vec<IpNet>, Vec<(IpNet, Harm)>) {
    let known = Known::new(known, true);
    let mut harmful = Vec::new();
    while let Some(harm) = known.judge((None, Some(&prefixes)), &[], host) {
        let is_of = |it: &IpNet, family| Family::of(it).name() == family;
        // The widest ones first.
        let length = match harm {
            Harm::Share(family) => {
                prefixes.iter().filter(|it| is_of(it, family)).map(IpNet::prefix_len).min()
            }
            _ => None,
        };
        let does = |it: &IpNet| match harm {
            Harm::Everything(all) => *it == all,
            Harm::Address(address) | Harm::Gateway(address) => it.contains(&address),
            // Several may make it up together.
            Harm::Network(network) => it.contains(&network) || network.contains(it),
            Harm::Share(family) => is_of(it, family) && Some(it.prefix_len()) == length,
            Harm::Loss { .. } => false,
        };
        let before = prefixes.len();
        prefixes.retain(|it| {
            let is_harmful = does(it);
            if is_harmful {
                harmful.push((*it, harm));
            }
            !is_harmful
        });
        if prefixes.len() == before {
            break;
        }
    }
    (prefixes, harmful)
}

/// What a list, or all tenants, cover without the change.
struct Known {
    prefixes: Vec<IpNet>,
    cover: Cover<()>,
    /// Whether a policy was in force before.
    is_change: bool,
}

impl Known {
    fn new(prefixes: impl Iterator<Item = IpNet>, is_change: bool) -> Self {
        let prefixes: Vec<IpNet> = prefixes.collect();
        Self { cover: Cover::of(prefixes.clone()), prefixes, is_change }
    }

    /// Returns the harm of a set or tenant whose prefixes change from `before` to `after`; `None` if there is
    /// none. `certain` are those of its prefixes that the document lists.
    fn judge(
        &self,
        (before, after): (Option<&[IpNet]>, Option<&[IpNet]>),
        certain: &[IpNet],
        host: &Host,
    ) -> Option<Harm> {
        let after = after.unwrap_or_default();
        let added: Vec<IpNet> =
            after.iter().copied().filter(|prefix| self.cover.around(*prefix).is_none()).collect();
        if let Some(all) = added.iter().find(|prefix| prefix.prefix_len() == 0) {
            return Some(Harm::Everything(*all));
        }
        let gained = Cover::of(added.clone());
        let is_gained =
            |prefix: IpNet| gained.around(prefix).is_some() && self.cover.around(prefix).is_none();
        let address = |address: &&IpAddr| is_gained(IpNet::from(**address));
        if let Some(address) = host.addresses.iter().find(address) {
            return Some(Harm::Address(*address));
        }
        if let Some(gateway) = host.gateways.iter().find(address) {
            return Some(Harm::Gateway(*gateway));
        }
        if let Some(network) = host.networks.iter().find(|network| is_gained(**network)) {
            return Some(Harm::Network(*network));
        }
        if self.is_change && !added.is_empty() {
            let all = Cover::of(added.iter().chain(&self.prefixes).copied().collect());
            for family in [Family::V4, Family::V6] {
                let gained = family.unicast(&all).saturating_sub(family.unicast(&self.cover));
                if gained > family.size() / SHARE {
                    return Some(Harm::Share(family.name()));
                }
            }
        }
        // Prefixes of the document are left out: they would hide that the file has lost everything.
        let certain = Cover::of(certain.to_vec());
        let of_file = |set: &[IpNet]| -> Vec<IpNet> {
            set.iter().copied().filter(|it| certain.around(*it).is_none()).collect()
        };
        let (before, of_after) = (of_file(before?), of_file(after));
        if before.len() >= LONG && of_after.len() * 2 < before.len() {
            // A shorter list that covers the same is no loss.
            let left = Cover::of(after.to_vec());
            let lost = before.iter().filter(|prefix| left.around(**prefix).is_none()).count();
            if lost * 2 > before.len() {
                return Some(Harm::Loss { before: before.len(), after: of_after.len() });
            }
        }
        None
    }
}

/// An address family. Its unicast addresses are 0.0.0.0 to 223.255.255.255, or 2000::/3.
#[derive(Clone, Copy)]
enum Family {
    V4,
    V6,
}

impl Family {
    const fn of(prefix: &IpNet) -> Self {
        match prefix {
            IpNet::V4(_) => Self::V4,
            IpNet::V6(_) => Self::V6,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// The blocks that make up its unicast addresses.
    fn blocks(self) -> Vec<IpNet> {
        let v4 = |first: u8, length: u8| {
            let address = Ipv4Addr::new(first, 0, 0, 0);
            Ipv4Net::new(address, length).map(IpNet::V4).ok()
        };
        let v6 = || {
            let address = Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0);
            Ipv6Net::new(address, 3).map(IpNet::V6).ok()
        };
        match self {
            Self::V4 => [v4(0, 1), v4(128, 2), v4(192, 3)].into_iter().flatten().collect(),
            Self::V6 => v6().into_iter().collect(),
        }
    }

    /// The number of unicast addresses.
    fn size(self) -> u128 {
        self.blocks().iter().map(size).sum()
    }

    /// The number of unicast addresses in a cover.
    fn unicast(self, cover: &Cover<()>) -> u128 {
        let blocks = self.blocks();
        let within = |prefix: IpNet| -> u128 {
            blocks
                .iter()
                .map(|block| match () {
                    () if block.contains(&prefix) => size(&prefix),
                    () if prefix.contains(block) => size(block),
                    () => 0,
                })
                .sum()
        };
        cover.widest().map(within).sum()
    }
}

/// The number of addresses in a prefix; for `::/0`, one less than that, the largest `u128`.
fn size(prefix: &IpNet) -> u128 {
    let bits = u32::from(prefix.max_prefix_len() - prefix.prefix_len());
    1_u128.checked_shl(bits).unwrap_or(u128::MAX)
}

#[cfg(test)]
mod tests;
