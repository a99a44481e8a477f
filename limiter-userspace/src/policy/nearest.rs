//! Suggestions for misspelt words.

/// Longest word that is compared, in bytes: distances take quadratic time, and no name here is longer.
const LONGEST: usize = 32;

/// The name that `word` abbreviates or misspells; of several, the nearest. `None` if more than half of the
/// longer word would have to change.
pub(super) fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    within(2, word, names)
}

/// The name that `word` abbreviates or misspells, as one of the commands: at most a third may have to change, so that
/// short words such as `drop` and `top` are not taken for each other.
pub fn very_near<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    within(3, word, names)
}

/// The nearest name for which at most one of `part` parts of the longer word would have to change.
fn within<'a>(
    part: usize,
    word: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let word = word.as_bytes();
    if word.is_empty() || word.len() > LONGEST {
        return None;
    }
    names
        .into_iter()
        .map(|name| {
            let abbreviated = word.len() > 1 && name.as_bytes().starts_with(word);
            (if abbreviated { 0 } else { distance(word, name.as_bytes()) }, name)
        })
        .filter(|&(distance, name)| distance * part <= word.len().max(name.len()))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, name)| name)
}

/// Levenshtein distance in bytes, without regard to case: insertions, deletions and replacements that turn
/// `a` into `b`.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (y, cell) in b.iter().zip(&mut row[1..]) {
            let replaced = diagonal + usize::from(!x.eq_ignore_ascii_case(y));
            diagonal = *cell;
            left = replaced.min(diagonal + 1).min(left + 1);
            *cell = left;
        }
        row[0] = i + 1;
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_levenshtein() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "syn", 3),
            ("syn", "", 3),
            ("kitten", "sitting", 3),
            ("source", "Source", 0),
            ("sorce", "source", 1),
            ("suorce", "source", 2),
            ("flaw", "lawn", 2),
        ] {
            assert_eq!(distance(a.as_bytes(), b.as_bytes()), expected, "{a} {b}");
        }
    }

    #[test]
    fn an_abbreviation_is_nearest_and_a_stranger_is_nothing() {
        let names = ["connection", "syn", "source"];
        assert_eq!(nearest("conn", names), Some("connection"));
        assert_eq!(nearest("sources", names), Some("source"));
        assert_eq!(nearest("sny", names), None);
        assert_eq!(nearest("sin", names), Some("syn"));
        assert_eq!(nearest("bandwidth", names), None);
        assert_eq!((nearest("drop", ["top"]), very_near("drop", ["top"])), (Some("top"), None));
        assert_eq!(very_near("stauts", ["status", "test"]), Some("status"));
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest(&"s".repeat(1 << 20), names), None);
    }
}
