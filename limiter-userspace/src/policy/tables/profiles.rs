//! Compiles what applies to which sources: profiles, and the prefixes that have them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use ipnet::IpNet;
use limiter_common::{
    abi::policy::{Profile, Settings},
    algorithm::gcra::Gcra,
    base::address::Address,
    memory::cache::Cached,
    policy::limit::{INLINE, Limit as Compiled},
};

use super::{
    super::{
        error::{PROFILES, PolicyError},
        lists::List,
        model::{KeyPart, Listed, OverrideWhom, Policy, Whom},
        run_time::{Entry, Layered, Listing, Stated, listing},
        units::quoted,
    },
    assignment::Assignment,
    context::Context,
    meters::{Meters, number},
    rows::{Row, Rows},
};

/// The profiles, and the prefixes that have them.
pub(super) struct Profiles {
    pub(super) profiles: Vec<Profile>,
    pub(super) prefixes: Vec<(u32, Address, u32)>,
    /// When one of the profiles has to be computed again, in seconds of Unix time: the earliest
    /// [`Listing::stale`].
    pub(super) stale: Option<u64>,
}

/// A single thing that a policy says of a prefix.
enum Item<'a> {
    /// The number of its tenant.
    Tenant(u32),
    /// An entry of a list of the document.
    Listed(List, &'a Listed),
    /// A run-time entry.
    RunTime(&'a Entry),
    /// The rows whose match names it as a source, and those that except it, as bits.
    Rows([u64; 2]),
    /// A row with an override for it, and the number of the meter.
    Override(usize, u32),
}

/// What a policy says of a prefix, or what applies there including what it says of the prefixes around.
#[derive(Clone, Default)]
struct Said<'a> {
    /// The rows whose match names the prefix as a source, as bits; and those that except it.
    named: u64,
    excepted: u64,
    /// The number of its tenant, from 1; 0 for none.
    tenant: u32,
    /// The list entries for it.
    stated: Vec<Stated<'a>>,
    /// The rows with an override for it, each with the number of the meter; 0 for unlimited.
    overrides: Vec<(usize, u32)>,
}

