//! One file for each thing that a document may say, and for each that it may not, beside which is
//! the exact message. `LIMITER_WRITE_FIXTURES=1` writes the messages anew, to be read in the
//! difference.

use std::{
    collections::BTreeSet,
    env, fs,
    mem::take,
    path::{Path, PathBuf},
};

use limiter_userspace::policy::{
    Assignment, Context, compile,
    document::{
        Faults, SET_BYTES, Warnings, diff, parse, parse_with_warnings, read, read_file, schema,
        to_yaml,
    },
    model::{Limit, Policy},
    tallies,
};

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/policy").join(name)
}

pub(crate) fn documents(kind: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(folder(kind)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect();
    files.sort();
    let least = match kind {
        "valid" => 15,
        "warned" => 2,
        _ => 50,
    };
    assert!(files.len() >= least);
    files
}

/// 2026-01-01, which documents with ends are read at.
const NOW: u64 = 1_767_225_600;

/// As from the folder of the document, so that messages do not depend on where the tests run.
fn parsed(path: &Path) -> Result<(Policy, Warnings), Faults> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let folder = path.parent().unwrap();
    let text = fs::read(path).unwrap();
    parse_with_warnings(name, &text, NOW, &mut |file| read_file(&folder.join(file), SET_BYTES))
}

#[test]
fn valid_documents_are_read_and_written_back() {
    for path in [documents("valid"), documents("warned")].concat() {
        let mut policy = read(&path).unwrap_or_else(|faults| panic!("{faults}"));
        // Only a document that is read by its path knows where its files are.
        for file in take(&mut policy.set_files)
            .into_values()
            .chain(take(&mut policy.tenant_files).into_values())
        {
            assert!(Path::new(&file.path).is_absolute() && Path::new(&file.path).is_file());
        }
        let (parsed, warnings) = parsed(&path).unwrap();
        assert_eq!(parsed, policy);
        let warned = path.parent().unwrap().ends_with("warned");
        assert_eq!(warnings.total() > 0, warned, "{}: {warnings}", path.display());
        let written = to_yaml(&policy);
        let again = parse("written", written.as_bytes(), &mut |_| unreachable!());
        let again = again.unwrap_or_else(|faults| panic!("{faults}\n{written}"));
        assert_eq!(again, policy, "{written}");
        assert_eq!(to_yaml(&again), written);
        let stored = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<Policy>(&stored).unwrap(), policy);
    }
}

#[test]
fn invalid_documents_are_refused_with_a_message() {
    let messages = documents("invalid").into_iter().map(|path| {
        let Err(faults) = parsed(&path) else { panic!("{} is taken", path.display()) };
        (path.with_extension("err"), format!("{faults}\n"))
    });
    compare(messages);
}

/// The file of a set may be a link to one that whoever reads the messages may not read.
#[test]
fn lines_of_set_files_are_quoted_only_where_that_is_asked_for() {
    let path = documents("invalid").into_iter().find(|path| path.ends_with("set-file-bad.yaml"));
    let Err(faults) = parsed(&path.unwrap()) else { panic!("it is taken") };
    let quotes = ["300.1.1.1", "192.0.2.1/24", "198.51.100.0/2", "0xff", "did you mean"];
    let text = faults.to_string();
    assert_eq!(quotes.map(|quote| text.contains(quote)), [false; 5], "{text}");
    let shown = faults.quoting().to_string();
    assert_eq!(quotes.map(|quote| shown.contains(quote)), [true; 5], "{shown}");
    assert!(shown.contains("   3 |  300.1.1.1\n     |  ^^^^^^^^^\n"), "{shown}");
}

/// The writer marks what has no effect, and nothing else.
#[test]
fn what_is_shadowed_is_written_so() {
    for path in documents("valid") {
        let policy = read(&path).unwrap();
        let (shadowed, written) = (policy.without_effect().len(), to_yaml(&policy));
        assert_eq!(written.matches("shadowed: true").count(), shadowed, "{written}");
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert_eq!(shadowed > 0, name.starts_with("shadowed-by-"), "{name}");
        let bare = written.replace(", shadowed: true", "").replace("\n    shadowed: true", "");
        let read = parse("bare", bare.as_bytes(), &mut |_| unreachable!());
        assert_eq!(read.as_ref().map_or_else(Faults::total, |_| 0), shadowed, "{bare}");
        let stored = serde_json::to_string(&policy).unwrap();
        assert!(!stored.contains("\"shadowed\""), "{stored}");
    }
}

