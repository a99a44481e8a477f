//! The dropped packets, while they are asked for.

use super::Page;
use crate::{
    output::{
        drops::{Tops, line, time_of_day},
        number::{grouped, share},
        table::{Cell, Column, Table},
        tone::Tone,
    },
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
        let mut table = Table::new([
            Column::left("TIME"),
            Column::left("BY").width(12),
            Column::left("PACKET"),
            Column::right("BYTES").rank(1),
        ]);
        for packet in drops.latest().take(self.rest.height.saturating_sub(1).into()) {
            let tone = if packet.monitored { Tone::Plain } else { Tone::Dropped };
            table.row([
                time_of_day(packet.time).into(),
                Cell::new(line(packet), tone),
                packet.content.to_string().into(),
                grouped(packet.bytes.into()).into(),
            ]);
        }
        self.table(&table);
    }
}
