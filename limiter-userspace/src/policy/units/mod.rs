//! Parses and prints values as operators write them: rates, bursts, durations and prefixes.
//!
//! Nothing is rounded. A value that cannot be represented exactly is refused, with the reason and a remedy.

pub mod burst;
mod data;
pub mod data_burst;
pub mod data_rate;
mod error;
mod number;
pub mod prefix;
pub mod rate;
pub mod target;
pub mod time;

pub use burst::{Burst, default_burst, parse_burst, parse_request_burst};
pub use data_burst::{default_data_burst, format_size, parse_data_burst};
pub use data_rate::{format_data_rate, parse_data_rate};
pub use error::{Fault, Quantity, ValueError, printable, quoted};
pub use prefix::{parse_addresses, parse_prefix};
pub use rate::{format_rate, format_request_rate, parse_rate, parse_request_rate, rate_per_second};
pub use target::{host_of, path_of};
pub use time::{format_duration, parse_duration, parse_lasting, parse_time};
