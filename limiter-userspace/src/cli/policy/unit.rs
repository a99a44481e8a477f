//! The systemd unit that attaches an interface when it appears.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::{
    datapath::{
        bpffs::{self, Pins},
        instance::attached,
        maps::Maps,
        mode::Mode,
        sizes::Sizes,
    },
    error::{Error, Result},
    policy::units::quoted,
};

/// The path of the policy that is applied when the machine starts.
pub(super) const POLICY: &str = "/etc/limiter/policy.yaml";
/// The path of a unit of the operator.
const UNIT: &str = "/etc/systemd/system/limiter@.service";
/// The kernel appends this to the path of a running program whose file was replaced.
const REPLACED: &str = " (deleted)";

/// The commands of the unit.
pub(super) struct Unit {
    binary: String,
    policy: String,
    /// The directory of the instance, unless it is the default.
    bpffs: Option<String>,
    /// Options of `limiter attach`, each with a space before it.
    options: String,
}

impl Unit {
    /// Makes the unit for this binary and the document at `policy`.
    ///
    /// # Errors
    /// [`Error::UnitPath`], if a path cannot be in a unit.
    pub(super) fn new(policy: &Path, pins: &Pins, options: String) -> Result<Self> {
        let directory = pins.directory();
        let usual = directory == Path::new(bpffs::DEFAULT);
        Ok(Self {
            binary: text(&binary())?,
            policy: text(policy)?,
            bpffs: if usual { None } else { Some(text(directory)?) },
            options,
        })
    }

    /// The commands that install the unit.
    pub(super) fn how_to_install(&self) -> String {
        let option = self
            .bpffs
            .as_ref()
            .map_or_else(String::new, |directory| format!(" --bpffs {}", shell_word(directory)));
        let file = if self.policy == POLICY {
            String::new()
        } else {
            format!(" {}", shell_word(&self.policy))
        };
        format!(
            "  limiter{option} policy save{file} --systemd > {UNIT}\n  systemctl enable limiter@eth0\n"
        )
    }

    /// The first words of each command: the binary and the instance.
    fn command(&self) -> String {
        let mut command = word(&self.binary);
        if let Some(directory) = &self.bpffs {
            command = format!("{command} --bpffs {}", word(directory));
        }
        command
    }
}

/// The options of `limiter attach` that make an instance like this one: the sizes that are not the
/// default, and generic mode if all interfaces are in it.
pub(super) fn attach_options(pins: &Pins, maps: &Maps) -> Result<String> {
    let attached = attached(pins, maps)?;
    let generic =
        !attached.is_empty() && attached.iter().all(|attached| attached.mode == Mode::Generic);
    Ok(options(generic, &maps.sizes()?))
}

fn options(generic: bool, sizes: &Sizes) -> String {
    let mut options = String::new();
    if generic {
        options.push_str(" --mode generic");
    }
    let sources = Sizes::default().sources;
    let usual = Sizes { sources, ..Sizes::for_sources(sizes.sources) };
    for ((option, size), usual) in sizes.by_option().into_iter().zip(usual.by_option()) {
        if size != usual.1 {
            options.push_str(&format!(" {option} {size}"));
        }
    }
    options
}

/// The path of this binary, which may have been replaced since it was started.
fn binary() -> PathBuf {
    let path = std::env::current_exe().unwrap_or_else(|_| "/usr/sbin/limiter".into());
    let named = path.to_str().and_then(|path| path.strip_suffix(REPLACED));
    match named {
        Some(named) if !path.exists() => named.into(),
        _ => path,
    }
}

/// Returns a path as text, unless a line of a unit cannot have it.
fn text(path: &Path) -> Result<String> {
    let fault = |fault| Error::UnitPath { path: quoted(&path.display().to_string()), fault };
    let text = path.to_str().ok_or_else(|| fault("it is not in UTF-8"))?;
    // A line break would start another line of the unit.
    if text.chars().any(char::is_control) {
        return Err(fault("it has control characters"));
    }
    Ok(text.to_owned())
}

/// Quotes a text as a word of a shell.
fn shell_word(text: &str) -> String {
    let plain =
        |character: char| character.is_ascii_alphanumeric() || "/._-@%+:,=".contains(character);
    if text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (command, policy, options) = (self.command(), word(&self.policy), &self.options);
        write!(
            f,
            "\
# {UNIT}
# systemctl enable --now limiter@eth0
# It needs no process to go on. In its place, limiter.service of the package may see to the same.
# An interface with a dash in its name: limiter@$(systemd-escape br-lan)
[Unit]
Description=Rate limiter on %I
BindsTo=sys-subsystem-net-devices-%i.device
After=sys-subsystem-net-devices-%i.device
Before=network.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={command} attach %I{options} --policy-if-new {policy}
ExecReload={command} policy apply {policy}
ExecStop=-{command} detach %I

[Install]
WantedBy=sys-subsystem-net-devices-%i.device
"
        )
    }
}