impl<'a> Said<'a> {
    /// What these items say together.
    fn of(items: &[(IpNet, Item<'a>)]) -> Self {
        let mut said = Self::default();
        for (prefix, item) in items {
            match *item {
                Item::Tenant(number) => said.tenant = number,
                Item::Listed(list, listed) => {
                    said.stated.push(Stated::of_document(list, listed, *prefix));
                }
                Item::RunTime(entry) => said.stated.push(Stated::of_run_time(entry)),
                Item::Rows([named, excepted]) => {
                    said.named |= named;
                    said.excepted |= excepted;
                }
                Item::Override(row, meter) => said.overrides.push((row, meter)),
            }
        }
        said
    }

    /// What applies to a prefix: what is said of it, completed by what applies around it.
    fn within(mut self, outer: &Self) -> Self {
        self.named |= outer.named;
        self.excepted |= outer.excepted;
        self.tenant = if self.tenant == 0 { outer.tenant } else { self.tenant };
        self.stated.extend_from_slice(&outer.stated);
        for inherited in &outer.overrides {
            if self.overrides.iter().all(|(row, _)| *row != inherited.0) {
                self.overrides.push(*inherited);
            }
        }
        self
    }
}

impl Profiles {
    pub(super) fn new(
        layered: Layered<'_>,
        rows: &Rows<'_>,
        compiled: &[Compiled],
        held: &Assignment,
        context: &Context,
        meters: &mut Meters,
    ) -> Result<Self, PolicyError> {
        let of_tenants = of_tenants(rows, held, meters)?;
        let mut interner = Interner {
            rows,
            compiled,
            of_tenants,
            context,
            profiles: Vec::new(),
            numbers: HashMap::new(),
            stale: None,
        };
        let nothing = Said::default();
        interner.number(&nothing)?;
        debug_assert_eq!(interner.profiles.len(), Profile::SHARED as usize);
        // Not interned, because no prefix may have this profile.
        interner.profiles.push(shared(compiled));
        let mut prefixes = Vec::new();
        // Sorted, a prefix follows those that contain it, so the prefixes around the present one are a stack.
        let mut around: Vec<(IpNet, Said<'_>)> = Vec::new();
        // Long lists have single sources, and say the same of each: what it was, and the profile.
        let mut alike = None;
        let mut items = said(layered, rows, held, meters)?;
        items.sort_by_key(|(prefix, _)| *prefix);
        for of_prefix in items.chunk_by(|(one, _), (other, _)| one == other) {
            let [(prefix, first), ..] = of_prefix else { continue };
            let prefix = *prefix;
            layered.policy.key_prefix.check_source(prefix)?;
            while around.pop_if(|(outer, _)| !outer.contains(&prefix)).is_some() {}
            let is_source = prefix.prefix_len() == layered.policy.key_prefix.length_for(&prefix);
            let is_alone = is_source && of_prefix.len() == 1 && around.is_empty();
            let alone = match first {
                _ if !is_alone => None,
                Item::Listed(list, listed) => {
                    Some(Stated::of_document(*list, listed, prefix).says())
                }
                Item::RunTime(entry) => Some(Stated::of_run_time(entry).says()),
                _ => None,
            };
            let number = match alike {
                Some((says, number)) if alone == Some(says) => number,
                _ => {
                    let outer = around.last().map_or(&nothing, |(_, holds)| holds);
                    let holds = Said::of(of_prefix).within(outer);
                    let number = interner.number(&holds)?;
                    alike = alone.map(|says| (says, number)).or(alike);
                    around.push((prefix, holds));
                    number
                }
            };
            let bits = Address::FAMILY_BITS + u32::from(prefix.prefix_len());
            prefixes.push((bits, prefix.addr().into(), number));
        }
        let Interner { profiles, stale, .. } = interner;
        let mut all = Self { profiles, prefixes, stale };
        all.number_by_use();
        Ok(all)
    }

    /// Gives the profiles that most prefixes have the lowest numbers. A long list so keeps its number when a single entry comes
    /// or goes, and its prefixes are not written again.
    fn number_by_use(&mut self) {
        const FIXED: usize = Profile::SHARED as usize + 1;
        let mut uses = vec![0_usize; self.profiles.len()];
        for (.., number) in &self.prefixes {
            uses[*number as usize] += 1;
        }
        let mut order: Vec<usize> = (0..self.profiles.len()).collect();
        order[FIXED..].sort_by_key(|number| Reverse(uses[*number]));
        self.profiles = order.iter().map(|number| self.profiles[*number]).collect();
        let mut numbers = vec![0; order.len()];
        for (number, before) in (0..).zip(order) {
            numbers[before] = number;
        }
        for (.., number) in &mut self.prefixes {
            *number = numbers[*number as usize];
        }
    }

    /// Computes the [untracked allowance](limiter_common::table::untracked) of each profile: the smallest of
    /// its inline limits. It is 0 if a source may be blocked, connections are recorded, or packets have
    /// weights.
    pub(super) fn find_untracked_allowances(&mut self, settings: &Settings, meters: &Meters) {
        let inline = settings.inline.iter().fold(0, |all, bit| all | bit);
        let special = settings.penalties | settings.connections | inline & !settings.newcomers;
        for profile in &mut self.profiles {
            let limits = if profile.limits & special == 0 { profile.limits } else { 0 };
            profile.untracked = least(profile, limits, settings, meters, Gcra::untracked);
        }
    }

    /// Computes the [leases](limiter_common::memory::cache) of each profile. Packets are leased from limits
    /// that charge 1 for each packet at jiffy time and count no new connections; the lease is the smallest of
    /// theirs. Packets that no limit is about are leased too. A profile has no leases if a limit may block its sources,
    /// since leased packets pass without a look at the block.
    ///
    /// `tick` is the length of a kernel tick in nanoseconds, `cpus` the number of CPUs.
    pub(super) fn find_leases(
        &mut self,
        settings: &Settings,
        rows: &[Compiled],
        meters: &Meters,
        tick: u64,
        cpus: u64,
    ) {
        let inline = settings.inline.iter().fold(0, |all, bit| all | bit);
        let of_source = inline & settings.unit | settings.leasable;
        let plain = of_source & !settings.connections;
        for profile in &mut self.profiles {
            (profile.lease, profile.leased_of) = (0, 0);
            if profile.limits & settings.penalties != 0 {
                continue;
            }
            let plain = rows.iter().filter(|row| row.bit & plain & profile.limits != 0);
            let meter = |row: &Compiled| {
                let place = settings.inline.iter().position(|bit| *bit == row.bit);
                let own = profile.meters.get(place.unwrap_or(row.override_column as usize));
                (row.bit, own.copied().unwrap_or(row.meter))
            };
            let leases = plain.map(meter);
            let leases = leases.filter_map(|(bit, meter)| Some((bit, meters.get(meter)?)));
            let leases = leases.filter(|(_, meter)| !meter.gcra.takes_clock(tick));
            let leases = leases.map(|(bit, meter)| (bit, meter.gcra.lease(cpus)));
            let leases = leases.filter(|(_, packets)| *packets != 0);
            let least = leases.clone().map(|(_, packets)| packets).min();
            profile.lease = least.unwrap_or(Cached::MOST_LEASED);
            profile.leased_of = leases.fold(0, |all, (bit, _)| all | bit);
        }
    }
}

/// The profile of shared entries, see [`Profile::SHARED`].
fn shared(compiled: &[Compiled]) -> Profile {
    let mut profile = Profile::default();
    for row in compiled {
        let column = row.override_column as usize;
        if column < INLINE {
            profile.meters[column] = row.shared_meter;
            profile.limits |= row.bit;
        }
    }
    profile
}

/// The smallest value of `say` over the meters of a profile's inline limits among `limits`; 0 if there are
/// none.
fn least(
    profile: &Profile,
    limits: u64,
    settings: &Settings,
    meters: &Meters,
    say: impl Fn(&Gcra) -> u64,
) -> u64 {
    let of_inline = settings.inline.iter().zip(profile.meters);
    let said = of_inline
        .filter(|(bit, _)| *bit & limits != 0)
        .filter_map(|(_, meter)| meters.get(meter))
        .map(|meter| say(&meter.gcra));
    said.min().unwrap_or(0)
}

/// Collects what a policy and the run-time lists say of prefixes of sources, in any order of those.
fn said<'a>(
    layered: Layered<'a>,
    rows: &Rows<'_>,
    held: &Assignment,
    meters: &mut Meters,
) -> Result<Vec<(IpNet, Item<'a>)>, PolicyError> {
    let policy = layered.policy;
    let mut said = Vec::with_capacity(layered.run_time.entries().len());
    for (name, prefixes) in &policy.tenants {
        for prefix in prefixes {
            said.push((*prefix, Item::Tenant(held.tenant(name))));
        }
    }
    for list in List::ALL {
        for entry in policy.list(list) {
            for prefix in policy.prefixes_of(std::slice::from_ref(&entry.whom))? {
                said.push((prefix, Item::Listed(list, entry)));
            }
        }
    }
    said.extend(layered.run_time().map(|entry| (entry.prefix, Item::RunTime(entry))));
    // Many limits may name the same large set, whose prefixes are processed once.
    let mut asked: BTreeMap<&Whom, [u64; 2]> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate() {
        for whom in &row.limit.matching.sources {
            asked.entry(whom).or_default()[0] |= 1 << at;
        }
        for whom in &row.limit.matching.except_sources {
            asked.entry(whom).or_default()[1] |= 1 << at;
        }
        let by_source = row.key.parts.iter().any(|part| {
            matches!(
                part,
                KeyPart::Source
                    | KeyPart::SourcePrefix { .. }
                    | KeyPart::Connection
                    | KeyPart::Tenant
            )
        });
        for (whom, allowance) in row.overrides() {
            if !by_source {
                let limit = row.limit.name.clone();
                return Err(PolicyError::OverrideOfKey { limit, whom: whom.to_string() });
            }
            if let OverrideWhom::Prefix(prefix) = whom {
                let meter =
                    allowance.map_or(Ok(0), |allowance| meters.number(row.meter(allowance)?))?;
                check_whole_keys(policy, row, *prefix)?;
                said.push((*prefix, Item::Override(at, meter)));
            }
        }
    }
    for (whom, rows) in asked {
        let prefixes = policy.prefixes_of(std::slice::from_ref(whom))?;
        said.extend(prefixes.into_iter().map(|prefix| (prefix, Item::Rows(rows))));
    }
    Ok(said)
}

/// Checks that no source of a prefix shares state with one outside it: an override would change what that one
/// is admitted.
fn check_whole_keys(policy: &Policy, row: &Row<'_>, prefix: IpNet) -> Result<(), PolicyError> {
    for part in &row.key.parts {
        let length = match (part, prefix) {
            (KeyPart::SourcePrefix { ipv4, .. }, IpNet::V4(_)) => *ipv4,
            (KeyPart::SourcePrefix { ipv6, .. }, IpNet::V6(_)) => *ipv6,
            (KeyPart::Source | KeyPart::Connection, _) => policy.key_prefix.length_for(&prefix),
            _ => continue,
        };
        if prefix.prefix_len() > length {
            return Err(PolicyError::OverrideTooNarrow { prefix, length });
        }
        return Ok(());
    }
    let (limit, whom) = (row.limit.name.clone(), prefix.to_string());
    Err(PolicyError::OverrideOfKey { limit, whom })
}

/// The rows with an override for a tenant, as (row, tenant), with the number of the meter; 0 for unlimited.
fn of_tenants(
    rows: &Rows<'_>,
    held: &Assignment,
    meters: &mut Meters,
) -> Result<HashMap<(usize, u32), u32>, PolicyError> {
    let mut found = HashMap::new();
    for (at, row) in rows.iter().enumerate() {
        for (whom, allowance) in row.overrides() {
            let OverrideWhom::Tenant(name) = whom else { continue };
            let tenant = held.tenant(name);
            if tenant == 0 {
                return Err(PolicyError::Undefined { what: "tenant", name: quoted(name) });
            }
            let meter =
                allowance.map_or(Ok(0), |allowance| meters.number(row.meter(allowance)?))?;
            found.insert((at, tenant), meter);
        }
    }
    Ok(found)
}

/// The distinct profiles, numbered in the order in which they were met.
struct Interner<'a> {
    rows: &'a Rows<'a>,
    compiled: &'a [Compiled],
    of_tenants: HashMap<(usize, u32), u32>,
    context: &'a Context,
    profiles: Vec<Profile>,
    numbers: HashMap<Profile, u32>,
    /// See [`Profiles::stale`].
    stale: Option<u64>,
}

impl Interner<'_> {
    fn number(&mut self, holds: &Said<'_>) -> Result<u32, PolicyError> {
        let listing = listing(&holds.stated, self.context.unix);
        self.stale = self.stale.into_iter().chain(listing.stale).min();
        let profile = self.profile(holds, &listing);
        if let Some(&number) = self.numbers.get(&profile) {
            return Ok(number);
        }
        let number = number(self.profiles.len(), PROFILES)?;
        self.profiles.push(profile);
        self.numbers.insert(profile, number);
        Ok(number)
    }

