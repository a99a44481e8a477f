//! Documents and files that are made to harm: always an answer, soon and with little memory.

use std::{
    fs::{self, File},
    io::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::unix::fs::symlink,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use limiter_userspace::policy::{
    Assignment, Context, Policy, compile,
    document::{
        DOCUMENT_BYTES, Faults, FileError, SET_BYTES, check_length, parse, parse_with_warnings,
        read, read_file,
    },
    model::{Layer, Override, OverrideWhom},
};
use proptest::prelude::*;

use crate::fixtures::documents;

const PREFIXES: usize = Policy::MOST_PREFIXES;
/// So many that what took a step for each pair of them would not end.
const MANY: usize = 1 << 17;
/// For a debug build on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// How long this thread has worked, in which others that are busy do not count.
fn worked() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is written to, which lives as long as the call.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(done, 0);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// The message of a document that is refused in time.
fn refused(text: &[u8]) -> Faults {
    let before = worked();
    let faults = parse("f", text, &mut |_| Ok(Vec::new())).unwrap_err();
    let message = faults.to_string();
    let work = worked() - before;
    assert!(work < SOON, "{work:?}: {message}");
    assert!(message.len() < 1 << 18);
    assert!(!message.contains(|letter: char| letter.is_control() && letter != '\n'));
    faults
}

fn says(text: &[u8], what: &str) {
    let message = refused(text).to_string();
    assert!(message.contains(what), "{message}");
}

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("limiter-policy-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn alias_bombs_are_refused() {
    let mut bomb = "version: 1\nsets:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let before = format!("*a{},", level - 1).repeat(10);
        bomb.push_str(&format!("  a{level}: &a{level} [{before}]\n"));
    }
    says(bomb.as_bytes(), "anchors have no meaning here");
    says(b"version: 1\n<<: *a\n", "aliases have no meaning here");
}

#[test]
fn nesting_is_bounded() {
    for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", "")] {
        for depth in [17, 1_000, 100_000] {
            let text = format!("allow: {}{}", open.repeat(depth), close.repeat(depth));
            refused(text.as_bytes());
            refused(format!("{}x", open.repeat(depth)).as_bytes());
        }
    }
    let stairs: String = (0..2_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    says(stairs.as_bytes(), "nested deeper than 16");
}

#[test]
fn large_documents_are_answered() {
    let most = usize::try_from(DOCUMENT_BYTES).unwrap();
    says(&vec![b'a'; most + 1], "larger than 64 MiB");
    refused(&vec![b'a'; most]);
    refused(&vec![b' '; most]);
    refused(&vec![b'\n'; most]);
    refused(&vec![b'\t'; most]);
    refused(&vec![b'#'; most]);
    refused(&vec![0; most]);
    for quote in ["\"", "'"] {
        refused(format!("version: 1\nmode: {quote}{}", "x".repeat(1 << 22)).as_bytes());
        let text = format!("version: 1\nmode: {quote}{}{quote}\n", "x".repeat(1 << 22));
        says(text.as_bytes(), "there is no mode `xxxxxxxx");
    }
    says(format!("version: 1\nmode: |\n{}", " x\n".repeat(1 << 20)).as_bytes(), "there is no mode");
    says(format!("version: 1\nallow: [{}]", "a,".repeat(1 << 22)).as_bytes(), "2097152 values");
    says(format!("version: 1\nallow: [{}]", "a,".repeat(1 << 17)).as_bytes(), "131072 errors");
    refused(format!("version: 1\n{}", "x: 1\n".repeat(1 << 17)).as_bytes());
}

