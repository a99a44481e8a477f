//! `limiter policy save`.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;
use flate2::Crc;
use ipnet::IpNet;
use serde_json::json;
use thiserror::Error;

use super::{
    read::summary,
    unit::{self, Unit, attach_options},
};
use crate::{
    cli::{maps, progress::Progress, stderr::warn, unix},
    datapath::{bpffs::Pins, link::exists},
    error::{Error, Failure, Result},
    output::{file, number::grouped, stream::Output},
    policy::{
        Policy,
        document::{
            DOCUMENT_BYTES, FileError, SET_BYTES, Unsaved, parse, parse_with_files, read_file,
            to_yaml_with_files,
        },
        model::PrefixFile,
        reading::name,
        shadowed::FromFiles,
        units::{printable, quoted},
    },
};

#[derive(Debug, Args)]
pub(in crate::cli) struct Save {
    /// File to write, or - for the standard output. A file that exists keeps its permissions, and what it was is
    /// kept beside it, as FILE.bak or with a number after that; a new one is readable by its owner only
    #[arg(value_name = "FILE", default_value = unit::POLICY)]
    file: PathBuf,
    /// Replace also a file whose comments would be lost
    #[arg(long)]
    force: bool,
    /// Print a systemd unit that attaches with the document at boot, and save nothing
    #[arg(long)]
    systemd: bool,
}

impl Save {
    pub(super) fn run(&self, pins: &Pins, output: &mut Output) -> Result<()> {
        let path = std::path::absolute(&self.file).unwrap_or_else(|_| self.file.clone());
        if self.systemd {
            if self.to_output() {
                let fault = "a document that was printed is in no file";
                return Err(Error::UnitPath { path: quoted("-"), fault });
            }
            let options = match exists(pins)? {
                true => attach_options(pins, &maps(pins)?)?,
                false => String::new(),
            };
            let unit = Unit::new(&path, pins, options)?;
            if output.is_json() {
                return Ok(output.shape("limiter.unit/1", &json!({ "unit": unit.to_string() }))?);
            }
            return Ok(write!(output, "{unit}")?);
        }
        let progress = Progress::of("reading the policy in force");
        let mut policy = maps(pins)?.settled()?.policy;
        policy.drop_over(unix());
        let is_printed = self.to_output();
        let before = if is_printed { None } else { Before::read(&path)? };
        let mut kept = before.as_ref().map(|before| before.files(&policy)).unwrap_or_default();
        // What is printed may be put into any folder.
        let folder = path.parent().filter(|_| !is_printed).unwrap_or(Path::new(""));
        progress.step(&format!("writing {}", summary(&policy)));
        let in_full = add_files(&mut kept, &policy, folder);
        let header = before.as_ref().map(Before::header).unwrap_or_default();
        let text = header + &to_yaml_with_files(&policy, &kept);
        // A document that cannot be read would leave the machine without limits at the next start.
        let file = name(if is_printed { Path::new("policy") } else { &path });
        let mut files = |name: &str| read_file(&folder.join(name), SET_BYTES);
        let read = parse(&file, text.as_bytes(), &mut files).map_err(Unsaved)?;
        // What set files have by now counts, as it does when the document is applied.
        let (limits, requests) = (read.limits.len(), read.on_requests.len());
        let prefixes = read.number_of_prefixes();
        if is_printed {
            drop(progress);
            in_full.iter().for_each(|set| warn(set, output));
            if output.is_json() {
                let value = json!({
                    "document": text, "limits": limits, "limits_on_requests": requests,
                    "prefixes": prefixes,
                });
                return Ok(output.shape("limiter.save/1", &value)?);
            }
            return Ok(write!(output, "{text}")?);
        }
        let is_there =
            before.as_ref().is_some_and(|before| before.policy(unix()).as_ref() == Some(&read));
        let lost = before.as_ref().and_then(|before| before.lost(&policy));
        let backup = if is_there { None } else { self.write(&text, before.as_ref(), lost)? };
        drop(progress);
        in_full.iter().for_each(|set| warn(set, output));
        if output.is_json() {
            let value = json!({
                "file": file, "limits": limits, "limits_on_requests": requests,
                "prefixes": prefixes,
                "backup": backup.as_deref().map(name), "unchanged": is_there,
            });
            return Ok(output.shape("limiter.save/1", &value)?);
        }
        let saved = if is_there { "has this policy already" } else { "saved" };
        writeln!(output, "{file}: {saved}: {}", summary(&read))?;
        let named = kept.set_paths.values().chain(kept.tenant_paths.values());
        let named: BTreeSet<String> = named.map(|path| printable(path, 256)).collect();
        if !named.is_empty() {
            let named: Vec<String> = named.into_iter().collect();
            writeln!(output, "It names its set files: {}", named.join(", "))?;
        }
        let other: Vec<&str> = other_sets(&policy, &read).collect();
        if !other.is_empty() {
            let sets = other.join(", ");
            warn(
                &format!("of {sets}, other prefixes are in force than the files have now"),
                output,
            );
        }
        if let Some(backup) = &backup {
            writeln!(output, "The file before it is {}", name(backup))?;
        }
        // A path that cannot be in a unit does not prevent the saving.
        if let Ok(unit) = Unit::new(&path, pins, String::new()) {
            writeln!(output, "To have it applied when the machine starts:")?;
            write!(output, "{}", unit.how_to_install())?;
        }
        Ok(())
    }

