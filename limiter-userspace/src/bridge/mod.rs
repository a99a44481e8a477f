//! The bridge: answers proxies that ask about requests, by the limits on requests of a policy.

pub mod answer;
pub mod decide;
pub mod properties;
pub mod request;
mod rules;
pub mod table;
