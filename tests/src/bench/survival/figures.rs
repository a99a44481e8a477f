//! The report on survival, as text and JSON.

use limiter_userspace::output::table::{Cell, Column, Table};
use serde_json::{Value, json};

use super::{ESTABLISHED, Eviction, ROOM, Round, Survival};
use crate::tables::lines;

impl Survival {
    /// The tables as text, with notes.
    pub(crate) fn text(&self) -> String {
        format!("{}\n\n{}\n{NOTES}", self.round_table(), self.eviction_table())
    }

    fn round_table(&self) -> String {
        let mut table = Table::new([
            Column::right("made-up sources, in tables"),
            Column::right("lost state"),
            Column::right("wrongly refused"),
            Column::right("the same, fast limit"),
            Column::right("made-up passed"),
        ]);
        for Round { flood, lost, refused, refused_fast, flood_passed } in &self.rounds {
            let share = |count| Cell::from(percent(f64::from(count) / f64::from(ESTABLISHED)));
            let passed = percent(*flood_passed).into();
            let flood = format!("{flood}").into();
            table.row([flood, share(*lost), share(*refused), share(*refused_fast), passed]);
        }
        lines(&table)
    }

    fn eviction_table(&self) -> String {
        let mut table = Table::new([
            Column::left("a source at its limit that floods"),
            Column::right("sent"),
            Column::right("passed"),
            Column::right("its limit admits"),
            Column::right("bursts gained"),
        ]);
        for eviction in &self.evictions {
            table.row([
                Cell::from(eviction.name()),
                eviction.offered.to_string().into(),
                eviction.admitted.to_string().into(),
                format!("{:.0}", eviction.bound).into(),
                format!("{:.1}", eviction.bursts_gained()).into(),
            ]);
        }
        lines(&table)
    }

    /// The report as JSON.
    pub(crate) fn json(&self) -> Value {
        let round = |round: &Round| {
            json!({
                "flood": round.flood, "lost_state": round.lost, "wrongly_refused": round.refused,
                "wrongly_refused_fast": round.refused_fast, "flood_passed": round.flood_passed,
            })
        };
        let eviction = |eviction: &Eviction| {
            json!({
                "every": eviction.every, "packets": eviction.packets, "sent": eviction.offered,
                "passed": eviction.admitted, "admits": eviction.bound,
                "bursts_gained": eviction.bursts_gained(),
            })
        };
        json!({
            "room": ROOM, "established": ESTABLISHED,
            "rounds": self.rounds.iter().map(round).collect::<Vec<_>>(),
            "evictions": self.evictions.iter().map(eviction).collect::<Vec<_>>(),
        })
    }

    /// One point for each flood: its size, and the share of established sources that `count` counts.
    pub(crate) fn curve(&self, count: impl Fn(&Round) -> u32) -> Vec<(f64, f64)> {
        let share = |round: &Round| f64::from(count(round)) / f64::from(ESTABLISHED);
        self.rounds.iter().map(|round| (round.flood, share(round))).collect()
    }

    /// The most established sources that any flood caused to be refused wrongly.
    pub(crate) fn most_refused(&self) -> u32 {
        let refused = |round: &Round| round.refused.max(round.refused_fast);
        self.rounds.iter().map(refused).max().unwrap_or(0)
    }

    /// The most that a source gained by having its own state evicted, in bursts.
    pub(crate) fn most_gained(&self) -> f64 {
        self.evictions.iter().map(Eviction::bursts_gained).fold(0.0, f64::max)
    }
}

/// The share of established sources whose state a flood of this size evicted; NaN if there was no such flood.
pub(crate) fn lost_at(survival: &Survival, flood: f64) -> f64 {
    let curve = survival.curve(|round| round.lost);
    curve.iter().find(|(size, _)| *size == flood).map_or(f64::NAN, |(_, share)| *share)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

const NOTES: &str = "\
Made-up sources: one packet each, in times the 65,536 sources that the table has room for. Lost state:
of 1,000 sources that had spent their burst of 20 at 1/min, those that were admitted again. Wrongly
refused: of 1,000 that had sent 2 packets, those that were refused the next; fast limit: 1,000/s with a
burst of 200. A source that floods: 10/s with a burst of 20, and 16 times the table in all.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shares_of_the_established_sources() {
        let round =
            |flood, lost| Round { flood, lost, refused: 0, refused_fast: 2, flood_passed: 1.0 };
        let survival =
            Survival { rounds: vec![round(0.5, 1), round(16.0, 870)], evictions: vec![] };
        assert_eq!(lost_at(&survival, 16.0), 0.87);
        assert!(lost_at(&survival, 4.0).is_nan());
        let text = survival.text();
        let row: Vec<_> = text.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(row, ["16", "87.0", "%", "0.0", "%", "0.2", "%", "100.0", "%"]);
    }

    #[test]
    fn only_what_is_beyond_the_limit_is_gained() {
        let eviction =
            Eviction { every: 1_000, packets: 1, offered: 90, admitted: 30, bound: 31.5 };
        assert_eq!(eviction.bursts_gained(), 0.0);
        assert_eq!(Eviction { admitted: 70, bound: 30.0, ..eviction }.bursts_gained(), 2.0);
    }
}
