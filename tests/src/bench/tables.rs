//! Tables of a report as text.

use limiter_userspace::output::table::{Cell, Column, GAP, Table};

use super::sample::Figure;

/// A table of figures with `digits` decimals: name, median and spread.
pub(crate) fn figures<'a>(
    [of, what]: [&'static str; 2],
    digits: usize,
    rows: impl IntoIterator<Item = (&'a str, Figure)>,
) -> String {
    let mut table = Table::new([Column::left(of), Column::right(what), Column::right("spread")]);
    for (name, Figure { median, spread, .. }) in rows {
        table.row([
            Cell::from(name),
            format!("{median:.digits$}").into(),
            format!("{spread:.digits$}").into(),
        ]);
    }
    lines(&table)
}

/// The lines of a table, joined.
pub(crate) fn lines(table: &Table) -> String {
    let line =
        |cells: Vec<Cell>| cells.into_iter().map(|cell| cell.text).collect::<Vec<_>>().join(GAP);
    table.layout(usize::MAX).into_iter().map(line).collect::<Vec<_>>().join("\n")
}
