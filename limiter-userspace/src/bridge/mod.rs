//! The bridge: answers proxies that ask about requests, by the limits on requests of a policy.
//!
//! [`decide`] has the decision and [`table`] its state. `http`, `grpc` and `spop` answer proxies, [`fields`] writes what their
//! clients are told. [`proxy`] prints the configurations of proxies. The process holds no capability and touches no map of the
//! kernel: `push` has the agent block peers there. `haproxy` has HAProxy refuse sources itself. Proxies on other hosts present a certificate (`tls`).

pub mod answer;
#[cfg(not(fuzzing))]
pub(crate) mod client;
pub mod decide;
#[cfg(not(fuzzing))]
mod end;
#[cfg(not(fuzzing))]
pub mod event;
pub mod fields;
#[cfg(not(fuzzing))]
mod grpc;
#[cfg(not(fuzzing))]
mod handover;
#[cfg(not(fuzzing))]
pub mod haproxy;
#[cfg(not(fuzzing))]
mod http;
#[cfg(fuzzing)]
#[path = "http/fuzzed.rs"]
pub mod http;
#[cfg(not(fuzzing))]
pub mod in_force;
#[cfg(not(fuzzing))]
mod kernel;
pub mod lease;
#[cfg(not(fuzzing))]
mod link;
#[cfg(not(fuzzing))]
pub mod listener;
#[cfg(not(fuzzing))]
pub mod lookup;
#[cfg(not(fuzzing))]
mod metrics;
#[cfg(not(fuzzing))]
pub mod openapi;
pub mod properties;
pub mod proxy;
#[cfg(not(fuzzing))]
mod push;
#[cfg(not(fuzzing))]
mod ratelimit;
#[cfg(fuzzing)]
pub mod ratelimit;
pub mod request;
mod rules;
#[cfg(not(fuzzing))]
pub mod run;
#[cfg(not(fuzzing))]
mod spop;
pub mod table;
#[cfg(not(fuzzing))]
pub mod tls;
#[cfg(not(fuzzing))]
mod told;
#[cfg(not(fuzzing))]
pub mod users;