    /// Writes the document, and keeps the one before it as a backup. Returns the path of that.
    fn write(
        &self,
        text: &str,
        before: Option<&Before>,
        lost: Option<Cow<'static, str>>,
    ) -> Result<Option<PathBuf>> {
        let Some(before) = before.filter(|before| !before.text.is_empty()) else {
            file::replace(&self.file, text.as_bytes())?;
            return Ok(None);
        };
        if let Some(lost) = lost.filter(|_| !self.force) {
            let beside = beside(&self.file, ".new", marked(text).as_bytes())?;
            let (path, beside) = (name(&self.file), name(&beside));
            return Err(Lossy { path, lost, beside }.into());
        }
        let backup = beside(&self.file, ".bak", &before.text)?;
        // Somebody may have edited it since it was read.
        if text_of(&self.file)? != before.text {
            return Err(Edited { path: name(&self.file) }.into());
        }
        file::replace(&self.file, text.as_bytes())?;
        Ok(Some(backup))
    }

    /// Whether the document goes to standard output.
    fn to_output(&self) -> bool {
        self.file == Path::new("-")
    }
}

/// What the first line of a document beside another one begins with. A checksum of the rest follows.
const MARK: &str = "# The policy in force, by `limiter policy save`; checksum ";

/// A document with the line that tells whether it was edited since.
fn marked(text: &str) -> String {
    format!("{MARK}{:08x}\n{text}", checksum(text))
}

fn checksum(text: &str) -> u32 {
    let mut crc = Crc::new();
    crc.update(text.as_bytes());
    crc.sum()
}

/// Whether a document is as [`marked`] made it.
fn is_unedited(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let rest = text.strip_prefix(MARK).and_then(|text| text.split_once('\n'));
    rest.is_some_and(|(_, rest)| text == marked(rest))
}

/// Writes a file beside another one: with a suffix after its name, and a number where such a file has something else.
/// A document that an earlier call wrote, and that nobody edited, is replaced.
fn beside(path: &Path, suffix: &str, text: &[u8]) -> Result<PathBuf> {
    let mut number = 0_u32;
    loop {
        let mut with = path.as_os_str().to_owned();
        with.push(suffix);
        if number > 0 {
            with.push(format!(".{number}"));
        }
        let with = PathBuf::from(with);
        match fs::symlink_metadata(&with) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                file::replace(&with, text)?;
                return Ok(with);
            }
            Ok(_) => match read_file(&with, DOCUMENT_BYTES) {
                Ok(there) if there == text => return Ok(with),
                Ok(there) if is_unedited(&there) && is_unedited(text) => {
                    file::replace(&with, text)?;
                    return Ok(with);
                }
                _ => number += 1,
            },
            Err(_) => number += 1,
        }
        if number > 999 {
            let full = io::Error::from(io::ErrorKind::AlreadyExists);
            return Err(Error::system(format!("write {}", with.display()), full));
        }
    }
}

