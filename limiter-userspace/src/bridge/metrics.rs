//! What the limits on requests counted, for monitoring systems.

use super::in_force::InForce;
use crate::{
    metrics::{Family, Kind, Value::Whole, layer},
    query,
};

/// The metrics of the limits and of the table. To count open requests takes milliseconds.
pub(super) fn families(in_force: &InForce) -> Vec<Family> {
    let (counts, open, policy) = in_force.counts();
    let open = open.count(query::now());
    let counter = |name, help| Family::new(name, Kind::Counter, help);
    let mut requests = counter(
        "limiter_requests_total",
        "Requests that a limit was charged with (conform), that it refused (exceed), or would have (exceed_monitor, \
         exceed_candidate), those that lacked a part of its key (missing), and those that it was charged with before (repeat).",
    );
    let mut near = counter(
        "limiter_requests_near_total",
        "Requests that a limit was charged with (conform) and that left it near: at most a fifth of what it admits at once \
         was left.",
    );
    let mut places = Family::new(
        "limiter_requests_open",
        Kind::Gauge,
        "Requests that have a place of a limit with concurrent: those that are open, and those whose end nobody told yet.",
    );
    for (row, open) in counts.rows.iter().zip(open) {
        let Some(limit) = policy.on_requests.get(row.limit) else { continue };
        let layer = layer(row.layer, row.is_candidate);
        let own = [("limit", &*limit.name), ("layer", &*layer)];
        let over = if row.is_candidate { "exceed_candidate" } else { "exceed_monitor" };
        for (result, number) in [
            ("conform", row.conform),
            ("exceed", row.exceed),
            (over, row.exceed_monitor),
            ("missing", row.missing),
        ] {
            requests.push([own[0], own[1], ("result", result)], Whole(number));
        }
        if limit.idempotency.is_some() {
            requests.push([own[0], own[1], ("result", "repeat")], Whole(row.repeat));
        }
        near.push(own, Whole(row.near));
        if let Some(open) = open {
            places.push(own, Whole(open));
        }
    }
    let mut listed = counter(
        "limiter_requests_settled_total",
        "Requests whose verdict no rate decided: by allow, by deny or a penalty (deny), by a limit with action drop (drop), or \
         since more limits were about them than are asked (too_many).",
    );
    for (by, number) in [
        ("allow", counts.allowed),
        ("deny", counts.denied),
        ("drop", counts.dropped),
        ("too_many", counts.too_many),
    ] {
        listed.push([("by", by)], Whole(number));
    }
    vec![
        requests,
        near,
        listed,
        places,
        counter(
            "limiter_requests_released_total",
            "Places of limits with concurrent that were given back when requests ended.",
        )
        .with([], Whole(counts.released)),
        counter(
            "limiter_requests_shared_total",
            "Requests that were charged to a state that keys share, as all keys of their part of the table owed.",
        )
        .with([], Whole(counts.shared)),
        Family::new(
            "limiter_bridge_keys",
            Kind::Gauge,
            "Keys of limits on requests in the table, those among them that owe nothing any more.",
        )
        .with([], Whole(counts.keys as u64)),
    ]
}
