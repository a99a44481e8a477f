//! Build results of a checkout that was copied.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

use crate::{child, workspace};

/// Removes the build results of this workspace if they are of another checkout, which was copied:
/// they have its paths in them. Those of other crates stay.
pub(crate) fn adopt() -> Result<()> {
    const CRATES: [&str; 3] = ["limiter-common", "limiter-userspace", "limiter-tests"];
    let mark = workspace::target()?.join(".checkout");
    let root = workspace::root().to_string_lossy();
    let before = fs::read_to_string(&mark).ok();
    if is_copied(before.as_deref(), workspace::BUILT_IN, &root) {
        println!("  this checkout was copied: what was built of it before is built again");
        for profile in ["dev", "release"] {
            let mut clean = child::cargo();
            clean.args(["clean", "--quiet", "--profile", profile]);
            clean.args(CRATES.iter().flat_map(|name| ["--package", name]));
            child::run(&mut clean)?;
        }
    }
    if before.as_deref() != Some(&root) {
        fs::write(&mark, &*root).with_context(|| format!("cannot write {}", mark.display()))?;
    }
    Ok(())
}

/// Whether the mark in the target folder is that of another checkout. Without a mark, the package
/// folder that is built into xtask tells.
fn is_copied(mark: Option<&str>, built_in: &str, root: &str) -> bool {
    match mark {
        Some(mark) => mark != root,
        None => Path::new(built_in).parent() != Some(Path::new(root)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_mark_of_another_checkout_means_a_copy() {
        let [old, new] = ["/srv/old/xtask", "/srv/new/xtask"];
        assert!(is_copied(Some("/srv/old"), new, "/srv/new"));
        assert!(!is_copied(Some("/srv/new"), old, "/srv/new"), "it was noticed before");
        assert!(is_copied(None, old, "/srv/new"));
        assert!(!is_copied(None, new, "/srv/new"), "the first build has no mark yet");
    }
}
