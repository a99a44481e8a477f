//! Prefixes of files that are narrower than a source, where sources are meant: in tenants, and in sets that
//! lists, `source` or `except` name.
//!
//! Sources are what a list can tell apart. So such a prefix is widened to its source where that has more
//! dropped or limited. It is left out where that would let more pass, or where it is of a tenant.
//!
//! In the document itself, such a prefix is a fault. In a file it is a warning: a feed may have a single host
//! among its networks, and must not keep a policy from being applied at boot.

use std::collections::{BTreeMap, HashSet};

use ipnet::IpNet;

use super::{
    fault::Findings,
    fields::Fields,
    group::{Entry, Group, Narrow, Origin},
    key::LONGER,
    source::ticked,
    tree::{Node, Value},
};
use crate::{
    output::number::grouped,
    policy::{List, model::KeyPrefix},
};

/// The names that may be sets of sources.
#[derive(Default)]
pub(super) struct Uses<'n> {
    /// Those whose sources are dropped or limited.
    refused: HashSet<&'n str>,
    /// Those whose sources are let pass.
    passed: HashSet<&'n str>,
}

impl Uses<'_> {
    /// What becomes of the narrow prefixes of a set, where sources have these lengths.
    pub(super) fn of(&self, name: &str, lengths: KeyPrefix) -> Narrow {
        if self.passed.contains(name) {
            Narrow::LeftOut(lengths)
        } else if self.refused.contains(name) {
            Narrow::Widened(lengths)
        } else {
            Narrow::Stay
        }
    }
}

/// Finds how sets are used, before anything else of the document is read.
pub(super) fn uses_of_sets<'n>(fields: &Fields<'n, '_>) -> Uses<'n> {
    let mut uses = Uses::default();
    for list in List::ALL {
        if let Some(node) = fields.get(list.key()) {
            names(node, if list == List::Allow { &mut uses.passed } else { &mut uses.refused });
        }
    }
    let limits = match fields.get("limits").map(|node| &node.value) {
        Some(Value::List(nodes)) => nodes.as_slice(),
        _ => &[],
    };
    for matching in limits.iter().flat_map(|limit| values(limit, &["match"])) {
        for node in values(matching, &["source"]) {
            names(node, &mut uses.refused);
        }
        for node in values(matching, &["except"]) {
            names(node, &mut uses.passed);
        }
    }
    uses
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

/// What was found in the file of a group.
struct Found {
    count: u64,
    /// The first one, with its line.
    line: usize,
    first: IpNet,
    /// The sources that prefixes were widened to.
    sources: HashSet<IpNet>,
}

/// Widens or removes prefixes of files that are narrower than a source, with one warning for each group.
pub(super) fn settle(groups: &[Group], entries: &mut Vec<Entry>, findings: &mut Findings<'_>) {
    let mut all: BTreeMap<usize, Found> = BTreeMap::new();
    entries.retain_mut(|Entry { prefix, group, origin }| {
        let (Narrow::Widened(lengths) | Narrow::LeftOut(lengths), Origin::File(line)) =
            (groups[*group].narrow, *origin)
        else {
            return true;
        };
        let (narrow, wide) = (*prefix, lengths.widened(*prefix));
        if narrow == wide {
            return true;
        }
        let new = || Found { count: 0, line, first: narrow, sources: HashSet::new() };
        let found = all.entry(*group).or_insert_with(new);
        found.count += 1;
        if line < found.line {
            (found.line, found.first) = (line, narrow);
        }
        *prefix = wide;
        // Each source once: several addresses of it are no mistake of the file.
        matches!(groups[*group].narrow, Narrow::Widened(_)) && found.sources.insert(wide)
    });
    for (group, found) in all {
        let group = &groups[group];
        findings.object = Some(group.object());
        if let Some((file, at)) = &group.file {
            let (message, remedy) = told(group.narrow, &ticked(file.name()), &found);
            findings.warn(*at, message, remedy);
        }
    }
    findings.object = None;
}

/// The warning on narrow prefixes of a file, and the remedy.
fn told(narrow: Narrow, file: &str, found: &Found) -> (String, String) {
    let Found { count, line, first, sources } = found;
    let (Narrow::Widened(lengths) | Narrow::LeftOut(lengths)) = narrow else {
        return Default::default();
    };
    let (wide, length) = (lengths.widened(*first), lengths.length_for(first));
    if matches!(narrow, Narrow::Widened(_)) {
        let what = match (count, sources.len()) {
            (1, _) => format!("a prefix of file {file} is widened to its source"),
            (_, 1) => {
                format!("{} prefixes of file {file} are widened to one source", grouped(*count))
            }
            (_, sources) => format!(
                "{} prefixes of file {file} are widened to their {} sources",
                grouped(*count),
                grouped(sources as u64)
            ),
        };
        let rest = if *count == 1 { ": " } else { "; the first is " };
        let message = format!(
            "{what}{rest}{first} on line {line}, to {wide}, as sources are counted per /{length}"
        );
        return (message, format!("nothing has to be done; to tell them apart, {LONGER}"));
    }
    let what = match count {
        1 => format!("a prefix of file {file} is left out, as it is narrower than a source: "),
        _ => format!(
            "{} prefixes of file {file} are left out, as they are narrower than a source; the first is ",
            grouped(*count)
        ),
    };
    let message = format!("{what}{first} on line {line}, where sources are counted per /{length}");
    (message, format!("give {wide} or wider in the file; or {LONGER}"))
}
