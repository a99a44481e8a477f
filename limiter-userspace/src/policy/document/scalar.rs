//! Reads single values.

use std::ops::RangeInclusive;

use super::{
    fault::Findings,
    names::{Words, meaning, words},
    source::ticked,
    tree::{Node, Value},
};
use crate::policy::{
    nearest::nearest,
    units::{Fault, Quantity, ValueError, parse_duration, rate::HIGHEST},
};

/// The most entries of a list in a match.
pub(super) const ENTRIES: usize = 256;
/// The longest name, in characters.
pub(super) const NAME: usize = 32;

/// The text of a single value; a fault for anything else.
pub(super) fn text<'n>(node: &'n Node<'_>, findings: &mut Findings<'_>) -> Option<&'n str> {
    match &node.value {
        Value::Text(text) => Some(text),
        _ => {
            expected(node, "a single value", findings);
            None
        }
    }
}

/// Adds the fault of a value of another kind than `what`.
pub(super) fn expected(node: &Node<'_>, what: &str, findings: &mut Findings<'_>) {
    let (found, remedy) = match node.value {
        Value::Empty => ("nothing is here", "give it a value, or remove the key"),
        _ => ("this is", ""),
    };
    let message = match node.value {
        Value::Empty => format!("{found}, and {what} has to be"),
        _ => format!("{found} {}, and {what} has to be here", node.kind()),
    };
    findings.add(node.at, message, remedy);
}

/// Parses a value with a parser of `units`.
pub(super) fn value<T>(
    node: &Node<'_>,
    parse: impl Fn(&str) -> Result<T, ValueError>,
    findings: &mut Findings<'_>,
) -> Option<T> {
    let text = text(node, findings)?;
    parse(text).map_err(|error| findings.add(node.at, error.to_string(), remedy(&error))).ok()
}

/// Reads a duration, in nanoseconds.
pub(super) fn duration(node: &Node<'_>, findings: &mut Findings<'_>) -> Option<u64> {
    let duration = value(node, parse_duration, findings)?;
    u64::try_from(duration.as_nanos()).ok()
}

/// Reads one of the words of a table.
pub(super) fn word<T: Copy>(
    node: &Node<'_>,
    what: &str,
    table: &Words<T>,
    findings: &mut Findings<'_>,
) -> Option<T> {
    let text = text(node, findings)?;
    let found = meaning(text, table);
    if found.is_none() {
        let remedy = suggest(text, words(table), what, findings);
        findings.add(node.at, format!("there is no {what} {}", ticked(text)), remedy);
    }
    found
}

/// A remedy: the word that was probably meant, or all words there are. Empty if it would not be shown.
pub(super) fn suggest<'a>(
    text: &str,
    known: impl IntoIterator<Item = &'a str>,
    what: &str,
    findings: &Findings<'_>,
) -> String {
    const LISTED: usize = 28;
    // The most words that are compared: a document may have a million names, and as many mistakes.
    const COMPARED: usize = 1_024;
    if findings.is_full() {
        return String::new();
    }
    let known: Vec<&str> = known.into_iter().take(COMPARED).collect();
    match nearest(text, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => format!("the policy has no {what} at all"),
        None if known.len() > LISTED => "none has a similar name".to_owned(),
        None => format!("it is one of {}", known.join(", ")),
    }
}

/// Reads `true` or `false`.
pub(super) fn flag(node: &Node<'_>, findings: &mut Findings<'_>) -> Option<bool> {
    match text(node, findings)? {
        "true" => Some(true),
        "false" => Some(false),
        other => {
            let message = format!("{} is neither true nor false", ticked(other));
            findings.add(node.at, message, "write `true` or `false`");
            None
        }
    }
}

/// The values of a list, or a single value; at most `most` of them.
pub(super) fn up_to<'n, 't>(
    most: usize,
    node: &'n Node<'t>,
    findings: &mut Findings<'_>,
) -> &'n [Node<'t>] {
    let nodes = node.each();
    if let Some(first) = nodes.get(most) {
        let message = format!("there are {} entries here, more than {most}", nodes.len());
        findings.add(first.at, message, "make it several limits; prefixes, a set");
    }
    &nodes[..nodes.len().min(most)]
}

/// Reads a whole number in a range.
pub(super) fn whole(
    node: &Node<'_>,
    what: &str,
    range: RangeInclusive<u64>,
    findings: &mut Findings<'_>,
) -> Option<u64> {
    let text = text(node, findings)?;
    let number = number(text);
    let (least, most) = (range.start(), range.end());
    let remedy = format!("give a whole number from {least} to {most}");
    match number {
        Some(number) if range.contains(&number) => return Some(number),
        Some(_) => {
            findings.add(node.at, format!("{what} {} is out of range", ticked(text)), remedy);
        }
        None => findings.add(node.at, format!("{what} {} is no number", ticked(text)), remedy),
    }
    None
}

/// Parses a text of digits only; numbers above 64 bits become the largest.
pub(super) fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Reads a name that the operator chose.
pub(super) fn name<'n>(
    node: &'n Node<'_>,
    what: &str,
    findings: &mut Findings<'_>,
) -> Option<&'n str> {
    let name = text(node, findings)?;
    is_name(name, what, node.at, findings).then_some(name)
}

/// Whether a limit, a set or another object could have this name.
pub fn could_be_name(name: &str) -> bool {
    let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    (1..=NAME).contains(&name.len()) && name.bytes().all(fits)
}

/// Whether a text is a valid name; a fault if not.
pub(super) fn is_name(
    name: &str,
    what: &str,
    at: super::source::Place,
    findings: &mut Findings<'_>,
) -> bool {
    let good = could_be_name(name);
    if !good {
        let message = format!("{} is no name for {what}", ticked(name));
        let remedy = format!("a name is 1 to {NAME} of a-z, 0-9, `_` and `-`");
        findings.add(at, message, remedy);
    }
    good
}

/// The remedy for a value that was not parsed. Where that of the command line does not fit, it is put in
/// terms of the document.
fn remedy(error: &ValueError) -> String {
    match (&error.fault, error.quantity) {
        _ if error.is_zero_rate() => {
            "to drop everything of a source, use `deny`; to drop all that a limit matches, give the limit itself `rate: 0`"
                .to_owned()
        }
        (Fault::TooFast, _) => {
            let most = HIGHEST / 1_000_000_000;
            format!("the highest rate is {most}Gpps; to switch a limit off, write `action: off`")
        }
        (Fault::Data, _) => {
            "write packets, such as 10kpps or 2k; or let the limit count them: `count: bytes`"
                .to_owned()
        }
        (Fault::Packets, _) => {
            format!("{}; or remove `count: bytes`", error.remedy())
        }
        (Fault::Ambiguous { bits, bytes, .. }, Quantity::Rate) => {
            format!("did you mean {bits} or {bytes}? Then let the limit count them: `count: bytes`")
        }
        _ => error.remedy(),
    }
}
