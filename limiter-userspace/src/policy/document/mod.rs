//! The policy document: YAML, read strictly and written back.
//!
//! [`read`] and [`parse`] return a [`Policy`] with every value parsed, or all faults of the document at once,
//! each with its place. [`to_yaml`] writes what they read. [`schema`] is the JSON Schema of the document,
//! made from the tables that the reader uses. [`diff`] lists the changes from one policy to another in the
//! words of the document.

mod about;
mod allowance;
mod control;
mod diff;
mod fault;
mod fields;
mod file;
mod group;
mod instant;
mod key;
mod layers;
mod limit;
mod lists;
mod match_words;
mod matching;
pub(crate) mod names;
mod narrow;
mod new_limit;
mod overlaps;
mod overrides;
mod ports;
mod prefixes;
pub mod ratelimit;
mod reach;
mod request;
mod scalar;
mod schema;
mod set_file;
mod shape;
mod source;
mod spot;
mod terms;
mod text;
mod tree;
mod unit;
mod write;
mod write_limit;

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use ipnet::IpNet;

pub(crate) use self::shape::KEYS;
use self::{
    about::Passes,
    fault::Findings,
    fields::{Fields, list, named},
    limit::Found,
    names::On,
    prefixes::sets_and_tenants,
    source::{Place, Source, ticked},
    spot::Spot,
    tree::{Node, Value, tree},
};
pub use self::{
    diff::{Change, diff},
    fault::{Fault, Faults, Unsaved, Warnings},
    file::{
        DOCUMENT_BYTES, FileError, GZIP, Gunzip, SET_BYTES, SetFiles, document_name, read_document,
        read_file, read_up_to, unpacked,
    },
    instant::{INSTANTS, format_instant, parse_instant},
    key::key_name,
    new_limit::NewLimit,
    request::{override_conditions, request_key_name, request_part_name},
    scalar::could_be_name,
    schema::schema,
    shape::{LIMITS, VERSION},
    write::{check_length, to_yaml, to_yaml_with_files},
    write_limit::match_name,
};
use super::{
    List,
    model::{Policy, PrefixFile, Service},
    scopes::Scopes,
    shadowed::FromFiles,
};

/// Reads the policy in a file, or in the standard input for the path `-`. Relative paths of set files start from the folder
/// of that file, or from the current one.
///
/// # Errors
/// All faults of the document and its files.
pub fn read(path: &Path) -> Result<Policy, Faults> {
    read_with_warnings(path, 0, &mut |_| {}).map(|(policy, _)| policy)
}

/// Like [`read`], and returns warnings: entries that are valid and probably a mistake. `now` is in seconds of
/// Unix time; entries that ended before are warned of. `opened` is called with the path of each file before
/// it is opened, the document first.
///
/// # Errors
/// As [`read`].
pub fn read_with_warnings(
    path: &Path,
    now: u64,
    opened: &mut dyn FnMut(&Path),
) -> Result<(Policy, Warnings), Faults> {
    read_with_files(path, now, opened).map(|(policy, warnings, _)| (policy, warnings))
}

