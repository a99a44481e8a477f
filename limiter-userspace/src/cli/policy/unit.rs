//! The unit of systemd that attaches an interface when it appears.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::datapath::bpffs::{self, Pins};

/// Where units of the operator are.
const UNIT: &str = "/etc/systemd/system/limiter@.service";

/// What the unit runs.
pub(super) struct Unit {
    binary: PathBuf,
    policy: PathBuf,
    /// The directory of the instance, if it is not the usual one.
    bpffs: Option<PathBuf>,
}

impl Unit {
    /// With this command and this document.
    pub(super) fn new(policy: &Path, pins: &Pins) -> Self {
        let binary = std::env::current_exe().unwrap_or_else(|_| "/usr/sbin/limiter".into());
        let directory = pins.directory();
        let bpffs = (directory != Path::new(bpffs::DEFAULT)).then(|| directory.to_path_buf());
        Self { binary, policy: policy.to_path_buf(), bpffs }
    }

    /// The commands that put it in place.
    pub(super) fn how_to_install(&self) -> String {
        let option = self
            .bpffs
            .as_ref()
            .map_or_else(String::new, |directory| format!(" --bpffs {}", directory.display()));
        let file = if self.policy == Path::new(super::save::DEFAULT) {
            String::new()
        } else {
            format!(" {}", self.policy.display())
        };
        format!(
            "  limiter{option} policy save{file} --systemd > {UNIT}\n  systemctl enable limiter@eth0\n"
        )
    }

    /// The beginning of each line that runs the command.
    fn command(&self) -> String {
        let mut command = word(&self.binary);
        if let Some(directory) = &self.bpffs {
            command = format!("{command} --bpffs {}", word(directory));
        }
        command
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (command, policy) = (self.command(), word(&self.policy));
        write!(
            f,
            "\
# {UNIT}
# systemctl enable --now limiter@eth0
# An interface with a dash in its name: limiter@$(systemd-escape br-lan)
[Unit]
Description=Rate limiter on %I
BindsTo=sys-subsystem-net-devices-%i.device
After=sys-subsystem-net-devices-%i.device
Before=network.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={command} attach %I --policy {policy}
ExecReload={command} policy apply {policy}
ExecStop=-{command} detach %I

[Install]
WantedBy=sys-subsystem-net-devices-%i.device
"
        )
    }
}

/// A path as a word of a command in a unit.
fn word(path: &Path) -> String {
    let mut text = String::new();
    for character in path.display().to_string().chars() {
        match character {
            '%' | '$' => text.extend([character, character]),
            '"' | '\\' => text.extend(['\\', character]),
            character => text.push(character),
        }
    }
    let plain =
        |character: char| character.is_ascii_alphanumeric() || "/._-@%$+:,=".contains(character);
    if text.chars().all(plain) { text } else { format!("\"{text}\"") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(bpffs: Option<&str>) -> Unit {
        Unit {
            binary: "/usr/sbin/limiter".into(),
            policy: "/etc/limiter/policy.yaml".into(),
            bpffs: bpffs.map(Into::into),
        }
    }

    #[test]
    fn it_attaches_the_interface_that_it_is_named_for() {
        let text = unit(None).to_string();
        for line in [
            "BindsTo=sys-subsystem-net-devices-%i.device",
            "ExecStart=/usr/sbin/limiter attach %I --policy /etc/limiter/policy.yaml",
            "ExecReload=/usr/sbin/limiter policy apply /etc/limiter/policy.yaml",
            "ExecStop=-/usr/sbin/limiter detach %I",
            "RemainAfterExit=yes",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
        let text = unit(Some("/sys/fs/bpf/other")).to_string();
        let line = "ExecStart=/usr/sbin/limiter --bpffs /sys/fs/bpf/other attach %I --policy \
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
            assert_eq!(word(Path::new(path)), expected);
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
    }
}
