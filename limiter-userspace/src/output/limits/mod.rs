//! Limits as they are set.

mod entry;

pub use self::entry::{LayerEntry, LimitEntry, OF_ONE, OverrideEntry, print};
use super::{number::grouped, table::Cell, tone::Tone};
use crate::policy::model::{Allowance, Count, Mode};

/// The limits as they stand beside statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitRows {
    /// A row for each layer and each candidate, narrow before wide.
    pub rows: Vec<LimitRow>,
    /// Whether sources are denied, or blocked by hand.
    pub lists: bool,
}

impl LimitRows {
    /// Whether there is more to say of modes than that all limits are enforced.
    pub fn have_modes(&self) -> bool {
        self.rows.iter().any(|row| row.mode != Mode::Enforce)
    }

    /// What is said when no limit is set, not even for a prefix, in two lines.
    pub fn how_to_set(&self) -> Option<[&'static str; 2]> {
        let first = match self.lists {
            false => "No limit is set, so every packet passes.",
            true => "No limit is set, the lists alone decide: limiter deny list, penalty list",
        };
        let lines = [first, "Set one: limiter limit set source --rate 1kpps --burst 2k"];
        self.rows.iter().all(LimitRow::is_off).then_some(lines)
    }
}

/// The setting of a limit in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRow {
    /// Its name, or that of the layer or the candidate.
    pub name: String,
    /// The name of the limit.
    pub limit: String,
    /// Its rate as an operator writes it; nothing if it is off.
    pub rate: Option<String>,
    /// Its burst as an operator writes it; nothing if it is off.
    pub burst: Option<String>,
    /// How many prefixes have a setting of their own.
    pub overrides: usize,
    /// Whether it drops, by its own word.
    pub mode: Mode,
    /// Whether it is a candidate, which only counts.
    pub candidate: bool,
    /// How much of it is used, in percent; nothing where that is not one number, or was not asked.
    pub used: Option<u64>,
}

impl LimitRow {
    /// A limit that is off.
    pub fn off(name: impl Into<String>) -> Self {
        let (name, mode) = (name.into(), Mode::Enforce);
        Self {
            limit: name.clone(),
            name,
            rate: None,
            burst: None,
            overrides: 0,
            mode,
            candidate: false,
            used: None,
        }
    }

    /// Its rate, or that it is off.
    pub fn rate_cell(&self) -> Cell {
        rate_cell(self.rate.as_deref())
    }

    /// Its burst.
    pub fn burst_cell(&self) -> Cell {
        self.burst.clone().unwrap_or_default().into()
    }

    /// How many overrides it has; nothing if none.
    pub fn overrides_cell(&self) -> Cell {
        overrides_cell(self.overrides)
    }

    /// Whether it drops.
    pub fn mode_cell(&self) -> Cell {
        shown_mode(self.mode, self.is_off())
    }

    /// Whether nobody is limited.
    const fn is_off(&self) -> bool {
        self.rate.is_none() && self.overrides == 0
    }
}

/// What a limit admits as an operator writes it: its rate, or how many may be open, and its burst.
pub fn written(count: &Count, allowance: Allowance) -> [String; 2] {
    let burst = allowance.bucket().burst;
    match allowance.rate() {
        None => [format!("{} open", grouped(burst)), String::new()],
        Some(rate) if *count == Count::Bytes => [count.rate(rate), count.amount(burst)],
        Some(rate) => [count.rate(rate), grouped(burst)],
    }
}

fn rate_cell(rate: Option<&str>) -> Cell {
    rate.map_or_else(|| Cell::new("off", Tone::Faint), Cell::from)
}

/// The cells of a rate and a burst; without them it is off.
pub(super) fn written_cells(written: Option<[String; 2]>) -> [Cell; 2] {
    written.map_or_else(|| [rate_cell(None), Cell::default()], |written| written.map(Cell::from))
}

/// The mode as it is shown: what limits nobody drops nothing.
fn shown_mode(mode: Mode, is_off: bool) -> Cell {
    let mode = if is_off { Mode::Off } else { mode };
    let tone = match mode {
        Mode::Enforce => Tone::Plain,
        Mode::Off => Tone::Faint,
        Mode::Monitor => Tone::Strong,
    };
    Cell::new(mode.name(), tone)
}

fn overrides_cell(overrides: usize) -> Cell {
    if overrides == 0 { Cell::default() } else { grouped(overrides as u64).into() }
}
