//! Checks that no files of a crate import each other in a circle, and that the floors of a crate only import
//! lower ones.
//!
//! A file imports another one if a `use` declaration or a path in its code starts with `crate::` and
//! continues with the module of that file, or with `super::`. What a file re-exports by `pub use` counts as
//! imported from its origin.
//!
//! Imports between a file and the files below it in its folder do not count: a file declares and re-exports
//! its parts, and parts implement types of the file above. Tests do not count either.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::workspace;

/// A module path, starting at the root of the crate.
type Module = Vec<String>;

/// A crate and the rules for its imports.
struct Crate {
    folder: &'static str,
    /// Its folders from the lowest floor up. Folders in one entry are one floor, and do not import each
    /// other.
    floors: &'static [&'static [&'static str]],
}

const CRATES: [Crate; 7] = [
    Crate {
        folder: "limiter-common/src",
        floors: &[
            &["base"],
            &["packet"],
            &["algorithm"],
            &["policy"],
            &["memory"],
            &["abi"],
            &["table"],
        ],
    },
    Crate {
        folder: "limiter-ebpf/src",
        floors: &[
            &["kernel"],
            &["policy"],
            &["history"],
            &["table"],
            &["limits", "events"],
            &["pipeline"],
            &["bench"],
        ],
    },
    Crate { folder: "limiter-userspace/src", floors: &[] },
    Crate { folder: "xtask/src", floors: &[] },
    Crate { folder: "tests/src", floors: &[] },
    // The roots of two binaries.
    Crate { folder: "tests/src/bench", floors: &[] },
    Crate { folder: "tests/src/demo", floors: &[] },
];

/// The files of a crate by module, each with its code.
struct Sources(BTreeMap<Module, String>);

impl Sources {
    fn of(folder: &Path) -> Self {
        let mut files = Vec::new();
        collect(folder, &mut files);
        let code = |path: &PathBuf| code(&fs::read_to_string(path).unwrap());
        let module = |path: &PathBuf| module(path.strip_prefix(folder).unwrap());
        Self(files.iter().map(|path| (module(path), code(path))).collect())
    }

    /// The file that a path leads to: the longest prefix of the path that is a file.
    fn file<'a>(&self, path: &'a [String]) -> Option<&'a [String]> {
        (1..=path.len()).rev().map(|end| &path[..end]).find(|it| self.0.contains_key(*it))
    }

    /// For each re-export, the path of the origin.
    fn exports(&self) -> BTreeMap<Module, Module> {
        let mut exports = BTreeMap::new();
        for (module, code) in &self.0 {
            for (is_export, path) in uses(code) {
                let Some(target) = self.absolute(module, &path).filter(|_| is_export) else {
                    continue;
                };
                let name = target.last().cloned();
                exports.insert(module.iter().cloned().chain(name).collect(), target);
            }
        }
        exports
    }

    /// A path from the root of the crate; `None` for a path into another crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        match &**first {
            "crate" => Some(rest.to_vec()),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                let above = module.get(..module.len().checked_sub(up)?)?;
                Some([above, &path[up..]].concat())
            }
            "self" => Some([module, rest].concat()),
            // A module below this file.
            _ if self.0.contains_key(&[module, &path[..1]].concat()) => {
                Some([module, path].concat())
            }
            _ => None,
        }
    }

    /// The files that each file imports.
    fn imports(&self) -> BTreeMap<&[String], BTreeSet<&[String]>> {
        let exports = self.exports();
        let mut imports = BTreeMap::new();
        for (module, code) in &self.0 {
            let paths = uses(code).into_iter().map(|(_, path)| path).chain(inline(code));
            let files = paths.filter_map(|path| {
                let mut path = self.absolute(module, &path)?;
                // A re-export may lead to another one.
                for _ in 0..8 {
                    let known = (1..=path.len()).rev().find(|end| {
                        exports.contains_key(&path[..*end]) && !self.0.contains_key(&path[..*end])
                    });
                    let Some(end) = known else { break };
                    path = [&exports[&path[..end]][..], &path[end..]].concat();
                }
                let file = self.file(&path)?;
                let (file, _) = self.0.get_key_value(file)?;
                let is_below = file.starts_with(module) || module.starts_with(file);
                (!is_below).then_some(&**file)
            });
            imports.insert(&**module, files.collect());
        }
        imports
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|it| it == "rs") {
            files.push(path);
        }
    }
}