/// Like [`read_with_warnings`], and returns which sets and tenants have files.
///
/// # Errors
/// As [`read`].
pub fn read_with_files(
    path: &Path,
    now: u64,
    opened: &mut dyn FnMut(&Path),
) -> Result<(Policy, Warnings, FromFiles), Faults> {
    let name = document_name(path);
    opened(path);
    let text = read_document(path).map_err(|error| {
        let remedy = Some(error.remedy().to_owned());
        Faults::of_file(&name, format!("the policy is not used: {error}"), remedy)
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let (mut policy, warnings, files) = parse_with_files(&name, &text, now, &mut |file| {
        let file = folder.join(file);
        opened(&file);
        read_file(&file, SET_BYTES)
    })?;
    policy.set_files = prefix_files(&files.set_paths, &files.sets, folder);
    policy.tenant_files = prefix_files(&files.tenant_paths, &files.tenants, folder);
    Ok((policy, warnings, files))
}

/// The files of sets or tenants by absolute paths. A path that is not UTF-8 cannot be in a document, and is left out.
fn prefix_files(
    paths: &HashMap<String, String>,
    written: &HashMap<String, Vec<IpNet>>,
    folder: &Path,
) -> BTreeMap<String, PrefixFile> {
    let file = |(name, path): (&String, &String)| {
        let path = std::path::absolute(folder.join(path)).ok()?.into_os_string();
        let cidrs = written.get(name).cloned().unwrap_or_default();
        Some((name.clone(), PrefixFile { path: path.into_string().ok()?, cidrs }))
    };
    paths.iter().filter_map(file).collect()
}

/// Reads a policy from the bytes of a document. `name` stands for it in faults. Set files are read by
/// `files`; nothing else is opened.
///
/// # Errors
/// All faults of the document and its files.
///
/// ```
/// use limiter_userspace::policy::document::{parse, to_yaml};
///
/// let text = "version: 1\nlimits: [{name: web, key: source, rate: 10k pps}]";
/// let policy = parse("policy.yaml", text.as_bytes(), &mut |_| unreachable!("no set files")).unwrap();
/// assert_eq!(policy.limits[0].name, "web");
/// let written = to_yaml(&policy);
/// assert_eq!(parse("written", written.as_bytes(), &mut |_| unreachable!("no set files")), Ok(policy));
/// ```
pub fn parse(name: &str, text: &[u8], files: &mut SetFiles<'_>) -> Result<Policy, Faults> {
    parse_with_warnings(name, text, 0, files).map(|(policy, _)| policy)
}

/// Like [`parse`], and returns warnings: entries that are valid and probably a mistake. `now` is in seconds
/// of Unix time; entries that ended before are warned of.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_warnings(
    name: &str,
    text: &[u8],
    now: u64,
    files: &mut SetFiles<'_>,
) -> Result<(Policy, Warnings), Faults> {
    parse_with_files(name, text, now, files).map(|(policy, warnings, _)| (policy, warnings))
}

/// Like [`parse_with_warnings`], and returns which sets and tenants have files.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_files(
    name: &str,
    text: &[u8],
    now: u64,
    files: &mut SetFiles<'_>,
) -> Result<(Policy, Warnings, FromFiles), Faults> {
    if text.len() as u64 > DOCUMENT_BYTES {
        let error = FileError::TooLarge { most: DOCUMENT_BYTES };
        let remedy = "move long lists of prefixes to files of sets".to_owned();
        return Err(Faults::of_file(
            name,
            format!("the policy is not used: {error}"),
            Some(remedy),
        ));
    }
    let text = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => return Err(not_text(name, text, error.valid_up_to())),
    };
    let source = Source::new(name, text);
    let mut findings = Findings::at(now, &source);
    let policy = tree(text, &mut findings).map(|root| policy(&root, files, &mut findings));
    let warnings = findings.take_warnings();
    match (findings.into_faults(), policy) {
        (Some(faults), _) => Err(faults),
        (None, Some((policy, files))) => Ok((policy, warnings, files)),
        (None, None) => Err(Faults::of_file(name, "it cannot be read".to_owned(), None)),
    }
}

/// The fault of a document that is not UTF-8 from byte `at` on.
fn not_text(name: &str, text: &[u8], at: usize) -> Faults {
    // The valid text before it suffices to show the place.
    let before = text.get(..at).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
    let source = Source::new(name, before);
    let mut findings = Findings::new(&source);
    let message = format!("byte {:#04x} is not UTF-8", text.get(at).unwrap_or(&0));
    findings.add(Place { start: at, end: at + 1 }, message, "store the file as UTF-8 text");
    let nothing = || Faults::of_file(name, "it is not UTF-8".to_owned(), None);
    findings.into_faults().unwrap_or_else(nothing)
}

fn policy(
    root: &Node<'_>,
    files: &mut SetFiles<'_>,
    findings: &mut Findings<'_>,
) -> (Policy, FromFiles) {
    let mut policy = Policy::default();
    if matches!(root.value, Value::Empty) {
        findings.add(root.at, "the document is empty", "begin with `version: 1`");
        return (policy, FromFiles::default());
    }
    if !is_of_version(root, findings) {
        return (policy, FromFiles::default());
    }
    let Some(fields) = Fields::read(root, &shape::DOCUMENT, findings) else {
        return (policy, FromFiles::default());
    };
    let mode = fields.get("mode");
    let mode = mode.and_then(|node| scalar::word(node, "mode", &names::GLOBAL_MODES, findings));
    policy.mode = mode.unwrap_or_default();
    if let Some(node) = fields.get("defaults")
        && let Some(fields) = Fields::read(node, &shape::DEFAULTS, findings)
        && let Some(node) = fields.get("key_prefix")
        && let Some(lengths) = key::prefix_lengths(node, policy.key_prefix, findings)
    {
        policy.key_prefix = lengths;
    }
    let files = sets_and_tenants(&fields, &mut policy, files, findings);
    if let Some(node) = fields.get("services") {
        services(node, &mut policy, findings);
    }
    let attributes = fields.get("attributes");
    let attributes =
        attributes.map(|node| request::attributes(node, &mut policy, findings)).unwrap_or_default();
    let [allow, deny, penalties] = ["allow", "deny", "penalties"].map(|list| {
        findings.object = Some(format!("`{list}`"));
        let entries = fields.get(list);
        let entries = entries.map(|node| lists::entries(node, &policy, &files, findings));
        entries.unwrap_or_default()
    });
    findings.object = None;
    let (allowed, denied, blocked);
    (policy.allow, allowed) = allow.into_iter().unzip();
    (policy.deny, denied) = deny.into_iter().unzip();
    (policy.penalties, blocked) = penalties.into_iter().unzip();
    if let Some(node) = fields.get("control") {
        findings.object = Some("`control`".to_owned());
        policy.control = control::control(node, findings);
        findings.object = None;
    }
    if let Some(node) = fields.get("non_ip") {
        findings.object = Some("`non_ip`".to_owned());
        policy.non_ip = control::budget(node, findings);
        findings.object = None;
    }
    let spots = fields.get("limits").map(|node| limits(node, &mut policy, &files, findings));
    request::warn_of_unused(&policy, &attributes, findings);
    let listed = [(List::Allow, allowed), (List::Deny, denied), (List::Penalty, blocked)];
    reach::shadowed(&policy, &listed, &spots.unwrap_or_default(), &files, findings);
    for (list, spots) in listed {
        let mut spots = spots.iter();
        // Each entry has a spot.
        policy.list_mut(list).retain(|_| spots.next().is_none_or(|spot| !spot.left_out));
    }
    reach::number_of_prefixes(&policy, fields.at, findings);
    (policy, files)
}

