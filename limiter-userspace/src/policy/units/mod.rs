//! Values as operators write and read them: exact, and refused with a reason when not understood.

pub mod burst;
mod data;
mod error;
mod number;
pub mod prefix;
pub mod rate;
pub mod time;

pub use burst::{Burst, default_burst, parse_burst};
pub use error::{Fault, Quantity, ValueError, printable, quoted};
pub use prefix::parse_prefix;
pub use rate::{format_rate, parse_rate, rate_per_second};
pub use time::parse_duration;
