//! What was carried over when table and program were exchanged.

use serde_json::{Value, json};

use super::number::grouped;
use crate::datapath::exchange::Exchanged;

/// In JSON.
pub(crate) fn entry(exchanged: &Exchanged) -> Value {
    let Exchanged { from, sources, buckets, lost, anew, left_behind } = exchanged;
    json!({
        "from_layout": from,
        "sources": sources,
        "buckets": buckets,
        "without_room": lost,
        "begun_anew": anew,
        "left_behind": left_behind,
    })
}

/// In a line, or in several.
pub(crate) fn text(exchanged: &Exchanged) -> String {
    let Exchanged { sources, buckets, lost, anew, left_behind, .. } = exchanged;
    let debts = u64::from(*sources) + u64::from(*buckets);
    let mut text = match debts {
        1 => "1 debt was carried over".to_owned(),
        more => format!("{} debts were carried over", grouped(more)),
    };
    if *lost != 0 {
        text += &format!("; {} found no room and are forgotten", grouped((*lost).into()));
    }
    if !anew.is_empty() {
        text += &format!("; of another layout, and not carried over: {}", anew.join(", "));
    }
    if *left_behind {
        text += "; what an exchange before it, which was interrupted, had not carried over yet is forgotten";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_exchanges_both_losses_are_said() {
        let upgrade =
            Exchanged { from: Some(24), lost: 2, anew: vec!["A"], ..Exchanged::default() };
        let change = Exchanged { sources: 5, lost: 3, anew: vec!["B"], ..Exchanged::default() };
        let both = Exchanged {
            from: Some(24),
            sources: 5,
            lost: 5,
            anew: vec!["A", "B"],
            ..change.clone()
        };
        assert_eq!(change.after(upgrade), both);
    }

    #[test]
    fn what_is_lost_is_said() {
        let mut exchanged = Exchanged { sources: 1_200, buckets: 3, ..Exchanged::default() };
        assert_eq!(text(&exchanged), "1,203 debts were carried over");
        exchanged.lost = 2_000;
        exchanged.anew = vec!["WIDE_STATE", "ENDINGS"];
        let said = text(&exchanged);
        assert!(said.contains("; 2,000 found no room and are forgotten; "), "{said}");
        assert!(said.ends_with(": WIDE_STATE, ENDINGS"), "{said}");
        exchanged.left_behind = true;
        let said = text(&exchanged);
        assert!(
            said.ends_with("which was interrupted, had not carried over yet is forgotten"),
            "{said}"
        );
        assert_eq!(entry(&exchanged)["left_behind"], true);
    }
}
