//! From a policy to the flat tables of the datapath.

use std::collections::{BTreeMap, HashMap};

use ipnet::IpNet;
use limiter_common::{
    address::{Address, Mask},
    binding::Binding,
    contract::Settings,
    gcra::Gcra,
    limit::{LIMITS, Limit},
    plan::Plan,
};

use super::{error::PolicyError, model::Policy};

/// A policy as the datapath is given it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// What holds for every packet.
    pub settings: Settings,
    /// The plans, each different; the first is for sources without an override.
    pub plans: Vec<Plan>,
    /// Prefix length in bits, [`Address::FAMILY_BITS`] included; the prefix; and the number of its
    /// plan.
    pub overrides: Vec<(u32, Address, u32)>,
}

/// Compiles a policy.
///
/// A prefix for which any limit has an override gets the plan of all of them: a limit without an
/// override for just that prefix takes part with its longest override around it, or its default. So
/// one look-up of the longest prefix finds what holds for every limit.
///
/// # Errors
/// What [`Policy::check`] finds, or [`PolicyError::TooManyPlans`].
pub fn compile(policy: &Policy) -> Result<Compiled, PolicyError> {
    policy.check()?;
    let mut prefixes: BTreeMap<IpNet, [Option<Gcra>; LIMITS]> = BTreeMap::new();
    let mut defaults = Limits::default();
    for limit in Limit::ALL {
        if let Some(bucket) = policy.limit(limit).default {
            defaults[limit.index()] = bucket.gcra()?;
        }
        for (&prefix, bucket) in &policy.limit(limit).overrides {
            prefixes.entry(prefix).or_default()[limit.index()] = Some(bucket.gcra()?);
        }
    }
    let mut plans = Plans::default();
    plans.number(defaults)?;
    let mut overrides = Vec::with_capacity(prefixes.len());
    // In their order, a prefix comes right after those that contain it and their other parts: the
    // ones around the prefix at hand are a stack.
    let mut around: Vec<(IpNet, Limits)> = Vec::new();
    for (prefix, own) in prefixes {
        while around.pop_if(|(outer, _)| !outer.contains(&prefix)).is_some() {}
        let mut limits = around.last().map_or(defaults, |&(_, limits)| limits);
        for (limit, own) in limits.iter_mut().zip(own) {
            *limit = own.unwrap_or(*limit);
        }
        let bits = Address::FAMILY_BITS + u32::from(prefix.prefix_len());
        overrides.push((bits, prefix.addr().into(), plans.number(limits)?));
        around.push((prefix, limits));
    }
    let mask = Mask::new(policy.key_prefix.ipv4, policy.key_prefix.ipv6);
    let limited = plans.plans.iter().any(|plan| plan.active != 0);
    let settings =
        Settings { mask, overrides: u32::from(!overrides.is_empty()), limits: u32::from(limited) };
    Ok(Compiled { settings, plans: plans.plans, overrides })
}

/// The buckets of a plan; the default one is no bucket.
type Limits = [Gcra; LIMITS];

/// The plans met so far, numbered.
#[derive(Default)]
struct Plans {
    plans: Vec<Plan>,
    numbers: HashMap<[[u64; 3]; LIMITS], u32>,
}

impl Plans {
    fn number(&mut self, limits: Limits) -> Result<u32, PolicyError> {
        let key = limits.map(|gcra| [gcra.interval, gcra.depth, gcra.shift]);
        if let Some(&number) = self.numbers.get(&key) {
            return Ok(number);
        }
        let number = u32::try_from(self.plans.len())
            .ok()
            .filter(|&number| number < Binding::PLANS)
            .ok_or(PolicyError::TooManyPlans { most: Binding::PLANS })?;
        let set = |limit: &Limit| limits[limit.index()] != Gcra::default();
        let active =
            Limit::ALL.iter().filter(|limit| set(limit)).fold(0, |set, limit| set | limit.bit());
        self.plans.push(Plan { limits, active });
        self.numbers.insert(key, number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests;
