//! The form of output: words and layout, with every number replaced.

/// A part of a line that at least two spaces separate from others.
#[derive(Debug)]
struct Cell<'a> {
    start: usize,
    end: usize,
    text: &'a str,
}

/// The form of a text, line by line. Below headings it includes the column of each cell.
pub(super) fn form(text: &str) -> Vec<String> {
    let mut headings: Option<Vec<Cell<'_>>> = None;
    let mut lines = Vec::new();
    for line in text.trim_end().lines() {
        let cells = cells(line);
        let below = headings.as_ref().filter(|_| !cells.is_empty());
        let Some(columns) = below else {
            lines.push(cells.iter().map(|cell| words(cell.text)).collect::<Vec<_>>().join(" | "));
            headings = is_heading(&cells).then_some(cells);
            continue;
        };
        lines.push(cells.iter().map(|cell| placed(cell, columns)).collect::<Vec<_>>().join(" | "));
    }
    lines
}

fn cells(line: &str) -> Vec<Cell<'_>> {
    let mut start = 0;
    let mut cells = Vec::new();
    for part in line.split("  ") {
        let text = part.trim();
        let before = part.len() - part.trim_start().len();
        if !text.is_empty() {
            let start = start + before;
            cells.push(Cell { start, end: start + text.len(), text });
        }
        start += part.len() + 2;
    }
    cells
}

fn is_heading(cells: &[Cell<'_>]) -> bool {
    let is_upper = |cell: &Cell<'_>| !cell.text.contains(|letter: char| letter.is_lowercase());
    cells.len() > 1 && cells.iter().all(is_upper)
}

/// A cell with its column, and its place in it: at the right edge, or its distance from the left edge.
fn placed(cell: &Cell<'_>, columns: &[Cell<'_>]) -> String {
    let over = columns.iter().find(|column| cell.start < column.end && column.start < cell.end);
    let place = match over {
        Some(column) if cell.end == column.end => format!("{}, right", column.text),
        Some(column) => {
            format!("{}, {}", column.text, cell.start as isize - column.start as isize)
        }
        None => "no column".to_owned(),
    };
    format!("{} ({place})", words(cell.text))
}

/// Replaces every number by 0, every time of day by one, and every unit of bytes by one scale.
fn words(text: &str) -> String {
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn word(word: &str) -> String {
    if word.matches(':').count() == 2
        && word.chars().all(|it| it.is_ascii_digit() || ":.".contains(it))
    {
        return "00:00:00".to_owned();
    }
    let rest =
        word.trim_start_matches(|letter: char| letter.is_ascii_digit() || ".,".contains(letter));
    let number = &word[..word.len() - rest.len()];
    // Addresses, and words without a digit, stay as they are.
    if !number.starts_with(|letter: char| letter.is_ascii_digit())
        || number.matches('.').count() > 1
    {
        return word.to_owned();
    }
    let unit = rest.trim_start_matches(['k', 'K', 'M', 'G', 'T', 'P']);
    let unit = if unit.starts_with(['B', 'i']) { unit } else { rest };
    format!("0{unit}")
}

#[test]
fn numbers_do_not_matter_and_words_and_places_do() {
    let shown =
        "SOURCE      BYTES  IN\n10.0.0.7   4.38MB  1s\n10.0.0.80   660kB\n\nall: 3 of 5/min";
    let alike =
        "SOURCE     BYTES   IN\n10.0.0.7      0B  59s\n10.0.0.80  1.2GB\n\nall: 1,000 of 7/min";
    assert_eq!(form(shown), form(alike));
    for stale in [
        "SOURCE      BYTE  IN\n10.0.0.7   4.38MB  1s\n10.0.0.80   660kB\n\nall: 3 of 5/min",
        "SOURCE      BYTES  IN\n10.0.0.8   4.38MB  1s\n10.0.0.80   660kB\n\nall: 3 of 5/min",
        "SOURCE      BYTES  IN\n10.0.0.7   4.38MB  1m\n10.0.0.80   660kB\n\nall: 3 of 5/min",
        "SOURCE      BYTES  IN\n10.0.0.7   4.38MB  1s\n10.0.0.80  660kB\n\nall: 3 of 5/min",
        "SOURCE      BYTES  IN\n10.0.0.7   4.38MB  1s\n10.0.0.80          2s\n\nall: 3 of 5/min",
        "SOURCE      BYTES  IN\n10.0.0.7   4.38MB  1s\n10.0.0.80   660kB\n\nall: many of 5/min",
        "SOURCE      BYTES  IN\n10.0.0.7   4.38MB  1s\n\nall: 3 of 5/min",
    ] {
        assert_ne!(form(shown), form(stale), "{stale}");
    }
}