/// Quotes a path as a word of a command in a unit.
fn word(path: &str) -> String {
    let mut word = String::new();
    for character in path.chars() {
        match character {
            '%' | '$' => word.extend([character, character]),
            '"' | '\\' => word.extend(['\\', character]),
            character => word.push(character),
        }
    }
    let plain =
        |character: char| character.is_ascii_alphanumeric() || "/._-@%$+:,=".contains(character);
    if word.chars().all(plain) { word } else { format!("\"{word}\"") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(bpffs: Option<&str>) -> Unit {
        Unit {
            binary: "/usr/sbin/limiter".into(),
            policy: "/etc/limiter/policy.yaml".into(),
            bpffs: bpffs.map(Into::into),
            options: String::new(),
        }
    }

    #[test]
    fn it_attaches_the_interface_that_it_is_named_for() {
        let text = unit(None).to_string();
        for line in [
            "BindsTo=sys-subsystem-net-devices-%i.device",
            "ExecStart=/usr/sbin/limiter attach %I --policy-if-new /etc/limiter/policy.yaml",
            "ExecReload=/usr/sbin/limiter policy apply /etc/limiter/policy.yaml",
            "ExecStop=-/usr/sbin/limiter detach %I",
            "RemainAfterExit=yes",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
        let text = unit(Some("/sys/fs/bpf/other")).to_string();
        let line = "ExecStart=/usr/sbin/limiter --bpffs /sys/fs/bpf/other attach %I --policy-if-new \
                    /etc/limiter/policy.yaml";
        assert!(text.lines().any(|found| found == line), "{text}");
    }

    #[test]
    fn paths_are_words_of_systemd() {
        for (path, expected) in [
            ("/etc/limiter/policy.yaml", "/etc/limiter/policy.yaml"),
            ("/srv/a b/%h $x", r#""/srv/a b/%%h $$x""#),
            (r#"/srv/"\"#, r#""/srv/\"\\""#),
        ] {
            assert_eq!(word(path), expected);
        }
    }

    #[test]
    fn how_to_install_it_is_told_in_two_commands() {
        let install = |bpffs| unit(bpffs).how_to_install();
        assert_eq!(
            install(None),
            "  limiter policy save --systemd > /etc/systemd/system/limiter@.service\n  systemctl \
             enable limiter@eth0\n"
        );
        assert!(install(Some("/x")).starts_with("  limiter --bpffs /x policy save --systemd > "));
        let other = Unit { policy: "/srv/policy.yaml".into(), ..unit(None) };
        let text = other.how_to_install();
        assert!(text.starts_with("  limiter policy save /srv/policy.yaml --systemd > "), "{text}");
        let odd = Unit { policy: "/srv/a b/it's; $x".into(), ..unit(None) };
        let text = odd.how_to_install();
        let quoted = r"  limiter policy save '/srv/a b/it'\''s; $x' --systemd > ";
        assert!(text.starts_with(quoted), "{text}");
    }

    #[test]
    fn sizes_and_the_mode_are_those_of_the_instance() {
        assert_eq!(options(false, &Sizes::default()), "");
        let sizes = Sizes { buckets: 200_000, ..Sizes::for_sources(400_000) };
        assert_eq!(options(true, &sizes), " --mode generic --sources 400000 --buckets 200000");
        let sizes = Sizes { wide_states: 1, overrides: 2, ..Sizes::default() };
        let text = Unit { options: options(false, &sizes), ..unit(None) }.to_string();
        let line =
            "attach %I --wide-states 1 --overrides 2 --policy-if-new /etc/limiter/policy.yaml";
        assert!(text.lines().any(|found| found.ends_with(line)), "{text}");
    }

    #[test]
    fn a_path_that_would_be_more_than_a_word_is_refused() {
        for path in ["/srv/a\nExecStart=/bin/false", "/srv/\u{1b}[2J", "/srv/\u{85}"] {
            let error = text(Path::new(path)).unwrap_err();
            assert!(error.to_string().contains("control characters"), "{error}");
            assert!(!error.to_string().contains(char::is_control), "{error}");
        }
        let bytes = std::os::unix::ffi::OsStrExt::from_bytes(b"/srv/\xff");
        assert!(text(Path::new::<std::ffi::OsStr>(bytes)).is_err());
        assert_eq!(text(Path::new("/srv/é b")).unwrap(), "/srv/é b");
    }
}