#[test]
fn prefixes_are_bounded() {
    let prefix = |index: usize| format!("10.{}.{}.{}", index >> 16, index >> 8 & 255, index & 255);
    let set = |count: usize| (0..count).map(|index| prefix(index) + "\n").collect::<String>();
    let document = b"version: 1\nsets: {a: {file: many}, b: {file: few}}\n";
    let files = |number: usize| {
        let (many, few) = (set(number), "192.0.2.1\n".to_owned());
        parse("f", document, &mut |name| {
            Ok(if name == "many" { &many } else { &few }.clone().into())
        })
    };
    let policy = files(PREFIXES - 1).unwrap();
    assert_eq!(policy.sets["a"].len(), PREFIXES - 1);
    let message = files(PREFIXES).unwrap_err().to_string();
    assert!(message.contains("more than 1048576 prefixes"), "{message}");
    // Nothing but mistakes; the same one again and again, and a list that is within another.
    let document = b"version: 1\nsets: {a: {file: a}}\n";
    for line in ["x\n", "\u{7f}\n"] {
        let text = line.repeat(1 << 16);
        let faults = parse("f", document, &mut |_| Ok(text.clone().into())).unwrap_err();
        assert!(faults.list().len() <= 200);
    }
    for line in ["192.0.2.1\n", "192.0.2.0/24\n192.0.2.1\n"] {
        let text = line.repeat(1 << 16);
        let parsed = parse_with_warnings("f", document, 0, &mut |_| Ok(text.clone().into()));
        let (policy, warnings) = parsed.unwrap();
        assert_eq!((policy.sets["a"].len(), warnings.total()), (1, 1));
    }
    let list: String = (0..PREFIXES + 1).map(|index| prefix(index) + ",").collect();
    says(format!("version: 1\nsets: {{a: {{cidrs: [{list}]}}}}").as_bytes(), "more than 1048576");
    says(format!("version: 1\ndeny: [{list}]").as_bytes(), "more than 1048576");
}

/// What lists have counts when all is known: an entry that a file has is left out. Faults of limits are told
/// all the same.
#[test]
fn limits_are_looked_at_however_much_there_is() {
    let text = "version: 1\nsets: {f: {file: f}}\nallow: [203.0.113.0/25, 203.0.113.128/25, f]\n\
                limits: [{name: a, key: source, rate: 1/s, match: {source: 192.0.2.0/24, \
                except: 192.0.2.0/24}}]\n";
    let faults = |lines: &str| {
        let read = &mut |_: &str| Ok(lines.as_bytes().to_vec());
        parse("p", text.as_bytes(), read).unwrap_err().to_string()
    };
    let line = |at: usize| format!("{}\n", Ipv4Addr::from_bits(at as u32));
    let full: String = (0..MANY).map(line).collect();
    let full = full + "203.0.113.0/24\n";
    assert_eq!(faults(&full), faults(""));
}

#[test]
fn files_of_sets_are_bounded_together() {
    const MIB: usize = 1 << 20;
    let sets = |name: fn(usize) -> usize| -> String {
        let sets = (0..20).map(|at| format!("  s{at}: {{file: f{}}}\n", name(at)));
        format!("version: 1\nsets:\n{}", sets.collect::<String>())
    };
    let comments = |length: usize| [vec![b'#'; 100], vec![b'\n']].concat().repeat(length / 101);
    let mut files = Vec::new();
    let mut read = |document: &str, text: &[u8]| {
        files.clear();
        let parsed = parse("f", document.as_bytes(), &mut |name| {
            files.push(name.to_owned());
            Ok(text.to_vec())
        });
        (parsed.map_err(|faults| faults.to_string()), files.len())
    };
    let (parsed, times) = read(&sets(|_| 0), &comments(60 * MIB));
    assert_eq!((parsed.unwrap().sets.len(), times), (20, 1), "the same file is read once");
    let (parsed, times) = read(&sets(|at| at), &comments(20 * MIB));
    let message = parsed.unwrap_err();
    let expected = "file `f3` is not used: with those before, it is larger than 64 MiB";
    assert!(message.contains(expected) && message.contains("17 errors"), "{message}");
    assert_eq!(times, 4);
    let line = [vec![b' '; 60 * MIB], b"192.0.2.1\n".to_vec()].concat();
    let message = read("version: 1\nsets: {a: {file: f}}", &line).0.unwrap_err();
    assert!(message.contains("f:1:1: error: set `a`: the line is longer than 1024"), "{message}");
    // One prefix, the number of times that they may be in a policy.
    let (parsed, times) = read(&sets(|_| 0), b"192.0.2.1\n");
    assert_eq!((parsed.unwrap().sets["s19"].len(), times), (1, 1));
    // A file that fits once, by name after name.
    let largest: String =
        (0..PREFIXES as u32).map(|at| format!("{}\n", Ipv4Addr::from(at << 8))).collect();
    let names: String = (0..1 << 17).map(|at| format!(" s{at}: {{file: f}}\n")).collect();
    let before = worked();
    let (parsed, times) = read(&format!("version: 1\nsets:\n{names}"), largest.as_bytes());
    assert!(parsed.unwrap_err().contains("131071 errors") && times == 1);
    let work = worked() - before;
    assert!(work < SOON, "{work:?}");
}

