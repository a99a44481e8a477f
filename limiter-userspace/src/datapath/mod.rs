//! The kernel side of an instance: programs, links and maps.

pub mod bpffs;
pub mod buckets;
pub(crate) mod claim;
pub mod cost;
pub(crate) mod diag;
#[expect(unsafe_code, reason = "the structures of an ioctl that no library wraps")]
pub(crate) mod ethtool;
pub mod events;
pub mod exchange;
pub(crate) mod features;
pub mod holder;
pub(crate) mod host;
pub mod instance;
pub mod interface;
pub mod kept;
mod layout;
pub(crate) mod link;
#[expect(unsafe_code, reason = "a socket that no library wraps")]
pub mod linkwatch;
pub(crate) mod loader;
pub(crate) mod loading;
pub mod lock;
pub(crate) mod lookup;
pub mod main_program;
pub mod maps;
pub mod memory;
#[cfg(feature = "datapath-log")]
pub mod messages;
pub mod mode;
pub mod monitoring;
#[expect(unsafe_code, reason = "ioctls that no library wraps")]
mod netdevice;
#[expect(unsafe_code, reason = "a socket that no library wraps")]
mod netlink;
mod object;
pub(crate) mod offences;
mod open;
mod optional;
pub mod policy;
pub(crate) mod prefix_rules;
pub(crate) mod privilege;
pub mod program;
pub mod pushes;
pub mod refusal;
#[expect(unsafe_code, reason = "values by their bytes")]
pub mod ring;
pub mod samples;
pub mod sizes;
pub mod snapshot;
pub mod sources;
pub(crate) mod stacked;
pub mod statistics;
mod stored_policy;
mod stored_tries;
pub mod survey;
#[expect(unsafe_code, reason = "system calls that no library wraps")]
pub(crate) mod sys;
pub mod trial;
mod trie;
