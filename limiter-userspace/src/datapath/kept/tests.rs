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
            reason: Some("fail2ban \"sshd\"".into()),
            by: Some("root".into()),
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
            r#"{"version":2,"entries":[{"list":"deny","prefix":"203.0.113.9/32","until":1800000060,"#,
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
fn what_an_older_version_wrote_is_read() {
    let folder = Folder::new("older");
    let older = concat!(
        r#"{"version":1,"entries":[{"list":"deny","prefixes":["192.0.2.1/32","2001:db8::/64"],"#,
        r#""until":null,"reason":null,"by":null,"since":null}]}"#,
    );
    fs::write(folder.file(), older).unwrap();
    let lists = read(&folder.file(), NOW).unwrap();
    let prefixes: Vec<_> = lists.entries().iter().map(|it| it.prefix.to_string()).collect();
    assert_eq!(prefixes, ["192.0.2.1/32", "2001:db8::/64"]);
    // The first change has it in the new form.
    Writing::take(&folder.file(), Duration::ZERO).unwrap().put(&lists).unwrap();
    assert!(fs::read_to_string(folder.file()).unwrap().starts_with(r#"{"version":2,"#));
    assert_eq!(read(&folder.file(), NOW).unwrap(), lists);
}

/// What is not read before it is replaced is not lost either.
#[test]
fn a_file_whose_prefixes_are_broken_is_put_aside() {
    let folder = Folder::new("packed");
    let broken = r#"{"version":2,"entries":[{"list":"deny","packed":"20c0","until":null}]}"#;
    fs::write(folder.file(), broken).unwrap();
    assert!(matches!(read(&folder.file(), NOW), Err(Error::State { .. })));
    Writing::take(&folder.file(), Duration::ZERO).unwrap().put(&lists()).unwrap();
    assert_eq!(read(&folder.file(), NOW).unwrap(), lists());
    assert_eq!(fs::read_to_string(folder.0.join("run-time.json.unread")).unwrap(), broken);
}

#[test]
fn what_is_no_such_file_is_told_without_a_word_of_it_and_put_aside() {
    let folder = Folder::new("broken");
    let path = folder.file();
    for text in
        ["", "secret", "{\"version\":3,\"entries\":7}", "{\"version\":1,\"entries\":[7]}", "[]"]
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

#[test]
fn what_killed_writers_left_is_removed_by_the_next_one_that_may_write() {
    let folder = Folder::new("left");
    let path = folder.file();
    let names = ["run-time.json.1234.new", "run-time.json.unread", "other.json.1234.new"];
    let [left, others @ ..] = names.map(|name| folder.0.join(name));
    for path in others.iter().chain([&left]) {
        fs::write(path, "text").unwrap();
    }
    let writing = Writing::take(&path, Duration::ZERO).unwrap();
    assert!(!left.exists());
    // Who has to wait leaves that of the one that writes.
    fs::write(&left, "text").unwrap();
    assert!(Writing::take(&path, Duration::ZERO).is_err());
    assert!(left.exists() && others.iter().all(|path| path.exists()));
    drop(writing);
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

/// Those of an older version's instance are added to what was kept before.
#[test]
fn lists_are_added_to_those_in_the_file() {
    let folder = Folder::new("add");
    let path = folder.file();
    write(&path, &lists()).unwrap();
    let mut more = RunTime::default();
    let entry = |prefix: &str| Entry::new(List::Deny, prefix.parse().unwrap());
    for entry in [entry("192.0.2.7/32"), entry("198.51.100.0/24")] {
        more.put(&Policy::default(), entry, NOW).unwrap();
    }
    Writing::take(&path, Duration::ZERO).unwrap().add(&more, NOW + 60).unwrap();
    let all = read(&path, NOW).unwrap();
    let left = lists().entries()[1..].to_vec();
    assert_eq!(all.entries(), [&left, more.entries()].concat(), "but for what is over");
    // What cannot be read is still there for somebody to look at.
    fs::write(&path, "broken").unwrap();
    Writing::take(&path, Duration::ZERO).unwrap().add(&more, NOW).unwrap();
    assert_eq!(read(&path, NOW).unwrap(), more);
    assert_eq!(fs::read_to_string(folder.0.join("run-time.json.unread")).unwrap(), "broken");
    // What cannot be written is told.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(Writing::take(&path, Duration::ZERO).unwrap().add(&more, NOW).is_err());
}

#[test]
fn only_one_process_writes_at_a_time() {
    let folder = Folder::new("lock");
    let path = folder.0.join("new/run-time.json");
    let take = |time| Writing::take(&path, time);
    let writing = take(Duration::ZERO).unwrap();
    let error = take(Duration::from_millis(20)).map(drop).unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    thread::scope(|scope| {
        let other = scope.spawn(|| take(Duration::from_secs(60)).unwrap().put(&lists()));
        thread::sleep(Duration::from_millis(20));
        assert!(!path.exists());
        drop(writing);
        other.join().unwrap().unwrap();
    });
    assert_eq!(read(&path, NOW).unwrap(), lists());
    // The same again is not written again.
    let before = fs::metadata(&path).unwrap().ino();
    take(Duration::ZERO).unwrap().put(&lists()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().ino(), before);
}
