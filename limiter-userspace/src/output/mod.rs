//! The output of commands: the writer to standard output, aligned text, and the JSON that scripts
//! rely on.

pub mod changes;
pub mod drops;
pub(crate) mod exchanged;
pub mod explanation;
pub mod faults;
pub mod file;
pub mod findings;
pub mod limits;
pub mod lists;
pub mod locale;
pub mod monitoring;
pub mod number;
pub mod request;
pub mod setting;
pub mod source;
pub mod status;
pub mod stream;
pub mod table;
pub mod timestamp;
pub mod tone;
pub mod top;
pub mod verdict;
