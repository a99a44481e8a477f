//! The properties of a request, which limits on requests match by, count by and weigh by.

use std::{collections::BTreeMap, net::IpAddr, ops::Deref};

use limiter_common::base::siphash::SipHash;

use super::request::Request;
use crate::policy::model::{Attribute, AttributeSource, Field, Policy, RequestMatch, Whom};

/// Finds the properties of requests, by the attributes of a policy.
#[derive(Clone, Debug)]
pub struct Properties {
    attributes: BTreeMap<String, Attribute>,
    seed: [u64; 2],
}

/// The value of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertyValue<'v> {
    /// The value itself.
    Plain(&'v str),
    /// The keyed digest of a secret: 16 hexadecimal digits.
    Digest([u8; 16]),
}

impl Deref for PropertyValue<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            // The digits are ASCII.
            Self::Digest(digits) => std::str::from_utf8(digits).unwrap_or_default(),
        }
    }
}

impl Properties {
    /// By the attributes of a policy. `seed` is the key of digests: whoever does not know it cannot find the secret of a
    /// digest by trying.
    pub fn new(policy: &Policy, seed: [u64; 2]) -> Self {
        Self { attributes: policy.attributes.clone(), seed }
    }

    /// The value of a property. `None` if the request lacks it; an empty value counts as none.
    pub fn value<'v>(&'v self, field: &Field, request: &Request<'v>) -> Option<PropertyValue<'v>> {
        let plain = match field {
            Field::Method => request.method,
            Field::Host => request.host,
            Field::Path => request.path,
            Field::Domain => Some(request.domain),
            Field::Attribute(name) => {
                return attribute_value(name, self.attributes.get(name)?, request, self.seed);
            }
        };
        plain.filter(|text| !text.is_empty()).map(PropertyValue::Plain)
    }

    /// Whether a request meets every condition of a match. `within` tells whether a set or prefix contains a source.
    pub fn accepts(
        &self,
        matching: &RequestMatch,
        request: &Request<'_>,
        within: impl Fn(&Whom, IpAddr) -> bool,
    ) -> bool {
        let source = request.source.map(|source| source.to_canonical());
        let any = |whoms: &[Whom]| {
            source.is_some_and(|source| whoms.iter().any(|whom| within(whom, source)))
        };
        matching.fields.iter().all(|(field, patterns)| {
            patterns.is_empty()
                || self
                    .value(field, request)
                    .is_some_and(|value| patterns.iter().any(|pattern| pattern.accepts(&value)))
        }) && (matching.sources.is_empty() || any(&matching.sources))
            && !any(&matching.except_sources)
    }
}

/// The value of an attribute: the entry of a descriptor with its name, or what its source says. `None` if the request lacks
/// it; an empty value counts as none. `seed` is the key of digests.
pub fn attribute_value<'v>(
    name: &str,
    attribute: &'v Attribute,
    request: &Request<'v>,
    seed: [u64; 2],
) -> Option<PropertyValue<'v>> {
    let told = || match &attribute.from {
        AttributeSource::Header(header) => request.told.header(header),
        AttributeSource::Cookie(cookie) => cookie_value(request.told.header("cookie")?, cookie),
        AttributeSource::Path(patterns) => {
            let path = request.path?;
            patterns.iter().find(|(pattern, _)| pattern.accepts(path)).map(|(_, value)| &**value)
        }
        AttributeSource::Descriptor => None,
    };
    let text = request.told.entry(name).or_else(told).filter(|text| !text.is_empty())?;
    Some(match attribute.digest {
        true => PropertyValue::Digest(digest(text, seed)),
        false => PropertyValue::Plain(text),
    })
}

/// The value of the first cookie of a name (RFC 6265, section 4.2.1).
fn cookie_value<'v>(cookies: &'v str, name: &str) -> Option<&'v str> {
    cookies.split(';').find_map(|pair| {
        let (own, value) = pair.split_once('=')?;
        (own.trim() == name).then(|| value.trim())
    })
}

/// The keyed hash of a text.
pub(in crate::bridge) fn hash(text: &str, seed: [u64; 2]) -> u64 {
    let hash = text.as_bytes().chunks(8).fold(
        // The length tells a text from the same with zeros behind it.
        SipHash::new(seed).word(text.len() as u64),
        |hash, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash.word(u64::from_le_bytes(word))
        },
    );
    hash.finish()
}

/// The keyed digest of a secret, in lower-case hexadecimal digits.
fn digest(secret: &str, seed: [u64; 2]) -> [u8; 16] {
    let hash = hash(secret, seed);
    std::array::from_fn(|at| {
        let digit = (hash >> (60 - 4 * at)) as u8 & 0xf;
        if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }
    })
}

#[cfg(test)]
mod tests;
