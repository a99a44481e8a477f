//! The errors of commands, with their exit codes and remedies.
//!
//! This file names no other module, as all of them name it. A module with errors of its own implements [`Failure`]
//! for them.

use std::{any::Any, io, path::PathBuf, sync::Arc, time::Duration};

use ipnet::IpNet;
use thiserror::Error;

/// The exit code for a policy that is wrong or does not fit.
pub(crate) const INVALID: u8 = 3;

/// An error of a module.
pub trait Failure: std::error::Error + Any + Send + Sync {
    /// See [`Error::exit_code`].
    fn exit_code(&self) -> u8 {
        1
    }

    /// The remedy, if one is known.
    fn remedy(&self) -> Option<String> {
        None
    }
}

/// Why a command failed.
#[derive(Debug, Error)]
pub enum Error {
    /// No interface has this name.
    #[error("no interface named {name}")]
    UnknownInterface {
        /// The name that was given, fit for a terminal.
        name: String,
        /// The interfaces of this network namespace, fit for a terminal.
        existing: String,
    },
    /// A file of sysfs, which tells the number of CPUs, cannot be read.
    #[error("cannot read the number of CPUs from {file}: {source}")]
    NoSysfs {
        /// The file.
        file: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// The interface is not attached.
    #[error("limiter is not attached to {name}")]
    NotAttached {
        /// The interface.
        name: String,
        /// The interfaces that are attached, fit for a terminal.
        attached: String,
    },
    /// An interface is attached in another mode than the one that was asked for.
    #[error("{interface} is attached in {mode} mode already")]
    OtherMode {
        /// The interface.
        interface: String,
        /// The mode in which it is.
        mode: &'static str,
        /// The mode that was asked for.
        asked: &'static str,
    },
    /// An agent has no policy for an interface, since its document cannot be used.
    #[error(
        "{interface} is not attached: there is no policy for it, since {document} cannot be used"
    )]
    NoPolicy {
        /// The interface.
        interface: String,
        /// The document that the agent follows.
        document: String,
    },
    /// No instance exists in this directory.
    #[error("limiter is not attached to any interface (nothing in {})", .directory.display())]
    NoInstance {
        /// The directory of the instance.
        directory: PathBuf,
    },
    /// The programs on an interface cannot all be replaced by those of this version.
    #[error("{interface}: not all of its programs could be replaced by this version's: {source}")]
    NotReplaced {
        /// The interface.
        interface: String,
        /// Why it fails.
        source: Box<Error>,
    },
    /// What failed before, and is not tried again yet.
    #[error("{0}")]
    Again(Arc<Error>),
    /// An interface was detached to be attached again, and that fails.
    #[error("{interface} is detached, and its packets pass: attaching it again fails: {source}")]
    Detached {
        /// The interface.
        interface: String,
        /// Why it fails.
        source: Box<Error>,
    },
    /// Another XDP program is attached to the interface.
    #[error("{interface} has an XDP program already (id {program}), which is not of this instance")]
    ForeignProgram {
        /// The interface.
        interface: String,
        /// The id of that program.
        program: u32,
    },
    /// Checks of `limiter doctor` have failed.
    #[error("limiter does not work on this machine yet: these checks failed: {}", .failed.join(", "))]
    Unfit {
        /// The names of these checks.
        failed: Vec<String>,
    },
    /// The process has no permission.
    #[error("no permission to {action}: {source}")]
    Permission {
        /// The action that failed.
        action: String,
        /// The error of the system call.
        source: io::Error,
    },
    /// Interfaces find no main program in its array.
    #[error(
        "{interfaces}: no main program is loaded, and all packets pass undecided{}",
        .cause.as_ref().map_or_else(String::new, |cause| format!("; loading it fails: {cause}"))
    )]
    Unloaded {
        /// The interfaces, fit for a terminal.
        interfaces: String,
        /// Why the last try to load it failed, if one did.
        cause: Option<Arc<Error>>,
    },
    /// The kernel lacks a feature.
    #[error("this kernel ({kernel}) lacks {feature}, which limiter needs")]
    Kernel {
        /// The release of the kernel.
        kernel: String,
        /// The feature, and the first version of Linux that has it.
        feature: String,
    },
    /// The verifier of the kernel refuses a program.
    #[error("this kernel ({kernel}) refuses the program {program}: {}", refusal(.cause, .log))]
    Refused {
        /// The name of the program.
        program: &'static str,
        /// The release of the kernel.
        kernel: String,
        /// The error of the system call.
        cause: io::Error,
        /// The last lines of the verifier's log.
        log: String,
    },
    /// The driver does not support the XDP mode that was asked for.
    #[error("{interface} does not take XDP in {mode} mode: {source}")]
    Mode {
        /// The interface.
        interface: String,
        /// The mode.
        mode: &'static str,
        /// Why it does not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The directory is not on a BPF file system.
    #[error("{} is not on a BPF file system", .directory.display())]
    NotBpffs {
        /// The directory of the instance.
        directory: PathBuf,
        /// The directory to mount a BPF file system on.
        mount: PathBuf,
    },
    /// The pinned maps have another layout, as of another version of limiter.
    #[error("{} holds maps of another layout: {}", .directory.display(), .differences.join("; "))]
    Layout {
        /// The directory of the instance.
        directory: PathBuf,
        /// The differences, a sentence each.
        differences: Vec<String>,
    },
    /// What is pinned was made by an older version, and its state can be carried over.
    #[error("{} holds maps of the older layout {layout}", .directory.display())]
    Older {
        /// The directory of the instance.
        directory: PathBuf,
        /// The layout.
        layout: u32,
    },
    /// What is pinned was made by a newer version.
    #[error("{} holds maps of layout {layout}, which is newer than this version knows", .directory.display())]
    Newer {
        /// The directory of the instance.
        directory: PathBuf,
        /// The layout.
        layout: u32,
    },
    /// The file of the run-time lists has no valid content.
    #[error("the run-time lists in {} cannot be read: {cause}", .path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The fault in the file.
        cause: String,
    },
    /// A size is out of range.
    #[error("{option} {asked} is out of range: {least} to {most} on this machine")]
    SizeRange {
        /// The option for the size.
        option: &'static str,
        /// The size that was given.
        asked: u32,
        /// The least size.
        least: u32,
        /// The largest size on this machine.
        most: u32,
    },
    /// The lists that commands of an older version set would be lost with the instance.
    #[error(
        "the run-time lists of an older version would be lost with its instance, and cannot be saved: {source}"
    )]
    Unkept {
        /// Why they cannot be kept.
        source: Box<Error>,
    },
    /// An exchange that another process began could not be finished.
    #[error("an exchange of table and program was interrupted, and finishing it fails: {source}")]
    Unfinished {
        /// Why it fails.
        source: Box<Error>,
    },
    /// An exchange that another process began could not be finished, and the maps before are in use again.
    #[error(
        "an exchange of table and program was interrupted, cannot be finished, and was undone: {source}"
    )]
    Undone {
        /// Why it cannot be finished.
        source: Box<Error>,
    },
    /// An exchange that another process began could not be finished, and the old table was removed.
    #[error("an exchange of table and program was interrupted, and cannot be finished: {source}")]
    LetGo {
        /// Why it cannot be finished.
        source: Box<Error>,
    },
    /// Another policy waits to be confirmed.
    #[error("a policy waits for `limiter policy confirm`, for {} s more", .left.as_secs().saturating_add(1))]
    Unconfirmed {
        /// The time left for that.
        left: Duration,
    },
    /// No policy waits to be confirmed.
    #[error("no policy waits to be confirmed")]
    NothingToConfirm,
    /// All slots for interfaces are taken.
    #[error(
        "limiter is attached to {} interfaces, which is the most",
        limiter_common::policy::limit::INTERFACES
    )]
    NoSlot,
    /// The frames of the interface do not begin with an Ethernet header.
    #[error(
        "{interface} is not an Ethernet interface (link layer type {kind}); its packets begin with another header"
    )]
    NotEthernet {
        /// The interface.
        interface: String,
        /// The type of its link layer, `ARPHRD_*`.
        kind: u16,
    },
    /// Another user owns a directory of the pins, or may write to it.
    #[error("{} belongs to another user, or others may write to it", .directory.display())]
    Unsafe {
        /// The directory.
        directory: PathBuf,
    },
    /// Another process holds the lock, and is stopped or takes too long.
    #[error("{} has the lock of {}", held_by(.holder.as_ref()), .directory.display())]
    Busy {
        /// The directory of the instance.
        directory: PathBuf,
        /// The number of that process and its description, if they are known.
        holder: Option<(u32, String)>,
    },
    /// Another agent sees to the instance.
    #[error(
        "another agent runs for {}, and each would put its own policy in force", .directory.display()
    )]
    OtherAgent {
        /// The directory of the instance.
        directory: PathBuf,
    },
    /// The process that loads programs for an agent has ended.
    #[error("the loader of this agent has ended ({end}), and no program can be loaded without it")]
    NoLoader {
        /// How it ended.
        end: String,
    },
    /// Files of sets would cut this host off, or lift most of a list.
    #[error("{document} is not used: {refusal}")]
    ChangeRefused {
        /// The document, fit for a terminal.
        document: String,
        /// The reason.
        refusal: String,
    },
    /// The kernel has no memory for a map, a program or another object.
    #[error("the kernel has no memory to {action}: {source}")]
    Memory {
        /// The action that failed, with its object.
        action: String,
        /// The error of the system call.
        source: io::Error,
    },
    /// An error of a module.
    #[error("{0}")]
    Module(Box<dyn Failure>),
    /// A document is valid, but its policy cannot be compiled.
    #[error("{file}: {error}")]
    Impossible {
        /// The document, fit for a terminal.
        file: String,
        /// The reason.
        error: Box<dyn Failure>,
    },
    /// A file would replace an object that is no regular file.
    #[error("{} is not a regular file, and is not replaced", .path.display())]
    NoFile {
        /// The path of the object.
        path: PathBuf,
    },
    /// A systemd unit cannot have a path.
    #[error("a systemd unit cannot have the path {path}: {fault}")]
    UnitPath {
        /// The path, quoted.
        path: String,
        /// The fault of the path.
        fault: &'static str,
    },
    /// `--for` would also end the limits of interfaces that are attached already.
    #[error("limiter is attached to {} already, where `--for` would end the limits too", .attached.join(", "))]
    Shared {
        /// These interfaces.
        attached: Vec<String>,
    },
    /// The command would cut off the SSH session of its user.
    #[error("{prefix} is where this SSH session comes from")]
    OwnSession {
        /// The source that was to be denied or blocked, or not to be allowed any more.
        prefix: IpNet,
    },
    /// `--keep-ssh` was given, and no SSH session is known.
    #[error("`--keep-ssh` finds no SSH session: {cause}")]
    NoSession {
        /// The reason.
        cause: String,
    },
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// The action that failed, with its object.
        action: String,
        /// The error of the system call.
        source: io::Error,
    },
    /// The BPF object or a map is not as expected.
    #[error("cannot {action}: {reason}")]
    Object {
        /// The action that failed, with its object.
        action: String,
        /// The error of the library or the verifier.
        reason: String,
    },
}