/// The module of a file.
fn module(path: &Path) -> Module {
    let parts = path.with_extension("");
    let mut parts: Module = parts.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&&**last)) {
        parts.pop();
    }
    parts
}

/// The code of a file without comments, strings, and the tests at its end.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' {
            let mut escaped = false;
            let end = rest[1..].find(|it: char| {
                let ends = it == '"' && !escaped;
                escaped = it == '\\' && !escaped;
                ends
            });
            end.map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("'\"'") {
            3
        } else if let Some(raw) = rest.strip_prefix("r#\"") {
            raw.find("\"#").map_or(rest.len(), |end| end + 5)
        } else {
            code.push(first);
            first.len_utf8()
        };
        rest = &rest[skipped..];
    }
    let end = code.find("#[cfg(test)]\nmod tests {").unwrap_or(code.len());
    code.truncate(end);
    code
}

/// The paths of all `use` declarations, each with whether it is a re-export.
fn uses(code: &str) -> Vec<(bool, Module)> {
    let mut paths = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        let line = &rest[rest[..at].rfind('\n').map_or(0, |it| it + 1)..at];
        let tree = &rest[at + 4..];
        let end = tree.find(';').unwrap_or(tree.len());
        if line.trim().is_empty() || line.trim().starts_with("pub") {
            let mut found = Vec::new();
            leaves(&tree[..end], &[], &mut found);
            let is_export = line.trim().starts_with("pub");
            paths.extend(found.into_iter().map(|path| (is_export, path)));
            rest = &tree[end..];
        } else {
            rest = tree;
        }
    }
    paths
}

/// Collects the paths of an import tree; `above` is the path before it.
fn leaves(tree: &str, above: &[String], paths: &mut Vec<Module>) {
    let tree = tree.split(" as ").next().filter(|_| !tree.contains('{')).unwrap_or(tree).trim();
    let (path, parts) = match tree.split_once('{') {
        Some((path, parts)) => (path, parts.trim_end().strip_suffix('}')),
        None => (tree, None),
    };
    let path = path.split("::").map(str::trim).filter(|it| !it.is_empty() && *it != "*");
    let path: Module = above.iter().cloned().chain(path.map(str::to_owned)).collect();
    let Some(parts) = parts else {
        let is_self = path.len() > 1 && path.last().is_some_and(|last| last == "self");
        paths.push(path[..path.len() - usize::from(is_self)].to_vec());
        return;
    };
    let (mut depth, mut begin) = (0, 0);
    for (at, it) in parts.char_indices().chain([(parts.len(), ',')]) {
        match it {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !parts[begin..at].trim().is_empty() {
                    leaves(&parts[begin..at], &path, paths);
                }
                begin = at + 1;
            }
            _ => {}
        }
    }
}

/// The paths that start with `crate::`, `super::` or `self::` in the code.
fn inline(code: &str) -> impl Iterator<Item = Module> {
    let is_part = |it: char| it.is_alphanumeric() || "_:".contains(it);
    let starts = ["crate::", "super::", "self::"].into_iter();
    let starts = starts.flat_map(|first| code.match_indices(first)).map(|(at, _)| at);
    starts.filter(move |at| !code[..*at].ends_with(is_part)).map(move |at| {
        let end = code[at..].find(|it: char| !is_part(it));
        let path = &code[at..end.map_or(code.len(), |end| at + end)];
        path.split("::").filter(|it| !it.is_empty()).map(str::to_owned).collect()
    })
}

