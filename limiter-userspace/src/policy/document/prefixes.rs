//! Reads sets and tenants: their prefixes in the document and in files.

use std::{collections::HashMap, rc::Rc};

use super::{
    fault::Findings,
    fields::{Fields, list, named},
    file::{self, FileError, SET_BYTES, SetFiles},
    group::{Group, Narrow},
    key::{LONGER, whole},
    narrow,
    overlaps::{Resolved, resolve},
    scalar::{self, expected},
    set_file::SetFile,
    shape,
    source::{Place, ticked},
    tree::{Node, Value},
};
use crate::policy::{model::Policy, shadowed::FromFiles, units::parse_prefix};

/// Reads sets and tenants within the bounds for all of them together.
struct Sets<'f> {
    files: &'f mut SetFiles<'f>,
    /// The number of prefixes that may still be read.
    left: usize,
    /// The number of bytes of files that may still be read.
    bytes_left: usize,
    /// The files that were read, by their paths in the document.
    known: HashMap<String, Rc<SetFile>>,
}

/// Reads the sets and tenants into the policy. Returns those that have files.
pub(super) fn sets_and_tenants<'f>(
    fields: &Fields<'_, '_>,
    policy: &mut Policy,
    files: &'f mut SetFiles<'f>,
    findings: &mut Findings<'_>,
) -> FromFiles {
    let (uses, lengths) = (narrow::uses_of_sets(fields), policy.key_prefix);
    let mut sets = Sets::new(files);
    let mut from_files = FromFiles::default();
    for (mut group, has_file) in groups("sets", "set", fields, &mut sets, findings) {
        group.narrow = uses.of(&group.name, lengths);
        // Sets may overlap: a prefix that is in several is in all of them.
        for Resolved { all, written, .. } in resolve(std::slice::from_ref(&group), findings) {
            if has_file {
                from_files.sets.insert(group.name.clone(), written);
            }
            from_files.set_paths.extend(group.path());
            policy.sets.insert(group.name.clone(), all);
        }
    }
    let tenants = groups("tenants", "tenant", fields, &mut sets, findings);
    let (mut tenants, have_file): (Vec<_>, Vec<_>) = tenants.into_iter().unzip();
    for group in &mut tenants {
        group.narrow = Narrow::LeftOut(lengths);
    }
    let resolved = resolve(&tenants, findings);
    for ((group, has_file), Resolved { all, written, is_nested }) in
        tenants.iter().zip(have_file).zip(resolved)
    {
        // A source within a narrower prefix would not belong to one tenant.
        let of = format!(" of {}", group.object());
        whole(&written, lengths, &of, (group.at, LONGER), findings);
        from_files.tenant_paths.extend(group.path());
        if has_file {
            from_files.tenants.insert(group.name.clone(), written);
        } else if is_nested {
            from_files.nested.insert(group.name.clone(), written);
        }
        policy.tenants.insert(group.name.clone(), all);
    }
    from_files
}

/// Reads sets or tenants; tells for each whether it has a file.
fn groups(
    list: &str,
    what: &'static str,
    fields: &Fields<'_, '_>,
    sets: &mut Sets<'_>,
    findings: &mut Findings<'_>,
) -> Vec<(Group, bool)> {
    let Some(node) = fields.get(list) else { return Vec::new() };
    let mut found = Vec::new();
    for (word, node) in named(node, what, findings) {
        let (name, written) = (word.text.to_string(), Vec::new());
        let mut group =
            Group { what, name, at: word.at, written, file: None, narrow: Narrow::Stay };
        findings.object = Some(group.object());
        sets.read(node, &mut group, findings);
        findings.object = None;
        found.push((group, has_file(node)));
    }
    found
}

/// Whether a set or tenant names a file.
fn has_file(node: &Node<'_>) -> bool {
    matches!(&node.value, Value::Map(pairs) if pairs.iter().any(|(word, _)| word.text == "file"))
}

impl<'f> Sets<'f> {
    fn new(files: &'f mut SetFiles<'f>) -> Self {
        let bytes_left = usize::try_from(SET_BYTES).unwrap_or(usize::MAX);
        Self { files, left: Policy::MOST_PREFIXES, bytes_left, known: HashMap::new() }
    }

    /// Reads the prefixes of a set or tenant.
    fn read(&mut self, node: &Node<'_>, group: &mut Group, findings: &mut Findings<'_>) {
        let before = findings.total();
        let Some(fields) = Fields::read(node, &shape::PREFIXES, findings) else { return };
        if let Some(node) = fields.get("cidrs") {
            for node in list(node, findings) {
                if let Some(prefix) = scalar::value(node, parse_prefix, findings) {
                    group.written.push((prefix, node.at));
                }
                if group.written.len() > self.left {
                    return self.too_many(node.at, group, findings);
                }
            }
        }
        let mut count = group.written.len();
        if let Some(node) = fields.get("file")
            && let Some(file) = self.file(node, findings)
        {
            // Checked before its prefixes are processed: any number of sets may name the same large file.
            count += file.prefixes().len();
            if count > self.left {
                return self.too_many(node.at, group, findings);
            }
            group.file = Some((file, node.at));
        }
        if fields.get("cidrs").is_none() && fields.get("file").is_none() {
            let remedy = "write `cidrs: [203.0.113.0/24]` or `file: PATH`";
            findings.add(fields.at, "a set of prefixes needs `cidrs` or `file`", remedy);
        }
        self.left -= count;
        if count == 0 && findings.total() == before {
            findings.warn(fields.at, "there are no prefixes in it", "check that this is meant");
        }
    }

    fn too_many(&self, at: Place, group: &mut Group, findings: &mut Findings<'_>) {
        group.written.clear();
        let message = format!("the policy has more than {} prefixes", Policy::MOST_PREFIXES);
        findings.add(at, message, "write neighbouring prefixes as a wider one");
    }

    /// Reads a file, once for all sets that name it.
    fn file(&mut self, node: &Node<'_>, findings: &mut Findings<'_>) -> Option<Rc<SetFile>> {
        let name = match &node.value {
            Value::Text(name) if !name.is_empty() && !name.contains('\0') => name.to_string(),
            _ => {
                expected(node, "the path of a file", findings);
                return None;
            }
        };
        if let Some(file) = self.known.get(&name) {
            return Some(Rc::clone(file));
        }
        let most = self.bytes_left as u64;
        let unpack = |text| file::unpacked(text, most);
        let read = if most == 0 { Ok(Vec::new()) } else { (self.files)(&name).and_then(unpack) };
        let text = match read {
            Ok(text) => text,
            Err(error) => {
                let message = format!("file {} is not used: {error}", ticked(&name));
                findings.add(node.at, message, error.remedy());
                return None;
            }
        };
        // The bound is for all files together, so that many large ones take no longer than one.
        if self.bytes_left == 0 || text.len() > self.bytes_left {
            self.bytes_left = 0;
            let error = FileError::TooLarge { most: SET_BYTES };
            let message = format!("file {} is not used: with those before, {error}", ticked(&name));
            findings.add(node.at, message, "keep in the files what is used of them");
            return None;
        }
        self.bytes_left -= text.len();
        let rank = findings.next_file();
        let file = Rc::new(SetFile::read(name.clone(), rank, text, findings));
        self.known.insert(name, Rc::clone(&file));
        Some(file)
    }
}
