//! What the functions of a program do, as the kernel runs it.

use std::{
    hash::{DefaultHasher, Hasher as _},
    mem::offset_of,
    os::fd::{AsFd as _, AsRawFd as _},
};

use anyhow::{Context as _, Result, ensure};
use aya::programs::ProgramInfo;

use super::memory::bpf;

/// The command of bpf(2) that describes an object.
const INFO: libc::c_int = 15;

/// The members of `union bpf_attr` for it.
#[repr(C)]
struct Query {
    descriptor: u32,
    size: u32,
    info: u64,
}

/// The first members of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct Info {
    kind_and_id: [u32; 2],
    tag: u64,
    machine_bytes: u32,
    /// Bytes of the instructions that are left after verification.
    bytes: u32,
    machine_code: u64,
    code: u64,
    load_time: u64,
    user_and_maps: [u32; 2],
    maps: u64,
    name: [u64; 2],
    interface_and_licence: [u32; 2],
    network: [u64; 2],
    symbols_and_lengths: [u32; 2],
    symbols: u64,
    lengths: u64,
    btf: u32,
    /// Bytes of each [`Function`].
    function_bytes: u32,
    functions: u64,
    function_count: u32,
    line_count: u32,
}

const _: () = assert!(offset_of!(Info, functions) == 136);

/// `struct bpf_func_info`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Function {
    /// The number of its first instruction.
    start: u32,
    kind: u32,
}

/// A number for each function of a program that writes to memory other than its stack, calls a function, or returns a constant
/// but 0. It is made of those instructions in their order, and so another one where the verifier has taken one of them for dead.
/// Calls of the kernel are left out, as kernels replace different ones by other instructions.
///
/// # Errors
/// Fails if the kernel does not show the instructions.
pub fn of(program: &ProgramInfo) -> Result<Vec<u32>> {
    let mut sizes = Info::default();
    query(program, &mut sizes)?;
    let mut code = vec![[0_u8; 8]; sizes.bytes as usize / 8];
    let mut functions = vec![Function::default(); sizes.function_count as usize];
    let mut info = Info {
        bytes: sizes.bytes,
        code: code.as_mut_ptr() as u64,
        function_bytes: size_of::<Function>() as u32,
        functions: functions.as_mut_ptr() as u64,
        function_count: sizes.function_count,
        ..Info::default()
    };
    query(program, &mut info)?;
    ensure!(info.code != 0 && !functions.is_empty(), "the kernel hides the code of programs");
    let ends = functions.iter().skip(1).map(|next| next.start as usize).chain([code.len()]);
    let mut found = Vec::new();
    for (function, end) in functions.iter().zip(ends) {
        let body = code.get(function.start as usize..end).context("functions are out of order")?;
        found.extend(effects(body));
    }
    Ok(found)
}

fn query(program: &ProgramInfo, info: &mut Info) -> Result<()> {
    let program = program.fd()?;
    let mut query = Query {
        descriptor: program.as_fd().as_raw_fd().cast_unsigned(),
        size: size_of::<Info>() as u32,
        info: (&raw mut *info) as u64,
    };
    // SAFETY: the size is that of the description, whose pointers are to as many elements as its counts say.
    unsafe { bpf(INFO, &mut query) }.context("no description of a program")
}

/// The number of one function; `None` if it has no such instruction.
fn effects(body: &[[u8; 8]]) -> Option<u32> {
    // Codes and registers: see the kernel's Documentation/bpf/standardization/instruction-set.rst.
    const STORE: u8 = 2;
    const STORE_REGISTER: u8 = 3;
    const STACK: u8 = 10;
    const CALL: u8 = 0x85;
    const OF_FUNCTION: u8 = 1;
    const CONSTANT: [u8; 2] = [0xb7, 0xb4];
    const RESULT: u8 = 0;
    let effect = |instruction: &[u8; 8]| {
        let [code, registers, ..] = *instruction;
        let (to, from) = (registers & 15, registers >> 4);
        match code {
            // Which one it is, is a number that depends on how many functions are left.
            CALL => (from == OF_FUNCTION).then_some([code, registers, 0, 0, 0, 0, 0, 0]),
            _ if CONSTANT.contains(&code) => {
                (to == RESULT && instruction[4..] != [0; 4]).then_some(*instruction)
            }
            _ if code & 7 == STORE || code & 7 == STORE_REGISTER => {
                (to != STACK).then_some(*instruction)
            }
            _ => None,
        }
    };
    let mut hasher = DefaultHasher::new();
    let effects = body.iter().filter_map(effect);
    let count = effects.inspect(|effect| hasher.write(effect)).count();
    (count != 0).then(|| hasher.finish() as u32)
}
