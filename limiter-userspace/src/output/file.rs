//! Replacing files as a whole.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown},
    },
    path::{Path, PathBuf},
    process,
};

use crate::error::{Error, Result};

/// The most links that are followed, as in the kernel.
const LINKS: usize = 40;

/// Replaces a file atomically: at any time, also after a crash, it has either the old or the new
/// content. The content is written to a new file beside it, which is then renamed.
///
/// The new file keeps the group and the read permissions of the old one, for a service that reads
/// it. Without an old file, only the owner can read it. If the path is a link, the file that it
/// points to is replaced or made. Missing folders are made.
///
/// # Errors
/// - [`Error::NoFile`], if the path is neither a file nor a folder, such as a device.
/// - The error of the system call that failed. The old file is then unchanged.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let failed = |error| Error::system(format!("write {}", path.display()), error);
    // The path as given is checked: the target of `/dev/stdout` may have no path of its own.
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
            // If the user is not in the old group, the new file has another group, which must not
            // read it.
            let is_given = fchown(file, None, Some(before.gid())).is_ok();
            let read = if is_given { 0o644 } else { 0o604 };
            file.set_permissions(fs::Permissions::from_mode(before.mode() & read | 0o600))
        }
        None => Ok(()),
    })
}

/// Like [`replace`], but a link is itself replaced by the file. The new file belongs to the owner
/// of the folder alone. If that is another user, such as a service's, links in the folder could
/// point to any file.
///
/// # Errors
/// The error of the system call that failed. The old file is then unchanged.
pub fn replace_in_place(path: &Path, content: &[u8]) -> Result<()> {
    replace_at(path, content, |file| {
        let folder = fs::metadata(folder_of(path))?;
        let own = file.metadata()?;
        if (folder.uid(), folder.gid()) == (own.uid(), own.gid()) {
            return Ok(());
        }
        // Through the descriptor, as the name could be another file by now.
        fchown(file, Some(folder.uid()), Some(folder.gid()))
    })
}

/// Like [`replace_in_place`], but the new file is this user's alone, whoever owns the folder.
///
/// # Errors
/// The error of the system call that failed. The old file is then unchanged.
pub fn replace_private(path: &Path, content: &[u8]) -> Result<()> {
    replace_at(path, content, |_| Ok(()))
}

/// Removes the new files that writers of this path left who were killed. Nobody else may be writing it.
pub fn remove_left_beside(path: &Path) {
    let (Some(name), Ok(files)) = (path.file_name(), fs::read_dir(folder_of(path))) else { return };
    let is_left = |file: &OsStr| {
        let rest = file.as_bytes().strip_prefix(name.as_bytes());
        let process = rest.and_then(|rest| rest.strip_prefix(b".")?.strip_suffix(b".new"));
        process.is_some_and(|it| !it.is_empty() && it.iter().all(u8::is_ascii_digit))
    };
    for file in files.flatten().filter(|file| is_left(&file.file_name())) {
        // What cannot be removed takes its room, and is in nobody's way.
        let _: io::Result<()> = fs::remove_file(file.path());
    }
}

/// The folder that a path is in. The parent of a bare name is empty, which no system call takes.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a new file beside a path, calls `set_rights` for its owner and permissions, and renames
/// it to the path.
fn replace_at(
    path: &Path,
    content: &[u8],
    set_rights: impl FnOnce(&File) -> io::Result<()>,
) -> Result<()> {
    let failed = |error| Error::system(format!("write {}", path.display()), error);
    let folder = folder_of(path);
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

/// Follows links to the file that is to be written, which need not exist. A link has to belong to
/// this user or to the owner of its folder: in a folder that all users may write to, any user could
/// point a link at any file.
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
        // SAFETY: `geteuid` has no precondition.
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
    // The file may be left of a process with the same id that was killed.
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
        fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
        net::UnixListener,
    };

    use super::*;

    /// An empty folder for a test.
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
    fn a_bare_name_is_in_this_folder() {
        for (path, folder) in [("state", "."), ("./state", "."), ("a/state", "a"), ("/a", "/")] {
            assert_eq!(folder_of(Path::new(path)), Path::new(folder), "{path}");
        }
    }

    /// As in `/dev/shm`: only root could give the file away.
    #[test]
    fn a_private_file_is_given_to_nobody() {
        let folder = Folder::new("private");
        // Without the right to do this, the folder is this user's, and nothing could be given away.
        let _ = chown(&folder.0, Some(65_534), Some(65_534));
        let path = folder.0.join("state.ended");
        replace_private(&path, b"text").unwrap();
        let (file, own) = (fs::metadata(&path).unwrap(), File::create(folder.0.join("own")));
        assert_eq!(file.uid(), own.unwrap().metadata().unwrap().uid());
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
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
        // Not a device of the machine, which would be gone if this test failed.
        let socket = UnixListener::bind(path("socket")).unwrap();
        symlink("socket", path("link")).unwrap();
        let names = folder.names();
        for name in names.iter().map(|name| path(name)) {
            let before = fs::symlink_metadata(&name).unwrap();
            let error = replace(&name, b"text").unwrap_err();
            assert!(error.to_string().contains("is not a regular file"), "{error}");
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
