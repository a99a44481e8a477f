//! The table of the sources.

use std::ops::Range;

use super::tables::{COUNT, NAME, RATE};
use crate::{
    datapath::{snapshot::Talker, survey::Order},
    output::{
        number::{duration, grouped, scaled, traffic},
        table::{Cell, Column, Table},
        tone::Tone,
        top,
    },
    watch::{standing::Standing, talkers::Trend, view::View},
};

/// The width of the column with the standing.
const STATE: usize = 18;

/// The table of the sources at these places.
pub(super) fn table(view: &View, shown: &Range<usize>) -> Table {
    let order = view.controls.order;
    let mut columns = vec![
        Column::left(title(view)).width(NAME),
        Column::right("DROPPED/S").width(RATE),
        Column::right("PASSED/S").width(RATE).rank(2),
    ];
    columns.extend(match order {
        Order::Bytes => Some(Column::right("BYTES").width(RATE)),
        Order::Packets => Some(Column::right("PACKETS").width(RATE)),
        _ => None,
    });
    columns.extend([
        Column::left("STATE").width(STATE).rank(1),
        Column::right("DROPPED").width(COUNT).rank(3),
        Column::right("PASSED").width(COUNT).rank(4),
    ]);
    let mut table = Table::new(columns);
    for row in view.talkers.rows().get(shown.clone()).unwrap_or_default() {
        let Talker { passed, dropped, .. } = row.talker;
        let mut cells = vec![
            Cell::new(top::source(&row.talker), Tone::Strong),
            source_rate(row.rates.map(|[_, dropped]| dropped), true),
            source_rate(row.rates.map(|[passed, _]| passed), false),
        ];
        let sum = u64::saturating_add;
        cells.extend(match order {
            Order::Bytes => Some(traffic(sum(passed.bytes, dropped.bytes)).into()),
            Order::Packets => Some(large(sum(passed.packets, dropped.packets)).into()),
            _ => None,
        });
        let standing = view.standings.get(&row.net()).cloned();
        let standing = match standing {
            Some(standing) if row.drop_rate() > 0.0 => Some(standing.while_dropped()),
            standing => standing,
        };
        let Cell { text, tone } = standing.as_ref().map(Standing::cell).unwrap_or_default();
        let trend = row.trend.map_or(" ", Trend::sign);
        cells.extend([
            Cell::new(format!("{trend} {text}"), tone),
            grouped(dropped.packets).into(),
            grouped(passed.packets).into(),
        ]);
        table.row(cells);
    }
    table
}

/// The title: the order of the sources, how many match, and their age.
fn title(view: &View) -> String {
    let by = match view.controls.order {
        Order::DropRate => "dropped/s",
        Order::PassRate => "passed/s",
        Order::Bytes => "bytes",
        Order::Packets => "packets",
        Order::Address => "address",
        Order::Dropped => "dropped",
        Order::Passed => "passed",
        Order::Rate => "packets/s",
    };
    let age = view.scan_age();
    if let Some(all) = view.talkers.among() {
        let (shown, all) = (large(view.matching), large(all as u64));
        let of = if shown == all { all } else { format!("{shown} of {all}") };
        format!("{of} frozen, by {by}")
    } else if age > view.interval.mul_f64(1.5) {
        format!("SOURCE by {by} ({} ago)", duration(age))
    } else if view.controls.filter.is_some() {
        let sources = if view.matching == 1 { "SOURCE" } else { "SOURCES" };
        format!("{} {sources} by {by}", large(view.matching))
    } else {
        format!("SOURCE by {by}")
    }
}

/// A count, rounded to three digits.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(super) fn large(count: u64) -> String {
    scaled(count as f64)
}

fn source_rate(rate: Option<f64>, drops: bool) -> Cell {
    let tone =
        if drops && rate.is_some_and(|rate| rate > 0.0) { Tone::Dropped } else { Tone::Plain };
    Cell::new(rate.map_or("-".into(), scaled), tone)
}