/// What can be applied can be saved: written with all its bursts, it may be longer than it was.
#[test]
fn a_policy_is_not_longer_than_what_can_be_read_back() {
    let text = "version: 1\nlimits: [{name: a, key: source, layers: [{rate: 1/s}, {rate: 9/min}]}]";
    let mut policy = parse("f", text.as_bytes(), &mut |_| unreachable!()).unwrap();
    let allowance = policy.limits[0].layers[0].allowance;
    let mut with = |overrides: u32, layers: usize| {
        let prefix = |at| IpNet::from(IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 + at)));
        let one = |at| Override {
            whom: OverrideWhom::Prefix(prefix(at)),
            layers: Some(vec![allowance; layers]),
        };
        policy.limits[0].overrides = (0..overrides).map(one).collect();
        policy.limits[0].layers.resize_with(layers, || Layer { allowance, key: None });
        check_length(&policy).map_err(|error| error.to_string())
    };
    assert_eq!(with(100_000, 1), Ok(()));
    let told = [with(1_000_000, 2), with(300_000, 1), with(PREFIXES as u32 + 1, 1)];
    let words =
        ["MiB, more than 64 MiB", "more than 2,097,152 values", "more than 1,048,576 prefixes"];
    for (told, words) in told.into_iter().zip(words) {
        let told = told.unwrap_err();
        assert!(told.contains(words) && told.ends_with(": it could not be saved"), "{told}");
    }
}

/// Of prefixes of sources, these are the longest texts. A document has room for longer ones, of a `destination`.
#[test]
fn a_million_prefixes_of_ipv6_fit() {
    let line = |at: u32| {
        format!("2001:0db8:{:04x}:{:04x}::/64\n", 0xa000 + (at >> 10), 0xb000 + (at & 0x3ff))
    };
    let file: String = (0..1_000_000).map(line).collect();
    let text = b"version: 1\nsets: {a: {file: a}}\ndeny: [a]\n";
    let mut policy = parse("f", text, &mut |_| Ok(file.clone().into())).unwrap();
    assert_eq!(policy.sets["a"].len(), 1_000_000);
    assert_eq!(check_length(&policy), Ok(()));
    let longest =
        |at: usize| IpNet::from(IpAddr::from(Ipv6Addr::from_bits(u128::MAX - at as u128)));
    policy.sets.insert("a".to_owned(), (0..PREFIXES).map(longest).collect());
    assert_eq!(check_length(&policy), Ok(()));
}

/// What is compared with each other is never both long.
#[test]
fn no_two_lists_multiply() {
    let set: String = (0..MANY as u32).map(|at| format!("{},", Ipv4Addr::from_bits(at))).collect();
    let set = format!("version: 1\nsets: {{a: {{cidrs: [{set}]}}}}\n");
    let tenants = set.replace("sets:", "tenants:");
    let sets: String = (0..1 << 16).map(|at| format!("  s{at}: {{cidrs: []}}\n")).collect();
    let names: String = (0..1 << 16).map(|at| format!("i{at},")).collect();
    let ports: String = (0..1 << 15).map(|at| format!("{},", 2 * at)).collect();
    let keys: String = (0..1 << 16).map(|at| format!("k{at}: 1,")).collect();
    let [limit, many] = [
        "limits:\n  - name: a\n    key: source\n    rate: 1/s\n".to_owned(),
        (0..1 << 16).map(|at| format!("  - {{name: l{at}, key: source, rate: 1/s}}\n")).collect(),
    ];
    for text in [
        format!("{set}allow: [{}]\n", "a,".repeat(1 << 16)),
        format!("{set}deny: [{}]\n", "a,".repeat(1 << 16)),
        format!("{set}deny: [{}]\n", "b,".repeat(1 << 16)),
        format!("version: 1\nsets:\n{sets}deny: [{names}]\n"),
        format!("version: 1\n{limit}    match: {{interface: [{names}]}}\n"),
        format!("version: 1\n{limit}    match: {{source: [{names}]}}\n"),
        format!("version: 1\n{limit}    match: {{protocol: tcp, ports: [{ports}]}}\n"),
        format!("version: 1\n{limit}    match: {{{keys}}}\n"),
        format!("version: 1\n{limit}    layers: [{}]\n", "{rate: 1/s},".repeat(1 << 16)),
        format!("{tenants}{limit}    overrides: [{}]\n", "{tenant: a, rate: 1/s},".repeat(1 << 16)),
        format!("version: 1\nlimits:\n{many}"),
    ] {
        refused(text.as_bytes());
    }
}

