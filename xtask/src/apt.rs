//! Runs apt with a configuration, lists and a cache of its own, for packages that are unpacked instead of
//! installed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{child, step::Step, workspace};

/// The keys that Debian signs its archive with, from the package `debian-archive-keyring`.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// An apt that changes only two folders: its own, which is removed when this is dropped, and the one that
/// packages are unpacked into.
pub(crate) struct Apt {
    folder: PathBuf,
    packages: PathBuf,
}

impl Apt {
    /// An apt with the sources of this machine, which unpacks packages into `packages`.
    pub(crate) fn new(packages: PathBuf) -> Result<Self> {
        for program in ["apt-get", "dpkg-deb"] {
            if workspace::find_program(program).is_none() {
                bail!("what is needed comes in Debian packages, and there is no {program} here");
            }
        }
        let apt = Self { folder: packages.join("apt/here"), packages };
        apt.configure("")?;
        apt.update()?;
        Ok(apt)
    }

    /// Where this machine has packages from: a line for each index, with its origin, kind, place and suite.
    fn targets(&self) -> Result<String> {
        let targets =
            ["indextargets", "--format", "$(ORIGIN) $(CREATED_BY) $(REPO_URI) $(RELEASE)"];
        child::query(&mut self.get(&targets))
            .context("`apt-get indextargets` does not tell where this machine has Debian from")
    }

    /// The mirror that this machine has Debian from.
    pub(crate) fn mirror(&self) -> Result<String> {
        let targets = self.targets()?;
        let mut lines = targets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mirror = lines.find_map(|fields| match fields[..] {
            // Suites with a hyphen, such as those of security updates, are elsewhere.
            ["Debian", "Packages", place, suite] if !suite.contains('-') => Some(place.to_owned()),
            _ => None,
        });
        mirror.context("the sources of apt name no mirror of Debian")
    }

    /// An apt with the sources of another Debian release, from the mirrors that this machine uses.
    pub(crate) fn of_release(release: &str, here: &Self) -> Result<Self> {
        let targets = here.targets()?;
        let packages = here.packages.clone();
        let apt = Self { folder: packages.join("apt").join(release), packages };
        let sources = apt.folder.join("sources.list");
        apt.configure(&format!(
            "Dir::Etc::SourceList \"{}\";\nDir::Etc::SourceParts \"/dev/null\";\n",
            sources.display()
        ))?;
        fs::write(&sources, sources_of(release, &targets))
            .with_context(|| format!("cannot write {}", sources.display()))?;
        apt.update()?;
        Ok(apt)
    }

    /// Builds an `apt-get` command.
    pub(crate) fn get(&self, arguments: &[&str]) -> Command {
        self.command("apt-get", arguments)
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.arg("--config-file").arg(self.folder.join("apt.conf")).args(arguments);
        // `apt-get download` writes to the working directory.
        command.current_dir(self.archives());
        command
    }

    fn archives(&self) -> PathBuf {
        self.folder.join("archives")
    }

    fn configure(&self, more: &str) -> Result<()> {
        for part in ["lists/partial", "archives/partial"] {
            make(&self.folder.join(part))?;
        }
        let folder = self.folder.display();
        // Without the locks of the system, because nothing of it is changed; without apt's own user, who may
        // not write here; and without hooks that run after an update of the lists of the system.
        let text = format!(
            "Dir::State::Lists \"{folder}/lists\";\nDir::Cache \"{folder}\";\n\
             Dir::Cache::Archives \"{folder}/archives\";\nDebug::NoLocking \"true\";\n\
             APT::Sandbox::User \"root\";\n#clear APT::Update::Post-Invoke;\n\
             #clear APT::Update::Post-Invoke-Success;\n{more}"
        );
        let file = self.folder.join("apt.conf");
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    fn update(&self) -> Result<()> {
        Step::new("apt-get update", "package lists below the target folder; those here stay")
            .run(&mut self.get(&["update"]), "check the network and apt's sources")
    }

    /// The names of the packages with this prefix, one per line.
    pub(crate) fn names(&self, prefix: &str) -> Result<String> {
        child::query(&mut self.command("apt-cache", &["pkgnames", prefix]))
            .context("`apt-cache pkgnames` does not tell the names of packages")
    }

    /// Runs `fetch`, which downloads packages into the folder of apt, and unpacks them into the folder
    /// `name`.
    pub(crate) fn unpack(&self, fetch: &mut Command, name: &str, why: &'static str) -> Result<()> {
        Step::new(name, why).run(fetch, "check the network and the room on the disk")?;
        let [partial, whole] =
            [format!("{name}.partial"), name.to_owned()].map(|name| self.packages.join(name));
        remove(&partial)?;
        make(&partial)?;
        let list = || format!("cannot list {}", self.archives().display());
        for file in fs::read_dir(self.archives()).with_context(list)? {
            let file = file.with_context(list)?.path();
            if file.extension().is_some_and(|extension| extension == "deb") {
                let mut unpack = Command::new("dpkg-deb");
                child::run(unpack.arg("--extract").arg(&file).arg(&partial))?;
                fs::remove_file(&file)
                    .with_context(|| format!("cannot remove {}", file.display()))?;
            }
        }
        fs::rename(&partial, &whole)
            .with_context(|| format!("cannot name what was unpacked {}", whole.display()))
    }
}

impl Drop for Apt {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The sources.list of a Debian release, with the mirrors in these index targets.
fn sources_of(release: &str, targets: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for target in targets.lines() {
        let fields: Vec<&str> = target.split_whitespace().collect();
        let ["Debian", "Packages", place, suite] = fields[..] else { continue };
        let suite = match suite.split_once('-') {
            None => release.to_owned(),
            // The security updates of backports are in the same suite as the backports.
            Some((_, "security")) if !release.contains('-') => format!("{release}-security"),
            Some(_) => continue,
        };
        lines.push(format!("deb [signed-by={KEYRING}] {place} {suite} main\n"));
    }
    lines.sort();
    lines.dedup();
    lines.concat()
}

fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_release_is_looked_for_where_this_one_came_from() {
        let targets = "Debian Packages http://a.example/debian/ bookworm\n\
                       Debian Packages http://a.example/debian/ bookworm\n\
                       Debian Translations http://a.example/debian/ bookworm\n\
                       Debian Packages http://a.example/debian/ bookworm-updates\n\
                       Debian Packages http://b.example/security/ bookworm-security\n\
                       Other Packages http://c.example/ bookworm\n";
        assert_eq!(
            sources_of("old", targets),
            format!(
                "deb [signed-by={KEYRING}] http://a.example/debian/ old main\n\
                 deb [signed-by={KEYRING}] http://b.example/security/ old-security main\n"
            )
        );
        assert_eq!(
            sources_of("new-backports", targets),
            format!("deb [signed-by={KEYRING}] http://a.example/debian/ new-backports main\n")
        );
    }
}
