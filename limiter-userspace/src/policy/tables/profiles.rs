//! What holds for which sources.

use std::collections::{BTreeMap, HashMap};

use ipnet::IpNet;
use limiter_common::{
    abi::policy::{Profile, Settings, flag},
    algorithm::gcra::Gcra,
    base::address::Address,
    policy::limit::{INLINE, Limit as Compiled},
};

use super::{
    super::{
        error::PolicyError,
        lists::List,
        model::{KeyPart, OverrideWhom, Policy, Whom},
        run_time::{Layered, Listing, Stated, listing},
        units::quoted,
    },
    Assignment, Context, Meters,
    classes::Classes,
    number,
    rows::{Row, Rows},
};

/// The profiles, and the prefixes that have them.
pub(super) struct Profiles {
    pub(super) profiles: Vec<Profile>,
    pub(super) prefixes: Vec<(u32, Address, u32)>,
    /// See [`Listing::stale`]: the first one of them.
    pub(super) stale: Option<u64>,
}

/// What is said of a prefix, or holds for it with what is said of those around it.
#[derive(Clone, Default)]
struct Said<'a> {
    /// The rows that name it as a source, and that except it, as bits.
    named: u64,
    excepted: u64,
    /// The tenant that it is of, from 1 on.
    tenant: u32,
    /// The entries of the lists.
    stated: Vec<Stated<'a>>,
    /// The rows with an override for it: the number of the meter, 0 for everything.
    overrides: Vec<(usize, u32)>,
}

impl Said<'_> {
    /// What holds for a prefix: what is said of it, within what holds around it.
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
        // Past the interner: no prefix may have this profile.
        interner.profiles.push(shared(compiled));
        let mut prefixes = Vec::new();
        // In their order, a prefix comes right after those that contain it and their other parts: the
        // ones around the prefix at hand are a stack.
        let mut around: Vec<(IpNet, Said<'_>)> = Vec::new();
        for (prefix, said) in said(layered, rows, held, meters)? {
            layered.policy.key_prefix.check_source(prefix)?;
            while around.pop_if(|(outer, _)| !outer.contains(&prefix)).is_some() {}
            let holds = said.within(around.last().map_or(&nothing, |(_, holds)| holds));
            let bits = Address::FAMILY_BITS + u32::from(prefix.prefix_len());
            prefixes.push((bits, prefix.addr().into(), interner.number(&holds)?));
            around.push((prefix, holds));
        }
        Ok(Self { profiles: interner.profiles, prefixes, stale: interner.stale })
    }

    /// Finds out how many packets of each have [credit](limiter_common::table::untracked): what all of its limits have.
    /// There is none where a source may be blocked, connections are remembered, or packets have weights.
    pub(super) fn find_credits(&mut self, settings: &Settings, meters: &Meters) {
        let inline = settings.inline.iter().fold(0, |all, bit| all | bit);
        let special = settings.penalties | settings.connections | inline & !settings.newcomers;
        for profile in &mut self.profiles {
            let limits = if profile.limits & special == 0 { profile.limits } else { 0 };
            profile.untracked = least(profile, limits, settings, meters, Gcra::untracked);
        }
    }

    /// Finds out from which limits of each packets are [leased](limiter_common::memory::cache), where ticks are so long, in
    /// nanoseconds, and there are so many CPUs: from those by which all packets cost 1 and that go by ticks, unless they
    /// remember connections. How many is the least that one of them says. There are none where a source may be blocked,
    /// whose packets are not to pass then.
    pub(super) fn find_leases(
        &mut self,
        settings: &Settings,
        rows: &[Compiled],
        meters: &Meters,
        tick: u64,
        cpus: u64,
    ) {
        let inline = settings.inline.iter().fold(0, |all, bit| all | bit);
        let of_source = inline & settings.unit | settings.buckets_of_source;
        let plain = of_source & !settings.connections;
        for profile in &mut self.profiles {
            let limits = if profile.limits & settings.penalties == 0 { profile.limits } else { 0 };
            let plain = rows.iter().filter(|row| row.bit & plain & limits != 0);
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
            profile.lease = leases.clone().map(|(_, packets)| packets).min().unwrap_or(0);
            profile.leased_of = leases.fold(0, |all, (bit, _)| all | bit);
        }
    }

    /// Finds out what the fast path can tell of packets of the first profile, as bits of [`flag`].
    pub(super) fn find_fast(
        &self,
        settings: &mut Settings,
        classes: &Classes,
        meters: &Meters,
        tick: u64,
    ) {
        let Some(first) = self.profiles.first() else { return };
        let about_all = first.limits & classes.unconditional();
        settings.conditional_limits = if about_all == 0 { 0 } else { first.limits & !about_all };
        let is_only = |bit: &u64| *bit == about_all && bit & settings.unit != 0;
        let only = settings.inline.iter().position(is_only);
        let meter = only.and_then(|place| meters.get(first.meters[place]));
        if about_all == 0 {
            settings.flags |= flag::FAST;
        } else if let Some(meter) = meter {
            let takes_clock = meter.gcra.takes_clock(tick);
            settings.flags |= flag::FAST | if takes_clock { flag::CLOCK } else { 0 };
        }
    }

    /// Has the first profile, and the buckets of its inline limits, in the settings too.
    pub(super) fn copy_first(&self, settings: &mut Settings, meters: &Meters) {
        let Some(first) = self.profiles.first() else { return };
        settings.default_profile = *first;
        for (bucket, meter) in settings.default_buckets.iter_mut().zip(first.meters) {
            *bucket = meters.bucket(meter);
        }
    }
}

