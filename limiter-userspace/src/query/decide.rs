//! The decision about a packet, as the program would make it, without a charge.
//!
//! The steps are those of the program, made of the same parts of `limiter-common`. Where the
//! program uses a map value in place, a copy of it is read here, and the words that the program
//! would store are dropped.

use limiter_common::{
    abi::{layout::map, policy::flag},
    algorithm::{meter::Meter, policer::Look},
    base::address::Address,
    memory::cache::Cached,
    packet::{
        control::Protocol,
        headers::{Fragment, Packet},
        link::NonIp,
        parse::parse,
        reason::Reason,
    },
    policy::{
        charge::{self, Bill, Group},
        control::{self, NON_IP_ROW, ROWS},
        limit::{BucketKey, CostClass, INLINE, KEYED, LIMITS},
        matching::classify,
        rest::Rest,
    },
};

use super::{
    fragments::Fragments,
    frame::Sighting,
    state::{Found, SourceState, State, Still},
    tables::Tables,
};
use crate::{error::Result, query::wide};

/// The decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ruling {
    /// The reason that the packet would be counted under.
    pub(super) reason: Reason,
    /// The reason if the instance were not in monitor mode.
    pub(super) enforced: Reason,
    /// The bit of the limit that refuses the packet; 0 if no limit does.
    pub(super) refused: u64,
    /// Bit set of the limits that the packet exceeds, and that only monitor.
    pub(super) exceeded: u64,
    /// Bit set of the limits that the packet would be charged to.
    pub(super) charged: u64,
}

impl Ruling {
    const fn of(reason: Reason) -> Self {
        Self { reason, enforced: reason, refused: 0, exceeded: 0, charged: 0 }
    }
}

/// Decides about a frame that comes in at `now`, in nanoseconds, by the interface in `slot`.
/// Returns `None` if the policy has changed since the tables were opened.
///
/// `fragments` holds the noted first fragments and the time at which the frame came in; without it,
/// a fragment is decided by its own headers.
pub(super) fn decide(
    tables: &Tables<'_>,
    fragments: Option<(&Fragments, u64)>,
    frame: &Sighting<'_>,
    slot: u32,
    now: u64,
) -> Result<Option<Ruling>> {
    let mut packet = Packet::UNREADABLE;
    let bytes = frame.total as u64;
    let ruling = match parse(frame, &mut packet) {
        Err(what) => Some(Ruling::of(of_non_ip(tables, what, slot, now)?)),
        Ok(Reason::TooDeep) => Some(Ruling::of(Reason::TooDeep)),
        Ok(conform) => {
            let early = match of_control(tables, &packet, slot, now)? {
                None => of_fragment(tables, fragments, &mut packet)?,
                reason => reason,
            };
            match early {
                Some(reason) => Some(Ruling::of(reason)),
                None => Case { tables, packet: &packet, conform, bytes, slot, now }.limit()?,
            }
        }
    };
    let Some(mut ruling) = ruling else { return Ok(None) };
    if tables.monitoring.is_on() && ruling.reason.drops() {
        ruling.reason = Reason::Monitor;
    }
    Ok(Some(ruling))
}

/// The reason that a frame without an IP packet is counted under.
fn of_non_ip(tables: &Tables<'_>, what: NonIp, slot: u32, now: u64) -> Result<Reason> {
    let budgets = tables.budgets(slot)?;
    if what == NonIp::LinkProtocol || !budgets.limits_non_ip() {
        return Ok(Reason::NonIp);
    }
    let links: Option<[u64; ROWS]> = tables.maps.entry(map::CONTROL_LINKS, &slot)?;
    let word = links.unwrap_or_default()[NON_IP_ROW];
    let conforms = control::charge(&budgets.non_ip, word, now).is_some();
    Ok(if conforms { Reason::NonIp } else { Reason::NonIpExceed })
}

/// Copies the noted transport fields into a later fragment, or notes those of a first
/// one. Returns the reason to drop the fragment, if there is one.
fn of_fragment(
    tables: &Tables<'_>,
    fragments: Option<(&Fragments, u64)>,
    packet: &mut Packet,
) -> Result<Option<Reason>> {
    let is_asked = tables.settings.flags & flag::FRAGMENTS != 0;
    match fragments.filter(|_| is_asked && packet.fragment.get() != Fragment::Whole) {
        Some((fragments, at)) => {
            Ok(fragments.follow(tables, packet, at)?.then_some(Reason::Overlap))
        }
        None => Ok(None),
    }
}

/// The control protocol of a packet, if it has a budget on the interface in `slot`.
pub(super) fn control_protocol(
    tables: &Tables<'_>,
    packet: &Packet,
    slot: u32,
) -> Result<Option<Protocol>> {
    let Some(protocol) = Protocol::of(packet) else { return Ok(None) };
    Ok(tables.budgets(slot)?.is_on(protocol).then_some(protocol))
}

