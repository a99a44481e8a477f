//! The types that cross a map.

use crate::{
    address::{Address, Mask},
    cache::Cached,
    contract::{
        Bucket, Counters, Head, Interface, Ledger, LimitTally, Offence, OffenceKey, Opening,
        Profile, Set, Settings, Source, Tally, Turnover,
    },
    control::Budgets,
    ending::Ending,
    limit::{BucketKey, Limit},
    meter::{Measure, Meter},
    notice::{Notice, Notices},
};

macro_rules! pod {
    ($($type:ty),+ $(,)?) => {
        // SAFETY: each is `repr(C)`, `Copy`, made of integers and arrays of them alone, and has no
        // padding: its size, asserted where it is defined, is the sum of its fields.
        $(unsafe impl aya::Pod for $type {})+
    };
}

pod!(
    Address, Bucket, BucketKey, Budgets, Cached, Counters, Ending, Head, Interface, Ledger, Limit,
    LimitTally, Mask, Measure, Meter, Notice, Notices, Offence, OffenceKey, Opening, Profile, Set,
    Settings, Source, Tally, Turnover,
);
