//! The object file, and what the kernel makes of it.

use std::{fs, path::Path, time::Instant};

use limiter_common::contract::program;
use limiter_tests::program::{Clock, SMALL, TestProgram};
use limiter_userspace::policy::Policy;

/// Instructions that the kernel may look at to be sure of a program, of the million that it looks at
/// at most: what other versions of the kernel may need more is left.
const BUDGET: u32 = 450_000;

/// A section of the object.
struct Section<'a> {
    name: &'a str,
    executable: bool,
    bytes: &'a [u8],
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(wide)
}

fn string(table: &[u8], at: usize) -> &str {
    let end = at + table[at..].iter().position(|byte| *byte == 0).unwrap();
    str::from_utf8(&table[at..end]).unwrap()
}

/// The sections of a little-endian ELF file of 64 bits.
fn sections(elf: &[u8]) -> Vec<Section<'_>> {
    assert_eq!(elf[..6], *b"\x7fELF\x02\x01");
    let [start, size, count, names] =
        [field::<8>(elf, 40), field::<2>(elf, 58), field::<2>(elf, 60), field::<2>(elf, 62)];
    let header = |number: u64| &elf[(start + number * size) as usize..][..size as usize];
    let contents = |header: &[u8]| {
        let without_bytes = field::<4>(header, 4) == 8;
        let (at, length) = (field::<8>(header, 24) as usize, field::<8>(header, 32) as usize);
        if without_bytes { &[][..] } else { &elf[at..at + length] }
    };
    let names = contents(header(names));
    (0..count)
        .map(header)
        .map(|header| Section {
            name: string(names, field::<4>(header, 0) as usize),
            executable: field::<8>(header, 8) & 4 != 0,
            bytes: contents(header),
        })
        .collect()
}

#[test]
fn words_are_moved_by_compare_and_exchange() {
    const ATOMIC_64: u8 = 0xdb;
    const ATOMIC_32: u8 = 0xc3;
    const ADD: u64 = 0x00;
    const CMPXCHG: u64 = 0xf1;
    const WIDE_LOAD: u8 = 0x18;

    let path = Path::new(env!("LIMITER_BPF_OBJECTS")).join("datapath");
    let elf = fs::read(path).unwrap();
    let sections = sections(&elf);
    let bytes = |name: &str| sections.iter().find(|section| section.name == name).unwrap().bytes;
    assert_eq!(bytes("license"), b"Dual MIT/GPL\0");

    let [mut exchanges, mut additions] = [0; 2];
    for section in sections.iter().filter(|section| section.executable) {
        let mut instructions = section.bytes.chunks_exact(8);
        while let Some(instruction) = instructions.next() {
            match (instruction[0], field::<4>(instruction, 4)) {
                (ATOMIC_64, CMPXCHG) => exchanges += 1,
                (ATOMIC_64, ADD) => additions += 1,
                (ATOMIC_64 | ATOMIC_32, other) => {
                    panic!("atomic operation {other:#x} in {}", section.name)
                }
                // The second half of this one is a number.
                (WIDE_LOAD, _) => drop(instructions.next()),
                _ => {}
            }
        }
    }
    println!("{exchanges} exchanges, {additions} additions");
    // Each program charges the four buckets that are at hand. The parts that are verified by themselves
    // charge those and others again, take back, bind and re-scale, and note offences; and both count
    // the packets and bytes of sources.
    assert!(exchanges >= 40, "{exchanges} exchanges");
    assert!(additions >= 4, "{additions} additions");
    // A compiler without the instruction calls a function, or makes one of loads and stores.
    for name in bytes(".strtab").split(|byte| *byte == 0) {
        let name = String::from_utf8_lossy(name);
        assert!(!name.contains("__sync") && !name.contains("__atomic"), "{name}");
    }
}

#[test]
fn both_programs_load_within_the_budget() {
    type Load =
        fn(limiter_tests::program::Sizes, &Policy, Clock) -> Result<TestProgram, anyhow::Error>;
    let programs: [(&str, Load); 2] =
        [(program::LINEAR, TestProgram::new), (program::FRAGS, TestProgram::with_frags)];
    for clock in [Clock::Monotonic, Clock::Test] {
        for (name, load) in programs {
            let start = Instant::now();
            let mut program = load(SMALL, &Policy::default(), clock).unwrap();
            let took = start.elapsed();
            let info = program.info().unwrap();
            let verified = info.verified_instruction_count().unwrap();
            println!(
                "{name}, {clock:?}: {verified} instructions verified, {} bytes of code, loaded in {} ms",
                info.size_jitted(),
                took.as_millis()
            );
            // The kernel keeps 15 letters of a name.
            assert!(name.starts_with(info.name_as_str().unwrap()), "{info:?}");
            assert_eq!(info.gpl_compatible(), Some(true));
            assert!(verified <= BUDGET, "{name} takes {verified} instructions of {BUDGET}");
        }
    }
}