/// Of a long list of overrides, each is about nobody.
#[test]
fn overrides_for_nobody_do_not_multiply() {
    // With a file, what is so by the document is kept apart from what is so for the file.
    for (sets, rest, told) in
        [("sets: {a: {file: a}}\n", "", true), ("", ", shadowed: true", false)]
    {
        let each = (0..MANY as u32).map(|at| Ipv4Addr::from_bits(0x0b00_0000 + at));
        let each = each.map(|src| format!("    - {{src: {src}, rate: 1/s{rest}}}\n"));
        let text = format!(
            "version: 1\n{sets}limits:\n  - name: a\n    key: source\n    rate: 1/s\n    match: \
             {{source: 10.0.0.0/8}}\n    overrides:\n{}",
            each.collect::<String>()
        );
        let before = worked();
        let parsed = parse("f", text.as_bytes(), &mut |_| Ok(b"10.0.0.0/8\n".to_vec()));
        let work = worked() - before;
        assert!(work < SOON, "{sets}: {work:?}");
        let said = parsed.err().map(|faults| faults.to_string()).unwrap_or_default();
        assert_eq!(said.contains("is never used"), told, "{sets}: {said}");
    }
}

/// Each of many limits names all sets on each side, in an order of its own.
#[test]
fn limits_that_name_the_same_sets_do_not_multiply() {
    const SETS: usize = 256;
    let names: Vec<String> = (0..SETS).map(|set| format!("s{set}")).collect();
    let sets: String = names.iter().map(|name| format!("  {name}: {{file: {name}}}\n")).collect();
    let each: String = (0..60_usize)
        .map(|limit| {
            let (after, first) = names.split_at(limit);
            let all = [first, after].concat().join(", ");
            format!(
                "  - {{name: l{limit}, key: source, rate: 1/s, shadowed: true, match: {{protocol: \
                 tcp, ports: {limit}1, source: [{all}], destination: [{all}], except: [{all}], \
                 except_destination: [{all}]}}}}\n"
            )
        })
        .collect();
    let all = names.join(", ");
    let text = format!("version: 1\nsets:\n{sets}allow: [{all}]\nlimits:\n{each}");
    // Prefixes of all sets in turn, none of which are neighbours.
    let file = |name: &str| -> String {
        let set: usize = name[1..].parse().unwrap();
        let at = (0..500).map(|at| 0x0a00_0000 + 2 * (at * SETS + set) as u32);
        at.map(|at| format!("{}\n", Ipv4Addr::from_bits(at))).collect()
    };
    let before = worked();
    let policy = parse("f", text.as_bytes(), &mut |name| Ok(file(name).into())).unwrap();
    check_length(&policy).unwrap();
    let (tables, _) = compile(&policy, &Assignment::default(), &Context::default()).unwrap();
    let work = worked() - before;
    assert!(work < SOON, "{work:?}");
    assert_eq!((tables.rows.len(), tables.prefixes.len()), (60, SETS * 500));
}

#[test]
fn files_of_100_mb_are_refused_unread() {
    let folder = Folder::new("large");
    let path = folder.file("large");
    File::create(&path).unwrap().set_len(100 << 20).unwrap();
    let begun = Instant::now();
    assert_eq!(read_file(&path, SET_BYTES), Err(FileError::TooLarge { most: SET_BYTES }));
    let message = read(&path).unwrap_err().to_string();
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert!(message.contains("it is larger than 64 MiB"), "{message}");
    fs::write(folder.file("p.yaml"), "version: 1\nsets: {a: {file: large}}\n").unwrap();
    let message = read(&folder.file("p.yaml")).unwrap_err().to_string();
    assert!(message.contains("file `large` is not used: it is larger than 64 MiB"), "{message}");
    // One that has no size is read up to the bound.
    let endless = read_file("/proc/self/status".as_ref(), 10);
    assert_eq!(endless, Err(FileError::TooLarge { most: 10 }));
}

