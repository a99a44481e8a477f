//! Edits of a policy by commands.

use std::borrow::Cow;

use ipnet::IpNet;

use super::{
    allowance::Bucket,
    builtin::Builtin,
    error::PolicyError,
    model::{Allowance, KeyPrefix, Layer, Limit, Mode, Override, OverrideWhom, Policy},
    nearest::nearest,
    scopes::Scopes,
    units::{Burst, quoted},
};

impl Policy {
    /// The limit with this name.
    pub fn limit(&self, name: impl AsRef<str>) -> Option<&Limit> {
        self.limits.iter().find(|limit| limit.name == name.as_ref())
    }

    /// The limit with this name, or the built-in one, which has no rate.
    ///
    /// # Errors
    /// [`PolicyError::UnknownLimit`], with the nearest name as a suggestion, or [`PolicyError::OnRequests`].
    pub fn limit_or_builtin(&self, name: impl AsRef<str>) -> Result<Limit, PolicyError> {
        let name = name.as_ref();
        match (self.limit(name), Builtin::by_name(name)) {
            (Some(limit), _) => Ok(limit.clone()),
            (None, Some(builtin)) => Ok(builtin.limit()),
            (None, None) => Err(self.unknown(name)),
        }
    }

    /// The limits in the order in which commands list them: the built-in ones, set or not, before the others.
    pub fn listed_limits(&self) -> Vec<Limit> {
        let missing = Builtin::LISTED.into_iter().filter(|builtin| self.limit(builtin).is_none());
        let mut limits: Vec<Limit> = missing.map(Builtin::limit).collect();
        limits.extend(self.limits.iter().cloned());
        let place = |limit: &Limit| {
            Builtin::LISTED
                .iter()
                .position(|builtin| builtin.name() == limit.name)
                .unwrap_or(usize::MAX)
        };
        limits.sort_by_key(place);
        limits
    }

    /// The names of the limits, in the order of [`listed_limits`](Self::listed_limits).
    pub fn listed_names(&self) -> Vec<String> {
        let builtin = Builtin::LISTED.map(|builtin| builtin.name().to_owned());
        let others = self.limits.iter().filter(|limit| Builtin::by_name(&limit.name).is_none());
        builtin.into_iter().chain(others.map(|limit| limit.name.clone())).collect()
    }

    /// Whether a limit on requests has this name. Commands leave those alone.
    fn is_on_requests(&self, name: &str) -> bool {
        self.on_requests.iter().any(|limit| limit.name == name)
    }

    /// The error for a name that no limit on packets has.
    pub(crate) fn unknown(&self, name: &str) -> PolicyError {
        if self.is_on_requests(name) {
            return PolicyError::OnRequests { limit: name.to_owned() };
        }
        let known = self.listed_names();
        let nearest = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
        PolicyError::UnknownLimit { name: quoted(name), nearest, known }
    }

    /// The limit with this name, for changing. A built-in limit that is not set is added.
    fn limit_mut(&mut self, name: &str) -> Result<&mut Limit, PolicyError> {
        let place = match self.limits.iter().position(|limit| limit.name == name) {
            Some(place) => place,
            None => {
                let builtin = Builtin::by_name(name).ok_or_else(|| self.unknown(name))?;
                let new = builtin.limit();
                // No document may have two limits with the same match, key and count.
                if let Some(same) = self.limits.iter().find(|other| other.does_the_same_as(&new)) {
                    let (limit, other) = (name.to_owned(), same.name.clone());
                    return Err(PolicyError::SameLimit { limit, other });
                }
                self.limits.push(new);
                self.limits.len() - 1
            }
        };
        Ok(&mut self.limits[place])
    }

    /// Adds a limit. Returns whether the policy changed: it does not if it has this very limit. One of its name, match,
    /// key and count that is off is replaced.
    ///
    /// # Errors
    /// - [`PolicyError::OnRequests`] if a limit on requests has its name;
    /// - [`PolicyError::LimitExists`] if there is another limit with its name, a built-in one included;
    /// - [`PolicyError::SameLimit`] if there is one with its match, key and count.
    pub fn add_limit(&mut self, new: Limit) -> Result<bool, PolicyError> {
        if self.limits.contains(&new) {
            return Ok(false);
        }
        let limit = new.name.clone();
        if self.is_on_requests(&limit) {
            return Err(PolicyError::OnRequests { limit });
        }
        if let Some(held) = self.limits.iter_mut().find(|held| held.name == limit) {
            if !held.is_off() || !held.is_about_the_same_as(&new) {
                return Err(PolicyError::LimitExists { limit });
            }
            *held = new;
            return Ok(true);
        }
        if Builtin::by_name(&limit).is_some() {
            return Err(PolicyError::LimitExists { limit });
        }
        if let Some(same) = self.limits.iter().find(|other| other.does_the_same_as(&new)) {
            return Err(PolicyError::SameLimit { limit, other: same.name.clone() });
        }
        self.limits.push(new);
        Ok(true)
    }