/// The reason that a packet of a control protocol is counted under; `None` if it is no such packet
/// or has no budget.
fn of_control(tables: &Tables<'_>, packet: &Packet, slot: u32, now: u64) -> Result<Option<Reason>> {
    let Some(protocol) = control_protocol(tables, packet, slot)? else { return Ok(None) };
    let budgets = tables.budgets(slot)?;
    let links: Option<[u64; ROWS]> = tables.maps.entry(map::CONTROL_LINKS, &slot)?;
    let link = links.unwrap_or_default()[protocol as usize];
    let has_source = match control::place(packet, protocol, tables.settings.seed) {
        Some(place) => {
            let word: Option<u64> = tables.maps.entry(map::CONTROL_SOURCES, &place)?;
            let budget = budgets.of_source(protocol);
            control::charge(budget, word.unwrap_or_default(), now).is_some()
        }
        None => true,
    };
    let conforms = has_source && control::charge(&budgets.link, link, now).is_some();
    Ok(Some(if conforms { Reason::Control } else { Reason::ControlExceed }))
}

/// Bit set of the limits that match a packet, whatever its source. Only the fields in
/// `match_fields` are compared.
pub(super) fn applicable(
    tables: &Tables<'_>,
    packet: &Packet,
    bytes: u64,
    slot: u32,
    match_fields: u32,
) -> Result<u64> {
    tables.with_sets(|sets| classify(packet, || bytes, || slot, match_fields, sets))
}

/// A packet, and what its decision depends on.
struct Case<'a> {
    tables: &'a Tables<'a>,
    packet: &'a Packet,
    /// The reason that the packet is counted under if it is within its limits.
    conform: Reason,
    bytes: u64,
    slot: u32,
    now: u64,
}

