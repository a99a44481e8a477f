//! Links between pages lead somewhere.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::root;

/// All pages of the repository, but for those that are built or fetched.
pub(super) fn all_pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![root(), root().join("docs"), root().join("docs/design")];
    for name in ["docs/benchmarks", "docs/runbooks", "docs/design/decisions"] {
        folders.push(root().join(name));
    }
    for folder in folders {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// The anchors of a page: its headings, as hosts of repositories make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter_map(|letter| match letter {
                ' ' | '-' => Some('-'),
                '_' => Some('_'),
                letter => letter.is_alphanumeric().then_some(letter),
            });
            kept.collect()
        })
        .collect()
}

/// The targets of the links of a page, without those to other sites.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    targets.filter(|target| !target.contains("://") && !target.contains(' ')).collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut followed = 0;
    for page in all_pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => page.clone(),
                path => page.parent().unwrap_or(Path::new(".")).join(path),
            };
            let place = format!("{} links to {link}", page.display());
            assert!(target.exists(), "{place}: there is no such file");
            if !anchor.is_empty() {
                let target = fs::read_to_string(&target).unwrap();
                assert!(anchors(&target).contains(anchor), "{place}: there is no such heading");
            }
            followed += 1;
        }
    }
    assert!(followed > 50, "{followed}");
}