/// The words for the process that holds a lock.
fn held_by(holder: Option<&(u32, String)>) -> &str {
    holder.map_or("another limiter command", |(_, words)| words)
}

impl<F: Failure> From<F> for Error {
    fn from(failure: F) -> Self {
        Self::Module(Box::new(failure))
    }
}

/// The result of a command.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Makes the error of a system call: [`Permission`](Self::Permission) for `EPERM` and `EACCES`,
    /// [`Memory`](Self::Memory) for `ENOMEM` and `E2BIG`, otherwise [`System`](Self::System).
    pub fn system(action: impl Into<String>, source: io::Error) -> Self {
        let action = action.into();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Permission { action, source },
            Some(libc::ENOMEM | libc::E2BIG) => Self::Memory { action, source },
            _ => Self::System { action, source },
        }
    }

    /// The exit code: 1 failed, 2 usage, 3 policy invalid, 4 not found, 5 no permission, 6 busy.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Module(failure) => failure.exit_code(),
            Self::Again(cause) => cause.exit_code(),
            Self::SizeRange { .. } | Self::NoFile { .. } | Self::UnitPath { .. } => 2,
            Self::Impossible { .. }
            | Self::ChangeRefused { .. }
            | Self::Shared { .. }
            | Self::OwnSession { .. } => INVALID,
            Self::UnknownInterface { .. }
            | Self::NotAttached { .. }
            | Self::NoInstance { .. }
            | Self::NothingToConfirm
            | Self::NoSession { .. } => 4,
            Self::Permission { .. } => 5,
            Self::ForeignProgram { .. }
            | Self::Busy { .. }
            | Self::OtherAgent { .. }
            | Self::Unconfirmed { .. } => 6,
            _ => 1,
        }
    }

    /// The error of the module that has this type.
    pub fn failure<F: Failure>(&self) -> Option<&F> {
        match self {
            Self::Module(failure) => {
                let any: &dyn Any = &**failure;
                any.downcast_ref()
            }
            Self::Again(cause) => cause.failure(),
            _ => None,
        }
    }

    /// Whether the policy is wrong or does not fit.
    pub fn is_of_policy(&self) -> bool {
        self.exit_code() == INVALID
    }

    /// The remedy, if one is known.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::UnknownInterface { existing, .. } => {
                format!("this network namespace has {existing}")
            }
            Self::NotAttached { attached, .. } => {
                format!("it is attached to {attached}")
            }
            Self::OtherMode { interface, asked, .. } => format!(
                "the kernel changes no mode: `limiter detach {interface}`, then attach it with `--mode {asked}`; \
                 meanwhile its packets pass, and if no other interface is attached, `detach` removes the policy and all state"
            ),
            Self::NoInstance { .. } => "attach first: `limiter attach IFACE`".to_owned(),
            Self::ForeignProgram { interface, program } => format!(
                "see whose it is with `bpftool prog show id {program}`; remove it with its own \
                 tool, with `ip link set dev {interface} xdp off`, or, if `bpftool link` has it, \
                 with `bpftool link detach`; if it is of another limiter instance, give the `--bpffs DIR` of that"
            ),
            Self::Detached { interface, .. } => {
                format!("`limiter attach {interface}` attaches it again, under the same policy")
            }
            Self::NotEthernet { .. } => {
                "attach to the Ethernet interface that carries its packets".to_owned()
            }
            Self::Unsafe { directory } => format!(
                "remove it if it is not yours (`rm -r {}`), and mount the BPF file system with \
                 mode=0700",
                directory.display()
            ),
            Self::Unloaded { cause: Some(cause), .. } | Self::Again(cause) => return cause.remedy(),
            Self::NotReplaced { source, .. } => return source.remedy(),
            Self::Unloaded { .. } => "the agent loads it again within a minute, `limiter attach IFACE --replace` at once; find out which \
                                      other program of the host takes it out of its array of programs"
                .to_owned(),
            Self::Permission { .. } => "run it as root, or with the capabilities CAP_BPF, \
                                        CAP_NET_ADMIN and CAP_PERFMON, and write access to the \
                                        BPF file system"
                .to_owned(),
            Self::Kernel { .. } => "boot Linux 5.13 or later, 5.18 or later for interfaces with jumbo frames; \
                                    Debian 12 and later have it"
                .to_owned(),
            Self::Refused { cause, .. } if cause.raw_os_error() == Some(libc::ENOMEM) => {
                "free some memory, and try again".to_owned()
            }
            Self::Refused { .. } => "boot another kernel (limiter is tested on Linux 6.1, 6.12 and 7.3), or use a \
                                     newer limiter; `limiter doctor` says whether the program loads"
                .to_owned(),
            Self::NoSysfs { .. } => {
                "mount sysfs with `mount -t sysfs sysfs /sys`; in a container, give it /sys".to_owned()
            }
            Self::Mode { .. } => "use `--mode auto`, which takes the best mode of the driver".to_owned(),
            Self::NotBpffs { mount, .. } => format!(
                "mount one with `mount -t bpf bpf {}`, or let `limiter attach --mount-bpffs` do it",
                mount.display()
            ),
            Self::Layout { .. } => {
                "attached interfaces stay limited; to use this version, detach with the version that \
                 attached, or with `limiter detach --all`, then attach again"
                    .to_owned()
            }
            Self::State { path, .. } => format!(
                "it was renamed to {}.unread: restore it from a copy, or set the lists anew",
                path.display()
            ),
            Self::Older { .. } => "attached interfaces stay limited; `limiter attach IFACE` of one of them, or a start of \
                                   the agent, brings the instance to this version with its state"
                .to_owned(),
            Self::Newer { .. } => "attached interfaces stay limited; use the newer version again, or lose its state: \
                                   `limiter detach --all`, then attach again"
                .to_owned(),
            Self::Unkept { .. } => {
                "save them elsewhere with `--state FILE`, and give that to the next `limiter attach` too"
                    .to_owned()
            }
            Self::Unfinished { source } => {
                let again = "`limiter attach IFACE --replace` tries it again, and if that fails too, it removes the old table: what \
                             sources and keys owed there that sent nothing since is forgotten then; until then both \
                             tables take memory. If that cannot be done either, `limiter detach --all` ends both: attach \
                             anew then";
                match source.remedy() {
                    Some(remedy) => format!("{remedy}; {again}"),
                    None => again.to_owned(),
                }
            }
            Self::Undone { .. } => "the table before it is in use, with all its state; where other sizes or another seed were \
                                    asked for, give that `limiter attach` again"
                .to_owned(),
            Self::LetGo { .. } => "the old table was removed: what sources and keys owed there that sent nothing since is \
                                   forgotten"
                .to_owned(),
            Self::Unconfirmed { .. } => {
                "keep it with `limiter policy confirm`, or take it back with `limiter policy revert`, then \
                 give the command again; where blocks were pushed before, `limiter penalty add ADDRESS \
                 --push` bans a source meanwhile"
                    .to_owned()
            }
            Self::NothingToConfirm => "`limiter policy apply FILE --confirm TIME` has one wait, at most so long; `limiter policy show` \
                                       prints the one in force"
                .to_owned(),
            Self::NoSlot => "detach one first".to_owned(),
            Self::OtherAgent { .. } => {
                "stop one of the two, or give it an instance of its own with `--bpffs DIR`".to_owned()
            }
            Self::NoLoader { .. } => "restart the agent (`systemctl restart limiter`); attached interfaces stay limited \
                                      meanwhile"
                .to_owned(),
            Self::ChangeRefused { document, .. } => format!(
                "mend the file; if the change is intended, accept it with `limiter policy apply \
                 --accept-change {document}`, or write the prefixes into the document; where nothing is \
                 attached, `limiter attach IFACE --policy {document}` takes it"
            ),
            Self::Busy { holder: None, .. } => {
                "try again in a moment; `lslocks` tells which process has it".to_owned()
            }
            Self::Busy { holder: Some((process, _)), .. } => format!(
                "`kill -CONT {process}` lets it go on if it was stopped; `kill -KILL {process}` ends it, and \
                 changes nothing that is in force; `limiter monitor on` needs no lock"
            ),
            Self::Memory { .. } => {
                "give smaller --sources, --buckets or --overrides; or free some memory, or raise the limit of the control \
                 group (`limiter doctor` tells both)"
                    .to_owned()
            }
            Self::Module(error) | Self::Impossible { error, .. } => return error.remedy(),
            Self::NoFile { .. } => {
                "give the name of a file, or `-` for the standard output".to_owned()
            }
            Self::UnitPath { .. } => "give the path of a file, of printable characters in UTF-8".to_owned(),
            Self::Shared { .. } => "attach without `--for`; try a policy for a time with `limiter \
                                    policy apply FILE --confirm TIME`"
                .to_owned(),
            Self::OwnSession { .. } => "`--no-keep-ssh` does it all the same".to_owned(),
            Self::NoSession { .. } => "leave out `--keep-ssh`, or pass the variable on, as `sudo \
                                --preserve-env=SSH_CONNECTION` does"
                .to_owned(),
            _ => return None,
        })
    }
}