impl Case<'_> {
    fn limit(&self) -> Result<Option<Ruling>> {
        let Self { tables, packet, conform, bytes, slot, now } = *self;
        let settings = &tables.settings;
        let mut applicable = if settings.match_fields == 0 {
            settings.default_destination_limits
        } else {
            applicable(tables, packet, bytes, slot, settings.match_fields)?
        };
        if applicable & settings.connections != 0 {
            applicable &= !tables.charged_before(packet, now)?;
        }
        let source = packet.source.masked(&settings.mask);
        // A refusal in the cache of any CPU counts, as it is not known which CPU the packet will
        // reach; mostly the entry agrees with it. In monitor mode the program ignores cached
        // refusals.
        if !tables.monitoring.is_on()
            && let Some(cached) = self.refusing(&source, applicable)?
        {
            let refused = self.refused_by(&cached)?;
            return Ok(Some(Ruling { refused, ..Ruling::of(Reason::Exceed) }));
        }
        match SourceState::find(tables, source, now)? {
            Found::Source(source) => self.decide(&source, applicable).map(Some),
            Found::Newer => Ok(None),
            // Without this flag the policy refuses nothing, so the packet passes undecided.
            Found::Locked if settings.flags & flag::LIMITS == 0 => Ok(Some(Ruling::of(conform))),
            Found::Locked => Ok(Some(Ruling::of(Reason::Contended))),
        }
    }

    /// A refusal of the packet in the cache of a CPU: in the slot of its source that is of no rest of the key, or in that
    /// of its own rest.
    fn refusing(&self, source: &Address, applicable: u64) -> Result<Option<Cached>> {
        let Self { tables, packet, now, .. } = *self;
        let settings = &tables.settings;
        let mut slots = vec![(0, Rest::NONE)];
        if applicable & settings.by_rest != 0 {
            let rest = Rest::of(packet, settings.rest);
            slots.push((Cached::spread(rest.hash(settings.seed)), rest));
        }
        let of_source = tables.maps.place(source)?.slot;
        for (spread, rest) in slots {
            let slot = Cached::slot(of_source, applicable, spread);
            let refusing = tables.maps.cached_at(slot, source)?.into_iter().find(|cached| {
                cached.epoch == tables.epoch
                    && (cached.applicable, cached.rest) == (applicable, rest)
                    && cached.holds(now)
            });
            if refusing.is_some() {
                return Ok(refusing);
            }
        }
        Ok(None)
    }

    /// The bit of the limit that a cached refusal is counted under; 0 if the policy changed meanwhile.
    fn refused_by(&self, cached: &Cached) -> Result<u64> {
        for bit in (0..LIMITS).map(|bit| cached.limits & 1 << bit).filter(|bit| *bit != 0) {
            if self.tables.limit(bit)?.tally == u32::from(cached.tally) {
                return Ok(bit);
            }
        }
        Ok(0)
    }

    fn decide(&self, source: &SourceState, applicable: u64) -> Result<Ruling> {
        let now = self.now;
        let profile = &source.profile;
        let conform = Ruling::of(self.conform);
        if let Some(reason) = profile.standing(source.blocked, now) {
            return Ok(Ruling::of(reason));
        }
        let applies = profile.limits & applicable;
        if applies == 0 {
            return Ok(conform);
        }
        let drops = applies & self.tables.settings.drops;
        if drops != 0 {
            let refused = drops & drops.wrapping_neg();
            return Ok(Ruling { refused, ..Ruling::of(Reason::Exceed) });
        }
        let bill = self.look(source, applies)?;
        let refused = if bill.contended == 0 { bill.refused } else { 0 };
        let reason = bill.reason(conform.reason);
        let charged = if bill.refused == 0 { bill.due() } else { 0 };
        Ok(Ruling { refused, exceeded: bill.monitored(), charged, ..Ruling::of(reason) })
    }

    /// Checks the limits of the packet: first the inline ones, then the keyed ones.
    fn look(&self, source: &SourceState, applies: u64) -> Result<Bill> {
        let Self { tables, now, .. } = *self;
        let settings = &tables.settings;
        let bill = Bill { applies, enforced: settings.enforced, ..Bill::default() };
        let mut inline = Places::<INLINE>::new(bill);
        for (place, bit) in settings.inline.into_iter().enumerate() {
            if bit & applies != 0 {
                let state = source.inline(tables, place)?;
                inline.set(place, bit, Some(state), state.meter, self.cost(bit)?);
            }
        }
        charge::look(&mut inline, 0..INLINE, now);
        let by_key = applies & settings.keyed;
        if by_key == 0 {
            return Ok(inline.bill);
        }
        let mut keyed = Places::<KEYED>::new(inline.bill);
        let mut left = by_key & inline.bill.asked();
        for place in 0..KEYED {
            let bit = left & left.wrapping_neg();
            left ^= bit;
            if bit == 0 {
                break;
            }
            let (number, key) = self.key(source, bit)?;
            let meter = tables.meter(number)?;
            if meter.is_wide() {
                if bit & keyed.bill.asked() != 0
                    && let Err(refusal) =
                        wide::Copy::read(tables, &key)?.look(&meter, self.packet, now)
                {
                    keyed.bill.refuse(bit, refusal);
                }
                continue;
            }
            let state = State::keyed(tables, &key, number, now)?;
            keyed.set(place, bit, state, meter, self.cost(bit)?);
            charge::look_at(&mut keyed, place, now);
        }
        // A packet whose headers hide a field may match more keyed limits than `KEYED`. The program
        // asks the first ones.
        Ok(keyed.bill)
    }

    /// The number of a limit's meter, and the key of its state.
    fn key(&self, source: &SourceState, bit: u64) -> Result<(u32, BucketKey)> {
        let limit = self.tables.limit(bit)?;
        let mut key = BucketKey::default();
        key.fill(&limit, self.packet, source.profile.tenant, self.slot);
        Ok((Tables::meter_of(&limit, &source.profile), key))
    }

    fn cost(&self, bit: u64) -> Result<u64> {
        if self.tables.settings.unit & bit != 0 {
            return Ok(1);
        }
        Ok(self.tables.limit(bit)?.cost(CostClass::of(self.packet), self.bytes))
    }
}

/// The key of the source that an address belongs to.
pub(super) fn source_key(tables: &Tables<'_>, address: Address) -> Address {
    address.masked(&tables.settings.mask)
}

/// Limits whose state was read, for the check. None is made: a missing one is full, and a check stores nothing.
struct Places<const N: usize> {
    bits: [u64; N],
    meters: [Option<(Meter, u64)>; N],
    states: [Option<Still>; N],
    looks: [Look; N],
    bill: Bill,
}

impl<const N: usize> Places<N> {
    fn new(bill: Bill) -> Self {
        let (bits, looks) = ([0; N], [Look::default(); N]);
        Self { bits, meters: [None; N], states: [None; N], looks, bill }
    }

    fn set(&mut self, place: usize, bit: u64, state: Option<State>, meter: Meter, cost: u64) {
        self.bits[place] = bit;
        self.meters[place] = Some((meter, cost));
        self.states[place] = state.map(|state| state.still);
    }
}

impl<const N: usize> Group for Places<N> {
    type Word = Still;
    type Policer = Meter;

    fn bill(&mut self) -> &mut Bill {
        &mut self.bill
    }

    fn look(&mut self, place: usize) -> &mut Look {
        &mut self.looks[place]
    }

    fn bit(&self, place: usize) -> u64 {
        self.bits[place]
    }

    fn policer(&self, place: usize) -> Option<(&Meter, u64)> {
        self.meters[place].as_ref().map(|(meter, cost)| (meter, *cost))
    }

    fn find(&mut self, place: usize) -> Option<Still> {
        self.states[place]
    }
}
