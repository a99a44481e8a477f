//! The entries of sources and connections, found or made, and bound to the policy in force.

use aya_ebpf::{bindings::BPF_NOEXIST, maps::lpm_trie::Key};
use limiter_common::{
    address::Address,
    binding::{Binding, Bucket, Standing, bind},
    contract::{Connection, ConnectionKey, Settings, Source, Tally, plan_slot, shared},
    limit::Limit,
    plan::Plan,
    word::Word as _,
};

use crate::{
    cell::{self, Cell},
    clock,
    maps::{CONNECTIONS, OVERRIDES, PLANS, SHARED_SOURCES, SOURCES},
};

/// Whose the shared entries are: no override is for them.
static NOBODY: Address = Address::NONE;
static NEW_SOURCE: Source = Source::NEW;
static NEW_CONNECTION: Connection = Connection::NEW;

/// Bits of an [`Address`], all of which a look-up of overrides compares.
const ADDRESS_BITS: u32 = Address::FAMILY_BITS + 128;

/// The entry of a source, bound.
#[derive(Clone, Copy)]
pub(crate) struct SourceEntry {
    pub(crate) source: *mut Source,
    pub(crate) binding: Binding,
    pub(crate) plan: &'static Plan,
    /// Whether the entry is shared by sources that could not get one of their own.
    pub(crate) overflow: bool,
}

impl SourceEntry {
    /// The entry of `address`, the key of a source; [`Address::NONE`] has a shared one, and so have
    /// the sources for which the kernel has no entry to give. One that another CPU keeps from being
    /// bound is told of a packet of `bytes` here, as nobody else can.
    #[inline(always)]
    pub(crate) fn find(
        address: &Address,
        epoch: u32,
        settings: &Settings,
        bytes: u64,
    ) -> Option<Self> {
        let (source, address, overflow) = if address.family == Address::NONE.family {
            (SHARED_SOURCES.get_ptr_mut(shared::UNREADABLE)?, &NOBODY, false)
        } else if let Some(source) = SOURCES.get_ptr_mut(address).or_else(|| create(address)) {
            (source, address, false)
        } else {
            (SHARED_SOURCES.get_ptr_mut(shared::OVERFLOW)?, &NOBODY, true)
        };
        // SAFETY: an aligned word of a map value.
        let seen = Binding(unsafe { (&raw const (*source).binding).read_volatile() });
        let binding = match seen.standing(epoch) {
            Standing::Current => seen,
            Standing::Behind | Standing::Locked => {
                let Some(binding) = refresh(source, address, epoch, settings) else {
                    // Without limits it passes.
                    // SAFETY: it was looked up above.
                    unsafe { account(source, settings.limits != 0, bytes) };
                    return None;
                };
                binding
            }
        };
        let plan = PLANS.get(plan_slot(binding.epoch(), binding.plan()))?;
        Some(Self { source, binding, plan, overflow })
    }

    /// The word of the `syn` or of the `source` bucket.
    #[inline(always)]
    pub(crate) fn cell(&self, limit: Limit) -> Cell {
        let index = if matches!(limit, Limit::Syn) { SYN } else { SOURCE };
        // SAFETY: an entry points to a map value that was looked up in this run.
        unsafe {
            let source = self.source;
            Cell::new(&raw mut (*source).words[index], &raw const (*source).binding, self.binding)
        }
    }

    /// Adds a packet to the totals of the source.
    #[inline(always)]
    pub(crate) fn account(&self, dropped: bool, bytes: u64) {
        // SAFETY: as in `cell`.
        unsafe { account(self.source, dropped, bytes) };
    }

    /// Nanoseconds from `now` until the `source` bucket admits a packet.
    #[inline(always)]
    pub(crate) fn wait(&self, now: u64) -> u64 {
        let word = self.cell(Limit::Source).load();
        self.plan.limits[Limit::Source.index()].wait(word, now)
    }
}

/// Adds a packet to the totals of a source.
///
/// # Safety
/// `source` is a map value that was looked up in this run of the program.
#[inline(always)]
unsafe fn account(source: *mut Source, dropped: bool, bytes: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        let tally = if dropped { &raw mut (*source).dropped } else { &raw mut (*source).passed };
        add(tally, 1, bytes);
    }
}

