//! The bridge: answers proxies that ask about requests, by the limits on requests of a policy.
//!
//! [`decide`] has the decision and [`table`] its state. `http` answers proxies, [`fields`] writes what their clients are
//! told. [`proxy`] prints the configurations of proxies. The process holds no capability and touches no map of the kernel.

pub mod answer;
pub mod decide;
#[cfg(not(fuzzing))]
pub mod event;
pub mod fields;
#[cfg(not(fuzzing))]
mod http;
#[cfg(not(fuzzing))]
pub mod in_force;
#[cfg(not(fuzzing))]
pub mod listener;
#[cfg(not(fuzzing))]
mod metrics;
pub mod properties;
pub mod proxy;
pub mod request;
mod rules;
#[cfg(not(fuzzing))]
pub mod run;
pub mod table;
#[cfg(not(fuzzing))]
pub mod users;
