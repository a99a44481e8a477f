//! How a limit admits packets: the algorithms, what a word of their state says, and its version.

pub mod binding;
pub mod bounds;
pub mod concurrent;
pub mod debt;
pub mod gcra;
pub mod kind;
pub mod meter;
pub mod near;
pub mod policer;
pub mod rate;
pub mod sliding_log;
pub mod time;
pub mod window;
