//! The settings of limits, as they are printed.

mod entry;

pub use self::entry::{LayerEntry, LimitEntry, OF_ONE, OverrideEntry, print};
use super::{number::grouped, table::Cell, tone::Tone};
use crate::policy::model::{Allowance, Count, Mode};

/// The settings of all limits, to be shown beside their statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitRows {
    /// A row for each layer and each candidate.
    pub rows: Vec<LimitRow>,
    /// Whether a source is denied, or blocked by hand.
    pub lists: bool,
}

impl LimitRows {
    /// Whether a column of modes is needed: some limit is not enforced.
    pub fn have_modes(&self) -> bool {
        self.rows.iter().any(|row| row.mode != Mode::Enforce)
    }

    /// Two lines on how to set a limit, if every limit is off for all sources.
    pub fn how_to_set(&self) -> Option<[&'static str; 2]> {
        let first = match self.lists {
            false => "No limit is set, so every packet passes.",
            true => "No limit is set, the lists alone decide: limiter deny list, penalty list",
        };
        let lines = [first, "Set one: limiter limit set source --rate 1kpps --burst 2k"];
        self.rows.iter().all(LimitRow::is_off).then_some(lines)
    }
}

/// The setting of a limit, a layer or a candidate, for one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRow {
    /// The name of the limit, layer or candidate.
    pub name: String,
    /// The name of the limit.
    pub limit: String,
    /// The rate, as an operator writes it; `None` if it is off.
    pub rate: Option<String>,
    /// The burst, as an operator writes it; `None` if it is off.
    pub burst: Option<String>,
    /// The number of overrides; 0 for all layers but the first.
    pub overrides: usize,
    /// The mode of the limit. Monitor mode of the policy or the instance is not considered.
    pub mode: Mode,
    /// Whether it is a candidate, which only counts.
    pub candidate: bool,
    /// The part that is used, in percent. `None` if the limit has more than one state, or the state
    /// was not read.
    pub used: Option<u64>,
}

impl LimitRow {
    /// A limit without layers and overrides.
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

    /// The cell of its rate, or `off`.
    pub fn rate_cell(&self) -> Cell {
        rate_cell(self.rate.as_deref())
    }

    /// The cell of its burst; empty if it is off.
    pub fn burst_cell(&self) -> Cell {
        self.burst.clone().unwrap_or_default().into()
    }

    /// The cell of the number of overrides; empty if there are none.
    pub fn overrides_cell(&self) -> Cell {
        overrides_cell(self.overrides)
    }

    /// The cell of its mode.
    pub fn mode_cell(&self) -> Cell {
        shown_mode(self.mode, self.is_off())
    }

    /// Whether the limit is off for all sources.
    const fn is_off(&self) -> bool {
        self.rate.is_none() && self.overrides == 0
    }
}

/// Writes an allowance as an operator does: the rate and the burst, or the number of connections
/// that may be open.
pub fn written(count: &Count, allowance: Allowance) -> [String; 2] {
    let burst = allowance.bucket().burst;
    match allowance.rate() {
        None => [format!("{} open", grouped(burst)), String::new()],
        Some(rate) if *count == Count::Bytes => [count.rate(rate), count.amount(burst)],
        Some(rate) => [count.rate(rate), grouped(burst)],
    }
}

/// The rate and the burst that are shown of a limit that drops everything.
pub const NOTHING: [&str; 2] = ["0", ""];

fn rate_cell(rate: Option<&str>) -> Cell {
    rate.map_or_else(|| Cell::new("off", Tone::Faint), Cell::from)
}

/// The cells of a rate and a burst; `off` without them.
pub(super) fn written_cells(written: Option<[String; 2]>) -> [Cell; 2] {
    written.map_or_else(|| [rate_cell(None), Cell::default()], |written| written.map(Cell::from))
}

/// The cell of a mode. A limit that is off for all sources shows `off`, whatever its mode.
fn shown_mode(mode: Mode, is_off: bool) -> Cell {
    let mode = if is_off { Mode::Off } else { mode };
    let tone = match mode {
        Mode::Enforce | Mode::Drop => Tone::Plain,
        Mode::Off => Tone::Faint,
        Mode::Monitor => Tone::Strong,
    };
    Cell::new(mode.name(), tone)
}

fn overrides_cell(overrides: usize) -> Cell {
    if overrides == 0 { Cell::default() } else { grouped(overrides as u64).into() }
}
