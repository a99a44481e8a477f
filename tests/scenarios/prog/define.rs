//! Builders of policies for the scenarios.

use limiter_userspace::policy::{
    Policy,
    model::{Allowance, Key, KeyPart, Layer, Limit, Mode},
};

/// A key part: the source, cut to prefixes of these lengths.
pub(super) const fn within(ipv4: u8, ipv6: u8) -> KeyPart {
    KeyPart::SourcePrefix { ipv4, ipv6 }
}

pub(super) fn key(parts: &[KeyPart]) -> Key {
    Key { parts: parts.to_vec() }
}

/// An enforced limit on all packets, counted in packets.
pub(super) fn limit(name: &str, parts: &[KeyPart], allowance: impl Into<Allowance>) -> Limit {
    let layers = vec![Layer { allowance: allowance.into(), key: None }];
    Limit { layers, ..Limit::new(name, parts) }
}

/// The limit with one more layer.
pub(super) fn and(mut limit: Limit, allowance: impl Into<Allowance>) -> Limit {
    limit.layers.push(Layer { allowance: allowance.into(), key: None });
    limit
}

/// The limit in another mode.
pub(super) fn in_mode(mode: Mode, limit: Limit) -> Limit {
    Limit { mode, ..limit }
}

pub(super) fn policy_of(limits: impl IntoIterator<Item = Limit>) -> Policy {
    Policy { limits: limits.into_iter().collect(), ..Policy::default() }
}

/// Whether the state of a limit is in the entry of the source.
pub(super) fn is_inline(limit: &Limit) -> bool {
    limit.key.parts == [KeyPart::Source] && limit.layers[0].allowance.is_bucket()
}