    /// Sets the rate and burst of a limit for keys without an override.
    ///
    /// # Errors
    /// - [`PolicyError::UnknownLimit`];
    /// - [`PolicyError::Layers`] if the limit has several layers;
    /// - [`PolicyError::SameLimit`] if a built-in limit would be added beside one that does the same;
    /// - an error of [`Allowance::meter`] for the rate or the burst.
    pub fn set_default(
        &mut self,
        name: impl AsRef<str>,
        bucket: Bucket,
    ) -> Result<(), PolicyError> {
        let name = name.as_ref();
        let allowance = self.limit_or_builtin(name)?.allowance_with(bucket)?;
        let limit = self.limit_mut(name)?;
        match limit.layers.first_mut() {
            Some(layer) => layer.allowance = allowance,
            None => limit.layers.push(Layer { allowance, key: None }),
        }
        Ok(())
    }

    /// Sets the rate and burst of a limit for each source within `prefix`.
    ///
    /// # Errors
    /// See [`set_default`](Self::set_default); also [`PolicyError::OverrideTooNarrow`],
    /// [`PolicyError::NotAbout`] if the match leaves the prefix out, and [`PolicyError::Value`] for a prefix
    /// with host bits.
    pub fn set_override(
        &mut self,
        name: impl AsRef<str>,
        prefix: IpNet,
        bucket: Bucket,
    ) -> Result<(), PolicyError> {
        let name = name.as_ref();
        self.key_prefix.check_source(prefix)?;
        // A limit may have many overrides, so it is not copied.
        let allowance = match self.limit(name) {
            Some(limit) => {
                let [sources, _] = Scopes::now(self).both(&limit.matching);
                if !sources.has_part_of(prefix) {
                    return Err(PolicyError::NotAbout { limit: name.to_owned(), prefix });
                }
                limit.allowance_with(bucket)?
            }
            None => self.limit_or_builtin(name)?.allowance_with(bucket)?,
        };
        let limit = self.limit_mut(name)?;
        let new = Override { whom: OverrideWhom::Prefix(prefix), layers: Some(vec![allowance]) };
        match limit.place(&new.whom) {
            Ok(place) => limit.overrides[place] = new,
            Err(place) => limit.overrides.insert(place, new),
        }
        Ok(())
    }

    /// Sets the rate of a limit, its burst, or both, as the operator wrote them: for each source within
    /// `prefix`, or without one for keys that have no override. Returns the result. A rate that is `None`
    /// stays as it is. A burst that is `None` keeps the form in which it was written; if it never was, it is
    /// the default of the rate.
    ///
    /// # Errors
    /// See [`set_override`](Self::set_override) and [`Count::bucket`](super::model::Count::bucket); also
    /// [`PolicyError::NotSet`] or [`PolicyError::DropsAll`] for a burst where there is no rate.
    pub fn set_bucket(
        &mut self,
        name: impl AsRef<str>,
        prefix: Option<IpNet>,
        rate: Option<&str>,
        burst: Option<&str>,
    ) -> Result<Bucket, PolicyError> {
        let name = name.as_ref();
        let limit = match self.limit(name) {
            Some(limit) => Cow::Borrowed(limit),
            None => Cow::Owned(self.limit_or_builtin(name)?),
        };
        let whom = prefix.map(OverrideWhom::Prefix);
        let held = limit.held_by(whom.as_ref());
        let no_rate = || match limit.mode {
            Mode::Drop => PolicyError::DropsAll { limit: name.to_owned() },
            _ => PolicyError::NotSet { limit: name.to_owned(), overrides: 0 },
        };
        let rate = match rate {
            Some(rate) => limit.count.parse_rate(rate)?,
            None => held.ok_or_else(no_rate)?.bucket().rate,
        };
        let given = match (burst, held) {
            (Some(burst), _) => Some(limit.count.parse_burst(burst)?),
            // Open connections have no rate that a default could come from.
            (None, Some(Allowance::Concurrent { limit, .. })) => Some(Burst::Packets(limit)),
            (None, _) => limit.given.get(whom.as_ref()),
        };
        let bucket = limit.count.bucket_of(rate, given)?;
        match prefix {
            Some(prefix) => self.set_override(name, prefix, bucket)?,
            None => self.set_default(name, bucket)?,
        }
        let limit = self.limit_mut(name)?;
        limit.given.set(whom.as_ref(), given);
        if let (Some(Burst::Time(time)), Some(Allowance::Gcra { tolerance, .. })) =
            (given, limit.held_by_mut(whom.as_ref()))
        {
            *tolerance = time;
        }
        Ok(bucket)
    }

