//! A table of the cases of two runs, side by side.

use std::collections::BTreeMap;

use limiter_userspace::output::table::{Cell, Column, Table};

use crate::tables::lines;

/// Changes of a ratio by less than this share are noise: they come from where the code lies in memory.
const NOISE: f64 = 0.1;

/// A measured case, found by its id.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// The name in the report.
    pub(crate) name: String,
    /// The measured figure.
    pub(crate) figure: f64,
}

/// One kind of figure, for the cases of two runs.
pub(crate) struct Part<'a> {
    /// The cases of the earlier run, by id.
    pub(crate) before: &'a BTreeMap<String, Entry>,
    /// The cases of this run, in the order of the report.
    pub(crate) now: Vec<(&'a str, Entry)>,
    /// The id of the case to which the others of a run are compared.
    pub(crate) reference: &'static str,
    /// Whether the figure is a time, so that more is worse.
    pub(crate) time: bool,
}

impl Part<'_> {
    /// A row for each case that both runs have.
    pub(crate) fn table(&self, title: &'static str) -> String {
        let mut table = Table::new([
            Column::left(title),
            Column::right("before"),
            Column::right("now"),
            Column::left("change"),
        ]);
        for (entry, before, now) in self.ratios() {
            let change = self.change(before, now);
            let [before, now] = [before, now].map(|ratio| Cell::from(format!("{ratio:.2}")));
            table.row([Cell::from(entry.name.as_str()), before, now, change.into()]);
        }
        lines(&table)
    }

    /// The cases of both runs, except the reference, each with its ratio before and now.
    fn ratios(&self) -> impl Iterator<Item = (&Entry, f64, f64)> {
        let unit_before = self.before.get(self.reference).map_or(f64::NAN, |entry| entry.figure);
        let unit = self.now.iter().find(|(id, _)| *id == self.reference);
        let unit = unit.map_or(f64::NAN, |(_, entry)| entry.figure);
        let both = self.now.iter().filter(|(id, _)| *id != self.reference);
        both.filter_map(move |(id, now)| {
            let before = self.before.get(*id)?;
            Some((now, before.figure / unit_before, now.figure / unit))
        })
    }

    /// The change of a ratio as text; "same" if it is noise.
    fn change(&self, before: f64, now: f64) -> String {
        let change = now / before - 1.0;
        if !change.is_finite() {
            return "not comparable".to_owned();
        }
        if change.abs() < NOISE {
            return "same".to_owned();
        }
        let what = if (change > 0.0) == self.time { "slower" } else { "faster" };
        format!("{:.0} % {what}", 100.0 * change.abs())
    }

    /// Lines about the cases that only one of the runs has.
    pub(crate) fn strays(&self) -> Vec<String> {
        let gone = self.before.iter().filter(|(id, _)| !self.now.iter().any(|(now, _)| now == id));
        let gone = gone.map(|(_, entry)| format!("only before: {}", entry.name));
        let new = self.now.iter().filter(|(id, _)| !self.before.contains_key(*id));
        gone.chain(new.map(|(_, entry)| format!("only now: {}", entry.name))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(figures: &[(&'static str, f64)]) -> Vec<(&'static str, Entry)> {
        let entry = |id: &str, figure| Entry { name: format!("the {id}"), figure };
        figures.iter().map(|(id, figure)| (*id, entry(id, *figure))).collect()
    }

    fn earlier(figures: &[(&'static str, f64)]) -> BTreeMap<String, Entry> {
        entries(figures).into_iter().map(|(id, entry)| (id.to_owned(), entry)).collect()
    }

    #[test]
    fn ratios_are_compared_and_noise_is_not_told() {
        let figures = [("one", 50.0), ("two", 100.0), ("gone", 1.0), ("three", 200.0)];
        let before = earlier(&figures);
        let now = entries(&[("one", 100.0), ("two", 210.0), ("new", 1.0), ("three", 800.0)]);
        for (time, word) in [(true, "slower"), (false, "faster")] {
            let part = Part { before: &before, now: now.clone(), reference: "one", time };
            let text = part.table("ratio");
            let rows: Vec<_> = text.lines().skip(1).map(|row| row.split_whitespace()).collect();
            let rows: Vec<String> =
                rows.into_iter().map(|row| row.collect::<Vec<_>>().join(" ")).collect();
            let three = format!("the three 4.00 8.00 100 % {word}");
            assert_eq!(rows, ["the two 2.00 2.10 same".to_owned(), three]);
            assert_eq!(part.strays(), ["only before: the gone", "only now: the new"]);
        }
    }
}
