//! Reads sets and tenants: their prefixes in the document and in files.

use std::{collections::HashMap, rc::Rc};

use ipnet::IpNet;

use super::{
    FileError, PREFIXES, SET_BYTES, SetFiles,
    fault::{Findings, InLine},
    fields::{Fields, list, named},
    narrow,
    overlaps::{Group, Resolved, resolve},
    reach,
    scalar::{self, expected},
    shape,
    source::{Place, ticked},
    tree::{Node, Value},
};
use crate::policy::{model::Policy, shadowed::FromFiles, units::parse_prefix};

/// Faulty lines of a file that are reported before the rest is skipped.
const BAD_LINES: usize = 20;
/// The longest line of a file, in bytes, with its comment.
const LINE_BYTES: usize = 1024;

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

/// The file of a set.
pub(super) struct SetFile {
    name: String,
    rank: usize,
    text: Vec<u8>,
    /// The prefixes, each with its line, from 1.
    prefixes: Vec<(IpNet, usize)>,
}

/// Reads the sets and tenants into the policy. Returns those that have files.
pub(super) fn sets_and_tenants<'f>(
    fields: &Fields<'_, '_>,
    policy: &mut Policy,
    files: &'f mut SetFiles<'f>,
    findings: &mut Findings<'_>,
) -> FromFiles {
    let (of_sources, lengths) = (narrow::sets_of_sources(fields), policy.key_prefix);
    let mut sets = Sets::new(files);
    let mut from_files = FromFiles::default();
    for (mut group, has_file) in groups("sets", "set", fields, &mut sets, findings) {
        group.lengths = of_sources.contains(&*group.name).then_some(lengths);
        // Sets may overlap: a prefix that is in several is in all of them.
        for Resolved { all, written, .. } in resolve(std::slice::from_ref(&group), findings) {
            if has_file {
                from_files.sets.insert(group.name.clone(), written);
            }
            policy.sets.insert(group.name.clone(), all);
        }
    }
    let tenants = groups("tenants", "tenant", fields, &mut sets, findings);
    let (mut tenants, have_file): (Vec<_>, Vec<_>) = tenants.into_iter().unzip();
    for group in &mut tenants {
        group.lengths = Some(lengths);
    }
    let resolved = resolve(&tenants, findings);
    for ((group, has_file), Resolved { all, written, is_nested }) in
        tenants.iter().zip(have_file).zip(resolved)
    {
        reach::tenant(group, &written, policy, findings);
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
        let mut group = Group { what, name, at: word.at, written, file: None, lengths: None };
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
        Self { files, left: PREFIXES, bytes_left, known: HashMap::new() }
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
            count += file.prefixes.len();
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
        let message = format!("the policy has more than {PREFIXES} prefixes");
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
        let read = if self.bytes_left == 0 { Ok(Vec::new()) } else { (self.files)(&name) };
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
        let mut file = SetFile { name, rank: findings.next_file(), text, prefixes: Vec::new() };
        file.prefixes = file.read(findings);
        let file = Rc::new(file);
        self.known.insert(file.name.clone(), Rc::clone(&file));
        Some(file)
    }
}

/// Parses the prefix on a line; `None` for a line that is empty or only a comment.
fn entry(line: &[u8]) -> Result<Option<IpNet>, (Place, InLine)> {
    if line.len() > LINE_BYTES {
        let message = format!("the line is longer than {LINE_BYTES} bytes");
        return Err((Place::default(), InLine::new(message, "write one prefix on each line")));
    }
    let text = match std::str::from_utf8(line) {
        Ok(text) => text,
        Err(error) => {
            let start = error.valid_up_to();
            let remedy = "store the file as UTF-8 text with a prefix on each line";
            let quoted = format!("byte {:#04x} is not UTF-8", line.get(start).unwrap_or(&0));
            let wrong =
                InLine { quoted_message: quoted, ..InLine::new("a byte is not UTF-8", remedy) };
            return Err((Place { start, end: start + 1 }, wrong));
        }
    };
    let entry = text.split('#').next().unwrap_or_default();
    let trimmed = entry.trim();
    if trimmed.is_empty() {
        return Ok(None);
    }
    let start = entry.len() - entry.trim_start().len();
    let at = Place { start, end: start + trimmed.len() };
    match parse_prefix(trimmed) {
        Ok(prefix) => Ok(Some(prefix)),
        Err(error) => Err((at, InLine::from(&error))),
    }
}

const fn shifted(at: Place, by: usize) -> Place {
    Place { start: at.start + by, end: at.end + by }
}

impl SetFile {
    /// The path as in the document.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The prefixes, each with its line, from 1.
    pub(super) fn prefixes(&self) -> &[(IpNet, usize)] {
        &self.prefixes
    }

    /// Parses the prefixes; stops one after the most that a policy may have.
    fn read(&self, findings: &mut Findings<'_>) -> Vec<(IpNet, usize)> {
        let mut prefixes = Vec::new();
        let (mut start, mut bad) = (0, 0);
        for (line, text) in (1..).zip(self.text.split_inclusive(|&byte| byte == b'\n')) {
            let Some(whole) = text.strip_suffix(b"\n") else {
                // A prefix that was cut off may still parse, as another prefix.
                let message = "the last line has no end: is the file half-written?";
                let at = Place { start: start + text.len(), end: start + text.len() };
                let wrong = InLine::new(message, "end it with a line break");
                self.fault(line, at, wrong, findings);
                break;
            };
            match entry(whole) {
                Ok(None) => {}
                Ok(Some(prefix)) => prefixes.push((prefix, line)),
                Err((at, wrong)) => {
                    self.fault(line, shifted(at, start), wrong, findings);
                    bad += 1;
                }
            }
            if bad == BAD_LINES {
                let message = "the rest of the file was not read, for all that is wrong before it";
                let at = shifted(Place::default(), start);
                self.fault(line, at, InLine::new(message, ""), findings);
                break;
            }
            if prefixes.len() > PREFIXES {
                break;
            }
            start += text.len();
        }
        prefixes
    }

    fn fault(&self, number: usize, at: Place, wrong: InLine, findings: &mut Findings<'_>) {
        let begin = self.text.get(..at.start).unwrap_or_default();
        let begin = begin.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let line = self.text.get(begin..).unwrap_or_default();
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        // If a line is very long, or not text, its beginning is enough.
        let line = line.get(..line.len().min(at.end - begin + 200)).unwrap_or_default();
        let at = Place { start: at.start - begin, end: at.end - begin };
        let text = String::from_utf8_lossy(line);
        let file = (self.name.as_str(), self.rank);
        findings.add_in_file(file, (number, &text), at, wrong);
    }
}
