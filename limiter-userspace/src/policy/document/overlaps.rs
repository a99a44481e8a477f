//! Finds prefixes that change nothing, because a wider one of their set or tenant contains them, and prefixes
//! that two tenants have.
//!
//! If the document alone makes it so, that is a fault. If a file does, the prefix is left out with a warning:
//! a file that grew must not keep a policy from being applied at boot.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::{
    fault::Findings,
    group::{Entry, Group, Origin},
    narrow,
    source::ticked,
};
use crate::output::number::grouped;

/// The prefixes of a set or a tenant in the policy, sorted.
#[derive(Clone, Default)]
pub(super) struct Resolved {
    pub(super) all: Vec<IpNet>,
    /// The prefixes that the document lists, whatever the file contains.
    pub(super) written: Vec<IpNet>,
    /// Whether `written` has prefixes within others of it. They matter only if the file of another tenant has
    /// a prefix in between.
    pub(super) is_nested: bool,
}

/// The entries that matter, sorted by prefix; and the others, each with the entry that contains it.
type Told = (Vec<Entry>, Vec<(Entry, Entry)>);

/// Resolves overlaps within `groups`: a single set, or all tenants, of which the longest prefix decides. Each
/// prefix that is left makes a difference.
pub(super) fn resolve(groups: &[Group], findings: &mut Findings<'_>) -> Vec<Resolved> {
    let each = || groups.iter().zip(0..);
    let (mut kept, others) = told(each().flat_map(|(group, at)| group.written(at)).collect());
    let mut resolved = vec![Resolved::default(); groups.len()];
    for entry in nested(groups, others, findings) {
        resolved[entry.group].is_nested = true;
        kept.push(entry);
    }
    kept.sort_by_key(|entry| entry.prefix);
    for entry in &kept {
        resolved[entry.group].written.push(entry.prefix);
    }
    if groups.iter().any(|group| group.file.is_some()) {
        let mut filed = each().flat_map(|(group, at)| group.filed(at)).collect();
        narrow::settle(groups, &mut filed, findings);
        kept.append(&mut filed);
        let left_out;
        (kept, left_out) = told(kept);
        warn(groups, &left_out, findings);
    }
    for entry in kept {
        resolved[entry.group].all.push(entry.prefix);
    }
    resolved
}

/// Returns the entries of the document within a wider one of the same tenant that matter if the file of
/// another tenant has a prefix in between. All other entries that change nothing are faults.
fn nested(
    groups: &[Group],
    others: Vec<(Entry, Entry)>,
    findings: &mut Findings<'_>,
) -> Vec<Entry> {
    let with_files = groups.iter().filter(|group| group.file.is_some()).count();
    let mut found: Vec<Entry> = Vec::new();
    for (entry, other) in others {
        let own = usize::from(groups[entry.group].file.is_some());
        if entry.group != other.group || entry.prefix == other.prefix || with_files == own {
            fault(groups, entry, other, findings);
            continue;
        }
        // They are sorted, so equal ones are next to each other.
        let last = found.last().copied();
        match last.filter(|it| (it.group, it.prefix) == (entry.group, entry.prefix)) {
            Some(same) => fault(groups, entry, same, findings),
            None => found.push(entry),
        }
    }
    found
}

fn told(mut entries: Vec<Entry>) -> Told {
    // Sorted by prefix, and equal prefixes by precedence: those of the document before those of files, then
    // by their order. The first of equal ones is kept.
    let of_file = |entry: &Entry| matches!(entry.origin, Origin::File(_));
    entries.sort_by_key(|entry| (entry.prefix, of_file(entry), entry.group));
    let (mut kept, mut others) = (Vec::with_capacity(entries.len()), Vec::new());
    // The prefixes around the present one, the widest first, each with the entry that decides there.
    let mut around: Vec<(IpNet, Entry)> = Vec::new();
    for entry in entries {
        while around.last().is_some_and(|(outer, _)| !outer.contains(&entry.prefix)) {
            around.pop();
        }
        match around.last() {
            Some(&(prefix, other)) if prefix == entry.prefix => others.push((entry, other)),
            Some(&(_, outer)) if outer.group == entry.group => {
                others.push((entry, outer));
                // No other group has this prefix.
                around.push((entry.prefix, outer));
            }
            _ => {
                around.push((entry.prefix, entry));
                kept.push(entry);
            }
        }
    }
    (kept, others)
}

