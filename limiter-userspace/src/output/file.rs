//! Files that are replaced as a whole.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
    process,
};

use crate::error::{Error, Result};

/// Links that are followed before they are called a circle, as the kernel does.
const LINKS: usize = 40;

/// Writes a file so that at any time, also after a crash, there is either what was there before or all of
/// the new: into a new file beside it, which then takes its name. It is for those who could read what was
/// there, such as a service; if nothing was, for its owner alone.
///
/// Where the name is a link, the file that it leads to is replaced, or made. Folders that are missing
/// are made. What is no file, such as a device, is not replaced by one.
///
/// # Errors
/// [`Error::NoFile`], or what the system says; what was there before is untouched then.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let failed = |error| Error::system(format!("write {}", path.display()), error);
    // By the name that was given: what `/dev/stdout` leads to has no name of its own.
    match fs::metadata(path) {
        Ok(there) if !there.is_file() && !there.is_dir() => {
            return Err(Error::NoFile { path: path.to_path_buf() });
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let path = target(path).map_err(failed)?;
    let before = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file);
    replace_at(&path, content, |file| match &before {
        Some(before) => {
            // Who is not in the group cannot give the file to it, and then the group is not to read it.
            let is_given = fchown(file, None, Some(before.gid())).is_ok();
            let read = if is_given { 0o644 } else { 0o604 };
            file.set_permissions(fs::Permissions::from_mode(before.mode() & read | 0o600))
        }
        None => Ok(()),
    })
}

/// The same, but a link is replaced by the file, which is for the owner of its folder alone: where that is
/// not this user, as of a service, they could lead to any file.
///
/// # Errors
/// What the system says; what was there before is untouched then.
pub fn replace_in_place(path: &Path, content: &[u8]) -> Result<()> {
    replace_at(path, content, |file| {
        let folder = fs::metadata(path.parent().unwrap_or(Path::new(".")))?;
        let own = file.metadata()?;
        if (folder.uid(), folder.gid()) == (own.uid(), own.gid()) {
            return Ok(());
        }
        // By the descriptor: by its name, it could be another file by now.
        fchown(file, Some(folder.uid()), Some(folder.gid()))
    })
}

/// Writes a new file beside a path, has its owner and rights set, and gives it the name.
fn replace_at(
    path: &Path,
    content: &[u8],
    set_rights: impl FnOnce(&File) -> io::Result<()>,
) -> Result<()> {
    let failed = |error| Error::system(format!("write {}", path.display()), error);
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::IsADirectory.into()))?;
    fs::create_dir_all(folder).map_err(failed)?;
    if path.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    let mut new = name.to_owned();
    new.push(format!(".{}.new", process::id()));
    let new: PathBuf = folder.join(new);
    let written = write(&new, content, set_rights)
        .and_then(|()| fs::rename(&new, path))
        .and_then(|()| File::open(folder)?.sync_all());
    written.map_err(|error| {
        let _: io::Result<()> = fs::remove_file(&new);
        failed(error)
    })
}

/// The file that a name leads to, which need not be there. A link counts if it is this user's or of
/// the owner of its folder: in one that all may write to, anybody could lead to any file.
fn target(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS {
        let link = match fs::symlink_metadata(&path) {
            Ok(there) if there.is_symlink() => there,
            _ => return Ok(path),
        };
        let to = fs::read_link(&path)?;
        path.pop();
        let folder = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
        // SAFETY: it has no precondition.
        let user = unsafe { libc::geteuid() };
        if ![user, fs::metadata(folder)?.uid()].contains(&link.uid()) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it is a link that somebody else made",
            ));
        }
        path.push(to);
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