/// Adds the files that the policy in force came from, for sets and tenants that `kept` has none of. Returns a warning for
/// each that is written out in full instead.
fn add_files(kept: &mut FromFiles, policy: &Policy, folder: &Path) -> Vec<String> {
    let mut in_full = Vec::new();
    for (what, named, files, sets, paths) in [
        ("set", &policy.sets, &policy.set_files, &mut kept.sets, &mut kept.set_paths),
        (
            "tenant",
            &policy.tenants,
            &policy.tenant_files,
            &mut kept.tenants,
            &mut kept.tenant_paths,
        ),
    ] {
        for (name, file) in files {
            let prefixes = named.get(name).filter(|_| !paths.contains_key(name));
            let Some(prefixes) = prefixes else { continue };
            match reference(file, prefixes, folder) {
                Ok(path) => {
                    sets.insert(name.clone(), file.cidrs.clone());
                    paths.insert(name.clone(), path);
                }
                Err(fault) => in_full.push(format!(
                    "{what} {} is written out in full, {} prefixes: its file {} {fault}; \
                     mend the file and save once more, or name another one by `file: PATH`",
                    quoted(name),
                    grouped(prefixes.len() as u64),
                    printable(&file.path, 256),
                )),
            }
        }
    }
    in_full
}

/// Folders that are empty after a start of the machine.
const VOLATILE: [&str; 5] = ["/dev", "/proc", "/run", "/sys", "/tmp"];

/// Whether a file is gone after a start of the machine, with its folder.
fn is_volatile(path: &Path) -> bool {
    let is_below = |path: &Path| VOLATILE.iter().any(|folder| path.starts_with(folder));
    is_below(path) || path.canonicalize().is_ok_and(|path| is_below(&path))
}

/// The path of a file in a document of this folder, if the file still has some of the prefixes in force. The document may be
/// for a start of the machine: only one beside it may be volatile.
fn reference(file: &PrefixFile, prefixes: &[IpNet], folder: &Path) -> Result<String, &'static str> {
    const NAME: &str = "set";
    let only = Policy { sets: [(NAME.to_owned(), prefixes.to_vec())].into(), ..Policy::default() };
    let within = Path::new(&file.path).strip_prefix(folder).ok().and_then(Path::to_str);
    let path = within.unwrap_or(&file.path).to_owned();
    let whole = folder.join(&path);
    let places = [&*whole, folder].map(Path::canonicalize);
    let is_beside = matches!(&places, [Ok(file), Ok(folder)] if file.starts_with(folder));
    if !is_beside && is_volatile(&whole) {
        return Err("is gone after a start of the machine");
    }
    let files = FromFiles {
        sets: [(NAME.to_owned(), file.cidrs.clone())].into(),
        set_paths: [(NAME.to_owned(), path.clone())].into(),
        ..FromFiles::default()
    };
    let before = Before::of(to_yaml_with_files(&only, &files).into(), folder, NAME);
    if before.read.is_none() {
        return Err("is no list that can be read");
    }
    let is_there = before.files(&only).set_paths.contains_key(NAME);
    is_there.then_some(path).ok_or("has none of them any more")
}

/// The file that is to be replaced.
struct Before {
    text: Vec<u8>,
    /// Its policy, and its sets and tenants that have files; `None` if it is no valid document.
    read: Option<(Policy, FromFiles)>,
}