/// Reports an entry of the document that another entry of the document contains.
fn fault(groups: &[Group], entry: Entry, other: Entry, findings: &mut Findings<'_>) {
    let (prefix, group) = (entry.prefix, &groups[entry.group]);
    if entry.group != other.group {
        let (name, owner) = (ticked(&group.name), ticked(&groups[other.group].name));
        let message = format!("{prefix} of {} {name} is of {owner} too", group.what);
        findings.add(group.at, message, "remove it from one of the two");
        return;
    }
    let (Origin::Document(at), Origin::Document(first)) = (entry.origin, other.origin) else {
        return;
    };
    let message = if other.prefix == prefix {
        format!("{prefix} is listed twice")
    } else {
        format!("{prefix} is within {}, which is listed too", other.prefix)
    };
    let line = findings.line(first);
    findings.object = Some(group.object());
    findings.add(at, message, format!("remove one of the two; the other is on line {line}"));
    findings.object = None;
}

/// Warns of the entries that are left out: of the document one by one, of a file all at once.
fn warn(groups: &[Group], left_out: &[(Entry, Entry)], findings: &mut Findings<'_>) {
    // For each group and the group that contains its entries: the number, and the first entry by line.
    let mut of_files: BTreeMap<(usize, usize), (u64, usize, Entry, Entry)> = BTreeMap::new();
    for &(entry, other) in left_out {
        match entry.origin {
            Origin::Document(at) => {
                let group = &groups[entry.group];
                findings.object = Some(group.object());
                let (name, remedy) = match (other.origin, &group.file) {
                    (Origin::File(_), Some((file, _))) => (
                        format!(" of file {}", ticked(file.name())),
                        "it may stay: it is back when the file no longer has it",
                    ),
                    _ => (
                        String::new(),
                        "it may stay: it is back when the file of another tenant has what is \
                         between the two",
                    ),
                };
                let (prefix, outer) = (entry.prefix, other.prefix);
                let message = format!("{prefix} is within {outer}{name}, and left out");
                findings.warn(at, message, remedy);
            }
            Origin::File(line) => {
                let found =
                    of_files.entry((entry.group, other.group)).or_insert((0, line, entry, other));
                found.0 += 1;
                if line < found.1 {
                    (found.1, found.2, found.3) = (line, entry, other);
                }
            }
        }
    }
    for ((group, owner), (count, line, first, other)) in of_files {
        let (group, owner) = (&groups[group], &groups[owner]);
        let Some((file, at)) = &group.file else { continue };
        findings.object = Some(group.object());
        let same = std::ptr::eq(group, owner);
        let name = ticked(file.name());
        let (whose, already, remedy) = if same {
            let remedy = "nothing has to be done: it makes no difference".to_owned();
            ("it".to_owned(), " already", remedy)
        } else {
            let whose = owner.object();
            let remedy = format!("take out of the file what is to be of {whose}");
            (whose, "", remedy)
        };
        let mut message = match count {
            1 => format!("a prefix of file {name} is left out, as {whose} has it{already}: "),
            _ => format!(
                "{} prefixes of file {name} are left out, as {whose} has them{already}; the first is ",
                grouped(count)
            ),
        };
        message += &format!("{} on line {line}", first.prefix);
        if same {
            message += &match other.prefix == first.prefix {
                true => ", which is listed twice".to_owned(),
                false => format!(", within {}", other.prefix),
            };
        }
        findings.warn(*at, message, remedy);
    }
    findings.object = None;
}

#[cfg(test)]
mod tests;
