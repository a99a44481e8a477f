//! Aligned columns, for text and for the screen.

use std::borrow::Cow;

use super::tone::Tone;

/// The text between two columns.
pub const GAP: &str = "  ";

/// The side on which the cells of a column are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For names.
    Left,
    /// For numbers.
    Right,
}

/// A column of a [`Table`].
#[derive(Clone, Debug)]
pub struct Column {
    title: Cow<'static, str>,
    align: Align,
    width: usize,
    rank: u8,
}

impl Column {
    /// A column of names, aligned on the left.
    pub fn left(title: impl Into<Cow<'static, str>>) -> Self {
        Self { title: title.into(), align: Align::Left, width: 0, rank: 0 }
    }

    /// A column of numbers, aligned on the right.
    pub fn right(title: impl Into<Cow<'static, str>>) -> Self {
        Self { align: Align::Right, ..Self::left(title) }
    }

    /// Sets the least width, in characters.
    #[must_use]
    pub fn width(self, width: usize) -> Self {
        Self { width, ..self }
    }

    /// Sets the rank. If a table is too wide, the columns of the highest rank are left out first.
    /// Columns of rank 0, the default, are never left out.
    #[must_use]
    pub fn rank(self, rank: u8) -> Self {
        Self { rank, ..self }
    }
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The text, of characters that are one column wide.
    pub text: String,
    /// The emphasis.
    pub tone: Tone,
}

impl Cell {
    /// A text in a tone.
    pub fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }

    fn padded(&self, column: &Column, width: usize) -> Self {
        let text = match column.align {
            Align::Left => format!("{:<width$}", self.text),
            Align::Right => format!("{:>width$}", self.text),
        };
        Self { text, tone: self.tone }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(text, Tone::Plain)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// Rows of text in aligned columns under a line of titles.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        let columns = columns.into();
        let titles =
            columns.iter().map(|column| Cell::new(column.title.clone(), Tone::Faint)).collect();
        Self { columns, rows: vec![titles] }
    }

    /// Adds a row. Cells beyond the last column are not shown, and missing ones are empty.
    pub fn row(&mut self, cells: impl Into<Vec<Cell>>) {
        self.rows.push(cells.into());
    }

    /// Lays out the titles and the rows. Columns with a rank are left out until a line fits in
    /// `width` characters, or none is left. The cells of a line are padded to the width of their
    /// columns; the caller prints [`GAP`] between them. No line ends in blanks.
    pub fn layout(&self, width: usize) -> Vec<Vec<Cell>> {
        let mut shown: Vec<(usize, usize)> =
            (0..self.columns.len()).map(|place| (place, self.width_of(place))).collect();
        while total(&shown) > width
            && let Some(rank) = shown.iter().map(|&(place, _)| self.columns[place].rank).max()
            && rank > 0
        {
            shown.retain(|&(place, _)| self.columns[place].rank < rank);
        }
        self.rows.iter().map(|row| self.line(row, &shown)).collect()
    }

    /// Whether the lines fit in `width` characters, at least without the columns that have a rank.
    pub fn fits(&self, width: usize) -> bool {
        let unranked = (0..self.columns.len()).filter(|&place| self.columns[place].rank == 0);
        total(&unranked.map(|place| (place, self.width_of(place))).collect::<Vec<_>>()) <= width
    }

    fn width_of(&self, place: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(place));
        cells.map(Cell::width).max().unwrap_or(0).max(self.columns[place].width)
    }

    fn line(&self, row: &[Cell], shown: &[(usize, usize)]) -> Vec<Cell> {
        let empty = Cell::default();
        let mut cells: Vec<Cell> = shown
            .iter()
            .map(|&(place, width)| {
                row.get(place).unwrap_or(&empty).padded(&self.columns[place], width)
            })
            .collect();
        while cells.last().is_some_and(|cell| cell.text.trim().is_empty()) {
            cells.pop();
        }
        if let Some(last) = cells.last_mut() {
            last.text.truncate(last.text.trim_end().len());
        }
        cells
    }
}

fn total(shown: &[(usize, usize)]) -> usize {
    let widths: usize = shown.iter().map(|&(_, width)| width).sum();
    widths + GAP.len() * shown.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(table: &Table, width: usize) -> Vec<String> {
        let line = |cells: Vec<Cell>| {
            cells.into_iter().map(|cell| cell.text).collect::<Vec<_>>().join(GAP)
        };
        table.layout(width).into_iter().map(line).collect()
    }

    fn table() -> Table {
        let mut table = Table::new([
            Column::left("NAME"),
            Column::right("COUNT").rank(1),
            Column::right("RATE").width(6),
            Column::left("NOTE").rank(2),
        ]);
        table.row(["source".into(), "12,345".into(), "7".into(), "widest note".into()]);
        table.row(["syn".into(), "1".into()]);
        table
    }

    #[test]
    fn columns_line_up_and_no_line_ends_in_blanks() {
        assert_eq!(
            text(&table(), 80),
            [
                "NAME     COUNT    RATE  NOTE",
                "source  12,345       7  widest note",
                "syn          1",
            ]
        );
    }

    #[test]
    fn columns_of_the_highest_rank_go_first() {
        assert_eq!(text(&table(), 34)[1], "source  12,345       7");
        assert_eq!(text(&table(), 21)[1], "source       7");
        assert_eq!(text(&table(), 3)[1], "source       7");
    }
}
