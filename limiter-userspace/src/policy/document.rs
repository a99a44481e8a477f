//! The form in which a policy is stored: JSON, strict and with a version.

use ipnet::IpNet;
use limiter_common::{limit::Limit, rate::Rate};
use serde::{Deserialize, Serialize};

use super::{
    error::PolicyError,
    model::{Bucket, KeyPrefix, Policy},
    name::limit_by_name,
    units::printable,
};

/// The version that is written, and the only one that is read.
pub const VERSION: u64 = 1;

/// What every version has.
#[derive(Deserialize)]
struct Header {
    version: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u64,
    key_prefix: KeyPrefix,
    limits: Vec<LimitDocument>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitDocument {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default: Option<BucketDocument>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    overrides: Vec<OverrideDocument>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BucketDocument {
    packets: u64,
    period_ns: u64,
    burst: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OverrideDocument {
    src: IpNet,
    bucket: BucketDocument,
}

impl Policy {
    /// The policy as a document.
    ///
    /// # Errors
    /// [`PolicyError::Document`] when it cannot be written, for lack of memory.
    pub fn to_document(&self) -> Result<Vec<u8>, PolicyError> {
        let limits = Limit::ALL.map(|limit| {
            let policy = self.limit(limit);
            let of_override = |(&src, &bucket): (&IpNet, &Bucket)| OverrideDocument {
                src,
                bucket: bucket.into(),
            };
            LimitDocument {
                name: limit.name().to_owned(),
                default: policy.default.map(BucketDocument::from),
                overrides: policy.overrides.iter().map(of_override).collect(),
            }
        });
        let document =
            Document { version: VERSION, key_prefix: self.key_prefix, limits: limits.into() };
        serde_json::to_vec(&document).map_err(unreadable)
    }

    /// The policy in a document, checked.
    ///
    /// # Errors
    /// [`PolicyError::Document`], whatever the bytes are.
    pub fn from_document(document: &[u8]) -> Result<Self, PolicyError> {
        // First, so that another version is called that, and not a list of unknown fields.
        let Header { version } = serde_json::from_slice(document).map_err(unreadable)?;
        if version != VERSION {
            let cause =
                format!("it is of version {version}, and this limiter reads version {VERSION}");
            return Err(PolicyError::Document { cause });
        }
        let document: Document = serde_json::from_slice(document).map_err(unreadable)?;
        let mut policy = Self::default();
        policy.set_key_prefix(document.key_prefix).map_err(invalid)?;
        let mut seen = Vec::new();
        for LimitDocument { name, default, overrides } in document.limits {
            let limit = limit_by_name(&name).map_err(invalid)?;
            if seen.contains(&limit) {
                return Err(twice(&format!("limit {name}")));
            }
            seen.push(limit);
            if let Some(bucket) = default {
                policy.set_default(limit, bucket.into()).map_err(invalid)?;
            }
            for OverrideDocument { src, bucket } in overrides {
                if policy.limit(limit).overrides.contains_key(&src) {
                    return Err(twice(&format!("the override for {src} of limit {name}")));
                }
                policy.set_override(limit, src, bucket.into()).map_err(invalid)?;
            }
        }
        Ok(policy)
    }
}

impl From<Bucket> for BucketDocument {
    fn from(Bucket { rate, burst }: Bucket) -> Self {
        Self { packets: rate.packets, period_ns: rate.period, burst }
    }
}

impl From<BucketDocument> for Bucket {
    fn from(BucketDocument { packets, period_ns, burst }: BucketDocument) -> Self {
        Self { rate: Rate { packets, period: period_ns }, burst }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "to be given to map_err")]
fn unreadable(error: serde_json::Error) -> PolicyError {
    // Its text may repeat any part of the document.
    const LONGEST: usize = 200;
    PolicyError::Document { cause: printable(&error.to_string(), LONGEST) }
}

#[expect(clippy::needless_pass_by_value, reason = "to be given to map_err")]
fn invalid(error: PolicyError) -> PolicyError {
    PolicyError::Document { cause: error.to_string() }
}

fn twice(what: &str) -> PolicyError {
    PolicyError::Document { cause: format!("{what} is there twice") }
}

#[cfg(test)]
mod tests;