/// Also limits and overrides that are about nobody, for what a file has.
#[test]
fn what_is_warned_of_can_be_in_force() {
    for path in documents("warned") {
        let policy = read(&path).unwrap();
        let compiled = compile(&policy, &Assignment::default(), &Context::default());
        let (_, held) = compiled.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let tallied = tallies(&policy, &held).unwrap();
        for Limit { name, .. } in &policy.limits {
            assert!(tallied.iter().any(|tally| tally.limit == *name), "{name}");
        }
        assert_ne!(diff(&Policy::default(), &policy), vec![]);
    }
}

#[test]
fn what_is_hardly_meant_so_is_told() {
    let messages = documents("warned").into_iter().map(|path| {
        let (_, warnings) = parsed(&path).unwrap_or_else(|faults| panic!("{faults}"));
        (path.with_extension("warn"), warnings.to_string())
    });
    compare(messages);
}

/// Compares messages with those in files.
#[track_caller]
fn compare(messages: impl Iterator<Item = (PathBuf, String)>) {
    let write = env::var_os("LIMITER_WRITE_FIXTURES").is_some();
    let mut wrong = Vec::new();
    for (beside, message) in messages {
        if write {
            fs::write(&beside, &message).unwrap();
        }
        let expected = fs::read_to_string(&beside).unwrap_or_default();
        if message != expected {
            wrong.push(format!("{}:\n{message}instead of\n{expected}", beside.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_schema_takes_the_valid_documents() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for path in documents("valid") {
        let document = json(&fs::read_to_string(&path).unwrap());
        let errors: Vec<_> = validator
            .iter_errors(&document)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{}: {}", path.display(), errors.join("\n"));
    }
    for wrong in ["version: 2", "version: 1\nlimit: []", "version: 1\nmode: on", "mode: monitor"] {
        assert!(!validator.is_valid(&json(wrong)), "{wrong}");
    }
}

/// Every key of the schema is in a document that is read, and in one of these the writer writes
/// it: so a key that one of the reader, the writer and the schema forgets is noticed.
#[test]
fn no_key_is_forgotten() {
    let mut known = BTreeSet::new();
    keys_of_schema(&schema(), "", &mut known);
    let mut used = BTreeSet::new();
    for path in documents("valid") {
        keys_of_document(&json(&fs::read_to_string(&path).unwrap()), &schema(), "", &mut used);
    }
    let unused: Vec<_> = known.difference(&used).collect();
    assert!(known.len() > 100 && unused.is_empty(), "{unused:?}");
}

fn keys_of_schema(schema: &serde_json::Value, path: &str, found: &mut BTreeSet<String>) {
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{key}");
        found.insert(path.clone());
        keys_of_schema(schema, &path, found);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(schema) = schema.get(inner) {
            keys_of_schema(schema, path, found);
        }
    }
    for schema in schema["anyOf"].as_array().into_iter().flatten() {
        keys_of_schema(schema, path, found);
    }
}

fn keys_of_document(
    document: &serde_json::Value,
    schema: &serde_json::Value,
    path: &str,
    found: &mut BTreeSet<String>,
) {
    for schema in schema["anyOf"].as_array().into_iter().flatten() {
        keys_of_document(document, schema, path, found);
    }
    for item in document.as_array().into_iter().flatten() {
        keys_of_document(item, &schema["items"], path, found);
    }
    for (key, value) in document.as_object().into_iter().flatten() {
        match schema["properties"].get(key) {
            Some(schema) => {
                let path = format!("{path}.{key}");
                found.insert(path.clone());
                keys_of_document(value, schema, &path, found);
            }
            None => keys_of_document(value, &schema["additionalProperties"], path, found),
        }
    }
}

/// A document as JSON, by the rules of YAML for what has no quotes.
fn json(text: &str) -> serde_json::Value {
    use granit_parser::{Event, Parser, ScalarStyle};
    use serde_json::{Map, Value};

    fn node<'t>(event: Event<'t>, rest: &mut impl Iterator<Item = Event<'t>>) -> Value {
        match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) => {
                serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.into()))
            }
            Event::Scalar(text, ..) => Value::String(text.into()),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match rest.next().unwrap() {
                        Event::SequenceEnd => return Value::Array(items),
                        event => items.push(node(event, rest)),
                    }
                }
            }
            _ => {
                let mut pairs = Map::new();
                loop {
                    match rest.next().unwrap() {
                        Event::MappingEnd => return Value::Object(pairs),
                        event => {
                            let Event::Scalar(key, ..) = event else { panic!("a key") };
                            let value = rest.next().unwrap();
                            pairs.insert(key.into(), node(value, rest));
                        }
                    }
                }
            }
        }
    }
    let mut events = Parser::new_from_str(text)
        .map(|event| event.unwrap().0)
        .filter(|event| !matches!(event, Event::StreamStart | Event::DocumentStart(..)));
    let first = events.next().unwrap();
    node(first, &mut events)
}