    fn profile(&self, holds: &Said<'_>, listing: &Listing) -> Profile {
        let tenant = holds.tenant;
        let [allowed, denied, blocked] =
            [listing.allowed, listing.denied, listing.blocked].map(|unix| self.context.until(unix));
        let listed = u32::from(allowed | denied | blocked != 0);
        let mut profile =
            Profile { allowed, denied, blocked, tenant, listed, ..Profile::default() };
        for (at, (row, compiled)) in self.rows.iter().zip(self.compiled).enumerate() {
            let named = row.limit.matching.sources.is_empty() || holds.named & compiled.bit != 0;
            let nobodys = tenant == 0 && row.key.parts.contains(&KeyPart::Tenant);
            if !named || nobodys || holds.excepted & compiled.bit != 0 {
                continue;
            }
            let own = holds.overrides.iter().find(|(row, _)| *row == at).map(|(_, meter)| *meter);
            let meter = own
                .or_else(|| self.of_tenants.get(&(at, tenant)).copied())
                .unwrap_or(compiled.meter);
            if meter == 0 {
                continue;
            }
            profile.limits |= compiled.bit;
            if let Some(override_column) = profile.meters.get_mut(compiled.override_column as usize)
            {
                *override_column = meter;
            }
        }
        profile
    }
}

#[cfg(test)]
mod tests;
