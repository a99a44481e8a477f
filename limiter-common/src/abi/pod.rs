//! The types that cross a map.

use crate::{
    abi::{
        build::Build,
        counters::{LimitTally, SlotCounters, TableStats},
        description::{Description, OldTables, Request},
        interface::Interface,
        policy::{Head, Profile, Settings},
        push::Push,
        state::{Bucket, Offence, OffenceHead, OffenceKey, OffenceRecord, SynRecord, WideState},
        table::{FurtherLimits, Set, Source, UntrackedTotals},
    },
    algorithm::meter::{Measure, Meter},
    base::{
        address::{Address, Mask},
        tally::Tally,
    },
    memory::{
        cache::Cached,
        ending::Ending,
        event::{EventStats, SourceEvent},
        refused_syn::RefusedSyn,
        sample::{Sample, Sampling},
    },
    policy::{
        control::Budgets,
        limit::{BucketKey, Limit},
    },
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
    Bucket,
    BucketKey,
    Budgets,
    Build,
    Cached,
    Description,
    Ending,
    Head,
    Interface,
    WideState,
    Limit,
    LimitTally,
    Push,
    Mask,
    Measure,
    Meter,
    SourceEvent,
    SynRecord,
    EventStats,
    FurtherLimits,
    Offence,
    OffenceHead,
    OffenceKey,
    OffenceRecord,
    OldTables,
    Profile,
    RefusedSyn,
    Request,
    Sample,
    Sampling,
    Set,
    Settings,
    SlotCounters,
    Source,
    Tally,
    TableStats,
    UntrackedTotals,
);
