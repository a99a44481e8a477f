//! The memory that maps can be made of: that of the machine, and what control groups leave of it.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where control groups of version 2 are, those of the first hierarchy of version 1 aside.
const UNIFIED: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Where the memory controller of version 1 is.
const MEMORY: &str = "/sys/fs/cgroup/memory";
/// A limit of version 1 from which on there is none: it is written as the largest number of pages.
const NO_LIMIT: u64 = 1 << 60;

/// A control group that limits memory.
struct Group {
    /// Its directory.
    directory: PathBuf,
    /// The names of the files with the limit and with what is taken.
    files: [&'static str; 2],
}

/// The memory of this machine, or less where a control group of this process has less; in bytes. `None` if neither can be read.
pub fn total() -> Option<u64> {
    let of_groups = groups().iter().filter_map(|group| group.least(|limit, _| limit)).min();
    host("MemTotal:").into_iter().chain(of_groups).min()
}

/// Whether a control group of this process has less memory than this machine.
pub fn is_of_group() -> bool {
    total() < host("MemTotal:")
}

/// The memory that is available on this machine, in bytes; `None` if that cannot be read.
pub fn available() -> Option<u64> {
    host("MemAvailable:")
}

/// What the control groups of this process leave it, in bytes; `None` if there is no limit.
pub fn left() -> Option<u64> {
    groups().iter().filter_map(|group| group.least(u64::saturating_sub)).min()
}

/// A line of `/proc/meminfo`, in bytes.
fn host(line: &str) -> Option<u64> {
    number_of(&fs::read_to_string("/proc/meminfo").ok()?, line)
}

fn number_of(meminfo: &str, line: &str) -> Option<u64> {
    meminfo.lines().find_map(|it| {
        let kibibytes = it.strip_prefix(line)?.trim().strip_suffix(" kB")?;
        kibibytes.parse::<u64>().ok()?.checked_mul(1024)
    })
}

/// The control groups of this process that could limit its memory.
fn groups() -> Vec<Group> {
    fs::read_to_string("/proc/self/cgroup").map_or_else(|_| Vec::new(), |text| groups_of(&text))
}

/// Those that a process is in by the text of its file `cgroup`.
fn groups_of(text: &str) -> Vec<Group> {
    let mut groups = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            let files = ["memory.max", "memory.current"];
            let group = |root: &str| Group { directory: Path::new(root).join(path), files };
            groups.extend(UNIFIED.map(group));
        } else if controllers.split(',').any(|controller| controller == "memory") {
            let files = ["memory.limit_in_bytes", "memory.usage_in_bytes"];
            groups.push(Group { directory: Path::new(MEMORY).join(path), files });
        }
    }
    groups
}

impl Group {
    /// The least value for this group and those that it is in, of their limits and what is taken; `None` without a limit.
    fn least(&self, value: impl Fn(u64, u64) -> u64) -> Option<u64> {
        let [limit, taken] = self.files;
        let number = |directory: &Path, file: &str| -> Option<u64> {
            fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok()
        };
        let of = |directory: &Path| {
            let limit = number(directory, limit).filter(|limit| *limit < NO_LIMIT)?;
            Some(value(limit, number(directory, taken).unwrap_or(0)))
        };
        self.directory.ancestors().filter_map(of).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_host_is_read() {
        let text = "MemTotal:       1009436 kB\nMemFree:  1 kB\nMemAvailable:     700000 kB\n";
        assert_eq!(number_of(text, "MemTotal:"), Some(1_009_436 << 10));
        assert_eq!(number_of(text, "MemAvailable:"), Some(700_000 << 10));
        assert_eq!(
            (number_of("", "MemTotal:"), number_of("MemTotal: x", "MemTotal:")),
            (None, None)
        );
        assert!(total().is_some_and(|total| total > 1 << 20));
    }

    #[test]
    fn control_groups_of_both_versions_are_found() {
        let directories = |text| -> Vec<String> {
            groups_of(text).iter().map(|it| it.directory.display().to_string()).collect()
        };
        assert_eq!(
            directories("0::/system.slice/limiter.service\n"),
            [
                "/sys/fs/cgroup/system.slice/limiter.service",
                "/sys/fs/cgroup/unified/system.slice/limiter.service"
            ]
        );
        assert_eq!(directories("4:memory:/x/y\n1:cpu,cpuacct:/\n"), ["/sys/fs/cgroup/memory/x/y"]);
        assert!(directories("nonsense\n:\n").is_empty());
    }

    #[test]
    fn the_least_of_a_group_and_those_around_it_counts() {
        let root = std::env::temp_dir().join(format!("limiter-memory-{}", std::process::id()));
        let inner = root.join("inner");
        fs::create_dir_all(&inner).unwrap();
        let write = |directory: &Path, limit: &str, taken: &str| {
            fs::write(directory.join("memory.max"), limit).unwrap();
            fs::write(directory.join("memory.current"), taken).unwrap();
        };
        let files = ["memory.max", "memory.current"];
        let group = Group { directory: inner.clone(), files };
        let both = || {
            let [limit, left] = [group.least(|limit, _| limit), group.least(u64::saturating_sub)];
            (limit, left)
        };
        write(&root, "max\n", "100\n");
        write(&inner, "max\n", "50\n");
        assert_eq!(both(), (None, None));
        write(&inner, "300\n", "50\n");
        assert_eq!(both(), (Some(300), Some(250)));
        write(&root, "320\n", "100\n");
        assert_eq!(both(), (Some(300), Some(220)));
        write(&root, &u64::MAX.to_string(), "100\n");
        assert_eq!(both(), (Some(300), Some(250)));
        fs::remove_dir_all(&root).unwrap();
    }
}