    /// Sets whether a limit drops packets, only counts them, or is off.
    ///
    /// # Errors
    /// [`PolicyError::UnknownLimit`]; or [`PolicyError::NotSet`] or [`PolicyError::DropsAll`] if the limit has no rate that the mode
    /// could be about.
    pub fn set_mode(&mut self, name: impl AsRef<str>, mode: Mode) -> Result<(), PolicyError> {
        let name = name.as_ref();
        let goes_by_rates = matches!(mode, Mode::Enforce | Mode::Monitor);
        if mode == Mode::Drop {
            self.limit_mut(name)?.mode = mode;
            return Ok(());
        }
        if goes_by_rates
            && self.limit(name).is_some_and(|it| it.mode == Mode::Drop && it.has_no_rate())
        {
            return Err(PolicyError::DropsAll { limit: name.to_owned() });
        }
        match self.limits.iter_mut().find(|limit| limit.name == name) {
            Some(limit) => limit.mode = mode,
            None => {
                self.limit_or_builtin(name)?;
                return Err(PolicyError::NotSet { limit: name.to_owned(), overrides: 0 });
            }
        }
        Ok(())
    }

    /// Removes all layers of a limit; its overrides stay. A limit without overrides is removed if it is a built-in one, or
    /// drops everything.
    ///
    /// # Errors
    /// - [`PolicyError::NotSet`] if it has no layers;
    /// - [`PolicyError::UnknownLimit`];
    /// - [`PolicyError::LayersOverridden`] if it has overrides of several layers, which mean nothing without
    ///   those.
    pub fn del_default(&mut self, name: impl AsRef<str>) -> Result<(), PolicyError> {
        let name = name.as_ref();
        let limit = self.limit_or_builtin(name)?;
        if limit.mode == Mode::Drop && limit.overrides.is_empty() {
            return self.del_limit(name);
        }
        if limit.layers.is_empty() && limit.mode != Mode::Drop {
            let overrides = limit.overrides.len();
            return Err(PolicyError::NotSet { limit: name.to_owned(), overrides });
        }
        if limit.layers.len() > 1 && !limit.overrides.is_empty() {
            return Err(PolicyError::LayersOverridden { limit: name.to_owned() });
        }
        let limit = self.limit_mut(name)?;
        limit.layers.clear();
        limit.given.set(None, None);
        if limit.mode == Mode::Drop {
            // What overrides admit stays.
            limit.mode = Mode::Enforce;
        }
        self.tidy(name);
        Ok(())
    }

    /// Removes a limit with all its overrides.
    ///
    /// # Errors
    /// [`PolicyError::NotSet`] for a built-in limit that is not set, or [`PolicyError::UnknownLimit`].
    pub fn del_limit(&mut self, name: impl AsRef<str>) -> Result<(), PolicyError> {
        let name = name.as_ref();
        if self.limit(name).is_none() {
            self.limit_or_builtin(name)?;
            return Err(PolicyError::NotSet { limit: name.to_owned(), overrides: 0 });
        }
        self.limits.retain(|limit| limit.name != name);
        Ok(())
    }

    /// Removes the override of a limit for exactly this prefix. A built-in limit with nothing left is
    /// removed.
    ///
    /// # Errors
    /// [`PolicyError::NoOverride`], with the nearest overrides, or [`PolicyError::UnknownLimit`].
    pub fn del_override(
        &mut self,
        name: impl AsRef<str>,
        prefix: IpNet,
    ) -> Result<(), PolicyError> {
        let name = name.as_ref();
        let limit = self.limit_or_builtin(name)?;
        let whom = OverrideWhom::Prefix(prefix);
        if let Ok(place) = limit.place(&whom) {
            let limit = self.limit_mut(name)?;
            limit.overrides.remove(place);
            limit.given.set(Some(&whom), None);
            self.tidy(name);
            return Ok(());
        }
        let mut nearest: Vec<IpNet> = limit.prefixes().collect();
        let total = nearest.len();
        nearest.sort_by_key(|&other| std::cmp::Reverse(bits_in_common(prefix, other)));
        nearest.truncate(PolicyError::NEAREST);
        Err(PolicyError::NoOverride { limit: name.to_owned(), prefix, nearest, total })
    }

    /// Removes a built-in limit without layers and overrides.
    fn tidy(&mut self, name: &str) {
        let empty = Limit::is_off;
        if Builtin::by_name(name).is_some() {
            self.limits.retain(|limit| limit.name != name || !empty(limit));
        }
    }

