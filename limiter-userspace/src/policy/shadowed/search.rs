//! The search for shadowed entries.

use std::{cell::OnceCell, collections::HashMap};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{By, Entry, FromFiles, Shadowed, What};
use crate::policy::{
    List,
    cover::Cover,
    model::{Limit, Listed, OverrideWhom, Policy, Whom},
};

/// The entries of a list that have no end.
struct Lasting<'p> {
    list: List,
    /// The prefixes, each as it is listed.
    listed: Cover<&'p Whom>,
    /// What they are together.
    merged: Cover<()>,
}

/// The search in one policy.
struct Search<'p, 'f> {
    policy: &'p Policy,
    /// Sets and tenants with files, whose prefixes can change. As an entry to be found, one stands for every
    /// address; in a list, it stands for the prefixes that the document itself has.
    files: &'f FromFiles,
    everybody: [IpNet; 2],
    /// `allow` and `deny`.
    lists: [Lasting<'p>; 2],
    /// Both lists together.
    both: Cover<()>,
    /// The lists that shadow all tenants; computed when first needed.
    tenants: OnceCell<Option<By<'p>>>,
}

/// For sets and prefixes: the lists that have all of it, or `None` if they do not. Many limits may name the
/// same large set; it is searched once.
type Asked<'p> = HashMap<&'p Whom, Option<Vec<List>>>;

impl Policy {
    /// The entries that lists shadow.
    pub fn shadowed(&self) -> Vec<Shadowed<'_>> {
        Search::new(self, &FromFiles::default()).all()
    }

    /// The entries that lists shadow whatever the files of `files` contain.
    pub fn shadowed_without(&self, files: &FromFiles) -> Vec<Shadowed<'_>> {
        Search::new(self, files).all()
    }
}

impl<'p> Lasting<'p> {
    fn new(policy: &'p Policy, list: List, files: &FromFiles) -> (Self, Vec<IpNet>) {
        let mut all = Vec::new();
        // An entry with an end shadows nothing for ever.
        for Listed { whom, .. } in policy.list(list).iter().filter(|listed| listed.until.is_none())
        {
            all.extend(files.certain(whom, policy).iter().map(|&prefix| (prefix, whom)));
        }
        let prefixes: Vec<_> = all.iter().map(|&(prefix, _)| prefix).collect();
        (Self { list, listed: Cover::new(all), merged: Cover::of(prefixes.clone()) }, prefixes)
    }

    /// Whether the list has all of a prefix; if a single entry does, which one.
    fn around(&self, prefix: IpNet) -> Option<Option<(IpNet, &'p Whom)>> {
        match self.listed.around(prefix) {
            Some(&around) => Some(Some(around)),
            None => self.merged.around(prefix).map(|_| None),
        }
    }
}

impl<'p, 'f> Search<'p, 'f> {
    fn new(policy: &'p Policy, files: &'f FromFiles) -> Self {
        let (allowed, mut prefixes) = Lasting::new(policy, List::Allow, files);
        let (denied, more) = Lasting::new(policy, List::Deny, files);
        prefixes.extend(more);
        let everybody = [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
        let (lists, both) = ([allowed, denied], Cover::of(prefixes));
        Self { policy, files, everybody, lists, both, tenants: OnceCell::new() }
    }

    fn all(&self) -> Vec<Shadowed<'p>> {
        let policy = self.policy;
        let mut found = Vec::new();
        for (list, first) in [(List::Deny, &self.lists[..1]), (List::Penalty, &self.lists)] {
            for (place, Listed { whom, .. }) in policy.list(list).iter().enumerate() {
                let single = matches!(whom, Whom::Prefix(_));
                if let Some(by) = self.behind(first, self.prefixes(whom), single) {
                    let (entry, what) = (Entry::Listed { list, place }, What::Listed(list, whom));
                    found.push(Shadowed { entry, what, by });
                }
            }
        }
        let mut asked = Asked::new();
        for (limit, one) in policy.limits.iter().enumerate() {
            if let Some(by) = self.limit(one, &mut asked) {
                let (entry, what) = (Entry::Limit { limit }, What::Limit(&one.name));
                found.push(Shadowed { entry, what, by });
            }
            for (place, of) in one.overrides.iter().enumerate() {
                let (prefixes, single) = match &of.whom {
                    OverrideWhom::Prefix(prefix) => (std::slice::from_ref(prefix), true),
                    OverrideWhom::Tenant(name) => (self.tenant(name), false),
                };
                if let Some(by) = self.behind(&self.lists, prefixes, single) {
                    let entry = Entry::Override { limit, place };
                    let what = What::Override(&one.name, &of.whom);
                    found.push(Shadowed { entry, what, by });
                }
            }
        }
        found
    }

    /// The lists that shadow all sources of a limit: those that its match names, or all tenants.
    fn limit(&self, limit: &'p Limit, asked: &mut Asked<'p>) -> Option<By<'p>> {
        self.sources(limit, asked).or_else(|| {
            let of_tenants = || {
                let tenants = self.policy.tenants.keys().flat_map(|name| self.tenant(name));
                self.behind(&self.lists, tenants, false)
            };
            limit.is_of_tenants().then(|| self.tenants.get_or_init(of_tenants).clone())?
        })
    }

    fn sources(&self, limit: &'p Limit, asked: &mut Asked<'p>) -> Option<By<'p>> {
        let mut lists = Vec::new();
        for whom in &limit.matching.sources {
            let having = asked.entry(whom).or_insert_with(|| {
                self.having(&self.lists, self.prefixes(whom), false).map(|by| by.lists)
            });
            lists.extend_from_slice(having.as_ref()?);
        }
        lists.sort_unstable();
        lists.dedup();
        (!lists.is_empty()).then_some(By { lists, around: None })
    }

    fn prefixes(&self, whom: &'p Whom) -> &[IpNet] {
        match whom {
            whom if self.files.may_be_any(whom) => &self.everybody,
            whom => self.policy.prefixes(whom),
        }
    }

    fn tenant(&self, name: &str) -> &[IpNet] {
        if self.files.tenants.contains_key(name) {
            return &self.everybody;
        }
        self.files.certain_of_tenant(name, self.policy)
    }

    /// The lists that together have all of `prefixes`; `None` if they do not, or if there are no prefixes.
    /// `single` says whether the entry is one prefix, and not a set or tenant that happens to have one.
    fn behind<'a>(
        &self,
        lists: &[Lasting<'p>],
        prefixes: impl IntoIterator<Item = &'a IpNet>,
        single: bool,
    ) -> Option<By<'p>> {
        self.having(lists, prefixes, single).filter(|by| !by.lists.is_empty())
    }

    /// Like [`behind`](Self::behind), but for no prefixes it returns no lists. If the lists have only some of
    /// the prefixes, the entry still matters for the rest.
    fn having<'a>(
        &self,
        lists: &[Lasting<'p>],
        prefixes: impl IntoIterator<Item = &'a IpNet>,
        single: bool,
    ) -> Option<By<'p>> {
        let mut by = By { lists: Vec::new(), around: None };
        for &prefix in prefixes {
            let having = |of: &Lasting<'p>| of.around(prefix).map(|around| (vec![of.list], around));
            let (having, around) = lists.iter().find_map(having).or_else(|| {
                let both = lists.len() == self.lists.len() && self.both.around(prefix).is_some();
                both.then(|| (lists.iter().map(|of| of.list).collect(), None))
            })?;
            for list in having {
                if !by.lists.contains(&list) {
                    by.lists.push(list);
                }
            }
            by.around = around.filter(|_| single);
        }
        by.lists.sort_unstable();
        Some(by)
    }
}
