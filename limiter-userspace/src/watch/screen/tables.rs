//! The tables of the screen. Their columns are aligned with each other: a name, then twice a rate
//! and a count.

use std::ops::Range;

use limiter_common::packet::reason::Reason;

use crate::{
    datapath::snapshot::InterfaceStatistics,
    output::{
        limits::LimitRow,
        number::{bit_rate, grouped, scaled, share},
        status::verdict,
        table::{Cell, Column, GAP, Table},
        tone::Tone,
    },
    watch::{
        history::{Flow, LimitRate},
        view::View,
    },
};

/// Widths of the name, of a rate and of a count.
pub(super) const NAME: usize = 26;
pub(super) const RATE: usize = 9;
pub(super) const COUNT: usize = 12;
/// Width of a whole table.
pub(super) const WIDTH: usize = NAME + 2 * (RATE + COUNT) + 4 * GAP.len();
/// The least and the largest width of the bar for a share.
const BAR: [usize; 2] = [5, 20];

const OVERRIDES: &str = "OVERRIDES";

/// The table of the interfaces, with their rates.
pub(super) fn interfaces(view: &View) -> Table {
    let mut table = Table::new([
        Column::left("INTERFACE").width(18),
        Column::left("MODE").width(8),
        Column::right("DROPPED/S").width(RATE),
        Column::right("DROPPED").width(COUNT).rank(1),
        Column::right("PASSED/S").width(RATE),
        Column::right("PASSED").width(COUNT).rank(2),
    ]);
    let rates = view.history.rates().map(|rates| rates.interfaces.as_slice()).unwrap_or_default();
    for (place, interface) in view.history.latest().interfaces.iter().enumerate() {
        let rate = rates.get(place).copied().flatten();
        table.row([
            Cell::new(interface.name.as_str(), Tone::Strong),
            state(interface).into(),
            drops(rate.map(|rate| rate.dropped)),
            grouped(interface.dropped.packets).into(),
            rate_cell(rate.map(|rate| rate.passed)),
            grouped(interface.passed.packets).into(),
        ]);
    }
    table
}

/// The mode of an interface, or that it is gone, in another network namespace, or has no program that decides.
pub(super) const fn state(interface: &InterfaceStatistics) -> &'static str {
    match (interface.present, interface.exists) {
        _ if interface.unloaded => "unloaded",
        (true, _) => interface.mode.name(),
        (false, true) => "not here",
        (false, false) => "gone",
    }
}

/// The table of the limits at these places, with the share of the packets that exceed each.
pub(super) fn limits(view: &View, width: u16, shown: &Range<usize>) -> Table {
    let [least, most] = BAR;
    let spare = usize::from(width).saturating_sub(WIDTH + OVERRIDES.len() + GAP.len());
    let bar = (spare + least).min(most);
    let rows = &view.limits.rows;
    let title = if shown.len() < rows.len() {
        format!("LIMIT {}-{} of {}", shown.start + 1, shown.end, rows.len())
    } else {
        "LIMIT".to_owned()
    };
    // If all limits are enforced, the column is only shown where there is room.
    let mode = Column::left("MODE").rank(if view.limits.have_modes() { 0 } else { 6 });
    // The fill is known of limits that have one state for all packets.
    let used = rows.iter().any(|row| row.used.is_some());
    let mut columns = vec![Column::left(title).width(10), mode];
    columns.extend(used.then(|| Column::right("USED").rank(1)));
    columns.extend([
        Column::right("RATE").width(8).rank(1),
        Column::right("BURST").width(6).rank(3),
        Column::right("EXCEED/S").width(RATE),
        Column::right("EXCEED").width(COUNT).rank(4),
        Column::right("CONFORM/S").width(RATE).rank(2),
        Column::left("EXCEED SHARE").rank(5),
        Column::right(OVERRIDES).rank(7),
    ]);
    let mut table = Table::new(columns);
    for row in rows.get(shown.clone()).unwrap_or_default() {
        let tally = view.history.latest().tally(&row.name);
        let rate = view.history.rates().and_then(|rates| rates.limit(&row.name));
        let mut cells = vec![Cell::new(row.name.as_str(), Tone::Strong), row.mode_cell()];
        cells.extend(used.then(|| {
            let text = row.used.map_or_else(String::new, |used| format!("{used}%"));
            let full = row.used.is_some_and(|used| used >= 100);
            Cell::new(text, if full { Tone::Dropped } else { Tone::Plain })
        }));
        cells.extend([row.rate_cell(), row.burst_cell()]);
        if is_set(row) {
            cells.extend([
                drops(rate.map(LimitRate::over)),
                grouped(tally.over().packets).into(),
                rate_cell(rate.map(|rate| rate.conform)),
                exceed_share(rate, bar),
                row.overrides_cell(),
            ]);
        }
        table.row(cells);
    }
    table
}

fn is_set(row: &LimitRow) -> bool {
    row.rate.is_some() || row.overrides > 0
}

fn exceed_share(rate: Option<&LimitRate>, width: usize) -> Cell {
    let (conform, exceed) = rate.map_or_else(Default::default, |rate| (rate.conform, rate.over()));
    let all = conform.packets + exceed.packets;
    if all <= 0.0 {
        return Cell::new(format!("{:width$} {:>6}", "", "-"), Tone::Plain);
    }
    let text = share(exceed.packets, all);
    Cell::new(
        format!("{} {text:>6}", bar(exceed.packets / all, width)),
        if exceed.packets > 0.0 { Tone::Dropped } else { Tone::Plain },
    )
}

/// A bar of `width` columns, drawn to an eighth of a column.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a width in columns"
)]
fn bar(share: f64, width: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (width * 8) as f64).round() as usize;
    format!("{:·<width$}", "█".repeat(eighths / 8) + PARTS[eighths % 8])
}

/// The table of the reasons with the most frames, at most this many.
pub(super) fn reasons(view: &View, most: usize) -> Table {
    let mut table = Table::new([
        Column::left("REASON").width(NAME),
        Column::right("PACKETS/S").width(RATE),
        Column::right("PACKETS").width(COUNT).rank(1),
        Column::right("BIT/S").width(RATE).rank(2),
        Column::right("VERDICT").width(COUNT).rank(3),
    ]);
    let latest = view.history.latest();
    let count = |reason: Reason| latest.reasons[reason.index()].packets;
    let mut happened: Vec<_> =
        Reason::ALL.into_iter().filter(|&reason| count(reason) > 0).collect();
    happened.sort_by_key(|&reason| std::cmp::Reverse(count(reason)));
    happened.truncate(most);
    happened.sort();
    for reason in happened {
        let rate = view.history.rates().map(|rates| rates.reasons[reason.index()]);
        let bits = rate.map_or("-".into(), |rate| bit_rate(rate.bytes));
        table.row([
            Cell::new(reason.name(), Tone::Strong),
            if reason.drops() { drops(rate) } else { rate_cell(rate) },
            grouped(count(reason)).into(),
            bits.trim_end_matches("bit/s").into(),
            verdict(reason).into(),
        ]);
    }
    table
}

fn rate_cell(rate: Option<Flow>) -> Cell {
    rate.map_or("-".into(), |rate| scaled(rate.packets)).into()
}

fn drops(rate: Option<Flow>) -> Cell {
    let tone =
        if rate.is_some_and(|rate| rate.packets > 0.0) { Tone::Dropped } else { Tone::Plain };
    Cell { tone, ..rate_cell(rate) }
}