#[test]
fn only_files_are_read() {
    let folder = Folder::new("kinds");
    let pipe = folder.file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let begun = Instant::now();
    for (path, what) in [
        (pipe, "a pipe"),
        (folder.0.clone(), "a directory"),
        ("/dev/zero".into(), "a device or a socket"),
        ("/dev/tty".into(), ""),
        (folder.file("missing"), "cannot be read"),
    ] {
        let message = read(&path).unwrap_err().to_string();
        assert!(message.contains(what), "{message}");
    }
    assert!(begun.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_link_that_is_swapped_gives_one_of_the_files() {
    let folder = Folder::new("swap");
    let [one, two] = ["192.0.2.", "198.51.100."]
        .map(|net| (0..=255).map(|last| format!("{net}{last}\n")).collect::<String>());
    fs::write(folder.file("one"), &one).unwrap();
    fs::write(folder.file("two"), &two).unwrap();
    let policy = folder.file("p.yaml");
    fs::write(&policy, "version: 1\nsets: {a: {file: link}}\n").unwrap();
    symlink("one", folder.file("link")).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                let target = ["one", "two", "/dev/zero"][turn % 3];
                symlink(target, folder.file("next")).unwrap();
                fs::rename(folder.file("next"), folder.file("link")).unwrap();
            }
        });
        for _ in 0..300 {
            match read(&policy) {
                Ok(policy) => {
                    let set = &policy.sets["a"];
                    let first = set[0].to_string();
                    assert_eq!(set.len(), 256);
                    assert!(set.iter().all(|prefix| {
                        prefix.to_string().split('.').next() == first.split('.').next()
                    }));
                }
                Err(faults) => {
                    let message = faults.to_string();
                    assert!(message.contains("it is a device or a socket"), "{message}");
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn what_is_no_text_is_told_where() {
    let message = refused(b"version: 1\nmode: \xc3\n").to_string();
    assert!(message.starts_with("f:2:7: error: byte 0xc3 is not UTF-8"), "{message}");
    refused(b"\xff\xfev\0e\0r\0s\0i\0o\0n\0");
    refused(&[0xff; 1 << 16]);
}

/// Cut off anywhere, a document is refused or is one that makes sense; it never panics.
#[test]
fn half_written_documents_do_not_panic() {
    for path in documents("valid").into_iter().chain(documents("invalid")) {
        let text = fs::read(&path).unwrap();
        for end in 0..text.len() {
            let _ = parse("f", &text[..end], &mut |_| Ok(Vec::new())).map_err(|f| f.to_string());
        }
    }
    let folder = Folder::new("half");
    let mut file = File::create(folder.file("p.yaml")).unwrap();
    file.write_all(b"version: 1\nlimits:\n  - name: web\n    key: [sour").unwrap();
    let message = read(&folder.file("p.yaml")).unwrap_err().to_string();
    assert!(message.contains("unclosed bracket"), "{message}");
}

fn fixture() -> impl Strategy<Value = Vec<u8>> {
    let mut all = documents("valid");
    all.extend(documents("invalid"));
    prop::sample::select(all).prop_map(|path| fs::read(path).unwrap())
}

proptest! {
    #![proptest_config(crate::sixteenths(64))]

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), text in "(?s).{0,200}") {
        let _ = parse("f", &bytes, &mut |_| Ok(bytes.clone())).map_err(|faults| faults.to_string());
        let _ = parse("f", text.as_bytes(), &mut |_| Ok(Vec::new())).map_err(|f| f.to_string());
        let set = b"version: 1\nsets: {a: {file: a}}\n";
        let _ = parse("f", set, &mut |_| Ok(bytes.clone())).map_err(|faults| faults.to_string());
    }

    #[test]
    fn no_words_panic(words in "((version: 1|limits:|  - |name: a|key: |source|\\[|\\]|\\{|\\}|,|: |\n|  |rate: |[0-9]{1,20}|\"|'|[&*!|>%@`#?-]|é|\u{85}|\u{2028}|\t)){0,60}") {
        let _ = parse("f", words.as_bytes(), &mut |_| Ok(Vec::new())).map_err(|f| f.to_string());
    }

    #[test]
    fn no_mutation_panics(
        text in fixture(),
        other in fixture(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..5_u8, any::<u8>()), 1..8),
    ) {
        let mut text = text;
        for (at, how, byte) in changes {
            if text.is_empty() {
                break;
            }
            let at = at.index(text.len());
            match how {
                0 => text[at] = byte,
                1 => text.insert(at, byte),
                2 => drop(text.remove(at)),
                3 => text.truncate(at),
                _ => drop(text.splice(at.., other.iter().skip(at).copied())),
            }
        }
        let begun = Instant::now();
        if let Err(faults) = parse("f", &text, &mut |_| Ok(other.clone())) {
            let message = faults.to_string();
            prop_assert!(!message.contains(|letter: char| letter.is_control() && letter != '\n'));
        }
        prop_assert!(begun.elapsed() < SOON);
    }
}
