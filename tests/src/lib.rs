//! The harness that the scenarios, the demonstration and the benchmarks of limiter share.

pub mod command;
pub mod held;
pub mod http;
pub mod leak;
pub mod machine;
pub mod model;
pub mod older;
pub mod packet;
pub mod process;
pub mod program;
pub mod prometheus;
pub mod random;
pub mod reference;
pub mod sandbox;
pub mod topology;
pub mod traffic;