impl Before {
    /// Reads the file; `None` if there is none, or no regular file.
    fn read(path: &Path) -> Result<Option<Self>> {
        if !fs::metadata(path).is_ok_and(|it| it.is_file()) {
            return Ok(None);
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        Ok(Some(Self::of(text_of(path)?, folder, &name(path))))
    }

    /// Parses a document of this folder.
    fn of(text: Vec<u8>, folder: &Path, name: &str) -> Self {
        let mut files = |name: &str| read_file(&folder.join(name), SET_BYTES);
        let read = parse_with_files(name, &text, 0, &mut files).ok();
        Self { text, read: read.map(|(policy, _, files)| (policy, files)) }
    }

    /// Its policy without the entries of lists that have ended at `now` (seconds of Unix time).
    fn policy(&self, now: u64) -> Option<Policy> {
        let mut policy = self.read.as_ref()?.0.clone();
        policy.drop_over(now);
        Some(policy)
    }

    /// The files of its sets and tenants that a policy has too. What a file has may have changed since that
    /// policy was applied: the file is named all the same, if some of what is in force is in it.
    fn files(&self, policy: &Policy) -> FromFiles {
        let Some((read, files)) = &self.read else { return FromFiles::default() };
        let mut files = files.clone();
        let is_there = |of: &Sets, now: &Sets, name: &str, own: &[IpNet]| {
            let (Some(all), Some(now)) = (of.get(name), now.get(name)) else { return false };
            let has = |prefix: &IpNet| all.binary_search(prefix).is_ok();
            // What the document itself lists is among both.
            let shared = now.iter().filter(|prefix| has(prefix)).count();
            own.iter().all(has) && (all.len() == own.len() || shared > own.len())
        };
        files.sets.retain(|name, own| is_there(&policy.sets, &read.sets, name, own));
        files.tenants.retain(|name, own| is_there(&policy.tenants, &read.tenants, name, own));
        files.set_paths.retain(|name, _| files.sets.contains_key(name));
        files.tenant_paths.retain(|name, _| files.tenants.contains_key(name));
        files
    }

    /// The comments in front of the document, which are kept.
    fn header(&self) -> String {
        let text = String::from_utf8_lossy(&self.text);
        let is_mark = |line: &&str| line.starts_with(MARK);
        let mut header: String =
            lines(&text).take_while(is_of_header).filter(|line| !is_mark(line)).collect();
        if !header.is_empty() && !header.ends_with(LINE_ENDS) {
            header.push('\n');
        }
        header
    }

    /// What of the file would be lost with it if it became the document of a policy; `None` if nothing would.
    fn lost(&self, policy: &Policy) -> Option<Cow<'static, str>> {
        let Some((_, files)) = &self.read else {
            return Some("is no policy that can be read".into());
        };
        let text = String::from_utf8_lossy(&self.text);
        let has_comment = |line: &str| {
            line.trim_start().starts_with('#') || line.contains(" #") || line.contains("\t#")
        };
        if lines(&text).skip_while(is_of_header).any(has_comment) {
            return Some("has comments, which would be lost".into());
        }
        let kept = self.files(policy);
        let is_there = |name: &&String| policy.sets.contains_key(*name);
        let mut sets = files.set_paths.keys().filter(is_there);
        let set = sets.find(|name| !kept.set_paths.contains_key(*name))?;
        let set = quoted(set);
        Some(format!("has a file for set {set}, which has none of the prefixes in force").into())
    }
}

/// Named sets of prefixes.
type Sets = BTreeMap<String, Vec<IpNet>>;

/// What ends a line of YAML.
const LINE_ENDS: [char; 2] = ['\n', '\r'];

/// The lines of a document with their ends, without a byte order mark.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.trim_start_matches('\u{feff}').split_inclusive(LINE_ENDS)
}

/// Whether a line is a comment or blank, as those in front of a document are.
fn is_of_header(line: &&str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}

/// The text of a document.
fn text_of(path: &Path) -> Result<Vec<u8>> {
    let failed = |error: FileError| {
        Error::system(format!("read {}", path.display()), io::Error::other(error))
    };
    read_file(path, DOCUMENT_BYTES).map_err(failed)
}

/// The sets and tenants of a policy that have other prefixes as the document was read.
fn other_sets<'p>(policy: &'p Policy, read: &'p Policy) -> impl Iterator<Item = &'p str> {
    let differs = |(name, all): &(&String, &Vec<IpNet>), read: &Sets| read.get(*name) != Some(*all);
    let sets = policy.sets.iter().filter(move |set| differs(set, &read.sets));
    let tenants = policy.tenants.iter().filter(move |tenant| differs(tenant, &read.tenants));
    sets.chain(tenants).map(|(name, _)| name.as_str())
}

/// A file was not replaced, as it is not what was read any more.
#[derive(Debug, Error)]
#[error("{path} is not replaced: it was changed while it was read")]
struct Edited {
    path: String,
}

impl Failure for Edited {
    fn remedy(&self) -> Option<String> {
        Some("look at what was changed, and save once more".to_owned())
    }
}

/// A file was not replaced.
#[derive(Debug, Error)]
#[error("{path} is not replaced: it {lost}")]
struct Lossy {
    path: String,
    lost: Cow<'static, str>,
    /// Where the document was written instead.
    beside: String,
}

