//! The types that cross a map.

use crate::{
    address::{Address, Mask},
    contract::{Connection, ConnectionKey, Counters, Head, Interface, Settings, Source, Tally},
    plan::Plan,
    refused::Refused,
};

macro_rules! pod {
    ($($type:ty),+ $(,)?) => {
        // SAFETY: each is `repr(C)`, `Copy`, made of integers and arrays of them alone, and has no
        // padding: its size, asserted where it is defined, is the sum of its fields.
        $(unsafe impl aya::Pod for $type {})+
    };
}

pod!(
    Address,
    Connection,
    ConnectionKey,
    Counters,
    Head,
    Interface,
    Mask,
    Plan,
    Refused,
    Settings,
    Source,
    Tally
);
