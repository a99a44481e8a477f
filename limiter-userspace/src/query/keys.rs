//! The states of limits whose key has more than the source.

use std::{cmp::Reverse, collections::HashMap, net::IpAddr, time::Duration};

use limiter_common::{
    algorithm::meter::Meter,
    base::address::{Address, Mask},
    policy::limit::{BucketKey, Key, Limit},
};

use super::{
    entries::Entries,
    fill::Fill,
    limit::{OF_SOURCE, usual_cost},
    state::{SourceState, State},
    tables::Tables,
    words::protocol_name,
};
use crate::{error::Result, policy::interfaces::Port, query::wide};

/// The state of a limit for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedReport {
    /// The name of the limit.
    pub limit: String,
    /// The key, in words.
    pub key: String,
    /// How much is used; `None` if the algorithm has no fill.
    pub fill: Option<Fill>,
}

/// A limit whose states are searched for, with its meter and the source in its keys.
struct Wanted<'a> {
    name: &'a String,
    limit: Limit,
    meter: (u32, Meter),
    source: Address,
}

/// Returns the `most` fullest states of a source's limits whose keys have the source and more, and
/// the number of all such states.
pub(super) fn states(
    tables: &Tables<'_>,
    entries: &Entries,
    address: Address,
    source: &SourceState,
    (most, now): (usize, u64),
) -> Result<(Vec<KeyedReport>, usize)> {
    let mut wanted = HashMap::new();
    for entry in entries.iter().filter(|entry| entry.bit & source.profile.limits != 0) {
        let limit = tables.limit(entry.bit)?;
        let by_more = limit.key.0 & OF_SOURCE != 0 && limit.key.0 & !OF_SOURCE != 0;
        if by_more && SourceState::place_of(tables, &limit).is_none() {
            let number = Tables::meter_of(&limit, &source.profile);
            let meter = (number, tables.meter(number)?);
            let source = address.masked(&limit.mask);
            wanted.insert(limit.limit_id, Wanted { name: entry.name, limit, meter, source });
        }
    }
    if wanted.is_empty() {
        return Ok((Vec::new(), 0));
    }
    let mut found: Vec<Ranked> = Vec::new();
    let mut total = 0;
    let mut find = |key: &BucketKey, fill: &dyn Fn(&Wanted<'_>) -> Option<Fill>| {
        let Some(it) = wanted.get(&key.limit_id) else { return };
        let parts = it.limit.key.0;
        let others = parts & Key::SOURCE != 0 && key.source() != it.source
            || parts & Key::TENANT != 0 && key.whose & 0xffff != source.profile.tenant;
        if others {
            return;
        }
        total += 1;
        let fill = fill(it);
        let rank = fill.map_or((0, None), |fill| fill.rank());
        found.push(Ranked { rank, key: *key, fill });
        // A source may have many thousand states, and only the fullest are reported.
        if found.len() > most + 4096 {
            keep(&mut found, most);
        }
    };
    let of_wide = |it: &Wanted<'_>| it.meter.1.is_wide();
    tables.maps.each_bucket(|bucket| {
        find(&bucket.bucket.key, &|it| {
            let state = State::of_bucket(tables, bucket, it.meter, now);
            Fill::of(&state, now, usual_cost(&it.limit))
        });
    })?;
    if wanted.values().any(of_wide) {
        tables.maps.each_wide(|kept| {
            find(&kept.bucket.key, &|it| {
                Some(wide::Copy::of(tables, *kept).fill(&it.meter.1, now))
            });
        })?;
    }
    keep(&mut found, most);
    let ports = tables.maps.ports()?;
    let told = found.into_iter().filter_map(|Ranked { key, fill, .. }| {
        let it = wanted.get(&key.limit_id)?;
        Some(KeyedReport {
            limit: it.name.clone(),
            key: name(&key, &it.limit, entries, &ports),
            fill,
        })
    });
    Ok((told.collect(), total))
}

struct Ranked {
    rank: (u64, Option<Duration>),
    key: BucketKey,
    fill: Option<Fill>,
}

/// Keeps the `most` fullest states; equally full ones in the order of their keys.
fn keep(found: &mut Vec<Ranked>, most: usize) {
    found.sort_by_key(|it| {
        let BucketKey { limit_id, destination, ports, protocol, .. } = it.key;
        let key = (limit_id, it.key.source(), destination, ports, protocol);
        (Reverse(it.rank), key)
    });
    found.truncate(most);
}

/// Writes a key in words.
fn name(key: &BucketKey, limit: &Limit, entries: &Entries, ports: &[Port]) -> String {
    let parts = limit.key.0;
    let [source_port, port] = [key.ports >> 16, key.ports & 0xffff];
    let protocol = protocol_name(key.protocol as u8);
    let destination = IpAddr::try_from(key.destination()).map_or_else(|_| "?".to_owned(), written);
    let source = IpAddr::try_from(key.source());
    if parts & Key::CONNECTION == Key::CONNECTION {
        let source = source.map_or_else(|_| "?".to_owned(), written);
        return format!("{source}:{source_port} > {destination}:{port}/{protocol}");
    }
    let mut words = Vec::new();
    if parts & Key::SOURCE != 0 {
        let length = source.as_ref().ok().map(|source| length(source, &limit.mask));
        words.push(match (source, length) {
            (Ok(source), Some((length, true))) => format!("{source}/{length}"),
            (Ok(source), _) => source.to_string(),
            (Err(_), _) => "?".to_owned(),
        });
    }
    if parts & Key::TENANT != 0 {
        let tenant = entries.tenant(key.whose & 0xffff);
        words.push(format!("tenant {}", tenant.map_or("none", String::as_str)));
    }
    if parts & Key::DESTINATION != 0 {
        words.push(format!("to {destination}"));
    }
    if parts & Key::PORT != 0 {
        words.push(format!("port {port}/{protocol}"));
    }
    if parts & Key::INTERFACE != 0 {
        let slot = (key.whose >> 16).wrapping_sub(1);
        let name = ports.iter().find(|port| port.slot == slot).map(|port| port.name.as_str());
        words.push(format!("by {}", name.unwrap_or("?")));
    }
    words.join(" ")
}

/// Writes an address that a port follows.
fn written(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// The length of a mask for the family of an address, and whether the mask is shorter than the
/// address.
fn length(address: &IpAddr, mask: &Mask) -> (u32, bool) {
    if address.is_ipv4() {
        let length = mask.ipv4.count_ones();
        (length, length < 32)
    } else {
        let length = mask.ipv6.iter().map(|word| word.count_ones()).sum();
        (length, length < 128)
    }
}