impl Failure for Lossy {
    fn remedy(&self) -> Option<String> {
        let Self { path, beside, .. } = self;
        Some(format!(
            "the policy in force is in {beside}: take over what changed; or replace the file by \
             `limiter policy save --force {path}`, which keeps it beside the new one"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(text: &str) -> Before {
        let read = parse_with_files("policy", text.as_bytes(), 0, &mut |_| Ok(Vec::new())).ok();
        let read = read.map(|(policy, _, files)| (policy, files));
        Before { text: text.into(), read }
    }

    #[test]
    fn a_file_that_a_start_of_the_machine_removes_is_not_named_from_elsewhere() {
        let volatile = ["/tmp/bad.txt", "/run/t/bad.txt", "/dev/fd/63", "/proc/self/fd/3"];
        assert!(volatile.iter().all(|path| is_volatile(Path::new(path))));
        let stays = ["/etc/limiter/bad.txt", "/srv/tmp/bad.txt", "/tmpfiles/bad.txt"];
        assert!(!stays.iter().any(|path| is_volatile(Path::new(path))));
        let folder = std::env::temp_dir().join(format!("limiter-set-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, prefixes) = (folder.join("bad.txt"), ["192.0.2.0/24".parse().unwrap()]);
        fs::write(&path, "192.0.2.0/24\n").unwrap();
        let file = PrefixFile { path: path.to_str().unwrap().to_owned(), cidrs: Vec::new() };
        assert_eq!(reference(&file, &prefixes, &folder).as_deref(), Ok("bad.txt"));
        // What is printed has no folder.
        for elsewhere in ["/etc/limiter", ""] {
            let named = reference(&file, &prefixes, Path::new(elsewhere));
            assert_eq!(named.unwrap_err(), "is gone after a start of the machine");
        }
        // Through a link, it is elsewhere.
        let linked = folder.join("linked");
        fs::create_dir(&linked).unwrap();
        std::os::unix::fs::symlink(&path, linked.join("bad.txt")).unwrap();
        let link = linked.join("bad.txt").to_str().unwrap().to_owned();
        let file = PrefixFile { path: link, cidrs: Vec::new() };
        let named = reference(&file, &prefixes, &linked);
        assert_eq!(named.unwrap_err(), "is gone after a start of the machine");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_was_edited_since_it_was_read_is_not_replaced() {
        let path = std::env::temp_dir().join(format!("limiter-save-{}", std::process::id()));
        let save = Save { file: path.clone(), force: true, systemd: false };
        let read = before("version: 1\nlimits: []\n");
        fs::write(&path, "version: 1\n# mine\n").unwrap();
        let error = save.write("version: 1\n", Some(&read), None).unwrap_err();
        assert!(error.to_string().contains("was changed while it was read"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"version: 1\n# mine\n");
        for made in [path.clone(), PathBuf::from(format!("{}.bak", path.display()))] {
            fs::remove_file(made).unwrap();
        }
    }

    #[test]
    fn one_document_is_kept_beside_the_file_and_what_was_edited_too() {
        let folder = std::env::temp_dir().join(format!("limiter-beside-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("policy.yaml");
        let put = |text: &str| beside(&path, ".new", marked(text).as_bytes()).unwrap();
        let first = put("version: 1\n# a\n");
        for text in ["version: 1\n# b\n", "version: 1\n# c\n"] {
            assert_eq!(put(text), first);
        }
        let edited = fs::read_to_string(&first).unwrap() + "# mine\n";
        fs::write(&first, &edited).unwrap();
        for text in ["version: 1\n# d\n", "version: 1\n# e\n"] {
            assert_eq!(put(text), folder.join("policy.yaml.new.1"));
        }
        assert_eq!(fs::read_to_string(&first).unwrap(), edited);
        assert_eq!(before(&edited).header(), "");
        // What is kept of a replaced file is never replaced itself.
        let kept = |text: &str| beside(&path, ".bak", text.as_bytes()).unwrap();
        assert_ne!(kept("version: 1\n"), kept("version: 1\n# b\n"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn comments_in_front_are_kept_and_others_are_told() {
        for (text, header, lost) in [
            ("# a\n\nversion: 1\n", "# a\n\n", false),
            ("\u{feff}# a\nversion: 1\n", "# a\n", false),
            ("# a\rversion: 1\r", "# a\r", false),
            ("version: 1\rlimits: []\r# b\r", "", true),
            ("# a\r\nversion: 1 # b\r\n", "# a\r\n", true),
        ] {
            let before = before(text);
            assert_eq!(before.header(), header, "{text:?}");
            assert_eq!(before.lost(&Policy::default()).is_some(), lost, "{text:?}");
        }
        assert_eq!(before("# only this").header(), "# only this\n");
    }
}