    /// Sets the prefix lengths of a source.
    ///
    /// # Errors
    /// [`PolicyError::KeyPrefixTooLong`], or [`PolicyError::KeyPrefixTooWide`] if an override is narrower
    /// than such a source.
    pub fn set_key_prefix(&mut self, key_prefix: KeyPrefix) -> Result<(), PolicyError> {
        key_prefix.check()?;
        let on_packets = self.limits.iter();
        let on_packets =
            on_packets.flat_map(|it| it.prefixes().map(move |prefix| (&it.name, prefix)));
        let on_requests = self.on_requests.iter();
        let on_requests =
            on_requests.flat_map(|it| it.prefixes().map(move |prefix| (&it.name, prefix)));
        for (limit, prefix) in on_packets.chain(on_requests) {
            let length = key_prefix.length_for(&prefix);
            if prefix.prefix_len() > length {
                let limit = limit.clone();
                return Err(PolicyError::KeyPrefixTooWide { limit, prefix, length });
            }
        }
        self.key_prefix = key_prefix;
        Ok(())
    }
}

impl Limit {
    /// Whether the limit limits nobody: it has neither layers nor overrides, and does not drop everything. Whether its
    /// mode is [`Mode::Off`] is not considered.
    pub const fn is_off(&self) -> bool {
        self.has_no_rate() && !matches!(self.mode, Mode::Drop)
    }

    /// Whether the limit has neither layers nor overrides.
    const fn has_no_rate(&self) -> bool {
        self.layers.is_empty() && self.overrides.is_empty()
    }

    /// The prefixes that have overrides, in their order.
    pub fn prefixes(&self) -> impl Iterator<Item = IpNet> {
        self.overrides.iter().filter_map(|entry| match &entry.whom {
            OverrideWhom::Prefix(prefix) => Some(*prefix),
            OverrideWhom::Tenant(_) => None,
        })
    }

    /// The index of an override, or where to insert it: before the first one with a larger [`Override::whom`]. The
    /// overrides of a document have the order of the document, so each one is compared.
    fn place(&self, whom: &OverrideWhom) -> Result<usize, usize> {
        let mut whoms = self.overrides.iter().map(|entry| &entry.whom);
        whoms
            .clone()
            .position(|it| it == whom)
            .ok_or_else(|| whoms.position(|it| it > whom).unwrap_or(self.overrides.len()))
    }

    /// The allowance of the override for `whom`, or of the limit for `None`, if it has exactly one layer.
    fn held_by(&self, whom: Option<&OverrideWhom>) -> Option<Allowance> {
        let Some(whom) = whom else {
            let [layer] = self.layers.as_slice() else { return None };
            return Some(layer.allowance);
        };
        match self.overrides.get(self.place(whom).ok()?)?.layers.as_deref() {
            Some([allowance]) => Some(*allowance),
            _ => None,
        }
    }

    /// Like [`held_by`](Self::held_by), for changing.
    fn held_by_mut(&mut self, whom: Option<&OverrideWhom>) -> Option<&mut Allowance> {
        let Some(whom) = whom else {
            let [layer] = self.layers.as_mut_slice() else { return None };
            return Some(&mut layer.allowance);
        };
        let place = self.place(whom).ok()?;
        match self.overrides.get_mut(place)?.layers.as_deref_mut() {
            Some([allowance]) => Some(allowance),
            _ => None,
        }
    }

    /// The algorithm of the limit with another rate and burst.
    fn allowance_with(&self, bucket: Bucket) -> Result<Allowance, PolicyError> {
        if self.layers.len() > 1 {
            return Err(PolicyError::Layers { limit: self.name.clone() });
        }
        let of_override = || self.overrides.iter().find_map(|it| it.layers.as_ref()?.first());
        let live = self.layers.first().map(|layer| &layer.allowance).or_else(of_override);
        let allowance = live.map_or_else(|| bucket.into(), |allowance| allowance.with(bucket));
        allowance.meter(1)?;
        Ok(allowance)
    }
}

/// The number of leading bits that two prefixes share; `None` for different address families.
fn bits_in_common(a: IpNet, b: IpNet) -> Option<u32> {
    let differing = match (a, b) {
        (IpNet::V4(a), IpNet::V4(b)) => (a.addr().to_bits() ^ b.addr().to_bits()).leading_zeros(),
        (IpNet::V6(a), IpNet::V6(b)) => (a.addr().to_bits() ^ b.addr().to_bits()).leading_zeros(),
        _ => return None,
    };
    Some(differing.min(a.prefix_len().into()).min(b.prefix_len().into()))
}

#[cfg(test)]
mod tests;
