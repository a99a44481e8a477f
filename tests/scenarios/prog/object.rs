//! Checks of the BPF object file.

mod stack;

use std::{fs, path::Path};

use aya_obj::Object;
use limiter_common::abi::layout::program;

use self::stack::Stack;

fn object_file(name: &str) -> Object {
    let path = Path::new(env!("LIMITER_BPF_OBJECTS")).join(name);
    Object::parse(&fs::read(path).unwrap()).unwrap()
}

/// The object files of this build.
fn objects() -> Vec<Object> {
    let names: &[&str] = if cfg!(feature = "datapath-log") {
        &["datapath", "datapath-messages"]
    } else {
        &["datapath"]
    };
    names.iter().map(|name| object_file(name)).collect()
}

#[test]
fn words_are_moved_by_compare_and_exchange() {
    const ATOMIC_64: u8 = 0xdb;
    const ATOMIC_32: u8 = 0xc3;
    const ADD: i32 = 0x00;
    const CMPXCHG: i32 = 0xf1;
    const WIDE_LOAD: u8 = 0x18;

    for object in objects() {
        assert_eq!(object.license.to_bytes(), b"Dual MIT/GPL");
        let [mut exchanges, mut additions] = [0; 2];
        for function in object.functions.values() {
            // Without the instruction, a compiler calls a function or uses a load and a store.
            let name = &function.name;
            assert!(!name.contains("__sync") && !name.contains("__atomic"), "{name}");
            let mut instructions = function.instructions.iter();
            while let Some(instruction) = instructions.next() {
                match (instruction.code, instruction.imm) {
                    (ATOMIC_64, CMPXCHG) => exchanges += 1,
                    (ATOMIC_64, ADD) => additions += 1,
                    (ATOMIC_64 | ATOMIC_32, other) => {
                        panic!("atomic operation {other:#x} in {name}")
                    }
                    // The second half of this instruction is data.
                    (WIDE_LOAD, _) => drop(instructions.next()),
                    _ => {}
                }
            }
        }
        println!("{exchanges} exchanges, {additions} additions");
        // Each program charges the eight inline buckets. The functions that are verified separately charge
        // these and others again, refund, bind, migrate, and record offences. Both programs count the packets
        // and bytes of sources.
        assert!(exchanges >= 40, "{exchanges} exchanges");
        assert!(additions >= 4, "{additions} additions");
    }
}

#[test]
fn what_ships_has_no_debug_messages() {
    let have_rings: Vec<_> =
        objects().iter().map(|object| object.maps.contains_key("AYA_LOGS")).collect();
    let expected: &[bool] = if cfg!(feature = "datapath-log") { &[false, true] } else { &[false] };
    assert_eq!(have_rings, expected);
}

#[test]
fn the_stack_is_deep_enough() {
    for mut object in objects() {
        let names = stack::link(&mut object);
        for name in [program::LINEAR, program::FRAGS] {
            let stack = Stack::of(&object, &names, name);
            println!("{name}: {stack}");
            assert!(stack.bytes() <= stack::MOST, "{name}: {stack}");
        }
    }
}
