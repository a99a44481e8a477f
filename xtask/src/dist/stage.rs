//! Collects the files of an installation.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use super::files;
use crate::{child, workspace};

/// Files that are copied: their paths in the workspace and in the installation.
const PLAIN: [(&str, &str); 23] = [
    ("packaging/limiter.service", "usr/lib/systemd/system/limiter.service"),
    ("packaging/limiter-bridge.service", "usr/lib/systemd/system/limiter-bridge.service"),
    ("packaging/limiter.sysusers", "usr/lib/sysusers.d/limiter.conf"),
    ("packaging/limiter.default", "etc/default/limiter"),
    ("packaging/policy.yaml", "etc/limiter/policy.yaml"),
    ("packaging/examples", "usr/share/doc/limiter/examples"),
    ("packaging/crowdsec.sh", "usr/share/doc/limiter/crowdsec.sh"),
    ("packaging/fail2ban.conf", "usr/share/doc/limiter/fail2ban.conf"),
    ("packaging/fail2ban-push.conf", "usr/share/doc/limiter/fail2ban-push.conf"),
    ("docs/algorithms.md", "usr/share/doc/limiter/algorithms.md"),
    ("docs/guarantees.md", "usr/share/doc/limiter/guarantees.md"),
    ("docs/json.md", "usr/share/doc/limiter/json.md"),
    ("docs/l7.md", "usr/share/doc/limiter/l7.md"),
    ("docs/lists.md", "usr/share/doc/limiter/lists.md"),
    ("docs/metrics.md", "usr/share/doc/limiter/metrics.md"),
    ("docs/operate.md", "usr/share/doc/limiter/operate.md"),
    ("docs/policy.md", "usr/share/doc/limiter/policy.md"),
    ("docs/sizing.md", "usr/share/doc/limiter/sizing.md"),
    ("docs/troubleshooting.md", "usr/share/doc/limiter/troubleshooting.md"),
    ("CHANGELOG.md", "usr/share/doc/limiter/CHANGELOG.md"),
    ("docs/runbooks", "usr/share/doc/limiter/runbooks"),
    ("LICENSE-MIT", "usr/share/doc/limiter/LICENSE-MIT"),
    ("LICENSE-APACHE", "usr/share/doc/limiter/LICENSE-APACHE"),
];

/// The files for Prometheus and Grafana, if the workspace has them.
const MONITORING: (&str, &str) = ("monitoring", "usr/share/limiter/monitoring");

/// Files that the command prints: its arguments, and the path in the installation.
const PRINTED: [(&[&str], &str); 4] = [
    (&["completion", "bash"], "usr/share/bash-completion/completions/limiter"),
    (&["completion", "zsh"], "usr/share/zsh/vendor-completions/_limiter"),
    (&["completion", "fish"], "usr/share/fish/vendor_completions.d/limiter.fish"),
    (&["policy", "schema"], "usr/share/limiter/policy.schema.json"),
];

/// A folder with all files of an installation.
pub(super) struct Stage {
    root: PathBuf,
}

impl Stage {
    /// Empties `root` and copies all files into it.
    pub(super) fn make(root: &Path, binary: &Path) -> Result<Self> {
        if root.exists() {
            fs::remove_dir_all(root).with_context(|| format!("cannot empty {}", root.display()))?;
        }
        let stage = Self { root: root.to_owned() };
        stage.copy(binary, "usr/sbin/limiter", 0o755)?;
        child::run(Command::new("strip").arg(stage.root.join("usr/sbin/limiter")))?;
        let has_monitoring = workspace::root().join(MONITORING.0).is_dir();
        for (from, to) in PLAIN.into_iter().chain(has_monitoring.then_some(MONITORING)) {
            let from = workspace::root().join(from);
            if from.is_dir() {
                for file in files(&from)? {
                    stage.copy(&from.join(&file), Path::new(to).join(&file), 0o644)?;
                }
            } else {
                stage.copy(&from, to, 0o644)?;
            }
        }
        for (arguments, to) in PRINTED {
            let output = Command::new(binary).args(arguments).output();
            let output = output.with_context(|| format!("cannot run {}", binary.display()))?;
            ensure!(output.status.success(), "limiter {} failed", arguments.join(" "));
            stage.write(to, &output.stdout, 0o644)?;
        }
        stage.write_pages(binary)?;
        Ok(stage)
    }

    pub(super) fn remove(self) -> Result<()> {
        let Self { root } = self;
        fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Writes the manual pages, compressed as in Debian.
    fn write_pages(&self, binary: &Path) -> Result<()> {
        let pages = self.root.join("pages");
        child::run(Command::new(binary).arg("man").arg(&pages))?;
        for page in files(&pages)? {
            let section = page.extension().context("a manual page without a section")?;
            let folder = format!("usr/share/man/man{}", section.to_string_lossy());
            let to = Path::new(&folder).join(&page);
            self.copy(&pages.join(&page), &to, 0o644)?;
            child::run(Command::new("gzip").args(["-9n"]).arg(self.root.join(&to)))?;
        }
        fs::remove_dir_all(&pages).with_context(|| format!("cannot remove {}", pages.display()))
    }

    fn copy(&self, from: &Path, to: impl AsRef<Path>, mode: u32) -> Result<()> {
        let content = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.write(to, &content, mode)
    }

    /// Writes a file and the folders above it.
    pub(super) fn write(&self, to: impl AsRef<Path>, content: &[u8], mode: u32) -> Result<()> {
        let path = self.root.join(to);
        let failed = || format!("cannot write {}", path.display());
        let mut folder = path.parent().context("a file without a folder")?;
        fs::create_dir_all(folder).with_context(failed)?;
        // The modes do not depend on the umask of the user.
        while folder.starts_with(&self.root) {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).with_context(failed)?;
            folder = folder.parent().unwrap_or_else(|| Path::new("/"));
        }
        fs::write(&path, content).with_context(failed)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).with_context(failed)
    }
}
