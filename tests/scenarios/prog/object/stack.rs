//! How deep the stack of a program gets, by its instructions.
//!
//! The kernel tells it only to who loads a program that it refuses, so it is found here as the
//! verifier finds it: the frames of all functions on the deepest way through the calls, each rounded
//! up.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt,
};

use aya_obj::{Function, Object, generated::bpf_insn};
use rustc_demangle::demangle;

/// Bytes that the kernel gives a program.
pub(super) const MOST: usize = 512;
/// What Linux 6.1 rounds a frame up to; newer ones round to half of that.
const ROUND: usize = 32;

const CLASS: u8 = 0x07;
const LOAD: u8 = 0x01;
const STORE: u8 = 0x02;
const STORE_REGISTER: u8 = 0x03;
const MOVE: u8 = 0xbf;
const ADD: u8 = 0x07;
const CALL: u8 = 0x85;
const PSEUDO_CALL: u8 = 1;
const FRAME: u8 = 10;

/// The deepest way through a program: functions and the bytes of their frames.
pub(super) struct Stack(Vec<(String, usize)>);

impl Stack {
    /// That of a program of an object whose calls are linked.
    pub(super) fn of(object: &Object, names: &BTreeMap<Vec<u8>, String>, program: &str) -> Self {
        let program = &object.programs[program];
        let function = &object.functions[&(program.section_index, program.address)];
        let instructions = &function.instructions;
        let callees: BTreeSet<usize> = calls(instructions, 0..instructions.len()).collect();
        let bounds: Vec<usize> =
            [0].into_iter().chain(callees).chain([instructions.len()]).collect();
        let functions = bounds.windows(2).map(|ends| (ends[0], ends[1])).collect();
        let mut deepest = deepest(instructions, &functions, names, 0);
        deepest.reverse();
        Self(deepest)
    }

    pub(super) fn bytes(&self) -> usize {
        bytes(&self.0)
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes of stack:", self.bytes())?;
        let mut between = " ";
        for (name, bytes) in &self.0 {
            write!(out, "{between}{:#} {bytes}", demangle(name))?;
            between = ", ";
        }
        Ok(())
    }
}

/// Links the calls of an object. The names of its functions are given by their code.
pub(super) fn link(object: &mut Object) -> BTreeMap<Vec<u8>, String> {
    let named = |function: &Function| (code(&function.instructions), function.name.clone());
    let names = object.functions.values().map(named).collect();
    let sections: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
    object.relocate_calls(&sections).unwrap();
    names
}

/// What linking leaves of instructions as it is.
fn code(instructions: &[bpf_insn]) -> Vec<u8> {
    instructions.iter().flat_map(|instruction| [instruction.code, instruction.dst_reg()]).collect()
}

fn bytes(frames: &[(String, usize)]) -> usize {
    frames.iter().map(|(_, bytes)| bytes).sum()
}

/// The frames on the deepest way from the function that begins at `start`, the deepest first.
fn deepest(
    instructions: &[bpf_insn],
    functions: &BTreeMap<usize, usize>,
    names: &BTreeMap<Vec<u8>, String>,
    start: usize,
) -> Vec<(String, usize)> {
    let end = functions[&start];
    let own = &instructions[start..end];
    let below = calls(instructions, start..end)
        .map(|callee| deepest(instructions, functions, names, callee))
        .max_by_key(|frames| bytes(frames));
    let mut frames = below.unwrap_or_default();
    let name = names.get(&code(own)).map_or("?", String::as_str);
    frames.push((name.to_owned(), frame(own).max(1).next_multiple_of(ROUND)));
    frames
}

/// Where the functions begin that are called in a range.
fn calls(
    instructions: &[bpf_insn],
    range: std::ops::Range<usize>,
) -> impl Iterator<Item = usize> + '_ {
    range.filter_map(|at| {
        let call = &instructions[at];
        let calls = call.code == CALL && call.src_reg() == PSEUDO_CALL;
        calls.then(|| (at as i64 + 1 + i64::from(call.imm)) as usize)
    })
}

/// Bytes below the frame pointer that a function uses.
fn frame(instructions: &[bpf_insn]) -> usize {
    let mut lowest = 0;
    // Registers that the frame pointer was copied to.
    let mut copies = [false; 16];
    for instruction in instructions {
        let to = usize::from(instruction.dst_reg());
        let offset = match (instruction.code & CLASS, instruction.code) {
            (LOAD, _) if instruction.src_reg() == FRAME => instruction.off.into(),
            (STORE | STORE_REGISTER, _) if instruction.dst_reg() == FRAME => instruction.off.into(),
            (_, ADD) if copies[to] => instruction.imm,
            _ => 0,
        };
        copies[to] = instruction.code == MOVE && instruction.src_reg() == FRAME;
        lowest = lowest.min(offset);
    }
    lowest.unsigned_abs() as usize
}
