//! The screen of a terminal whose locale is not UTF-8: in ASCII alone.

use ratatui::{buffer::Buffer, layout::Rect};

/// Replaces every symbol that is not ASCII by one that looks similar.
pub(super) fn reduce(area: Rect, buffer: &mut Buffer) {
    for position in area.positions() {
        let Some(cell) = buffer.cell_mut(position) else { continue };
        if let Some(symbol) = replacement(cell.symbol()) {
            cell.set_symbol(symbol);
        }
    }
}

/// The symbol for one that is not ASCII.
fn replacement(symbol: &str) -> Option<&'static str> {
    if symbol.is_ascii() {
        return None;
    }
    Some(match symbol {
        "↑" => "^",
        "↓" => "v",
        // Curves, by eighths of the height of a row.
        "▁" | "▂" => ".",
        "▃" | "▄" => ":",
        "▅" | "▆" => "+",
        // Bars, by eighths of the width of a column.
        "▏" | "▎" | "▍" | "·" => ".",
        "█" | "▇" | "▌" | "▋" | "▊" | "▉" => "#",
        // The end of what is cut.
        "…" => "~",
        _ => "?",
    })
}
