//! Leaves out prefixes of files that are narrower than a source where sources are meant: in tenants, and in
//! sets that lists, `source` or `except` name.
//!
//! In the document itself, such a prefix is a fault. In a file it is a warning: a feed may have a single host
//! among its networks, and must not keep a policy from being applied at boot.

use std::collections::{BTreeMap, HashSet};

use ipnet::IpNet;

use super::{
    fault::Findings,
    fields::Fields,
    group::{Entry, Group, Origin},
    key::LONGER,
    source::ticked,
    tree::{Node, Value},
};
use crate::output::number::grouped;

/// The names that may be sets of sources, found before anything else of the document is read.
pub(super) fn sets_of_sources<'n>(fields: &Fields<'n, '_>) -> HashSet<&'n str> {
    let mut found = HashSet::new();
    for list in ["allow", "deny", "penalties"] {
        if let Some(node) = fields.get(list) {
            names(node, &mut found);
        }
    }
    let limits = match fields.get("limits").map(|node| &node.value) {
        Some(Value::List(nodes)) => nodes.as_slice(),
        _ => &[],
    };
    for matching in limits.iter().flat_map(|limit| values(limit, &["match"])) {
        for node in values(matching, &["source", "except"]) {
            names(node, &mut found);
        }
    }
    found
}

/// Collects the texts of a value, of the entries of a list, and of their key `src`.
fn names<'n>(node: &'n Node<'_>, found: &mut HashSet<&'n str>) {
    let mut of_entry = |node: &'n Node<'_>| {
        let entry = std::iter::once(node).chain(values(node, &["src"]));
        found.extend(entry.filter_map(|node| match &node.value {
            Value::Text(name) => Some(&**name),
            _ => None,
        }));
    };
    match &node.value {
        Value::List(nodes) => nodes.iter().for_each(of_entry),
        _ => of_entry(node),
    }
}

/// The values of some keys of a mapping; none for anything else.
fn values<'n, 't>(
    node: &'n Node<'t>,
    keys: &'static [&'static str],
) -> impl Iterator<Item = &'n Node<'t>> {
    let pairs = match &node.value {
        Value::Map(pairs) => pairs.as_slice(),
        _ => &[],
    };
    let of_keys = pairs.iter().filter(|(word, _)| keys.contains(&&*word.text));
    of_keys.map(|(_, node)| node)
}

/// Removes prefixes of files that are narrower than a source, with one warning for each group.
pub(super) fn leave_out(groups: &[Group], entries: &mut Vec<Entry>, findings: &mut Findings<'_>) {
    // For each group: the number of prefixes, and the first one with its line.
    let mut narrow: BTreeMap<usize, (u64, usize, IpNet)> = BTreeMap::new();
    entries.retain(|&Entry { prefix, group, origin }| {
        let (Some(lengths), Origin::File(line)) = (groups[group].lengths, origin) else {
            return true;
        };
        if prefix.prefix_len() <= lengths.length_for(&prefix) {
            return true;
        }
        let found = narrow.entry(group).or_insert((0, line, prefix));
        found.0 += 1;
        if line < found.1 {
            (found.1, found.2) = (line, prefix);
        }
        false
    });
    for (group, (count, line, prefix)) in narrow {
        let group = &groups[group];
        let (Some((file, at)), Some(lengths)) = (&group.file, group.lengths) else { continue };
        let (name, length) = (ticked(file.name()), lengths.length_for(&prefix));
        let what = match count {
            1 => format!("a prefix of file {name} is left out, as it is narrower than a source: "),
            _ => format!(
                "{} prefixes of file {name} are left out, as they are narrower than a source; the \
                 first is ",
                grouped(count)
            ),
        };
        let message =
            format!("{what}{prefix} on line {line}, where sources are counted per /{length}");
        let wide = IpNet::new(prefix.addr(), length).map_or(prefix, |wide| wide.trunc());
        findings.object = Some(group.object());
        findings.warn(*at, message, format!("give {wide} or wider in the file; or {LONGER}"));
    }
    findings.object = None;
}
