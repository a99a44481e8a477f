//! Computes the stack depth of a program from its instructions.
//!
//! The kernel reports the depth only when it refuses a program. Here it is computed as the verifier does: the
//! sum of the frames on the deepest path through the calls, each rounded up.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt,
};

use aya_obj::{Function, Object, generated::bpf_insn};
use rustc_demangle::demangle;

/// Stack size of a program in the kernel, in bytes.
pub(super) const MOST: usize = 512;
/// Linux 6.1 rounds each frame up to a multiple of this; newer kernels to half of it.
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

/// The deepest path through a program: functions, and the bytes of their frames.
pub(super) struct Stack(Vec<(String, usize)>);

impl Stack {
    /// Computes the deepest path of a program in an object whose calls are linked.
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

/// Links the calls of an object, and returns the names of its functions by their code.
pub(super) fn link(object: &mut Object) -> BTreeMap<Vec<u8>, String> {
    let named = |function: &Function| (code(&function.instructions), function.name.clone());
    let names = object.functions.values().map(named).collect();
    let sections: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
    object.relocate_calls(&sections).unwrap();
    names
}

/// The parts of instructions that linking does not change.
fn code(instructions: &[bpf_insn]) -> Vec<u8> {
    instructions.iter().flat_map(|instruction| [instruction.code, instruction.dst_reg()]).collect()
}

fn bytes(frames: &[(String, usize)]) -> usize {
    frames.iter().map(|(_, bytes)| bytes).sum()
}

/// The frames on the deepest path from the function that begins at `start`, the deepest first.
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

/// The starts of the functions that are called in a range of instructions.
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

/// The bytes below the frame pointer that a function uses.
fn frame(instructions: &[bpf_insn]) -> usize {
    let mut lowest = 0;
    // Registers that hold a copy of the frame pointer.
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
