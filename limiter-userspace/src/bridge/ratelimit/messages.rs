//! The messages of `envoy.service.ratelimit.v3` and `grpc.health.v1`, as far as they are used here. Other fields of requests are
//! skipped.

use prost::{Enumeration, Message};

/// `RateLimitRequest`.
#[derive(Clone, PartialEq, Message)]
pub(in crate::bridge) struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub(in crate::bridge) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(in crate::bridge) descriptors: Vec<Descriptor>,
    /// 0 is not told, and means 1.
    #[prost(uint32, tag = "3")]
    pub(in crate::bridge) hits_addend: u32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub(in crate::bridge) struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    pub(in crate::bridge) entries: Vec<Entry>,
    /// A limit in place of that of the policy.
    #[prost(message, optional, tag = "2")]
    pub(in crate::bridge) limit: Option<ToldLimit>,
    /// In place of that of the request, where it is told; 0 asks and charges nothing.
    #[prost(message, optional, tag = "3")]
    pub(in crate::bridge) hits_addend: Option<Whole>,
    /// Whether its hits are given back.
    #[prost(bool, tag = "4")]
    pub(in crate::bridge) is_negative_hits: bool,
}

/// `RateLimitDescriptor.RateLimitOverride`. Its units are those of [`Unit`] up to the year.
#[derive(Clone, Copy, PartialEq, Message)]
pub(in crate::bridge) struct ToldLimit {
    #[prost(uint32, tag = "1")]
    pub(in crate::bridge) requests_per_unit: u32,
    #[prost(enumeration = "Unit", tag = "2")]
    pub(in crate::bridge) unit: i32,
}

/// An entry of a descriptor. Its texts are read as bytes: Envoy tells what a client sent, which need not be UTF-8, and passes
/// requests whose message is refused.
#[derive(Clone, PartialEq, Message)]
pub(in crate::bridge) struct Entry {
    #[prost(bytes = "vec", tag = "1")]
    pub(in crate::bridge) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(in crate::bridge) value: Vec<u8>,
}

/// `google.protobuf.UInt64Value`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(in crate::bridge) struct Whole {
    #[prost(uint64, tag = "1")]
    pub(in crate::bridge) value: u64,
}

/// `RateLimitResponse`.
#[derive(Clone, PartialEq, Message)]
pub(in crate::bridge) struct RateLimitResponse {
    #[prost(enumeration = "Code", tag = "1")]
    pub(in crate::bridge) overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub(in crate::bridge) statuses: Vec<Status>,
    #[prost(message, repeated, tag = "3")]
    pub(in crate::bridge) response_headers_to_add: Vec<HeaderValue>,
    #[prost(message, repeated, tag = "4")]
    pub(in crate::bridge) request_headers_to_add: Vec<HeaderValue>,
    #[prost(bytes = "vec", tag = "5")]
    pub(in crate::bridge) raw_body: Vec<u8>,
}

/// `RateLimitResponse.Code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
pub(in crate::bridge) enum Code {
    Unknown = 0,
    Ok = 1,
    OverLimit = 2,
}

/// `RateLimitResponse.DescriptorStatus`.
#[derive(Clone, PartialEq, Message)]
pub(in crate::bridge) struct Status {
    #[prost(enumeration = "Code", tag = "1")]
    pub(in crate::bridge) code: i32,
    #[prost(message, optional, tag = "2")]
    pub(in crate::bridge) current_limit: Option<RateLimit>,
    #[prost(uint32, tag = "3")]
    pub(in crate::bridge) limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub(in crate::bridge) duration_until_reset: Option<Duration>,
}

/// `RateLimitResponse.RateLimit`.
#[derive(Clone, PartialEq, Message)]
pub(in crate::bridge) struct RateLimit {
    #[prost(uint32, tag = "1")]
    pub(in crate::bridge) requests_per_unit: u32,
    #[prost(enumeration = "Unit", tag = "2")]
    pub(in crate::bridge) unit: i32,
    #[prost(string, tag = "3")]
    pub(in crate::bridge) name: String,
}

/// `RateLimitResponse.RateLimit.Unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
pub(in crate::bridge) enum Unit {
    Unknown = 0,
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}

impl Unit {
    /// Those that have a length, and their lengths in seconds.
    pub(in crate::bridge) const LENGTHS: [(Self, u64); 7] = [
        (Self::Second, 1),
        (Self::Minute, 60),
        (Self::Hour, 3_600),
        (Self::Day, 86_400),
        (Self::Week, 7 * 86_400),
        (Self::Month, 30 * 86_400),
        (Self::Year, 365 * 86_400),
    ];
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(in crate::bridge) struct Duration {
    #[prost(int64, tag = "1")]
    pub(in crate::bridge) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(in crate::bridge) nanos: i32,
}

/// `envoy.config.core.v3.HeaderValue`.
#[derive(Clone, PartialEq, Message)]
pub(in crate::bridge) struct HeaderValue {
    #[prost(string, tag = "1")]
    pub(in crate::bridge) key: String,
    #[prost(string, tag = "2")]
    pub(in crate::bridge) value: String,
}

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, Message)]
pub(in crate::bridge) struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    pub(in crate::bridge) service: String,
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(in crate::bridge) struct HealthCheckResponse {
    /// 1 is `SERVING`.
    #[prost(int32, tag = "1")]
    pub(in crate::bridge) status: i32,
}