/// Adds packets that were dropped to the totals of a source, or of those that have no entry.
#[inline(never)]
pub(crate) fn account_dropped(address: &Address, packets: u64, bytes: u64) {
    let source = if address.family == Address::NONE.family {
        SHARED_SOURCES.get_ptr_mut(shared::UNREADABLE)
    } else {
        SOURCES.get_ptr_mut(address).or_else(|| SHARED_SOURCES.get_ptr_mut(shared::OVERFLOW))
    };
    if let Some(source) = source {
        // SAFETY: a map value that was just looked up.
        unsafe { add(&raw mut (*source).dropped, packets, bytes) };
    }
}

/// # Safety
/// `tally` is in a map value that was looked up in this run of the program.
#[inline(always)]
unsafe fn add(tally: *mut Tally, packets: u64, bytes: u64) {
    // SAFETY: as the caller promises; both are aligned words.
    unsafe {
        cell::add(&raw mut (*tally).packets, packets);
        cell::add(&raw mut (*tally).bytes, bytes);
    }
}

const SYN: usize = 0;
const SOURCE: usize = 1;

/// Makes an entry for a source that has none. It is zeroed, so it will be bound as one that is
/// behind.
#[inline(never)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a value would be copied to the stack"
)]
fn create(address: &Address) -> Option<*mut Source> {
    // Another CPU may have made it first, which is as good.
    let _: Result<(), i32> = SOURCES.insert(address, &NEW_SOURCE, u64::from(BPF_NOEXIST));
    SOURCES.get_ptr_mut(address)
}

/// Brings the entry of a source up to date.
#[inline(never)]
fn refresh(
    source: *mut Source,
    address: &Address,
    epoch: u32,
    settings: &Settings,
) -> Option<Binding> {
    let plan = if settings.overrides == 0 {
        0
    } else {
        OVERRIDES
            .get(epoch & 1)
            .and_then(|overrides| overrides.get(&Key::new(ADDRESS_BITS, *address)))
            .copied()
            .unwrap_or(0)
    };
    let target = Binding::new(epoch, plan);
    let limits = &PLANS.get(plan_slot(epoch, plan))?.limits;
    // SAFETY: the caller looked the entry up in this run. Its words are written under its lock, so
    // no binding is asked for: a cell is its own.
    let [entry, syn, syn_scale, all, all_scale] = unsafe {
        [
            &raw mut (*source).binding,
            &raw mut (*source).words[SYN],
            &raw mut (*source).scales[SYN],
            &raw mut (*source).words[SOURCE],
            &raw mut (*source).scales[SOURCE],
        ]
        .map(|word| Cell::new(word, word, target))
    };
    let buckets = [Bucket { word: syn, scale: syn_scale }, Bucket { word: all, scale: all_scale }];
    let plan = [&limits[Limit::Syn.index()], &limits[Limit::Source.index()]];
    bind(&entry, target, &buckets, plan, clock::now())
}

/// The word of a connection that has an entry, at `now`.
#[inline(always)]
pub(crate) fn connection(key: &ConnectionKey, source: &SourceEntry, now: u64) -> Option<Cell> {
    let connection = CONNECTIONS.get_ptr_mut(key)?;
    // SAFETY: a map value that was just looked up; its fields are aligned words.
    unsafe {
        let entry = &raw const (*connection).binding;
        if entry.read_volatile() != source.binding.0 {
            refresh_connection(connection, source, now);
        }
        // If it is not bound now, the cell itself finds out.
        Some(Cell::new(&raw mut (*connection).word, entry, source.binding))
    }
}

/// Brings the entry of a connection up to date with its source, at the time that its packet is
/// decided for: a later one would charge the packet for what passed since.
#[inline(never)]
fn refresh_connection(connection: *mut Connection, source: &SourceEntry, now: u64) {
    // SAFETY: as in `refresh`.
    let [entry, word, scale] = unsafe {
        [&raw mut (*connection).binding, &raw mut (*connection).word, &raw mut (*connection).scale]
            .map(|word| Cell::new(word, word, source.binding))
    };
    let gcra = &source.plan.limits[Limit::Connection.index()];
    let _: Option<Binding> = bind(&entry, source.binding, &[Bucket { word, scale }], [gcra], now);
}

/// The word of a connection that had no entry, at `now`.
#[inline(always)]
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a value would be copied to the stack"
)]
pub(crate) fn create_connection(
    key: &ConnectionKey,
    source: &SourceEntry,
    now: u64,
) -> Option<Cell> {
    let _: Result<(), i32> = CONNECTIONS.insert(key, &NEW_CONNECTION, u64::from(BPF_NOEXIST));
    connection(key, source, now)
}
