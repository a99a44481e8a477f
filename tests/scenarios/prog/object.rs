//! The object file, and what the kernel makes of it.

mod stack;

use std::{fs, path::Path, time::Instant};

use aya_obj::Object;
use limiter_common::contract::program;
use limiter_tests::program::{Clock, SMALL, TestProgram};
use limiter_userspace::policy::Policy;

use self::stack::Stack;

/// Instructions that the kernel may look at to be sure of a program, of the million that it looks at
/// at most. Linux 6.1 looks at nearly twice as many as 6.12; debug messages take more.
const BUDGET: u32 = if cfg!(feature = "datapath-log") { 700_000 } else { 550_000 };

fn object() -> Object {
    let path = Path::new(env!("LIMITER_BPF_OBJECTS")).join("datapath");
    Object::parse(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn words_are_moved_by_compare_and_exchange() {
    const ATOMIC_64: u8 = 0xdb;
    const ATOMIC_32: u8 = 0xc3;
    const ADD: i32 = 0x00;
    const CMPXCHG: i32 = 0xf1;
    const WIDE_LOAD: u8 = 0x18;

    let object = object();
    assert_eq!(object.license.to_bytes(), b"Dual MIT/GPL");
    let [mut exchanges, mut additions] = [0; 2];
    for function in object.functions.values() {
        // A compiler without the instruction calls a function, or makes one of loads and stores.
        let name = &function.name;
        assert!(!name.contains("__sync") && !name.contains("__atomic"), "{name}");
        let mut instructions = function.instructions.iter();
        while let Some(instruction) = instructions.next() {
            match (instruction.code, instruction.imm) {
                (ATOMIC_64, CMPXCHG) => exchanges += 1,
                (ATOMIC_64, ADD) => additions += 1,
                (ATOMIC_64 | ATOMIC_32, other) => panic!("atomic operation {other:#x} in {name}"),
                // The second half of this one is a number.
                (WIDE_LOAD, _) => drop(instructions.next()),
                _ => {}
            }
        }
    }
    println!("{exchanges} exchanges, {additions} additions");
    // Each program charges the eight buckets that are at hand. The parts that are verified by themselves
    // charge those and others again, take back, bind and re-scale, and note offences; and both count
    // the packets and bytes of sources.
    assert!(exchanges >= 40, "{exchanges} exchanges");
    assert!(additions >= 4, "{additions} additions");
}

#[test]
fn what_ships_has_no_debug_messages() {
    let has_ring = object().maps.keys().any(|name| name == "AYA_LOGS");
    assert_eq!(has_ring, cfg!(feature = "datapath-log"));
}

#[test]
fn the_stack_is_deep_enough() {
    let mut object = object();
    let names = stack::link(&mut object);
    for name in [program::LINEAR, program::FRAGS] {
        let stack = Stack::of(&object, &names, name);
        println!("{name}: {stack}");
        assert!(stack.bytes() <= stack::MOST, "{name}: {stack}");
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
