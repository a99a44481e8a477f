//! The metrics of an instance.

use std::collections::BTreeMap;

use limiter_common::{
    abi::counters::{Counters, LimitTally},
    base::tally::Tally,
    memory::event::kind,
    packet::reason::Reason,
};

use super::{
    cost,
    family::{
        Family, Kind,
        Value::{self, Whole},
    },
    sample::{self, layer},
};
use crate::{
    datapath::{
        bpffs::Pins,
        cost::costs,
        instance::{Attached, attached},
        maps::Maps,
        statistics::accumulate,
    },
    error::Result,
    output::status::verdict,
    policy::{
        Layered, List, Policy,
        document::key_name,
        model::{Allowance, GlobalMode},
        tables::Tallied,
        tallies,
        units::rate_per_second,
    },
    query::{self, Inquiry},
};

/// Reads the metrics of the instance with these pins and maps; `unix` is the time in seconds.
///
/// # Errors
/// A map or the policy cannot be read.
pub(super) fn families(pins: &Pins, maps: &Maps, unix: u64) -> Result<Vec<Family>> {
    let attached = attached(pins, maps)?;
    let now = query::now();
    let mut inquiry = Inquiry::new(maps, now)?;
    let sample = inquiry.sample(now)?;
    let blocked = inquiry.blocked_number(now)?;
    let in_force = maps.in_force()?;
    let policy = &in_force.policy;
    let mut metrics = interfaces(maps, &attached)?;
    metrics.extend(cost::families(&costs(pins)?, &attached));
    let mut limits = Limits::default();
    for tallied in tallies(policy, &in_force.held)? {
        limits.add(policy, &tallied, maps.tally(tallied.place)?);
    }
    metrics.extend(limits.families());
    metrics.extend(sample::limits(&sample));
    metrics.extend(sample::tables(maps, &sample)?);
    metrics.extend(sample::table_stats(maps.table_stats()?));
    metrics.extend(sample::bucket_stats(maps.bucket_table_stats()?));
    metrics.extend(sample::offence_stats(maps.offence_table_stats()?));
    metrics.push(lists(in_force.layered(), unix));
    metrics.extend(notices(maps)?);
    metrics.extend(state(maps, blocked)?);
    Ok(metrics)
}

/// The metric that says that nothing is attached, for want of an instance.
pub(super) fn nothing_attached() -> Family {
    attached_family().with([], Whole(0))
}

const fn attached_family() -> Family {
    Family::new(
        "limiter_attached",
        Kind::Gauge,
        "1 where packets are decided about, 0 for an interface that is gone or elsewhere; 0 without an \
         interface where nothing is attached.",
    )
}

/// The packets and bytes that interfaces received.
fn interfaces(maps: &Maps, attached: &[Attached]) -> Result<Vec<Family>> {
    let mut here = attached_family();
    // An interface that is gone may have been replaced by one of the same name: their counts are
    // added.
    let mut by_name: BTreeMap<&str, (&Attached, Counters)> = BTreeMap::new();
    for interface in attached {
        let counters = maps.counters(interface.slot)?;
        let (shown, sum) =
            by_name.entry(&interface.name).or_insert((interface, Counters::default()));
        if interface.present {
            *shown = interface;
        }
        accumulate(sum, &counters);
    }
    let [mut packets, mut bytes] = [
        (
            "limiter_packets_total",
            "Packets received, each under the one reason that it passed or was dropped for.",
        ),
        ("limiter_bytes_total", "Bytes of the packets received, from the Ethernet header on."),
    ]
    .map(|(name, help)| Family::new(name, Kind::Counter, help));
    for (name, (interface, counters)) in by_name {
        let labels = [("interface", name), ("mode", interface.mode.name())];
        here.push(labels, flag(interface.present));
        for reason in Reason::ALL {
            let Tally { packets: number, bytes: length } = counters.reasons[reason.index()];
            let labels =
                [("interface", name), ("verdict", verdict(reason)), ("reason", reason.name())];
            packets.push(labels, Whole(number));
            bytes.push(labels, Whole(length));
        }
    }
    Ok(vec![here, packets, bytes])
}

/// The counts and the settings of limits.
struct Limits {
    packets: Family,
    bytes: Family,
    near_packets: Family,
    near_bytes: Family,
    info: Family,
    rate: Family,
    burst: Family,
}

impl Default for Limits {
    fn default() -> Self {
        let counter = |name, help| Family::new(name, Kind::Counter, help);
        let gauge = |name, help| Family::new(name, Kind::Gauge, help);
        Self {
            packets: counter(
                "limiter_limit_packets_total",
                "Packets that a limit was charged with (conform), that it refused (exceed), or would have \
                 (exceed_monitor, exceed_candidate).",
            ),
            bytes: counter(
                "limiter_limit_bytes_total",
                "Bytes of the packets in limiter_limit_packets_total.",
            ),
            near_packets: counter(
                "limiter_limit_near_packets_total",
                "Packets that a limit was charged with (conform) and that left it near: at most a fifth of what \
                 it admits at once was left.",
            ),
            near_bytes: counter(
                "limiter_limit_near_bytes_total",
                "Bytes of the packets in limiter_limit_near_packets_total.",
            ),
            info: gauge("limiter_limit_info", "1 for each layer of each limit."),
            rate: gauge(
                "limiter_limit_rate",
                "What a limit admits per second, in what it counts, but for its overrides.",
            ),
            burst: gauge(
                "limiter_limit_burst",
                "What a limit admits at once, in what it counts, but for its overrides.",
            ),
        }
    }
}