/// The profile of the overflow entries, see [`Profile::SHARED`].
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

/// The least of what the meters of a profile's inline limits among these say; 0 if there are none.
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

/// What a policy says of each prefix of sources.
fn said<'a>(
    layered: Layered<'a>,
    rows: &Rows<'_>,
    held: &Assignment,
    meters: &mut Meters,
) -> Result<BTreeMap<IpNet, Said<'a>>, PolicyError> {
    let policy = layered.policy;
    let mut said: BTreeMap<IpNet, Said<'a>> = BTreeMap::new();
    for (name, prefixes) in &policy.tenants {
        for prefix in prefixes {
            said.entry(*prefix).or_default().tenant = held.tenant(name);
        }
    }
    for list in List::ALL {
        for entry in policy.list(list) {
            for prefix in policy.prefixes_of(std::slice::from_ref(&entry.whom))? {
                let stated = Stated::of_document(list, entry, prefix);
                said.entry(prefix).or_default().stated.push(stated);
            }
        }
    }
    for stated in layered.run_time() {
        said.entry(stated.prefix).or_default().stated.push(stated);
    }
    // Many limits may name the same large set, which is gone through once.
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
                said.entry(*prefix).or_default().overrides.push((at, meter));
            }
        }
    }
    for (whom, [named, excepted]) in asked {
        for prefix in policy.prefixes_of(std::slice::from_ref(whom))? {
            let said = said.entry(prefix).or_default();
            said.named |= named;
            said.excepted |= excepted;
        }
    }
    Ok(said)
}

/// Checks that the sources of a prefix share no state with others: an override would change what those
/// are admitted.
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

/// The meters of rows with an override for a tenant, by row and tenant; 0 for everything.
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

/// A time of Unix as one of the datapath; 0 if it has passed, [`u64::MAX`] for ever.
fn until(unix: u64, context: &Context) -> u64 {
    const SECOND: u64 = 1_000_000_000;
    match unix {
        u64::MAX => u64::MAX,
        unix if unix <= context.unix => 0,
        unix => context.monotonic.saturating_add((unix - context.unix).saturating_mul(SECOND)),
    }
}

/// The profiles met so far, numbered.
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
        let number = number(self.profiles.len())?;
        self.profiles.push(profile);
        self.numbers.insert(profile, number);
        Ok(number)
    }

    fn profile(&self, holds: &Said<'_>, listing: &Listing) -> Profile {
        let tenant = holds.tenant;
        let [allowed, denied, blocked] = [listing.allowed, listing.denied, listing.blocked]
            .map(|unix| until(unix, self.context));
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
