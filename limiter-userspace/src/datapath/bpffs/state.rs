//! Which file keeps the run-time lists of an instance; what is in it is in [`kept`](crate::datapath::kept).

use std::path::{Path, PathBuf};

use limiter_common::base::siphash::SipHash;

use super::DEFAULT;

/// The folder of the files; that of the service, by `StateDirectory=`.
const FOLDER: &str = "/var/lib/limiter";

/// The file of the instance in a directory: one for each directory.
pub(super) fn file_of(directory: &Path) -> PathBuf {
    if directory == Path::new(DEFAULT) {
        return Path::new(FOLDER).join("run-time.json");
    }
    let text = directory.as_os_str().as_encoded_bytes();
    let mut name = String::from("run-time");
    for byte in text {
        match byte {
            b'/' => name.push('-'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' => name.push(char::from(*byte)),
            byte => name.push_str(&format!("%{byte:02x}")),
        }
    }
    if name.len() > 200 {
        let words =
            text.iter().fold(SipHash::new([0, 0]), |hash, byte| hash.word(u64::from(*byte)));
        name.truncate(150);
        name.push_str(&format!("-{:016x}", words.finish()));
    }
    Path::new(FOLDER).join(name + ".json")
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