fn write(
    path: &Path,
    content: &[u8],
    set_rights: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    // What a command of the same number left that was ended in the middle.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    set_rights(&file)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, symlink},
        net::UnixListener,
    };

    use super::*;

    /// A folder of a test, empty.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("limiter-{name}-{}", process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let mut names: Vec<_> =
                entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let folder = Folder::new("replaced");
        let path = folder.0.join("policy.yaml");
        replace(&path, b"first, which is longer").unwrap();
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        for (before, after) in [(0o640, 0o640), (0o777, 0o644), (0o400, 0o600)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
            replace(&path, b"second").unwrap();
            assert_eq!(mode(), after);
        }
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(folder.names(), ["policy.yaml"]);
    }

    #[test]
    fn whoever_reads_it_meanwhile_keeps_what_was_there() {
        let folder = Folder::new("read");
        let path = folder.0.join("policy.yaml");
        replace(&path, b"first").unwrap();
        let mut open = File::open(&path).unwrap();
        replace(&path, b"second").unwrap();
        let mut text = String::new();
        io::Read::read_to_string(&mut open, &mut text).unwrap();
        assert_eq!(text, "first");
    }

    #[test]
    fn a_link_stays_one_and_missing_folders_are_made() {
        let folder = Folder::new("linked");
        let (real, link) = (folder.0.join("deep/er/policy.yaml"), folder.0.join("link.yaml"));
        replace(&real, b"first").unwrap();
        symlink(&real, &link).unwrap();
        replace(&link, b"second").unwrap();
        assert_eq!(fs::read(&real).unwrap(), b"second");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_link_to_nothing_yet_stays_one() {
        let folder = Folder::new("dangling");
        let (link, more) = (folder.0.join("link.yaml"), folder.0.join("more.yaml"));
        symlink("deep/policy.yaml", &link).unwrap();
        symlink("link.yaml", &more).unwrap();
        replace(&more, b"text").unwrap();
        assert_eq!(fs::read(folder.0.join("deep/policy.yaml")).unwrap(), b"text");
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("deep/policy.yaml"));
        assert_eq!(folder.names(), ["deep", "link.yaml", "more.yaml"]);
        let (one, other) = (folder.0.join("one"), folder.0.join("other"));
        symlink("other", &one).unwrap();
        symlink("one", &other).unwrap();
        assert!(replace(&one, b"text").is_err());
        assert_eq!(fs::read_link(&one).unwrap(), Path::new("other"));
    }

    #[test]
    fn what_is_no_file_is_not_replaced_by_one() {
        let folder = Folder::new("device");
        let path = |name: &str| folder.0.join(name);
        // Not one of the machine's own, which would be gone if this test ever failed.
        let socket = UnixListener::bind(path("socket")).unwrap();
        symlink("socket", path("link")).unwrap();
        let names = folder.names();
        for name in names.iter().map(|name| path(name)) {
            let before = fs::symlink_metadata(&name).unwrap();
            let error = replace(&name, b"text").unwrap_err();
            assert!(error.to_string().contains("is no regular file"), "{error}");
            assert!(error.remedy().unwrap().contains("`-`"), "{error}");
            let after = fs::symlink_metadata(&name).unwrap();
            assert_eq!((after.file_type(), after.ino()), (before.file_type(), before.ino()));
        }
        assert_eq!(folder.names(), names);
        drop(socket);
    }

    #[test]
    fn what_cannot_be_written_is_told_and_leaves_nothing() {
        let folder = Folder::new("refused");
        fs::create_dir(folder.0.join("policy.yaml")).unwrap();
        let error = replace(&folder.0.join("policy.yaml"), b"text").unwrap_err().to_string();
        assert!(error.contains("policy.yaml: is a directory"), "{error}");
        let below = folder.0.join("policy.yaml/..");
        assert!(replace(&below, b"text").is_err());
        assert_eq!(folder.names(), ["policy.yaml"]);
        let error = replace(Path::new("/proc/nowhere/policy.yaml"), b"").unwrap_err().to_string();
        assert!(error.starts_with("cannot write /proc/nowhere/policy.yaml"), "{error}");
    }
}
