//! The dropped packets, while they are asked for.

use super::Page;
use crate::{
    output::{
        drops::{Tops, line, service, source, time_of_day},
        number::{grouped, share},
        table::{Cell, Column, Table},
        tone::Tone,
    },
    query::dropped::Dropped,
    watch::drops::Drops,
};

/// The most values of a kind in a line.
const VALUES: usize = 3;

impl Page<'_> {
    /// Draws what most dropped packets have in common, and the latest ones, as many as there is room for.
    pub(super) fn drops(&mut self, drops: Option<&Drops>) {
        let tops = drops.map(Drops::tops);
        let packets = tops.map_or(0, Tops::packets);
        let said = format!("{} dropped packets shown; x closes this", grouped(packets));
        self.text(Tone::Strong, &said);
        let (Some(drops), Some(tops)) = (drops.filter(|_| packets > 0), tops) else {
            self.text(Tone::Faint, "Nothing was dropped since then.");
            return;
        };
        self.gap();
        let mut table = Table::new([Column::left("TOP"), Column::left("")]);
        let names = ["limits", "protocols", "ports", "sources"];
        for (name, values) in names.into_iter().zip(tops.most(VALUES)) {
            let part = |(value, count): (&str, u64)| {
                format!("{value} {}", share(count as f64, packets as f64))
            };
            let values: Vec<_> = values.into_iter().map(part).collect();
            table.row([Cell::new(name, Tone::Faint), values.join(", ").into()]);
        }
        self.table(&table);
        self.gap();
        let latest: Vec<_> =
            drops.latest().take(self.rest.height.saturating_sub(1).into()).collect();
        let whole = whole(&latest);
        let fits = whole.fits(self.rest.width.into());
        self.table(&if fits { whole } else { short(&latest) });
    }
}

/// A line for each packet.
fn whole(packets: &[&Dropped]) -> Table {
    let mut table = Table::new([
        Column::left("TIME"),
        Column::left("BY").width(12),
        Column::left("PACKET"),
        Column::right("BYTES").rank(1),
    ]);
    for packet in packets {
        table.row([
            time_of_day(packet.time).into(),
            by(packet),
            packet.content.to_string().into(),
            grouped(packet.bytes.into()).into(),
        ]);
    }
    table
}

/// The same for a narrow screen. What is needed to act comes first, and is not cut before the rest.
fn short(packets: &[&Dropped]) -> Table {
    let mut table = Table::new([
        Column::left("TO"),
        Column::left("SOURCE"),
        Column::left("BY").rank(1),
        Column::left("TIME").rank(2),
    ]);
    for packet in packets {
        let content = &packet.content;
        let time = time_of_day(packet.time);
        table.row([service(content).into(), source(content).into(), by(packet), time.into()]);
    }
    table
}

fn by(packet: &Dropped) -> Cell {
    let tone = if packet.monitored { Tone::Plain } else { Tone::Dropped };
    Cell::new(line(packet), tone)
}
