//! The types that cross a map.

/// Marks types of this crate, by their modules.
macro_rules! pod {
    ($($($module:ident)::+ { $($type:ident),+ })+) => {
        $(const _: () = {
            use crate::$($module)::+::{$($type),+};
            // SAFETY: each is `repr(C)`, `Copy`, made of integers and arrays of them alone, and has no
            // padding: its size, asserted where it is defined, is the sum of its fields.
            $(unsafe impl aya::Pod for $type {})+
        };)+
    };
}

pod! {
    abi::build { Build }
    abi::counters { LimitTally, SlotCounters, TableStats }
    abi::description { Description, OldTables, Request }
    abi::interface { Interface }
    abi::policy { Head, Profile, Settings }
    abi::push { Push }
    abi::state { Bucket, OffenceHead, OffenceKey, OffenceRecord, WideState }
    abi::table { FurtherLimits, Set, Source, UntrackedTotals }
    algorithm::meter { Measure, Meter }
    base::address { Address, Mask }
    base::tally { Tally }
    memory::cache { Cached }
    memory::ending { Ending }
    memory::event { EventStats, SourceEvent }
    memory::handshake { Record }
    memory::refused_syn { RefusedSyn }
    memory::sample { Sample, Sampling }
    policy::control { Budgets }
    policy::limit { BucketKey, Limit }
    policy::penalty { Offence }
}