impl Limits {
    fn add(&mut self, policy: &Policy, tallied: &Tallied, tally: LimitTally) {
        let Some(limit) = policy.limits.iter().find(|limit| limit.name == tallied.limit) else {
            return;
        };
        let layer = layer(tallied.layer, tallied.candidate);
        let own = [("limit", limit.name.as_str()), ("layer", layer.as_str())];
        let over = if tallied.candidate { "exceed_candidate" } else { "exceed_monitor" };
        for (result, Tally { packets, bytes }) in
            [("conform", tally.conform), ("exceed", tally.exceed), (over, tally.monitored)]
        {
            let labels = [own[0], own[1], ("result", result)];
            self.packets.push(labels, Whole(packets));
            self.bytes.push(labels, Whole(bytes));
        }
        self.near_packets.push(own, Whole(tally.near.packets));
        self.near_bytes.push(own, Whole(tally.near.bytes));
        let live = || limit.layers.get(tallied.layer).map(|layer| layer.allowance);
        let (allowance, mode) = match tallied.candidate {
            true => (limit.candidate, limit.mode_of_candidate()),
            false => (live(), limit.mode),
        };
        self.info.push(
            [
                own[0],
                own[1],
                ("key", &key_name(limit.key_of_layer(tallied.layer), policy.key_prefix)),
                ("count", limit.count.name()),
                ("algorithm", allowance.map_or("", Allowance::algorithm)),
                ("mode", mode.name()),
            ],
            Whole(1),
        );
        if let Some(allowance) = allowance {
            self.burst.push(own, Whole(allowance.bucket().burst));
            if let Some(per_second) = allowance.rate().and_then(|it| rate_per_second(it).as_f64()) {
                self.rate.push(own, Value::Real(per_second));
            }
        }
    }

    fn families(self) -> [Family; 7] {
        let Self { packets, bytes, near_packets, near_bytes, info, rate, burst } = self;
        [packets, bytes, near_packets, near_bytes, info, rate, burst]
    }
}

/// The number of entries in force of each list, at `unix` in seconds.
fn lists(layered: Layered<'_>, unix: u64) -> Family {
    let mut listed = Family::new("limiter_listed", Kind::Gauge, "Entries of a list, in force now.");
    for (name, list) in [("allow", List::Allow), ("deny", List::Deny), ("penalty", List::Penalty)] {
        listed.push([("list", name)], Whole(layered.listed(list, unix) as u64));
    }
    listed
}

/// The counts of events, and of refusals by limits with a penalty.
fn notices(maps: &Maps) -> Result<[Family; 3]> {
    let mut happened = Family::new(
        "limiter_source_events_total",
        Kind::Counter,
        "How often a source began to be over its limits (limited; monitored where nothing is dropped for \
         it), and how often one was blocked; not of those that share an entry.",
    );
    let mut left_out = Family::new(
        "limiter_source_events_left_out_total",
        Kind::Counter,
        "Events of limiter_source_events_total that no agent was told of: there were too many at once, or no agent read the \
         earlier ones.",
    );
    let event_stats = maps.event_stats()?;
    for (name, kind) in
        [("limited", kind::LIMITED), ("monitored", kind::MONITORED), ("blocked", kind::BLOCKED)]
    {
        happened.push([("event", name)], Whole(event_stats.happened[usize::from(kind)]));
        left_out.push([("event", name)], Whole(event_stats.suppressed[usize::from(kind)]));
    }
    let refusals = Family::new(
        "limiter_penalty_refusals_total",
        Kind::Counter,
        "Refusals by limits with a penalty that were looked at: those that counted towards a block of their source, and \
         those that did not, as no connection to this host proved them (unproven). A SYN that a connection follows \
         counts later.",
    )
    .with([("result", "counted")], Whole(event_stats.proven))
    .with([("result", "unproven")], Whole(event_stats.unproven));
    Ok([happened, left_out, refusals])
}

/// The metrics of the state of the instance as a whole.
fn state(maps: &Maps, blocked: u64) -> Result<[Family; 5]> {
    let gauge = |name, help| Family::new(name, Kind::Gauge, help);
    let monitoring = maps.monitoring()?;
    let by_policy = monitoring.policy == GlobalMode::Monitor;
    let unconfirmed = maps.unconfirmed()?.unwrap_or_default();
    Ok([
        gauge(
            "limiter_blocked_sources",
            "Sources that limits block for a while; of more than 1,024, as far as a sample tells.",
        )
        .with([], Whole(blocked)),
        gauge("limiter_monitoring", "1 where nothing is dropped, by the switch or by the policy.")
            .with([("by", "switch")], flag(monitoring.switch))
            .with([("by", "policy")], flag(by_policy)),
        gauge(
            "limiter_policy_epoch",
            "The number of the policy in force, which is another one after each change.",
        )
        .with([], Whole(maps.epoch()?.into())),
        gauge(
            "limiter_policy_unconfirmed_seconds",
            "Time until the policy is taken back unless it is confirmed; 0 when none waits for that.",
        )
        .with([], Value::Real(unconfirmed.as_secs_f64())),
        gauge(
            "limiter_tick_lag_max_seconds",
            "The longest time by which a tick of the kernel was late. Limits that go by ticks admitted what their rates \
             bring in that time besides.",
        )
        .with([], Value::Real(maps.tick_lag()?.as_secs_f64())),
    ])
}

const fn flag(holds: bool) -> Value {
    Whole(holds as u64)
}