/// A circle of imports, if there is one: each file imports the next, and the last the first.
fn circle<'a>(
    imports: &BTreeMap<&'a [String], BTreeSet<&'a [String]>>,
) -> Option<Vec<&'a [String]>> {
    /// Extends a path of imports; no circle can be reached from the files in `done`.
    fn follow<'a>(
        imports: &BTreeMap<&'a [String], BTreeSet<&'a [String]>>,
        way: &mut Vec<&'a [String]>,
        done: &mut BTreeSet<&'a [String]>,
    ) -> Option<Vec<&'a [String]>> {
        let last = *way.last()?;
        for next in &imports[last] {
            if let Some(at) = way.iter().position(|it| it == next) {
                let mut circle = way[at..].to_vec();
                let first = (0..circle.len()).min_by_key(|it| circle[*it]).unwrap_or(0);
                circle.rotate_left(first);
                return Some(circle);
            }
            if !done.contains(next) {
                way.push(next);
                if let Some(found) = follow(imports, way, done) {
                    return Some(found);
                }
                way.pop();
            }
        }
        done.insert(last);
        None
    }

    let mut done = BTreeSet::new();
    imports.keys().find_map(|first| follow(imports, &mut vec![*first], &mut done))
}

#[test]
fn no_file_imports_what_imports_it() {
    for Crate { folder, .. } in CRATES {
        let sources = Sources::of(&workspace::root().join(folder));
        if let Some(circle) = circle(&sources.imports()) {
            let names: Vec<_> = circle.iter().map(|module| module.join("::")).collect();
            panic!("a circle in {folder}: {} -> {}", names.join(" -> "), names[0]);
        }
    }
}

#[test]
fn floors_import_downwards() {
    for Crate { folder, floors } in CRATES {
        let floor = |module: &[String]| {
            let number = floors.iter().position(|it| it.contains(&&*module[0]));
            number.unwrap_or_else(|| panic!("{folder}/{} is on no floor", module[0]))
        };
        let sources = Sources::of(&workspace::root().join(folder));
        for (from, to) in sources.imports() {
            if floors.is_empty() || from.is_empty() {
                continue;
            }
            for to in to.into_iter().filter(|to| to[0] != from[0]) {
                let (from_floor, to_floor) = (floor(from), floor(to));
                assert!(
                    from_floor > to_floor,
                    "{folder}: {} imports {}",
                    from.join("::"),
                    to.join("::")
                );
            }
        }
    }
}

#[test]
fn a_circle_is_found() {
    let file = |name: &str| name.split("::").map(str::to_owned).collect::<Module>();
    let sources = |files: &[(&str, &str)]| {
        Sources(files.iter().map(|(name, text)| (file(name), code(text))).collect())
    };
    let mut files = vec![
        ("a", "mod x;\npub use x::X;\nuse crate::{b::{self, B}, c};"),
        ("a::x", "use super::A;\n// use crate::c::C;\nfn x() -> &str { \"crate::c::C\" }"),
        ("b", "use std::fs;\nuse crate::c::C as D;"),
        ("c", "fn c() {}\n#[cfg(test)]\nmod tests {\nuse crate::a::A;\n}"),
    ];
    let before = sources(&files);
    assert_eq!(circle(&before.imports()), None);
    files[3].1 = "fn c() { crate::a::X::x() }";
    let after = sources(&files);
    assert_eq!(circle(&after.imports()), None, "it is exported of a file that imports nothing");
    files[1].1 = "use crate::b::B;";
    let circle_of = |files: &[(&str, &str)]| {
        let sources = sources(files);
        circle(&sources.imports()).map(|it| it.iter().map(|it| it.join("::")).collect::<Vec<_>>())
    };
    assert_eq!(circle_of(&files).unwrap(), ["a::x", "b", "c"]);
    for path in ["use super::super::c::C;", "fn x() { super::super::c::c() }"] {
        files[1].1 = path;
        assert_eq!(circle_of(&files).unwrap(), ["a::x", "c"]);
    }
}
