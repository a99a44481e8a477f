use std::{
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    process,
};

use super::*;
use crate::policy::{List, Policy, run_time::Entry};

const NOW: u64 = 1_800_000_000;

/// A folder of a test, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("limiter-kept-{name}-{}", process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("run-time.json")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn lists() -> RunTime {
    let (mut lists, policy) = (RunTime::default(), Policy::default());
    let of = |list, prefix: &str| Entry::new(list, prefix.parse().unwrap());
    let entries = [
        Entry {
            until: Some(NOW + 60),
            reason: Some("fail2ban \"sshd\"".to_owned()),
            by: Some("root".to_owned()),
            since: Some(NOW),
            ..of(List::Deny, "203.0.113.9/32")
        },
        Entry { exception: true, ..of(List::Deny, "198.51.100.0/24") },
        of(List::Allow, "2001:db8::/48"),
    ];
    for entry in entries {
        lists.put(&policy, entry, NOW).unwrap();
    }
    lists
}

#[test]
fn each_instance_has_a_file_of_its_own() {
    let of = |directory: &str| file_of(Path::new(directory)).display().to_string();
    assert_eq!(of(DEFAULT), "/var/lib/limiter/run-time.json");
    assert_eq!(of("/sys/fs/bpf/other"), "/var/lib/limiter/run-time-sys-fs-bpf-other.json");
    assert_ne!(of("/sys/fs/bpf/a-b"), of("/sys/fs/bpf/a/b"));
    let long = |last: &str| of(&format!("/{}{last}", "long/".repeat(60)));
    assert_ne!(long("a"), long("b"));
    assert!(long("a").len() < 255);
}

#[test]
fn lists_are_read_back_without_what_is_over() {
    let folder = Folder::new("read");
    let path = folder.file();
    assert_eq!(read(&path, NOW).unwrap(), RunTime::default(), "there is none yet");
    write(&path, &lists()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(read(&path, NOW).unwrap(), lists());
    let left = read(&path, NOW + 60).unwrap();
    assert_eq!(left.entries(), &lists().entries()[1..]);
    write(&path, &RunTime::default()).unwrap();
    assert!(!path.exists());
    write(&path, &RunTime::default()).unwrap();
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
}

/// What another version of limiter finds.
#[test]
fn the_form_is_fixed() {
    let folder = Folder::new("form");
    write(&folder.file(), &lists()).unwrap();
    assert_eq!(
        fs::read_to_string(folder.file()).unwrap(),
        concat!(
            r#"{"version":1,"entries":[{"list":"deny","prefix":"203.0.113.9/32","until":1800000060,"#,
            r#""reason":"fail2ban \"sshd\"","by":"root","since":1800000000},"#,
            r#"{"list":"deny","prefix":"198.51.100.0/24","exception":true,"until":null,"#,
            r#""reason":null,"by":null,"since":null},"#,
            r#"{"list":"allow","prefix":"2001:db8::/48","until":null,"reason":null,"by":null,"#,
            r#""since":null}]}"#,
            "\n"
        )
    );
}

#[test]
fn what_is_no_such_file_is_told_without_a_word_of_it_and_put_aside() {
    let folder = Folder::new("broken");
    let path = folder.file();
    for text in
        ["", "secret", "{\"version\":2,\"entries\":7}", "{\"version\":1,\"entries\":[7]}", "[]"]
    {
        fs::write(&path, text).unwrap();
        let error = read(&path, NOW).unwrap_err();
        assert!(matches!(error, Error::State { .. }), "{error:?}");
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(error.remedy().unwrap().contains(".unread"), "{error}");
    }
    // Half of one, as it would be without a rename.
    write(&path, &lists()).unwrap();
    let text = fs::read(&path).unwrap();
    for length in 1..text.len() - 2 {
        fs::write(&path, &text[..length]).unwrap();
        assert!(read(&path, NOW).is_err(), "{length}");
    }
    let aside = put_aside(&path).unwrap();
    assert!(aside.exists() && !path.exists());
}

/// The folder may be another user's, such as the agent's.
#[test]
fn a_link_in_the_place_of_the_file_leads_nowhere() {
    let folder = Folder::new("link");
    let (path, other) = (folder.file(), folder.0.join("other"));
    fs::write(&other, "of somebody else").unwrap();
    symlink(&other, &path).unwrap();
    assert!(read(&path, NOW).is_err());
    write(&path, &lists()).unwrap();
    assert_eq!(fs::read_to_string(&other).unwrap(), "of somebody else");
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
    assert_eq!(fs::metadata(&path).unwrap().uid(), fs::metadata(&folder.0).unwrap().uid());
    assert_eq!(read(&path, NOW).unwrap(), lists());
}