/// The error of the verifier in words, with its log below.
fn refusal(cause: &io::Error, log: &str) -> String {
    let words = match cause.raw_os_error() {
        Some(libc::E2BIG) => {
            "its verifier gave up, as it takes too many instructions to verify (E2BIG)"
        }
        Some(libc::EACCES) => "its verifier does not accept it (EACCES)",
        Some(libc::EINVAL) => "its verifier does not accept it (EINVAL)",
        Some(libc::ENOMEM) => "it has no memory to verify it (ENOMEM)",
        _ => &cause.to_string(),
    };
    if log.is_empty() { words.to_owned() } else { format!("{words}\n{log}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Error)]
    #[error("it is {0}")]
    struct Broken(u8);

    impl Failure for Broken {
        fn exit_code(&self) -> u8 {
            INVALID
        }

        fn remedy(&self) -> Option<String> {
            Some("mend it".to_owned())
        }
    }

    #[derive(Debug, Error)]
    #[error("plain")]
    struct Plain;

    impl Failure for Plain {}

    #[test]
    fn the_error_of_a_module_keeps_its_words_exit_code_and_remedy() {
        let error = Error::from(Broken(7));
        assert_eq!(error.to_string(), "it is 7");
        assert_eq!((error.exit_code(), error.is_of_policy()), (3, true));
        assert_eq!(error.remedy().unwrap(), "mend it");
        assert!(matches!(error.failure(), Some(Broken(7))));
        assert!(error.failure::<Plain>().is_none());
        let plain = Error::from(Plain);
        assert_eq!((plain.exit_code(), plain.remedy()), (1, None));
    }

    #[test]
    fn this_file_names_no_module() {
        let code = include_str!("error.rs").split("#[cfg(test)]").next().unwrap();
        assert!(!code.contains("crate::"), "every module names this file");
    }
}