/// Whether the document has the version that is read; a fault if not. The keys of another version would only
/// give misleading faults.
fn is_of_version(root: &Node<'_>, findings: &mut Findings<'_>) -> bool {
    let Value::Map(pairs) = &root.value else { return true };
    let Some((_, node)) = pairs.iter().find(|(word, _)| word.text == "version") else {
        return true;
    };
    let Some(version) = scalar::text(node, findings) else { return true };
    if scalar::number(version) == Some(VERSION) {
        return true;
    }
    let message = format!("this is a policy of version {}", ticked(version));
    findings.add(node.at, message, format!("this limiter reads version {VERSION}"));
    false
}

fn services(node: &Node<'_>, policy: &mut Policy, findings: &mut Findings<'_>) {
    for (word, node) in named(node, "service", findings) {
        findings.object = Some(format!("service {}", ticked(&word.text)));
        if let Some(fields) = Fields::read(node, &shape::SERVICE, findings) {
            let protocols = fields.get("protocol");
            let given = protocols.is_some();
            let protocols = protocols.map(|node| ports::protocols(node, findings));
            let protocols = protocols.unwrap_or_default();
            let ports = fields.get("ports").map(|node| {
                let ports = ports::ports(node, findings);
                // A missing protocol is a fault of its own.
                if given {
                    ports::check_ports((node, "ports"), given, &protocols, findings);
                }
                ports
            });
            let service = Service { protocols, ports: ports.unwrap_or_default() };
            policy.services.insert(word.text.to_string(), service);
        }
        findings.object = None;
    }
}

/// Reads the limits into the policy. Returns the places of the limits on packets and of their overrides.
fn limits(
    node: &Node<'_>,
    policy: &mut Policy,
    files: &FromFiles,
    findings: &mut Findings<'_>,
) -> Vec<(Spot, Vec<Spot>)> {
    let (mut packets, mut requests) = (Vec::new(), Vec::new());
    for (index, node) in list(node, findings).iter().enumerate() {
        match limit::on(node, index, findings) {
            Some(On::Packets) => packets.push((index, node)),
            Some(On::Requests) => requests.push((index, node)),
            None => {}
        }
    }
    let remedy = "merge limits of the same key as `layers`";
    if let Some((_, first)) = packets.get(LIMITS) {
        let message = format!("there are {} limits, more than {LIMITS}", packets.len());
        findings.add(first.at, message, remedy);
    }
    let most = Policy::MOST_ON_REQUESTS;
    if let Some((_, first)) = requests.get(most) {
        let message = format!("there are {} limits on requests, more than {most}", requests.len());
        findings.add(first.at, message, remedy);
    }
    let mut passes = Passes::new(policy, files);
    let read = |(index, node)| limit::limit(node, index, (policy, &mut passes), findings);
    let packets: Vec<_> = packets.into_iter().take(LIMITS).filter_map(read).collect();
    let mut scopes = Scopes::certain(policy, files);
    let read = |(index, node)| request::limit(node, index, (policy, files), &mut scopes, findings);
    let requests: Vec<_> = requests.into_iter().take(most).filter_map(read).collect();
    reach::limits(&packets, &requests, findings);
    let parts =
        packets.into_iter().map(|Found { limit, spot, overrides }| (limit, (spot, overrides)));
    let spots;
    (policy.limits, spots) = parts.unzip();
    policy.on_requests = requests.into_iter().map(|found| found.limit).collect();
    spots
}
