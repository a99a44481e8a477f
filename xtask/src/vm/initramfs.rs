//! The initial file system of a guest: the programs, the libraries they need, and busybox.

use std::{
    fs,
    io::{self, Write as _},
    os::{fd::FromRawFd as _, unix::fs::PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

use super::archive;
use crate::child;

/// The init program.
const INIT: &str = include_str!("init.sh");

/// A folder that becomes the file system of a guest.
pub(super) struct Initramfs {
    root: PathBuf,
}

impl Initramfs {
    /// Makes the folder with busybox, the init program, and the commands that it runs.
    pub(super) fn new(root: PathBuf, commands: &str) -> Result<Self> {
        let initramfs = Self { root };
        // A run that was killed may have left the folder.
        let _ = fs::remove_dir_all(&initramfs.root);
        for folder in ["bin", "dev", "proc", "sys", "tmp"] {
            let folder = initramfs.root.join(folder);
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        initramfs.copy(&archive::busybox(), Path::new("/bin/busybox"))?;
        initramfs.write("init", INIT)?;
        initramfs.write("run-tests", commands)?;
        Ok(initramfs)
    }

    /// Adds a program, with its libraries at the paths where it looks for them.
    pub(super) fn add_program(&self, program: &Path, name: &str) -> Result<()> {
        self.copy(program, &Path::new("/bin").join(name))?;
        let listing = child::query(Command::new("ldd").arg(program))
            .with_context(|| format!("`ldd {}` does not tell its libraries", program.display()))?;
        for library in libraries(&listing) {
            if library == "not" {
                bail!("{} needs a library that is not here:\n{listing}", program.display());
            }
            self.copy(Path::new(library), Path::new(library))?;
        }
        Ok(())
    }

    /// Packs the folder into a cpio archive, in a file in memory without a name. The folder is removed.
    pub(super) fn pack(self) -> Result<fs::File> {
        let mut names = Vec::new();
        list(&self.root, Path::new("."), &mut names)?;
        let archive = memory_file().context("cannot make a file in memory")?;
        let out = archive.try_clone().context("cannot share a file in memory")?;
        let mut pack = Command::new(archive::busybox());
        pack.args(["cpio", "-o", "-H", "newc", "-R", "0:0"]).current_dir(&self.root);
        let shown = child::show(&pack);
        let mut child = pack
            .stdin(Stdio::piped())
            .stdout(out)
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run `{shown}`"))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin
                .write_all(names.join("\n").as_bytes())
                .with_context(|| format!("cannot write to `{shown}`"))?;
        }
        let status = child.wait().with_context(|| format!("cannot wait for `{shown}`"))?;
        if !status.success() {
            bail!("`{shown}` failed ({status}): is there too little memory?");
        }
        Ok(archive)
    }

    fn copy(&self, from: &Path, to: &Path) -> Result<()> {
        let to = self.root.join(to.strip_prefix("/").unwrap_or(to));
        let copy = || {
            fs::create_dir_all(to.parent().unwrap_or(&self.root))?;
            fs::copy(from, &to)
        };
        copy()
            .map(drop)
            .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let file = self.root.join(name);
        let write = || {
            fs::write(&file, text)?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755))
        };
        write().with_context(|| format!("cannot write {}", file.display()))
    }
}

impl Drop for Initramfs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn memory_file() -> io::Result<fs::File> {
    // SAFETY: a C string.
    let descriptor = unsafe { libc::memfd_create(c"initramfs".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call gave a new descriptor to us alone.
    Ok(unsafe { fs::File::from_raw_fd(descriptor) })
}

/// The files that `ldd` lists; the word `not` stands for a missing one.
fn libraries(listing: &str) -> impl Iterator<Item = &str> {
    listing.lines().filter_map(|line| {
        // A line is `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` for the dynamic loader. The vDSO, which the
        // kernel provides, has no path.
        let place = line.split_once("=>").map_or(line, |(_, place)| place);
        let word = place.split_whitespace().next()?;
        (word.starts_with('/') || word == "not").then_some(word)
    })
}

/// Collects the names of everything below `root`, each folder before its content.
fn list(root: &Path, folder: &Path, names: &mut Vec<String>) -> Result<()> {
    let place = root.join(folder);
    let cannot = || format!("cannot list {}", place.display());
    names.push(folder.display().to_string());
    for entry in fs::read_dir(&place).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let name = folder.join(entry.file_name());
        if entry.file_type().with_context(cannot)?.is_dir() {
            list(root, &name, names)?;
        } else {
            names.push(name.display().to_string());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_what_ldd_says() {
        let listing = "\tlinux-vdso.so.1 (0x00007f78364c6000)\n\
                       \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f7835a1e000)\n\
                       \tlibx.so => not found\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007f78364c8000)\n";
        assert_eq!(
            libraries(listing).collect::<Vec<_>>(),
            ["/lib/x86_64-linux-gnu/libc.so.6", "not", "/lib64/ld-linux-x86-64.so.2"]
        );
        assert_eq!(libraries("\tstatically linked\n").count(), 0);
    }
}
